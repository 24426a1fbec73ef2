/* SPDX-License-Identifier: MIT */
/* Arrays in .npy files: NAME=FILE,NAME=FILE, a directory of NAME.npy, or one such file. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/data_format.h"
#include "train/npy.h"
#include "train/shards.h"

struct arrays {
    int n;
    struct file_map *maps;
};

static bool is_array(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, ".npy") == 0;
}

static bool takes(const char *spec, const unsigned char *head)
{
    struct stat st;
    char **paths = NULL;
    int n;

    if (head)
        return is_array(spec) || memcmp(head, NPY_MAGIC, sizeof(NPY_MAGIC) - 1) == 0;
    if (stat(spec, &st) == 0) {
        n = shards_in(spec, ".npy", &paths);
        shards_free(paths, n);
        return n > 0;
    }
    return strchr(spec, '=') != NULL;
}

static int add(struct data *data, const char *name, const char *path, struct err *err)
{
    struct arrays *arrays = data->state;
    struct file_map *map = mem_push((void **)&arrays->maps, &arrays->n, sizeof(*map));
    struct npy npy;

    if (file_map_open(path, map, err) < 0 ||
        npy_parse(path, map->data, map->size, &npy, err) < 0)
        return -1;
    for (int i = 0; i < data->n; i++)
        if (strcmp(data->tensors[i].name, name) == 0)
            return err_set(err, "%s: \"%s\" is there twice", data->path, name);
    data_add_file(data, path, map);
    return data_add_array(data, path, name, npy.dtype, &npy.shape, npy.data, err);
}

/* "dir/x.npy" is x. */
static int add_by_name(struct data *data, const char *path, struct err *err)
{
    const char *base = strrchr(path, '/');
    char *name = mem_strdup(base ? base + 1 : path), *dot = strrchr(name, '.');
    int bad;

    if (dot && dot > name)
        *dot = '\0';
    bad = add(data, name, path, err);
    free(name);
    return bad;
}

static int add_directory(struct data *data, struct err *err)
{
    char **paths = NULL;
    int n = shards_in(data->path, ".npy", &paths), bad = 0;

    for (int i = 0; i < n && !bad; i++)
        bad = add_by_name(data, paths[i], err);
    shards_free(paths, n);
    return bad;
}

static int add_list(struct data *data, struct err *err)
{
    char *text = mem_strdup(data->path), *rest = text, *part;
    int bad = 0;

    while (!bad && (part = strsep(&rest, ","))) {
        char *path = strchr(part, '=');

        if (!path || path == part || !path[1]) {
            bad = err_set(err, "%s: expected NAME=FILE,NAME=FILE, got \"%s\"", data->path,
                          part);
            break;
        }
        *path++ = '\0';
        bad = add(data, part, path, err);
    }
    free(text);
    return bad;
}

static int open_files(struct data *data, struct err *err)
{
    struct stat st;

    data->state = mem_new(1, sizeof(struct arrays));
    if (stat(data->path, &st) < 0)
        return add_list(data, err);
    return S_ISDIR(st.st_mode) ? add_directory(data, err) : add_by_name(data, data->path, err);
}

static void close_files(void *state)
{
    struct arrays *arrays = state;

    if (!arrays)
        return;
    for (int i = 0; i < arrays->n; i++)
        file_map_close(&arrays->maps[i]);
    free(arrays->maps);
    free(arrays);
}

const struct data_format data_npy = {
    .name = "npy", .takes = takes, .open = open_files, .close = close_files,
};
