/* SPDX-License-Identifier: MIT */
#include "train/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/owned.h"
#include "train/safetensors.h"

/* What stands before the name and the bytes of a gradient on its way to rank 0. */
struct piece_head {
    struct shape shape;
    enum dtype dtype;
    size_t name, bytes;     /* lengths; the name with its 0 */
};

static void append(char **block, size_t *size, const void *data, size_t bytes)
{
    *block = mem_resize(*block, *size + bytes, 1);
    memcpy(*block + *size, data, bytes);
    *size += bytes;
}

static bool speaks(const struct placement *placement)
{
    return placement->pipeline == 0 && placement->replica == 0;
}

static void multiply(enum dtype dtype, void *data, size_t bytes, double factor)
{
    int64_t n = factor == 1 ? 0 : (int64_t)(bytes / dtype_size(dtype));

    for (int64_t i = 0; i < n; i++)
        dtype_put_real(dtype, data, i, factor * dtype_real(dtype, data, i));
}

static int pack(const struct store *store, double factor, char **block, size_t *size,
                struct err *err)
{
    const struct compiled *c = store->compiled;
    struct owned_tensor *list;
    int n = owned_list(store, &list), bad = 0;

    for (int i = 0; i < n && !bad; i++) {
        const struct value *v = &c->graph->values[list[i].value];
        struct piece_head head = { v->shape, v->dtype, strlen(v->name) + 1, value_bytes(v) };
        char *data;

        if (!list[i].owner || list[i].kind != CHECKPOINT_VALUE || !list[i].gradient)
            continue;
        data = mem_new(head.bytes, 1);
        bad = c->backend->copy(store->stream, data, head.bytes, list[i].gradient, head.bytes,
                               head.bytes, 1, err);
        if (!bad)
            bad = c->backend->stream_sync(store->stream, err);
        multiply(v->dtype, data, head.bytes, factor);
        append(block, size, &head, sizeof(head));
        append(block, size, v->name, head.name);
        append(block, size, data, head.bytes);
        free(data);
    }
    free(list);
    return bad;
}

/* Names and data stay where they arrived. */
static void unpack(const char *part, size_t size, struct safetensors_tensor **list, int *n)
{
    for (const char *at = part; at < part + size;) {
        struct safetensors_tensor *t = mem_push((void **)list, n, sizeof(*t));
        struct piece_head head;

        memcpy(&head, at, sizeof(head));
        t->name = at + sizeof(head);
        t->dtype = head.dtype;
        t->shape = head.shape;
        t->data = at + sizeof(head) + head.name;
        at += sizeof(head) + head.name + head.bytes;
    }
}

static int write_all(const char *path, int n_parts, const void **parts, const size_t *sizes,
                     struct err *err)
{
    struct safetensors_tensor *list = NULL;
    int n = 0, bad;

    for (int r = 0; r < n_parts; r++)
        unpack(parts[r], sizes[r], &list, &n);
    bad = safetensors_replace(path, n, list, err);
    free(list);
    return bad;
}

int gradients_write(const char *path, int n_stores, struct store *const *stores,
                    const struct placement *placement, double factor, struct comm *comm,
                    struct err *err)
{
    int n = comm_size(comm);
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes)), size = 0;
    char *mine = mem_new(1, 1);
    void *block = NULL;
    int bad = 0;

    for (int c = 0; c < n_stores && speaks(placement) && !bad; c++)
        bad = pack(stores[c], factor, &mine, &size, err);
    bad = comm_agree(comm, err, bad < 0);
    if (!bad)
        bad = comm_exchange(comm, mine, size, &block, parts, sizes, err);
    if (!bad)
        bad = comm_agree(comm, err,
                         comm_rank(comm) == 0 && write_all(path, n, parts, sizes, err) < 0);
    free(mine);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}
