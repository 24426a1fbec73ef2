/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#define DIGITS 16               /* of a hash, at the start of a text that is kept; then a newline */

/* What is for another GPU, or another CUDA, is of no use, and for one that is absent nothing is made. */
char *cuda_kept_path(const struct device *device, const char *kind, const char *what,
                     const char *suffix)
{
    char *directory = device->cuda == &cuda_absent ? NULL : cache_of_run(), *subject, *path;
    char hex[DIGITS + 1];

    if (!directory)
        return NULL;
    subject = mem_printf("%s\n%s", device->cuda->name(device->gpu), what);
    cache_hash(subject, hex);
    path = cache_path(directory, kind, hex, suffix);
    free(subject);
    free(directory);
    return path;
}

static bool use_file(const char *path, kept_use *use, void *context)
{
    struct err ignored = { 0 };
    struct file_map map;
    bool used;

    if (!path || file_map_open(path, &map, &ignored) < 0)
        return false;
    used = map.size && use(context, map.data, map.size);
    file_map_close(&map);
    if (used)
        cache_touch(path);
    return used;
}

bool cuda_kept_find(const char *path, kept_use *use, void *context)
{
    char *site = path ? cache_site_path(path) : NULL;
    bool used = use_file(path, use, context) || use_file(site, use, context);

    free(site);
    return used;
}

void cuda_kept_put(const char *path, const void *data, size_t bytes)
{
    char *directory = mem_strdup(path);
    struct err ignored = { 0 };
    int turn;

    *strrchr(directory, '/') = '\0';
    turn = cache_enter(directory);
    if (turn >= 0) {
        (void)file_replace(path, data, bytes, &ignored);
        cache_leave(directory, turn);
    }
    free(directory);
}

/* The module's ------------------------------------------------------------------------------ */

static char *path_of(const struct device *device, const char *what)
{
    return cuda_kept_path(device, "cudnn", what, ".plan");
}

/* A text that is not the one that was kept is not used: a library reads it. */
static bool take_text(void *context, const void *data, size_t bytes)
{
    const char *file = data;
    char **text = context, hex[DIGITS + 1];

    if (bytes <= DIGITS + 1 || file[DIGITS] != '\n')
        return false;
    bytes -= DIGITS + 1;
    *text = mem_new(bytes + 1, 1);
    memcpy(*text, file + DIGITS + 1, bytes);
    cache_hash(*text, hex);
    if (strlen(*text) == bytes && memcmp(hex, file, DIGITS) == 0)
        return true;
    free(*text);
    *text = NULL;
    return false;
}

static char *get_text(void *context, const char *what)
{
    char *path = path_of(context, what), *text = NULL;

    (void)cuda_kept_find(path, take_text, &text);
    free(path);
    return text;
}

static void put_text(void *context, const char *what, const char *text)
{
    char *path = path_of(context, what), hex[DIGITS + 1], *file;

    if (!path)
        return;
    cache_hash(text, hex);
    file = mem_printf("%s\n%s", hex, text);
    cuda_kept_put(path, file, strlen(file));
    free(file);
    free(path);
}

struct cuda_store cuda_kept_store(struct device *device)
{
    return (struct cuda_store){ .get = get_text, .put = put_text, .context = device };
}
