/* SPDX-License-Identifier: MIT */
#include "train/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/owned.h"
#include "train/safetensors.h"

const char *const shard_kinds[CHECKPOINT_KINDS] = { "value", "m", "v", "ema", "previous" };

#define DESCRIBED 512       /* bytes at most, beside its names, of all that is said of a piece */

struct piece {
    const struct owned_tensor *tensor;
    int64_t start, count;
    char *key;
    void *data;
};

struct shard {
    const struct graph *graph;
    struct owned_tensor *list;
    int n;
    struct piece *pieces;
};

static struct shape piece_shape(const struct piece *p, const struct shape *whole)
{
    if (p->count == shape_elements(whole))
        return *whole;
    return (struct shape){ .rank = 1, .dim = { p->count } };
}

/* The part of the stage's elements, all tensors end to end, that this replica writes, and what
 * no other one has.
 */
static struct piece *cut(const struct store *store, const struct placement *placement,
                         const struct owned_tensor *list, int n, int *n_pieces)
{
    const struct graph *graph = store->compiled->graph;
    int count, index;
    int64_t total = 0, first, end, at = 0;
    struct piece *pieces = NULL;

    placement_stage(placement, store->compiled->stage, &count);
    index = placement->pipeline * (count / placement->pipelines) + placement->replica;
    for (int i = 0; i < n; i++)
        total += list[i].owner && !list[i].share ? list[i].count : 0;
    first = plan_share_start(total, count, index);
    end = plan_share_start(total, count, index + 1);
    *n_pieces = 0;
    for (int i = 0; i < n; i++) {
        int64_t size = shape_elements(&graph->values[list[i].value].shape);
        int64_t lo = first > at ? first : at, hi = end < at + size ? end : at + size;

        if (!list[i].owner)
            continue;
        if (list[i].share) {
            *(struct piece *)mem_push((void **)&pieces, n_pieces, sizeof(*pieces)) =
                (struct piece){ .tensor = &list[i], .start = list[i].start,
                                .count = list[i].count };
            continue;
        }
        if (lo < hi) {
            struct piece *p = mem_push((void **)&pieces, n_pieces, sizeof(*p));

            *p = (struct piece){ .tensor = &list[i], .start = lo - at, .count = hi - lo };
        }
        at += size;
    }
    return pieces;
}

static int fetch(const struct store *store, struct piece *p, struct err *err)
{
    const struct value *v = &store->compiled->graph->values[p->tensor->value];
    size_t element = dtype_size(v->dtype), bytes = (size_t)p->count * element;
    const char *from = p->tensor->memory + (size_t)(p->start - p->tensor->start) * element;

    if (p->count == shape_elements(&v->shape))
        p->key = mem_printf("%s%s%s", p->tensor->kind ? shard_kinds[p->tensor->kind] : "",
                            p->tensor->kind ? ":" : "", v->name);
    else
        p->key = mem_printf("%s:%s@%lld", shard_kinds[p->tensor->kind], v->name,
                            (long long)p->start);
    p->data = mem_try(bytes, 1, err);
    if (!p->data)
        return -1;
    return store->compiled->backend->copy(store->stream, p->data, bytes, from, bytes, bytes, 1,
                                          err);
}

static json_t *describe(const struct graph *graph, const struct piece *p)
{
    const struct value *v = &graph->values[p->tensor->value];
    json_t *shape = json_array();

    for (int d = 0; d < v->shape.rank; d++)
        json_array_append_new(shape, json_integer(v->shape.dim[d]));
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:s}", "name", v->name, "kind",
                     shard_kinds[p->tensor->kind], "dtype", dtype_name(v->dtype), "shape",
                     shape, "start", (json_int_t)p->start, "count", (json_int_t)p->count,
                     "key", p->key);
}

static json_t *describe_file(const char *path, const char *name, struct err *err)
{
    struct file_map map;
    char hex[17];
    json_t *json;

    if (file_map_open(path, &map, err) < 0)
        return NULL;
    file_hash(map.data, map.size, hex);
    json = json_pack("{s:s, s:s, s:I, s:[]}", "file", name, "xxh3", hex, "bytes",
                     (json_int_t)map.size, "pieces");
    file_map_close(&map);
    return json;
}

json_t *shard_write(const struct shard *shard, const char *directory, const char *name,
                    struct err *err)
{
    const struct graph *graph = shard->graph;
    const struct piece *pieces = shard->pieces;
    struct safetensors_tensor *tensors = mem_new((size_t)shard->n, sizeof(*tensors));
    char *path = mem_printf("%s/%s", directory, name);
    json_t *json = NULL;

    for (int i = 0; i < shard->n; i++) {
        const struct value *v = &graph->values[pieces[i].tensor->value];

        tensors[i] = (struct safetensors_tensor){
            .name = pieces[i].key, .dtype = v->dtype, .data = pieces[i].data,
            .shape = piece_shape(&pieces[i], &v->shape),
        };
    }
    if (safetensors_write(path, shard->n, tensors, err) == 0)
        json = describe_file(path, name, err);
    for (int i = 0; json && i < shard->n; i++)
        json_array_append_new(json_object_get(json, "pieces"), describe(graph, &pieces[i]));
    free(path);
    free(tensors);
    return json;
}

struct shard *shard_copy(const struct store *store, const struct placement *placement,
                         struct err *err)
{
    struct shard *shard = mem_new(1, sizeof(*shard));
    int n = owned_list(store, &shard->list), bad = 0;

    shard->graph = store->compiled->graph;
    shard->pieces = cut(store, placement, shard->list, n, &shard->n);
    for (int i = 0; i < shard->n && !bad; i++)
        bad = fetch(store, &shard->pieces[i], err);
    if (!bad)
        bad = store->compiled->backend->stream_sync(store->stream, err);
    if (!bad)
        return shard;
    shard_free(shard);
    return NULL;
}

void shard_free(struct shard *shard)
{
    if (!shard)
        return;
    for (int i = 0; i < shard->n; i++) {
        free(shard->pieces[i].key);
        free(shard->pieces[i].data);
    }
    free(shard->pieces);
    free(shard->list);
    free(shard);
}

size_t shard_bytes(const struct store *store, const struct placement *placement, size_t *files)
{
    const struct graph *graph = store->compiled->graph;
    struct owned_tensor *list;
    int n = owned_list(store, &list), n_pieces;
    struct piece *pieces = cut(store, placement, list, n, &n_pieces);
    size_t bytes = 0;

    *files = DESCRIBED;
    for (int i = 0; i < n_pieces; i++) {
        const struct value *v = &graph->values[pieces[i].tensor->value];

        bytes += (size_t)pieces[i].count * dtype_size(v->dtype);
        *files += DESCRIBED + 3 * strlen(v->name);
    }
    *files += bytes;
    free(pieces);
    free(list);
    return bytes;
}
