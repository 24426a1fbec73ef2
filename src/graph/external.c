/* SPDX-License-Identifier: MIT */
#include "graph/external.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

struct mapped {
    char *location;
    struct file_map map;
};

struct external {
    char *directory;    /* "" is the root */
    int n_files, first;         /* 'first': of those that are still looked at */
    struct mapped *files;
};

struct external *external_new(const char *path)
{
    struct external *external = mem_new(1, sizeof(*external));
    const char *slash = strrchr(path, '/');

    external->directory = slash ? mem_strdup(path) : mem_strdup(".");
    if (slash)
        external->directory[slash == path ? 1 : slash - path] = '\0';
    return external;
}

void external_free(struct external *external)
{
    int i;

    if (!external)
        return;
    for (i = 0; i < external->n_files; i++) {
        file_map_close(&external->files[i].map);
        free(external->files[i].location);
    }
    free(external->files);
    free(external->directory);
    free(external);
}

void external_drop(const struct external *external, const void *data, size_t bytes)
{
    for (int i = 0; i < external->n_files; i++)
        file_map_drop(&external->files[i].map, data, bytes);
}

static int check_location(const char *location, struct err *err)
{
    const char *at = location;

    if (!*location || *location == '/' || strlen(location) >= PATH_MAX)
        return err_set(err, "external data \"%.200s\" is no relative path", location);
    while (at) {
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return err_set(err, "external data \"%.200s\" leaves the model's directory",
                           location);
        at = strchr(at, '/');
        at = at ? at + 1 : NULL;
    }
    return 0;
}

/* The path with all links followed; it must lie in the directory. malloc'ed. */
static char *resolve(const struct external *external, const char *location, struct err *err)
{
    char *path = mem_printf("%s/%s", external->directory, location);
    char *directory = realpath(external->directory, NULL), *real = realpath(path, NULL);
    size_t n = directory ? strlen(directory) : 0;

    free(path);
    if (!directory || !real) {
        err_set(err, "external data \"%.200s\": %s", location, strerror(errno));
    } else if (strncmp(real, directory, n) != 0 || (n > 1 && real[n] != '/')) {
        err_set(err, "external data \"%.200s\" is a link out of the model's directory",
                location);
    } else {
        free(directory);
        return real;
    }
    free(directory);
    free(real);
    return NULL;
}

const struct file_map *external_file(const struct external *external, int index,
                                     const char **location)
{
    if (index >= external->n_files)
        return NULL;
    *location = external->files[index].location;
    return &external->files[index].map;
}

void external_add(struct external *external, const char *location, const struct file_map *map)
{
    *(struct mapped *)mem_push((void **)&external->files, &external->n_files,
                               sizeof(struct mapped)) =
        (struct mapped){ mem_strdup(location), *map };
}

void external_settle(struct external *external)
{
    external->first = external->n_files;
}

static const struct mapped *find_file(struct external *external, const char *location,
                                      struct err *err)
{
    struct file_map map;
    char *path;
    int i;

    for (i = external->first; i < external->n_files; i++)
        if (strcmp(external->files[i].location, location) == 0)
            return &external->files[i];
    if (check_location(location, err))
        return NULL;
    path = resolve(external, location, err);
    if (!path)
        return NULL;
    i = file_map_open(path, &map, err);
    free(path);
    if (i)
        return NULL;
    external_add(external, location, &map);
    return &external->files[external->n_files - 1];
}

int external_data(struct external *external, const char *location, uint64_t offset,
                  uint64_t size, const unsigned char **data, struct err *err)
{
    const struct mapped *file = find_file(external, location, err);

    if (!file)
        return -1;
    if (offset > file->map.size || size > file->map.size - offset)
        return err_set(err, "external data \"%.200s\" is too short: %zu bytes", location,
                       file->map.size);
    *data = file->map.data + offset;
    return 0;
}

int external_size(struct external *external, const char *location, uint64_t *size,
                  struct err *err)
{
    const struct mapped *file = find_file(external, location, err);

    if (!file)
        return -1;
    *size = file->map.size;
    return 0;
}
