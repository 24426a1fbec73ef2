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

struct wanted {
    char *head;                 /* of what it has to be: GPU, CUDA, and what follows from it */
    char *text;
};

static char *path_of(const struct device *device, const char *what)
{
    return cuda_kept_path(device, "cudnn", what, ".plan");
}

static char *head_of(const struct device *device, const char *what)
{
    return mem_printf("%s, %s\n", device->cuda->name(device->gpu), what);
}

/* A library reads it: what is not as it was kept, or of something else, is not used. */
static bool take_text(void *context, const void *data, size_t bytes)
{
    struct wanted *w = context;
    const char *file = data;
    size_t head = strlen(w->head);
    char hex[DIGITS + 1], *all;
    bool good;

    if (bytes <= DIGITS + 1 || file[DIGITS] != '\n')
        return false;
    bytes -= DIGITS + 1;
    all = mem_new(bytes + 1, 1);
    memcpy(all, file + DIGITS + 1, bytes);
    cache_hash(all, hex);
    good = strlen(all) == bytes && memcmp(hex, file, DIGITS) == 0 && strncmp(all, w->head, head) == 0;
    if (good)
        w->text = mem_strdup(all + head);
    free(all);
    return good;
}

static char *get_text(void *context, const char *what)
{
    char *path = path_of(context, what);
    struct wanted w = { head_of(context, what), NULL };

    (void)cuda_kept_find(path, take_text, &w);
    free(w.head);
    free(path);
    return w.text;
}

/* Another rank may have been faster. */
static void put_text(void *context, const char *what, const char *text)
{
    char *path = path_of(context, what), *there = path ? get_text(context, what) : NULL, *head, *file;
    char hex[DIGITS + 1];

    if (path && !there) {
        head = head_of(context, what);
        file = mem_printf("%0*d\n%s%s", DIGITS, 0, head, text);
        cache_hash(file + DIGITS + 1, hex);
        memcpy(file, hex, DIGITS);
        cuda_kept_put(path, file, strlen(file));
        free(file);
        free(head);
    }
    free(there);
    free(path);
}

struct cuda_store cuda_kept_store(struct device *device)
{
    return (struct cuda_store){ .get = get_text, .put = put_text, .context = device };
}
