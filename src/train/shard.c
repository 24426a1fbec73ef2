/* SPDX-License-Identifier: MIT */
#include "train/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/owned.h"
#include "train/safetensors.h"
#include "train/shard_private.h"

const char *const shard_kinds[CHECKPOINT_KINDS] = { "value", "m", "v", "ema", "previous" };

static struct shape piece_shape(const struct piece *p)
{
    if (p->count == shape_elements(&p->shape))
        return p->shape;
    return (struct shape){ .rank = 1, .dim = { p->count } };
}

static char *piece_key(const struct piece *p)
{
    const char *kind = shard_kinds[p->kind];

    if (p->count < shape_elements(&p->shape))
        return mem_printf("%s:%s@%lld", kind, p->name, (long long)p->start);
    return p->kind ? mem_printf("%s:%s", kind, p->name) : mem_strdup(p->name);
}

static void add_piece(struct piece **pieces, int *n, const struct graph *graph,
                      const struct owned_tensor *t, int64_t start, int64_t count)
{
    const struct value *v = &graph->values[t->value];

    *(struct piece *)mem_push((void **)pieces, n, sizeof(**pieces)) = (struct piece){
        .name = v->name, .kind = t->kind, .dtype = v->dtype, .shape = v->shape, .start = start,
        .count = count, .from = t->memory + (size_t)(start - t->start) * dtype_size(v->dtype),
    };
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
            add_piece(&pieces, n_pieces, graph, &list[i], list[i].start, list[i].count);
            continue;
        }
        if (lo < hi)
            add_piece(&pieces, n_pieces, graph, &list[i], lo - at, hi - lo);
        at += size;
    }
    return pieces;
}

static int fetch(const struct store *store, struct piece *p, struct err *err)
{
    size_t bytes = piece_bytes(p);

    p->data = p->memory = mem_try(bytes, 1, err);
    if (!p->data)
        return -1;
    return store->compiled->backend->copy(store->stream, p->data, bytes, p->from, bytes, bytes, 1,
                                          err);
}

static json_t *describe(const struct piece *p, const char *key)
{
    json_t *shape = json_array();

    for (int d = 0; d < p->shape.rank; d++)
        json_array_append_new(shape, json_integer(p->shape.dim[d]));
    return json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:s}", "name", p->name, "kind",
                     shard_kinds[p->kind], "dtype", dtype_name(p->dtype), "shape", shape, "start",
                     (json_int_t)p->start, "count", (json_int_t)p->count, "key", key);
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
    const struct piece *pieces = shard->pieces;
    struct safetensors_tensor *tensors = mem_new((size_t)shard->n, sizeof(*tensors));
    char **keys = mem_new((size_t)shard->n, sizeof(*keys));
    char *path = mem_printf("%s/%s", directory, name);
    json_t *json = NULL;

    for (int i = 0; i < shard->n; i++) {
        keys[i] = piece_key(&pieces[i]);
        tensors[i] = (struct safetensors_tensor){
            .name = keys[i], .dtype = pieces[i].dtype, .data = pieces[i].data,
            .shape = piece_shape(&pieces[i]),
        };
    }
    if (safetensors_write(path, shard->n, tensors, err) == 0)
        json = describe_file(path, name, err);
    for (int i = 0; i < shard->n; i++) {
        if (json)
            json_array_append_new(json_object_get(json, "pieces"), describe(&pieces[i], keys[i]));
        free(keys[i]);
    }
    free(path);
    free(keys);
    free(tensors);
    return json;
}

struct shard *shard_copy(const struct store *store, const struct placement *placement,
                         struct err *err)
{
    struct shard *shard = mem_new(1, sizeof(*shard));
    struct owned_tensor *list;
    int n = owned_list(store, &list), bad = 0;

    shard->pieces = cut(store, placement, list, n, &shard->n);
    free(list);
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
    for (int i = 0; i < shard->n; i++)
        free(shard->pieces[i].memory);
    free(shard->pieces);
    free(shard->block);
    free(shard->told);
    free(shard);
}

size_t shard_size(const struct shard *shard)
{
    size_t bytes = 0;

    for (int i = 0; i < shard->n; i++)
        bytes += piece_bytes(&shard->pieces[i]);
    return bytes;
}

size_t shard_bytes(const struct store *store, const struct placement *placement, size_t *files)
{
    struct owned_tensor *list;
    int n = owned_list(store, &list), n_pieces;
    struct piece *pieces = cut(store, placement, list, n, &n_pieces);
    size_t bytes = 0;

    *files = SHARD_DESCRIBED;
    for (int i = 0; i < n_pieces; i++) {
        bytes += piece_bytes(&pieces[i]);
        *files += SHARD_DESCRIBED + 3 * strlen(pieces[i].name);
    }
    *files += bytes;
    free(pieces);
    free(list);
    return bytes;
}
