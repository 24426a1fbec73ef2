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

    if (!l.channels && i <= UINT32_MAX) {
        p.plane = (uint32_t)i / (uint32_t)volume;
        p.at = (int)(i - p.plane * volume);
        return p;
    }
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

// Where the position of an output's maximum is.
CUDA_DEVICE int64_t pool_saved(const struct cuda_pool &l, int64_t plane, int o)
{
    int64_t out = pool_volume(l.out), c = l.saved_channels;

    return c ? (plane / c * out + o) * c + plane % c : plane * out + o;
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
            l.saved[pool_saved(l, p.plane, p.at)] = best;
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

// The outputs along axis d whose windows may have 'at': from 'last' down to 'first', so that its positions
// in them ascend; and which that is in one of them, -1: none.
struct pool_range {
    int first, last, shifted;
};

CUDA_DEVICE struct pool_range pool_outputs(const struct cuda_pool &l, int d, int at)
{
    struct pool_range r;
    int reach = l.dilation[d] * (l.kernel[d] - 1);

    r.shifted = at + l.before[d];
    r.first = r.shifted <= reach ? 0 : (r.shifted - reach + l.stride[d] - 1) / l.stride[d];
    r.last = r.shifted / l.stride[d];
    if (r.last >= l.out[d])
        r.last = l.out[d] - 1;
    return r;
}

CUDA_DEVICE int pool_is_seen(const struct cuda_pool &l, int d, const struct pool_range &r, int o)
{
    return l.dilation[d] == 1 || (r.shifted - o * l.stride[d]) % l.dilation[d] == 0;
}

#define EACH_POOL_OUTPUT(l, d, r, o)                                     \
    for (int o = (r).last; o >= (r).first; o--)                          \
        if (pool_is_seen(l, d, r, o))

// What output o of a plane gives to the element at 'at'.
template <typename REAL>
CUDA_DEVICE float pool_share(const struct cuda_pool &l, int64_t plane, int o, int at)
{
    int64_t out = pool_volume(l.out);
    const REAL *dy = (const REAL *)l.x + pool_start(l, plane, out) + o * pool_step(l);

    if (l.kind == CUDA_POOL_MAX_GRAD)
        return l.saved[pool_saved(l, plane, o)] == at ? real_of(*dy) : 0;
    return real_of(*dy) / pool_divisor(l, pool_box_of(l, o));
}

template <typename REAL> CUDA_DEVICE void pool_grad(const struct cuda_pool &l)
{
    int64_t in = pool_volume(l.in);

    CUDA_EACH(i, l.planes * in) {
        struct pool_place p = pool_place_of(l, i, in);
        int z = p.at % l.in[2], y = p.at / l.in[2] % l.in[1], x = p.at / l.in[2] / l.in[1];
        struct pool_range xs = pool_outputs(l, 0, x), ys = pool_outputs(l, 1, y);
        struct pool_range zs = pool_outputs(l, 2, z);
        float sum = 0;

        EACH_POOL_OUTPUT(l, 0, xs, ox)
            EACH_POOL_OUTPUT(l, 1, ys, oy)
                EACH_POOL_OUTPUT(l, 2, zs, oz)
                    sum += pool_share<REAL>(l, p.plane, (ox * l.out[1] + oy) * l.out[2] + oz, p.at);
        put_real((REAL *)l.y + i, sum);
    }
}

// y[planes, in], in the order of the window's positions
CUDA_KERNEL(kernel_pool_grad, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_grad, l);
}

// Words of channels that are the last axis ----------------------------------------------

// One place in one image, and a word of its channels.
struct pool_word {
    int64_t image;
    int at, word;
};

CUDA_DEVICE struct pool_word pool_word_of(int64_t i, int words, int volume)
{
    struct pool_word p;

    if (i <= UINT32_MAX) {
        uint32_t places = (uint32_t)i / (uint32_t)words;

        p.word = (int)((uint32_t)i - places * (uint32_t)words);
        p.image = places / (uint32_t)volume;
        p.at = (int)(places - (uint32_t)p.image * (uint32_t)volume);
        return p;
    }
    p.word = (int)(i % words);
    p.image = i / words / volume;
    p.at = (int)(i / words % volume);
    return p;
}

