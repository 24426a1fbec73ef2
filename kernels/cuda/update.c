/* SPDX-License-Identifier: MIT */
/* Flat ranges: sums, norms, the optimizer's step. */
#include <math.h>

#include "base/err.h"
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

/* Sums that the host waits for ------------------------------------------------------------ */

/* The parts of a sum, and where the host reads it: each stream has its own. */
static int make_room(struct stream *stream, struct err *err)
{
    const struct cuda_runtime *cuda = stream->device->cuda;

    if (!stream->parts)
        stream->parts = cuda->alloc(stream->device->gpu, CUDA_PARTS * sizeof(double), false,
                                    err);
    if (stream->parts && !stream->result)
        stream->result = cuda->alloc(stream->device->gpu, sizeof(double), true, err);
    return stream->result ? 0 : -1;
}

void cuda_free_room(struct stream *stream)
{
    stream->device->cuda->release(stream->device->gpu, stream->parts, false);
    stream->device->cuda->release(stream->device->gpu, stream->result, true);
}

static int take_result(struct stream *stream, double *result, struct err *err)
{
    if (stream->device->cuda->stream_sync(stream->cuda, err) < 0)
        return -1;
    stream->device->cuda->host_touches(stream->result, sizeof(double), false);
    *result = *stream->result;
    return 0;
}

int cuda_sum_squares(struct stream *stream, enum dtype dtype, size_t n, const void *x,
                     double *result, struct err *err)
{
    struct cuda_squares l = { .n = (int64_t)n, .x = x };

    if (check_dtype(stream, dtype, err) || make_room(stream, err))
        return -1;
    l.parts = stream->parts;
    l.result = stream->result;
    return stream->device->cuda->squares(stream->cuda, &l, err) < 0
               ? -1
               : take_result(stream, result, err);
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

static struct cuda_update update_of(const struct optimizer_args *args, size_t n, double g_scale)
{
    double c1 = 1 - pow(args->beta1, (double)args->step);
    double c2 = 1 - pow(args->beta2, (double)args->step);
    bool lamb = args->kind == OPTIMIZER_LAMB;

    return (struct cuda_update){
        .rule = rule_of(args->kind),
        .n = (int64_t)n,
        .g_scale = (float)g_scale,
        .rate = (float)(lamb ? args->lr * args->trust : args->lr),
        .decay = (float)args->weight_decay,
        .epsilon = (float)args->epsilon,
        .momentum = (float)(args->step == 1 ? 0 : args->momentum),
        .look_ahead = (float)args->momentum,
        .blend1 = (float)(1 - args->beta1),
        .blend2 = (float)(1 - args->beta2),
        .unbias1 = (float)(1 / c1),
        .unbias2 = (float)(1 / sqrt(c2)),
    };
}

int cuda_optimize(struct stream *stream, const struct optimizer_args *args, size_t n, void *p,
                  const void *g, double g_scale, void *m, void *v, struct err *err)
{
    struct cuda_update l = update_of(args, n, g_scale);

    l.p = p;
    l.g = g;
    l.m = m;
    l.v = v;
    if (check_dtype(stream, args->dtype, err))
        return -1;
    return n ? stream->device->cuda->update(stream->cuda, &l, err) : 0;
}

int cuda_moments(struct stream *stream, const struct optimizer_args *args, size_t n,
                 const void *p, const void *g, double g_scale, void *m, void *v,
                 double *squares, struct err *err)
{
    struct cuda_update l = update_of(args, n, g_scale);

    if (check_dtype(stream, args->dtype, err) || make_room(stream, err))
        return -1;
    l.rule = CUDA_RULE_MOMENTS;
    l.p = (float *)(uintptr_t)p;
    l.g = g;
    l.m = m;
    l.v = v;
    l.parts = stream->parts;
    l.result = stream->result;
    return stream->device->cuda->update(stream->cuda, &l, err) < 0
               ? -1
               : take_result(stream, squares, err);
}
