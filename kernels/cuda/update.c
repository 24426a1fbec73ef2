/* SPDX-License-Identifier: MIT */
/* Flat ranges: sums, norms, the optimizer's step. */
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
    return check_dtype(stream, dtype, err) ? -1
                                           : stream->device->cuda->pointwise(stream->cuda, &l, err);
}

/* On the host, for now: p, g, m and v there and back. */
struct mirror {
    void *device, *host;
};

static int bring(struct stream *stream, struct mirror *m, size_t n, struct err *err)
{
    size_t bytes = n * sizeof(float);

    if (!m->device)
        return 0;
    m->host = mem_new(n + 1, sizeof(float));
    return stream->device->cuda->copy(stream->cuda, m->host, bytes, m->device, bytes, bytes, 1,
                                      err) < 0
               ? -1
               : stream->device->cuda->stream_sync(stream->cuda, err);
}

static int take_back(struct stream *stream, const struct mirror *m, size_t n, struct err *err)
{
    size_t bytes = n * sizeof(float);

    if (!m->device)
        return 0;
    return stream->device->cuda->copy(stream->cuda, m->device, bytes, m->host, bytes, bytes, 1,
                                      err) < 0
               ? -1
               : stream->device->cuda->stream_sync(stream->cuda, err);
}

static int update(struct stream *stream, const struct optimizer_args *args, size_t n, void *p,
                  const void *g, double g_scale, void *m, void *v, double *squares,
                  struct err *err)
{
    struct device *d = stream->device;
    struct mirror mirrors[] = { { p, NULL }, { (void *)(size_t)g, NULL }, { m, NULL },
                                { v, NULL } };
    int bad = 0;

    for (int i = 0; i < 4 && !bad; i++)
        bad = bring(stream, &mirrors[i], n, err);
    if (!bad && squares)
        bad = d->reference->moments(d->reference_stream, args, n, mirrors[0].host,
                                    mirrors[1].host, g_scale, mirrors[2].host, mirrors[3].host,
                                    squares, err);
    else if (!bad)
        bad = d->reference->optimize(d->reference_stream, args, n, mirrors[0].host,
                                     mirrors[1].host, g_scale, mirrors[2].host, mirrors[3].host,
                                     err);
    for (int i = 0; i < 4; i++) {
        if (!bad && i != 1)
            bad = take_back(stream, &mirrors[i], n, err);
        free(mirrors[i].host);
    }
    return bad;
}

int cuda_optimize(struct stream *stream, const struct optimizer_args *args, size_t n, void *p,
                  const void *g, double g_scale, void *m, void *v, struct err *err)
{
    return update(stream, args, n, p, g, g_scale, m, v, NULL, err);
}

int cuda_moments(struct stream *stream, const struct optimizer_args *args, size_t n,
                 const void *p, const void *g, double g_scale, void *m, void *v,
                 double *squares, struct err *err)
{
    return update(stream, args, n, (void *)(size_t)p, g, g_scale, m, v, squares, err);
}

int cuda_sum_squares(struct stream *stream, enum dtype dtype, size_t n, const void *x,
                     double *result, struct err *err)
{
    struct mirror m = { (void *)(size_t)x, NULL };
    struct device *d = stream->device;
    int bad = bring(stream, &m, n, err);

    if (!bad)
        bad = d->reference->sum_squares(d->reference_stream, dtype, n, m.host, result, err);
    free(m.host);
    return bad;
}