template <typename REAL> CUDA_DEVICE void pool_max_words(const struct cuda_pool &l)
{
    const int width = CUDA_WIDTH(REAL);
    int out = pool_volume(l.out), in = pool_volume(l.in), words = (int)(l.channels / width);

    CUDA_EACH(i, l.planes / width * out) {
        struct pool_word p = pool_word_of(i, words, out);
        struct pool_box box = pool_box_of(l, p.at);
        float most[width], own[width];
        int best[width];

        for (int j = 0; j < width; j++)
            most[j] = -INFINITY, best[j] = -1;
        EACH_IN_POOL_BOX(box, a, b, c) {
            int at = pool_box_at(l, box, a, b, c);

            spread_word<REAL>(word_at(l.x, (p.image * in + at) * words + p.word, true), own);
            CUDA_UNROLL_ALL
            for (int j = 0; j < width; j++)
                if (best[j] < 0 || own[j] > most[j] || isnan(own[j]))
                    most[j] = own[j], best[j] = at;
        }
        put_word((REAL *)l.y, i, most);
        if (!l.saved)
            continue;
        CUDA_UNROLL_ALL
        for (int j = 0; j < width; j += 4) {
            int4 four = { best[j], best[j + 1], best[j + 2], best[j + 3] };

            ((int4 *)l.saved)[i * (width / 4) + j / 4] = four;
        }
    }
}

CUDA_KERNEL(kernel_pool_max_words, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_max_words, l);
}

// The share of an output's word of channels, 'from', of what was their maximum there.
template <typename REAL>
CUDA_DEVICE void add_shares(const struct cuda_pool &l, int64_t from, int at, float *sum)
{
    const int width = CUDA_WIDTH(REAL);
    float dy[width];

    spread_word<REAL>(word_at(l.x, from, true), dy);
    CUDA_UNROLL_ALL
    for (int j = 0; j < width; j += 4) {
        int4 four = ((const int4 *)l.saved)[from * (width / 4) + j / 4];

        sum[j] += four.x == at ? dy[j] : 0;
        sum[j + 1] += four.y == at ? dy[j + 1] : 0;
        sum[j + 2] += four.z == at ? dy[j + 2] : 0;
        sum[j + 3] += four.w == at ? dy[j + 3] : 0;
    }
}

template <typename REAL> CUDA_DEVICE void pool_max_grad_words(const struct cuda_pool &l)
{
    const int width = CUDA_WIDTH(REAL);
    int out = pool_volume(l.out), in = pool_volume(l.in), words = (int)(l.channels / width);

    CUDA_EACH(i, l.planes / width * in) {
        struct pool_word p = pool_word_of(i, words, in);
        int z = p.at % l.in[2], y = p.at / l.in[2] % l.in[1], x = p.at / l.in[2] / l.in[1];
        struct pool_range xs = pool_outputs(l, 0, x), ys = pool_outputs(l, 1, y);
        struct pool_range zs = pool_outputs(l, 2, z);
        float sum[width] = { 0 };

        EACH_POOL_OUTPUT(l, 0, xs, ox)
            EACH_POOL_OUTPUT(l, 1, ys, oy)
                EACH_POOL_OUTPUT(l, 2, zs, oz) {
                    int64_t place = p.image * out + (ox * l.out[1] + oy) * l.out[2] + oz;

                    add_shares<REAL>(l, place * words + p.word, p.at, sum);
                }
        put_word((REAL *)l.y, i, sum);
    }
}

CUDA_KERNEL(kernel_pool_max_grad_words, cuda_pool)
{
    CUDA_BY_TYPE(l.narrow, pool_max_grad_words, l);
}

static bool has_pool_words(const struct cuda_pool *l)
{
    return l->channels && l->channels % cuda_width(l->narrow) == 0 &&
           (!l->saved || l->saved_channels) && cuda_has_words(l->x) && cuda_has_words(l->y) &&
           cuda_has_words(l->saved);
}

static cudaError_t launch_pool_words(cudaStream_t stream, const struct cuda_pool *l)
{
    bool grad = l->kind == CUDA_POOL_MAX_GRAD;
    const int *dim = grad ? l->in : l->out;
    int64_t n = l->planes * dim[0] * dim[1] * dim[2] / cuda_width(l->narrow);

    return CUDA_LAUNCH(grad ? (const void *)kernel_pool_max_grad_words
                            : (const void *)kernel_pool_max_words,
                       cuda_grid(n, CUDA_BLOCK), CUDA_BLOCK, l, stream);
}

extern "C" cudaError_t cuda_launch_pool(cudaStream_t stream, const struct cuda_pool *l)
{
    unsigned blocks = cuda_grid(l->planes * l->out[0] * l->out[1] * l->out[2], CUDA_BLOCK);
    unsigned in_blocks = cuda_grid(l->planes * l->in[0] * l->in[1] * l->in[2], CUDA_BLOCK);

    if ((l->kind == CUDA_POOL_MAX || l->kind == CUDA_POOL_MAX_GRAD) && has_pool_words(l))
        return launch_pool_words(stream, l);
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
