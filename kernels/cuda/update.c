/* SPDX-License-Identifier: MIT */
/* Flat ranges: sums, norms, the optimizer's step. Nothing waits. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "kernels/cuda/cuda.h"

static int check_dtype(const struct stream *stream, enum dtype dtype, struct err *err)
{
    return dtype == DTYPE_F32 ? 0
                              : err_set(err, "%s: float32 alone", stream->device->name);
}

/* Any number of elements, one after the other. */
static struct cuda_walk flat_walk(size_t n)
{
    return (struct cuda_walk){ .rank = 1, .n = 1, .elements = (int64_t)n, .dim = { (int64_t)n },
                               .flat = 1 };
}

int cuda_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
             struct err *err)
{
    struct cuda_pointwise l = { .function = CUDA_COPY, .walk = flat_walk(n), .in = { x },
                                .out = y, .add = 1 };

    if (n == 0)
        return 0;
    return check_dtype(stream, dtype, err)
               ? -1
               : stream->device->cuda->pointwise(stream->cuda, &l, err);
}

/* Ranges ---------------------------------------------------------------------------------- */

struct ranges {
    struct device *device;
    size_t table;               /* bytes of the items; the parts lie behind them */
    struct cuda_ranges cuda;
};

static int64_t pieces_of(size_t n)
{
    int64_t pieces = ((int64_t)n + CUDA_PIECE - 1) / CUDA_PIECE;

    return pieces < CUDA_PIECES ? pieces : CUDA_PIECES;
}

static struct cuda_range range_from(const struct range *range, int64_t first)
{
    int64_t n = (int64_t)range->n, pieces = pieces_of(range->n);

    return (struct cuda_range){
        .n = n, .p = (int64_t)range->p, .g = (int64_t)range->g, .state = (int64_t)range->state,
        .first = first, .piece = pieces ? (n + pieces - 1) / pieces : 0, .decay = range->decay,
    };
}

/* At the start of a run, which waits for it: the host's table goes. */
static int take_table(struct stream *stream, struct ranges *r, const struct cuda_range *table,
                      struct err *err)
{
    const struct cuda_runtime *cuda = stream->device->cuda;
    size_t bytes = r->table + (size_t)r->cuda.pieces * sizeof(double);
    char *memory = cuda->alloc(stream->device->gpu, bytes, false, err);

    if (!memory)
        return -1;
    r->cuda.items = (struct cuda_range *)(void *)memory;
    r->cuda.parts = (double *)(void *)(memory + r->table);
    return cuda->copy(stream->cuda, memory, r->table, table, r->table, r->table, 1, err) < 0
               ? -1 : cuda->stream_sync(stream->cuda, err);
}

struct ranges *cuda_ranges_new(struct stream *stream, const struct range *items, int n,
                               struct err *err)
{
    struct ranges *r = mem_new(1, sizeof(*r));
    struct cuda_range *table = mem_new((size_t)n, sizeof(*table));
    int bad;

    r->device = stream->device;
    r->cuda.n = n;
    r->table = (size_t)n * sizeof(*table);
    for (int i = 0; i < n; i++) {
        table[i] = range_from(&items[i], r->cuda.pieces);
        r->cuda.pieces += pieces_of(items[i].n);
    }
    bad = take_table(stream, r, table, err);
    free(table);
    if (!bad)
        return r;
    cuda_ranges_free(r);
    return NULL;
}

void cuda_ranges_free(struct ranges *ranges)
{
    if (!ranges)
        return;
    ranges->device->cuda->release(ranges->device->gpu, (void *)(uintptr_t)ranges->cuda.items, false);
    free(ranges);
}

int cuda_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                     double *sums, struct err *err)
{
    struct cuda_squares l = { .ranges = ranges->cuda, .x = x, .sums = sums };

    if (check_dtype(stream, dtype, err))
        return -1;
    return ranges->cuda.n ? stream->device->cuda->squares(stream->cuda, &l, err) : 0;
}

/* Optimizers ------------------------------------------------------------------------------ */

static enum cuda_rule rule_of(enum optimizer_kind kind)
{
    switch (kind) {
    case OPTIMIZER_SGD: return CUDA_RULE_SGD;
    case OPTIMIZER_NESTEROV: return CUDA_RULE_NESTEROV;
    case OPTIMIZER_ADAM: return CUDA_RULE_ADAM;
    case OPTIMIZER_ADAMW: return CUDA_RULE_ADAMW;
    case OPTIMIZER_LAMB: return CUDA_RULE_LAMB;
    case OPTIMIZER_MOMENTUM:
    case OPTIMIZER_LARS: break;
    }
    return CUDA_RULE_MOMENTUM;
}

static struct cuda_update update_of(const struct optimizer_args *args, const struct ranges *ranges,
                                    const struct range_arrays *arrays, double g_scale)
{
    double c1 = 1 - pow(args->beta1, (double)args->step);
    double c2 = 1 - pow(args->beta2, (double)args->step);

    return (struct cuda_update){
        .rule = rule_of(args->kind),
        .ranges = ranges->cuda,
        .p = arrays->p, .m = arrays->m, .v = arrays->v, .g = arrays->g,
        .g_scale = g_scale,
        .rate = args->lr,
        .decay = args->weight_decay,
        .trust = args->kind == OPTIMIZER_LARS ? args->trust : 0,
        .epsilon = (float)args->epsilon,
        .momentum = (float)(args->step == 1 ? 0 : args->momentum),
        .look_ahead = (float)args->momentum,
        .blend1 = (float)(1 - args->beta1),
        .blend2 = (float)(1 - args->beta2),
        .unbias1 = (float)(1 / c1),
        .unbias2 = (float)(1 / sqrt(c2)),
    };
}

int cuda_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                  const struct range_arrays *arrays, double g_scale,
                  const struct range_norms *norms, struct err *err)
{
    struct cuda_update l = update_of(args, ranges, arrays, g_scale);

    if (norms) {
        l.squares = norms->squares;
        l.weights = norms->weights;
    }
    return check_dtype(stream, args->dtype, err)
               ? -1
               : stream->device->cuda->update(stream->cuda, &l, err);
}

int cuda_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale, double *sums, struct err *err)
{
    struct cuda_update l = update_of(args, ranges, arrays, g_scale);

    l.rule = CUDA_RULE_MOMENTS;
    l.sums = sums;
    if (check_dtype(stream, args->dtype, err))
        return -1;
    return ranges->cuda.n ? stream->device->cuda->update(stream->cuda, &l, err) : 0;
}
