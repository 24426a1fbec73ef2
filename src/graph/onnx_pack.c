/* SPDX-License-Identifier: MIT */
/* A model that is read, as bytes for processes that do not read its files: of each file the
 * ranges that opening and building look at. They see the files as they are, but for the large
 * weights.
 */
#include "graph/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/external.h"
#include "graph/names.h"

enum { LEAST_LARGE = 4096 };    /* bytes */

/* Large weights -------------------------------------------------------------------------- */

/* What reads these for its numbers, a mask or a table of angles, say, is another operator. */
static bool only_computes(const struct onnx_node *node)
{
    static const char *const known[] = { "Add", "Cast", "Concat", "Conv", "ConvTranspose", "Einsum",
                                         "GRU", "Gather", "Gemm", "Identity", "LSTM", "MatMul",
                                         "Mul", "RNN", "Reshape", "Slice", "Split", "Squeeze",
                                         "Transpose", "Unsqueeze" };
    size_t i;

    if (*onnx_domain(node->proto->domain))
        return false;
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (names_same(onnx_text(node->proto->op_type), known[i]))
            return true;
    return false;
}

static void leave_out_read(struct onnx *onnx, const struct onnx_body *body)
{
    int n, b;
    size_t i;

    for (n = 0; n < body->n_nodes; n++) {
        const struct onnx_node *node = &body->nodes[n];

        for (i = 0; i < node->proto->n_input && !only_computes(node); i++) {
            int v = node->inputs[i];

            if (v >= 0 && onnx->values[v].kind == ONNX_INITIALIZER)
                onnx->large[onnx->values[v].index] = false;
        }
        for (b = 0; b < 2; b++)
            if (node->bodies[b])
                leave_out_read(onnx, node->bodies[b]);
    }
}

static void leave_out_masks(struct onnx *onnx)
{
    int i;

    for (i = 0; i < onnx->n_initializers; i++) {
        const struct onnx_tensor *t = &onnx->initializers[i];

        if (!onnx->large[i])
            continue;
        /* Kernels of float16 are chosen by these numbers, on all ranks alike. */
        onnx->large[i] = !onnx_exceeds_half(t);
        /* With what was looked at came whole large pages of the file. */
        onnx_drop(onnx, t->data, t->size);
    }
}

/* The file that has the bytes; NULL: they were decoded. */
static const struct file_map *map_of(const struct onnx *onnx, const struct onnx_tensor *t)
{
    const struct file_map *map = &onnx->map;
    const char *location;
    int i;

    for (i = 0; map && !file_map_has(map, t->data, t->size); i++)
        map = external_file(onnx->external, i, &location);
    return map;
}

void onnx_find_large(struct onnx *onnx)
{
    int i;

    onnx->large = mem_new((size_t)onnx->n_initializers, sizeof(*onnx->large));
    for (i = 0; i < onnx->n_initializers; i++) {
        const struct onnx_tensor *t = &onnx->initializers[i];

        onnx->large[i] = t->data && dtype_is_float(t->dtype) && t->shape.rank > 1 &&
                         t->size >= LEAST_LARGE && map_of(onnx, t);
    }
    leave_out_read(onnx, &onnx->main);
    leave_out_masks(onnx);
}

/* Packing -------------------------------------------------------------------------------- */

struct range {
    uint64_t start, bytes;
};

struct ranges {
    int n;
    struct range *list;
};

struct packed {
    unsigned char *bytes;
    size_t size, room;
};

static void put(struct packed *p, const void *data, size_t bytes)
{
    if (bytes > p->room - p->size) {
        p->room = 2 * p->room + bytes;
        p->bytes = mem_resize(p->bytes, p->room, 1);
    }
    if (bytes)
        memcpy(p->bytes + p->size, data, bytes);
    p->size += bytes;
}

static void put_number(struct packed *p, uint64_t number)
{
    put(p, &number, sizeof(number));
}

static void add_range(struct ranges *ranges, size_t start, size_t end)
{
    if (end > start)
        *(struct range *)mem_push((void **)&ranges->list, &ranges->n, sizeof(struct range)) =
            (struct range){ start, end - start };
}

/* Of a file its initializers, either the large or the others. */
static struct ranges initializers_in(const struct onnx *onnx, const struct file_map *map,
                                     bool large)
{
    struct ranges ranges = { 0 };
    int i;

    for (i = 0; i < onnx->n_initializers; i++) {
        const struct onnx_tensor *t = &onnx->initializers[i];
        size_t start;

        if (onnx->large[i] != large || !t->data || !file_map_has(map, t->data, t->size))
            continue;
        start = (size_t)(t->data - map->data);
        add_range(&ranges, start, start + t->size);
    }
    return ranges;
}

