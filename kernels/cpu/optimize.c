/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "kernels/host.h"

struct flat {
    const struct simd *simd;
    struct simd_update update;
    enum optimizer_kind kind;
    float *p, *m, *v;
    const float *g;
    double *partial; /* of each thread */
};

static void optimize_range(void *context, int64_t begin, int64_t end, int thread)
{
    struct flat *f = context;
    size_t n = (size_t)(end - begin);
    float *p = f->p + begin;
    const float *g = f->g + begin;

    (void)thread;
    switch (f->kind) {
    case OPTIMIZER_SGD:
        f->simd->sgd(n, &f->update, p, g);
        break;
    case OPTIMIZER_MOMENTUM:
    case OPTIMIZER_LARS:
        f->simd->momentum(n, &f->update, p, g, f->m + begin);
        break;
    case OPTIMIZER_NESTEROV:
        f->simd->nesterov(n, &f->update, p, g, f->m + begin);
        break;
    case OPTIMIZER_ADAM:
        f->simd->adam(n, &f->update, p, g, f->m + begin, f->v + begin);
        break;
    case OPTIMIZER_ADAMW:
        f->simd->adamw(n, &f->update, p, g, f->m + begin, f->v + begin);
        break;
    case OPTIMIZER_LAMB:
        f->simd->lamb(n, &f->update, p, f->m + begin, f->v + begin);
        break;
    }
}

static struct simd_update constants(const struct optimizer_args *args, double g_scale)
{
    double step = (double)args->step;

    return (struct simd_update){
        .lr = (float)args->lr,
        .g_scale = (float)g_scale,
        .decay = (float)args->weight_decay,
        .keep = (float)(1 - args->lr * args->weight_decay),
        .momentum = (float)args->momentum,
        .rest1 = (float)(1 - args->beta1),
        .beta2 = (float)args->beta2,
        .rest2 = (float)(1 - args->beta2),
        .epsilon = (float)args->epsilon,
        .step_size = (float)(args->lr / (1 - pow(args->beta1, step))),
        .root_scale = (float)(1 / sqrt(1 - pow(args->beta2, step))),
        .m_scale = (float)(1 / (1 - pow(args->beta1, step))),
        .trusted = (float)(args->lr * args->trust),
    };
}

int cpu_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale,
                 const struct range_norms *norms, struct err *err)
{
    struct device *device = stream->device;

    if (args->dtype != DTYPE_F32)
        return device->reference->optimize(device->reference_stream, args, ranges, arrays, g_scale,
                                           norms, err);
    for (int i = 0; i < ranges->n; i++) {
        struct range_arrays a = host_range_arrays(arrays, &ranges->items[i], args->dtype);
        struct flat f = {.simd = device->simd, .kind = args->kind, .p = a.p, .g = a.g, .m = a.m,
                         .v = a.v};
        double scale = g_scale;
        struct optimizer_args own = host_range_args(args, ranges, i, norms, &scale);

        f.update = constants(&own, scale);
        cpu_parallel(device, (int64_t)ranges->items[i].n, CPU_GRAIN, optimize_range, &f);
    }
    return 0;
}

/* Sums are taken over fixed pieces, so that they do not depend on the threads. */
enum { SQUARES_PIECE = 1 << 16, SQUARES_BATCH = 256 };

static void squares_range(void *context, int64_t begin, int64_t end, int thread)
{
    struct flat *f = context;
    int64_t i;

    (void)thread;
    for (i = begin; i < end; i++)
        f->partial[i] = f->simd->sum_squares(SQUARES_PIECE, f->g + i * SQUARES_PIECE);
}

static void moments_range(void *context, int64_t begin, int64_t end, int thread)
{
    struct flat *f = context;
    int64_t i;

    (void)thread;
    for (i = begin; i < end; i++) {
        int64_t at = i * SQUARES_PIECE;

        f->partial[i] = f->simd->lamb_moments(SQUARES_PIECE, &f->update, f->p + at, f->g + at,
                                              f->m + at, f->v + at);
    }
}

/* Whole pieces at once; 'f' is then at the rest, of so many elements. */
static double sum_pieces(struct device *device, struct flat *f,
                         void (*piece)(void *, int64_t, int64_t, int), size_t *n)
{
    double partial[SQUARES_BATCH], total = 0;
    size_t pieces, done;

    f->partial = partial;
    for (; *n >= SQUARES_PIECE; *n -= done) {
        pieces = *n / SQUARES_PIECE < SQUARES_BATCH ? *n / SQUARES_PIECE : SQUARES_BATCH;
        cpu_parallel(device, (int64_t)pieces, 1, piece, f);
        for (size_t i = 0; i < pieces; i++)
            total += partial[i];
        done = pieces * SQUARES_PIECE;
        f->g += done;
        if (f->m)
            f->p += done, f->m += done, f->v += done;
    }
    f->partial = NULL;
    return total;
}

int cpu_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                const struct range_arrays *arrays, double g_scale, double *sums, struct err *err)
{
    struct device *device = stream->device;

    if (args->dtype != DTYPE_F32)
        return device->reference->moments(device->reference_stream, args, ranges, arrays, g_scale,
                                          sums, err);
    for (int i = 0; i < ranges->n; i++) {
        struct range_arrays a = host_range_arrays(arrays, &ranges->items[i], args->dtype);
        struct optimizer_args own = host_range_args(args, ranges, i, NULL, &g_scale);
        struct flat f = {.simd = device->simd, .p = a.p, .g = a.g, .m = a.m, .v = a.v};
        size_t n = ranges->items[i].n;

        f.update = constants(&own, g_scale);
        sums[i] = sum_pieces(device, &f, moments_range, &n);
        sums[i] += device->simd->lamb_moments(n, &f.update, f.p, f.g, f.m, f.v);
    }
    return 0;
}

int cpu_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                    double *sums, struct err *err)
{
    struct device *device = stream->device;

    if (dtype != DTYPE_F32)
        return device->reference->sum_squares(device->reference_stream, ranges, dtype, x, sums, err);
    for (int i = 0; i < ranges->n; i++) {
        struct flat f = {.simd = device->simd, .g = (const float *)x + ranges->items[i].g};
        size_t n = ranges->items[i].n;

        sums[i] = sum_pieces(device, &f, squares_range, &n);
        sums[i] += device->simd->sum_squares(n, f.g);
    }
    return 0;
}

static void add_range(void *context, int64_t begin, int64_t end, int thread)
{
    struct flat *f = context;

    (void)thread;
    f->simd->binary(SIMD_ADD, (size_t)(end - begin), f->p + begin, 1, f->g + begin, 1,
                    f->p + begin);
}

int cpu_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
            struct err *err)
{
    struct device *device = stream->device;
    struct flat f = {.simd = device->simd, .p = y, .g = x};

    if (dtype != DTYPE_F32)
        return device->reference->add(device->reference_stream, dtype, n, x, y, err);
    cpu_parallel(device, (int64_t)n, CPU_GRAIN, add_range, &f);
    return 0;
}
