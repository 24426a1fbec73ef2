// SPDX-License-Identifier: MIT
// Pools: a thread for each output, or, for gradients, for each input.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Where the window of an output starts; positions [from, to) of it lie inside the input.
struct pool_box {
    int start[3], from[3], to[3];
};

CUDA_DEVICE int pool_volume(const int *dim)
{
    return dim[0] * dim[1] * dim[2];
}

CUDA_DEVICE struct pool_box pool_box_of(const struct cuda_pool &l, int index)
{
    struct pool_box box;

    for (int d = 2; d >= 0; d--) {
        int at = index % l.out[d] * l.stride[d] - l.before[d], last = l.in[d] - 1 - at;

        index /= l.out[d];
        box.start[d] = at;
        box.from[d] = at >= 0 ? 0 : (-at + l.dilation[d] - 1) / l.dilation[d];
        box.to[d] = last < 0 ? 0 : last / l.dilation[d] + 1;
        if (box.to[d] > l.kernel[d])
            box.to[d] = l.kernel[d];
    }
    return box;
}

CUDA_DEVICE int pool_box_at(const struct cuda_pool &l, const struct pool_box &box,
                                int a, int b, int c)
{
    int x = box.start[0] + a * l.dilation[0], y = box.start[1] + b * l.dilation[1];

    return (x * l.in[1] + y) * l.in[2] + box.start[2] + c * l.dilation[2];
}

// Elements that a mean is taken over: see kernels/reference/pool.inc.h.
CUDA_DEVICE float pool_divisor(const struct cuda_pool &l, const struct pool_box &box)
{
    float n = 1;

    for (int d = 0; d < 3; d++) {
        int room = l.in[d] + l.after[d] - box.start[d];
        int positions = l.count_padding ? (room - 1) / l.dilation[d] + 1
                                            : box.to[d] - box.from[d];

        n *= (float)(positions < l.kernel[d] ? positions : l.kernel[d]);
    }
    return n;
}

#define EACH_IN_POOL_BOX(box, a, b, c)                                   \
    for (int a = (box).from[0]; a < (box).to[0]; a++)                \
        for (int b = (box).from[1]; b < (box).to[1]; b++)            \
            for (int c = (box).from[2]; c < (box).to[2]; c++)

// One position in a plane; where its plane begins, and what lies between neighbours there.
struct pool_place {
    int64_t plane;
    int at;
};

// Of the i-th element in memory, of planes of 'volume' elements.
CUDA_DEVICE struct pool_place pool_place_of(const struct cuda_pool &l, int64_t i, int64_t volume)
{
    struct pool_place p;

    p.at = (int)(l.channels ? i / l.channels % volume : i % volume);
    p.plane = l.channels ? i / l.channels / volume * l.channels + i % l.channels : i / volume;
    return p;
}

CUDA_DEVICE int64_t pool_step(const struct cuda_pool &l)
{
    return l.channels ? l.channels : 1;
}

CUDA_DEVICE int64_t pool_start(const struct cuda_pool &l, int64_t plane, int64_t volume)
{
    return l.channels ? plane / l.channels * volume * l.channels + plane % l.channels
                      : plane * volume;
}

// Position in the plane 'x' of the maximum; -1 where the window sees padding alone.
template <typename REAL>
CUDA_DEVICE int pool_best(const struct cuda_pool &l, int index, const REAL *x)
{
    struct pool_box box = pool_box_of(l, index);
    int64_t step = pool_step(l);
    int best = -1;
    float most = 0;

    EACH_IN_POOL_BOX(box, a, b, c) {
        int at = pool_box_at(l, box, a, b, c);
        float own = real_of(x[at * step]);

        if (best < 0 || own > most || isnan(own)) {
            best = at;
            most = own;
        }
    }
    return best;
}

template <typename REAL> CUDA_DEVICE void pool_max(const struct cuda_pool &l)
{
    int64_t out = pool_volume(l.out), in = pool_volume(l.in);

    CUDA_EACH(i, l.planes * out) {
        struct pool_place p = pool_place_of(l, i, out);
        const REAL *x = (const REAL *)l.x + pool_start(l, p.plane, in);
        int best = pool_best(l, p.at, x);

        put_real((REAL *)l.y + i, best < 0 ? -INFINITY : real_of(x[best * pool_step(l)]));
        if (l.saved)
            l.saved[p.plane * out + p.at] = best;
    }
}

// y[planes, out], saved[planes, out]
CUDA_KERNEL(kernel_pool_max, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_max, l);
}

// indices[planes, out]
CUDA_KERNEL(kernel_pool_indices, cuda_pool)
{
    int64_t out = pool_volume(l.out), in = pool_volume(l.in);

    CUDA_EACH(i, l.planes * out) {
        int at = pool_best(l, (int)(i % out), (const float *)l.x + i / out * in);

        if (l.swap && at >= 0)
            at = at / (l.in[1] * l.in[2]) +
                 l.in[0] * (at / l.in[2] % l.in[1] + l.in[1] * (at % l.in[2]));
        l.indices[i] = i / out * in + at;
    }
}

