/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#define DIGITS 16               /* of a hash of all that follows, at the start of a file; then a newline */
#define START (DIGITS + 1)

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

/* A library, or the GPU, takes it as it is: what is not as it was kept is not used. */
static bool use_file(const char *path, kept_use *use, void *context)
{
    struct err ignored = { 0 };
    struct file_map map;
    char hex[DIGITS + 1];
    bool used = false;

    if (!path || file_map_open(path, &map, &ignored) < 0)
        return false;
    if (map.size > START) {
        const char *data = (const char *)map.data + START;

        cache_hash_bytes(data, map.size - START, hex);
        used = memcmp(map.data, hex, DIGITS) == 0 && data[-1] == '\n' &&
               use(context, data, map.size - START);
    }
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
    char *directory = mem_strdup(path), *file = mem_new(START + bytes, 1);
    struct err ignored = { 0 };
    int turn;

    cache_hash_bytes(data, bytes, file);
    file[DIGITS] = '\n';
    memcpy(file + START, data, bytes);
    *strrchr(directory, '/') = '\0';
    turn = cache_enter(directory);
    if (turn >= 0) {
        (void)file_replace(path, file, START + bytes, &ignored);
        cache_leave(directory, turn);
    }
    free(directory);
    free(file);
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

/* A text, of this and of nothing else. */
static bool take_text(void *context, const void *data, size_t bytes)
{
    struct wanted *w = context;
    size_t head = strlen(w->head);

    if (bytes < head || memcmp(data, w->head, head) != 0 || memchr(data, 0, bytes))
        return false;
    w->text = mem_printf("%.*s", (int)(bytes - head), (const char *)data + head);
    return true;
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
    char *path = path_of(context, what), *there = path ? get_text(context, what) : NULL;

    if (path && !there) {
        char *head = head_of(context, what), *all = mem_printf("%s%s", head, text);

        cuda_kept_put(path, all, strlen(all));
        free(all);
        free(head);
    }
    free(there);
    free(path);
}

struct cuda_store cuda_kept_store(struct device *device)
{
    return (struct cuda_store){ .get = get_text, .put = put_text, .context = device };
}