static int by_start(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

/* All of the model's own file, but the large weights. */
static struct ranges ranges_between(const struct onnx *onnx)
{
    struct ranges large = initializers_in(onnx, &onnx->map, true), ranges = { 0 };
    uint64_t at = 0;
    int i;

    if (large.n)
        qsort(large.list, (size_t)large.n, sizeof(*large.list), by_start);
    for (i = 0; i < large.n; i++) {
        uint64_t end = large.list[i].start + large.list[i].bytes;

        add_range(&ranges, at, large.list[i].start);
        at = end > at ? end : at;
    }
    add_range(&ranges, at, onnx->map.size);
    free(large.list);
    return ranges;
}

/* Takes the ranges. */
static void put_file(struct packed *p, const char *location, const struct file_map *map,
                     struct ranges ranges)
{
    int i;

    put_number(p, strlen(location));
    put(p, location, strlen(location));
    put_number(p, map->size);
    put_number(p, (uint64_t)ranges.n);
    for (i = 0; i < ranges.n; i++) {
        put(p, &ranges.list[i], sizeof(ranges.list[i]));
        put(p, map->data + ranges.list[i].start, ranges.list[i].bytes);
    }
    free(ranges.list);
}

void *onnx_pack(const struct onnx *onnx, size_t *size)
{
    struct packed p = { 0 };
    const struct file_map *map;
    const char *location;
    uint64_t n = 0;

    while (external_file(onnx->external, (int)n, &location))
        n++;
    put_number(&p, n);
    put_file(&p, "", &onnx->map, ranges_between(onnx));
    for (int i = 0; (map = external_file(onnx->external, i, &location)); i++)
        put_file(&p, location, map, initializers_in(onnx, map, false));
    put_number(&p, (uint64_t)onnx->n_initializers);
    put(&p, onnx->copy_of, (size_t)onnx->n_initializers * sizeof(*onnx->copy_of));
    *size = p.size;
    return p.bytes;
}

/* Unpacking ------------------------------------------------------------------------------ */

struct rest {
    const unsigned char *at;
    size_t size;
};

static int take(struct rest *rest, void *to, uint64_t bytes, struct err *err)
{
    if (bytes > rest->size)
        return err_set(err, "what was sent of the model is cut off");
    if (bytes)
        memcpy(to, rest->at, (size_t)bytes);
    rest->at += bytes;
    rest->size -= (size_t)bytes;
    return 0;
}

static int fill(struct rest *rest, const struct file_map *map, struct err *err)
{
    uint64_t n = 0;

    if (take(rest, &n, sizeof(n), err))
        return -1;
    for (; n > 0; n--) {
        struct range r;

        if (take(rest, &r, sizeof(r), err))
            return -1;
        if (r.start > map->size || r.bytes > map->size - r.start)
            return err_set(err, "what was sent of the model does not fit in its file");
        if (take(rest, (unsigned char *)(uintptr_t)map->data + r.start, r.bytes, err))
            return -1;
    }
    return 0;
}

/* '*location' is malloc'ed. The mapping is the caller's to close, even after an error. */
static int take_file(struct rest *rest, char **location, struct file_map *map, struct err *err)
{
    uint64_t length = 0, size = 0;

    if (take(rest, &length, sizeof(length), err) || !(*location = mem_try(length + 1, 1, err)) ||
        take(rest, *location, length, err) || take(rest, &size, sizeof(size), err) ||
        file_map_blank(size, map, err))
        return -1;
    return fill(rest, map, err);
}

static int take_external(struct onnx *onnx, struct rest *rest, struct err *err)
{
    struct file_map map = { 0 };
    char *location = NULL;
    int bad = take_file(rest, &location, &map, err);

    if (location)
        external_add(onnx->external, location, &map);
    free(location);
    return bad;
}

static int take_files(struct onnx *onnx, struct rest *rest, struct err *err)
{
    char *location = NULL;
    uint64_t n = 0;
    int bad = take(rest, &n, sizeof(n), err) || take_file(rest, &location, &onnx->map, err);

    free(location);
    for (; n > 0 && !bad; n--)
        bad = take_external(onnx, rest, err);
    return bad ? -1 : 0;
}

static int take_copies(struct onnx *onnx, struct rest *rest, struct err *err)
{
    size_t all = (size_t)onnx->n_initializers;
    uint64_t n = 0;

    onnx->copy_of = mem_new(all, sizeof(*onnx->copy_of));
    if (take(rest, &n, sizeof(n), err))
        return -1;
    if (n != all)
        return err_set(err, "%zu initializers, where the rank that has the file found %zu", all,
                       (size_t)n);
    return take(rest, onnx->copy_of, n * sizeof(*onnx->copy_of), err);
}

struct onnx *onnx_unpack(const char *path, const void *packed, size_t size, struct err *err)
{
    struct rest rest = { packed, size };
    struct onnx *onnx = onnx_new(path);
    int bad = take_files(onnx, &rest, err) ? err_prefix(err, "%s", path) : onnx_read(onnx, err);

    if (!bad && take_copies(onnx, &rest, err))
        bad = err_prefix(err, "%s", path);
    if (bad) {
        onnx_close(onnx);
        return NULL;
    }
    external_settle(onnx->external);
    return onnx;
}