template <typename REAL> CUDA_DEVICE void pool_mean(const struct cuda_pool &l)
{
    int64_t out = pool_volume(l.out), in = pool_volume(l.in);

    CUDA_EACH(i, l.planes * out) {
        struct pool_place p = pool_place_of(l, i, out);
        const REAL *x = (const REAL *)l.x + pool_start(l, p.plane, in);
        struct pool_box box = pool_box_of(l, p.at);
        float sum = 0;

        EACH_IN_POOL_BOX(box, a, b, c)
            sum += real_of(x[pool_box_at(l, box, a, b, c) * pool_step(l)]);
        put_real((REAL *)l.y + i, sum / pool_divisor(l, box));
    }
}

// y[planes, out]
CUDA_KERNEL(kernel_pool_mean, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_mean, l);
}

// The output along axis d whose window has its position k at 'at'; -1: there is none.
CUDA_DEVICE int pool_output(const struct cuda_pool &l, int d, int at, int k)
{
    int shifted = at + l.before[d] - k * l.dilation[d], o = shifted / l.stride[d];

    return shifted < 0 || shifted % l.stride[d] || o >= l.out[d] ? -1 : o;
}

// What output o of a plane gives to the element at 'at'.
template <typename REAL>
CUDA_DEVICE float pool_share(const struct cuda_pool &l, int64_t plane, int o, int at)
{
    int64_t out = pool_volume(l.out);
    const REAL *dy = (const REAL *)l.x + pool_start(l, plane, out) + o * pool_step(l);

    if (l.kind == CUDA_POOL_MAX_GRAD)
        return l.saved[plane * out + o] == at ? real_of(*dy) : 0;
    return real_of(*dy) / pool_divisor(l, pool_box_of(l, o));
}

template <typename REAL> CUDA_DEVICE void pool_grad(const struct cuda_pool &l)
{
    int64_t in = pool_volume(l.in);

    CUDA_EACH(i, l.planes * in) {
        struct pool_place p = pool_place_of(l, i, in);
        int z = p.at % l.in[2], y = p.at / l.in[2] % l.in[1], x = p.at / l.in[2] / l.in[1];
        float sum = 0;

        for (int a = 0; a < l.kernel[0]; a++) {
            int ox = pool_output(l, 0, x, a);

            for (int b = 0; ox >= 0 && b < l.kernel[1]; b++) {
                int oy = pool_output(l, 1, y, b);

                for (int c = 0; oy >= 0 && c < l.kernel[2]; c++) {
                    int oz = pool_output(l, 2, z, c);

                    if (oz >= 0)
                        sum += pool_share<REAL>(l, p.plane, (ox * l.out[1] + oy) * l.out[2] + oz,
                                                p.at);
                }
            }
        }
        put_real((REAL *)l.y + i, sum);
    }
}

// y[planes, in], in the order of the window's positions
CUDA_KERNEL(kernel_pool_grad, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_grad, l);
}

extern "C" cudaError_t cuda_launch_pool(cudaStream_t stream, const struct cuda_pool *l)
{
    unsigned blocks = cuda_grid(l->planes * l->out[0] * l->out[1] * l->out[2], CUDA_BLOCK);
    unsigned in_blocks = cuda_grid(l->planes * l->in[0] * l->in[1] * l->in[2], CUDA_BLOCK);

    switch (l->kind) {
    case CUDA_POOL_MAX:
        return CUDA_LAUNCH(kernel_pool_max, blocks, CUDA_BLOCK, l, stream);
    case CUDA_POOL_INDICES:
        return CUDA_LAUNCH(kernel_pool_indices, blocks, CUDA_BLOCK, l, stream);
    case CUDA_POOL_MEAN:
        return CUDA_LAUNCH(kernel_pool_mean, blocks, CUDA_BLOCK, l, stream);
    default:
        return CUDA_LAUNCH(kernel_pool_grad, in_blocks, CUDA_BLOCK, l, stream);
    }
}

template <typename REAL> CUDA_DEVICE void spread_rows(const struct cuda_spread &l)
{
    float scale = (float)l.scale;

    CUDA_EACH(i, l.n * l.length * l.channels) {
        int64_t at = i / (l.length * l.channels) * l.channels + i % l.channels;

        put_real((REAL *)l.dx + i, real_of(((const REAL *)l.dy)[at]) * scale);
    }
}

// dx[n, length, channels]
CUDA_KERNEL(kernel_spread, cuda_spread)
{
    CUDA_BY_TYPE(l.narrow, spread_rows, l);
}

extern "C" cudaError_t cuda_launch_spread(cudaStream_t stream, const struct cuda_spread *l)
{
    return CUDA_LAUNCH(kernel_spread, cuda_grid(l->n * l->length * l->channels, CUDA_BLOCK), CUDA_BLOCK, l,
                       stream);
}
