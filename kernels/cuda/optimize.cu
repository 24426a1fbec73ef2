// SPDX-License-Identifier: MIT
// Optimizers over flat ranges, all at once: the formulas of kernels/reference/update.c, in float.
// A block has a piece of a range.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Of these each thread reads its elements before it writes the first.
#define AT_ONCE 4

struct piece {
    struct cuda_range range;
    int64_t index, from, end;       // of the range; of it
};

// That of this block: of the last range that begins with it or before.
CUDA_DEVICE struct piece piece_of(const struct cuda_ranges &ranges)
{
    int64_t low = 0, high = ranges.n;
    struct piece piece;

    while (high - low > 1) {
        int64_t middle = (low + high) / 2;

        if (ranges.items[middle].first <= (int64_t)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    piece.range = ranges.items[low];
    piece.index = low;
    piece.from = ((int64_t)blockIdx.x - piece.range.first) * piece.range.piece;
    piece.end = piece.from + piece.range.piece < piece.range.n ? piece.from + piece.range.piece
                                                               : piece.range.n;
    return piece;
}

// What differs from range to range.
struct factors {
    float g_scale, rate, decay;
};

CUDA_DEVICE double trust_ratio(double above, double below)
{
    return above > 0 && below > 0 ? above / below : 1;
}

CUDA_DEVICE struct factors factors_of(const struct cuda_update &l, const struct piece &piece)
{
    double g_scale = l.g_scale, rate = l.rate, decay = l.decay * piece.range.decay;
    double squares = l.squares ? l.squares[piece.index] : 0;
    double weights = l.squares ? l.weights[piece.index] : 0;

    if (l.rule == CUDA_RULE_LAMB) {
        rate *= trust_ratio(sqrt(weights), sqrt(squares));
    } else if (squares > 0) {
        double r = trust_ratio(l.trust * sqrt(weights),
                               fabs(g_scale) * sqrt(squares) + decay * sqrt(weights));

        decay *= r;
        g_scale *= r;
    }
    return { (float)g_scale, (float)rate, (float)decay };
}

// For all threads of the block, who call it. Roots and quotients in double are slow: one has them.
CUDA_DEVICE struct factors share_factors(const struct cuda_update &l, const struct piece &piece,
                                         struct factors *shared)
{
    if (threadIdx.x == 0)
        *shared = factors_of(l, piece);
    __syncthreads();
    return *shared;
}

// One parameter, its gradient and its state.
struct parameter {
    float p, g, m, v;
};

CUDA_DEVICE void step_momentum(const struct cuda_update &l, const struct factors &f,
                               struct parameter *e)
{
    e->g += f.decay * e->p;
    // 0 times what is there before the first step would be NaN, if that is not finite.
    e->m = l.momentum == 0 ? e->g : l.momentum * e->m + e->g;
    e->p -= f.rate * (l.rule == CUDA_RULE_NESTEROV ? e->g + l.look_ahead * e->m : e->m);
}

// 1 - beta is rounded once, so that averages stay where nothing changes.
CUDA_DEVICE void step_averages(const struct cuda_update &l, struct parameter *e)
{
    e->m += l.blend1 * (e->g - e->m);
    e->v += l.blend2 * (e->g * e->g - e->v);
}

CUDA_DEVICE float direction_of(const struct cuda_update &l, const struct parameter *e)
{
    return e->m * l.unbias1 / (sqrtf(e->v) * l.unbias2 + l.epsilon);
}

CUDA_DEVICE void step_parameter(const struct cuda_update &l, const struct factors &f,
                                struct parameter *e)
{
    switch (l.rule) {
    case CUDA_RULE_SGD:
        e->p -= f.rate * (e->g + f.decay * e->p);
        break;
    case CUDA_RULE_MOMENTUM:
    case CUDA_RULE_NESTEROV:
        step_momentum(l, f, e);
        break;
    case CUDA_RULE_ADAM:
        e->g += f.decay * e->p;
        step_averages(l, e);
        e->p -= f.rate * direction_of(l, e);
        break;
    case CUDA_RULE_ADAMW:
        step_averages(l, e);
        e->p -= f.rate * f.decay * e->p;
        e->p -= f.rate * direction_of(l, e);
        break;
    case CUDA_RULE_LAMB:
        e->p -= f.rate * (direction_of(l, e) + f.decay * e->p);
        break;
    case CUDA_RULE_MOMENTS:
        step_averages(l, e);
        break;
    }
}

// Element 'i' of the range.
CUDA_DEVICE struct parameter load_parameter(const struct cuda_update &l, const struct factors &f,
                                            const struct cuda_range &range, int64_t i)
{
    struct parameter e = { l.p[range.p + i], 0, l.m ? l.m[range.state + i] : 0,
                           l.v ? l.v[range.state + i] : 0 };

    if (l.rule != CUDA_RULE_LAMB)
        e.g = f.g_scale * l.g[range.g + i];
    return e;
}

CUDA_DEVICE void store_state(const struct cuda_update &l, const struct cuda_range &range, int64_t i,
                             const struct parameter *e)
{
    if (l.m)
        l.m[range.state + i] = e->m;
    if (l.v)
        l.v[range.state + i] = e->v;
}

// Those of a piece that a thread takes at once, from 'at' on.
CUDA_DEVICE void load_some(const struct cuda_update &l, const struct factors &f,
                           const struct piece &piece, int64_t at, struct parameter *e)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < AT_ONCE; k++)
        if (at + k * CUDA_BLOCK < piece.end)
            e[k] = load_parameter(l, f, piece.range, at + k * CUDA_BLOCK);
}

// p, m, v of all ranges
CUDA_KERNEL(kernel_update, cuda_update)
{
    __shared__ struct factors shared;
    struct piece piece = piece_of(l.ranges);
    struct factors f = share_factors(l, piece, &shared);
    struct parameter e[AT_ONCE];

    for (int64_t at = piece.from + threadIdx.x; at < piece.end; at += AT_ONCE * CUDA_BLOCK) {
        load_some(l, f, piece, at, e);
        CUDA_UNROLL_ALL
        for (int k = 0; k < AT_ONCE; k++) {
            int64_t i = at + k * CUDA_BLOCK;

            if (i >= piece.end)
                break;
            step_parameter(l, f, &e[k]);
            l.p[piece.range.p + i] = e[k].p;
            if (l.rule != CUDA_RULE_LAMB)
                store_state(l, piece.range, i, &e[k]);
        }
    }
}

CUDA_DEVICE double put_moments(const struct cuda_update &l, const struct factors &f,
                               const struct cuda_range &range, int64_t i, struct parameter *e)
{
    double u;

    step_parameter(l, f, e);
    store_state(l, range, i, e);
    u = (double)(direction_of(l, e) + f.decay * e->p);
    return u * u;
}

// m, v of all ranges, parts[pieces]
CUDA_KERNEL(kernel_moments, cuda_update)
{
    __shared__ double sums[CUDA_BLOCK];
    __shared__ struct factors shared;
    struct piece piece = piece_of(l.ranges);
    struct factors f = share_factors(l, piece, &shared);
    struct parameter e[AT_ONCE];
    double sum = 0;

    for (int64_t at = piece.from + threadIdx.x; at < piece.end; at += AT_ONCE * CUDA_BLOCK) {
        load_some(l, f, piece, at, e);
        CUDA_UNROLL_ALL
        for (int k = 0; k < AT_ONCE; k++)
            if (at + k * CUDA_BLOCK < piece.end)
                sum += put_moments(l, f, piece.range, at + k * CUDA_BLOCK, &e[k]);
    }
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0)
        l.ranges.parts[blockIdx.x] = sum;
}

// parts[pieces]
CUDA_KERNEL(kernel_squares, cuda_squares)
{
    __shared__ double sums[CUDA_BLOCK];
    struct piece piece = piece_of(l.ranges);
    const float *x = l.x + piece.range.g;
    float some[AT_ONCE];
    double sum = 0;

    for (int64_t at = piece.from + threadIdx.x; at < piece.end; at += AT_ONCE * CUDA_BLOCK) {
        CUDA_UNROLL_ALL
        for (int k = 0; k < AT_ONCE; k++)
            some[k] = at + k * CUDA_BLOCK < piece.end ? x[at + k * CUDA_BLOCK] : 0;
        CUDA_UNROLL_ALL
        for (int k = 0; k < AT_ONCE; k++)
            sum += (double)some[k] * (double)some[k];
    }
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0)
        l.ranges.parts[blockIdx.x] = sum;
}

// sums[n] of parts[pieces]: a block for each range
CUDA_KERNEL(kernel_range_sums, cuda_squares)
{
    __shared__ double sums[CUDA_BLOCK];
    int64_t i = blockIdx.x, from = l.ranges.items[i].first;
    int64_t end = i + 1 < l.ranges.n ? l.ranges.items[i + 1].first : l.ranges.pieces;
    double sum = 0;

    for (int64_t k = from + threadIdx.x; k < end; k += CUDA_BLOCK)
        sum += l.ranges.parts[k];
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0)
        l.sums[i] = sum;
}

static cudaError_t launch_sums(cudaStream_t stream, const struct cuda_ranges *ranges, double *sums)
{
    struct cuda_squares l = { *ranges, NULL, sums };

    return CUDA_LAUNCH(kernel_range_sums, (unsigned)ranges->n, CUDA_BLOCK, &l, stream);
}

extern "C" cudaError_t cuda_launch_update(cudaStream_t stream, const struct cuda_update *l)
{
    unsigned blocks = (unsigned)l->ranges.pieces;
    cudaError_t code = cudaSuccess;

    if (l->rule != CUDA_RULE_MOMENTS)
        return blocks ? CUDA_LAUNCH(kernel_update, blocks, CUDA_BLOCK, l, stream) : code;
    if (blocks)
        code = CUDA_LAUNCH(kernel_moments, blocks, CUDA_BLOCK, l, stream);
    return code == cudaSuccess ? launch_sums(stream, &l->ranges, l->sums) : code;
}

extern "C" cudaError_t cuda_launch_squares(cudaStream_t stream, const struct cuda_squares *l)
{
    unsigned blocks = (unsigned)l->ranges.pieces;
    cudaError_t code = cudaSuccess;

    if (blocks)
        code = CUDA_LAUNCH(kernel_squares, blocks, CUDA_BLOCK, l, stream);
    return code == cudaSuccess ? launch_sums(stream, &l->ranges, l->sums) : code;
}

#ifndef CUDA_EMULATED
#include <stdio.h>

/* nvcc before 11.5 does not say it. */
#ifdef __CUDA_ARCH_LIST__
static const int architectures[] = { __CUDA_ARCH_LIST__ };
#else
static const int architectures[] = { 0 };
#endif

extern "C" cudaError_t cuda_code(void)
{
    struct cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, (const void *)kernel_update);
}

extern "C" void cuda_architectures(char *text, size_t size)
{
    size_t at = 0;

    snprintf(text, size, "what its nvcc was told");
    for (int architecture : architectures)
        if (architecture > 0 && at < size)
            at += (size_t)snprintf(text + at, size - at, "%ssm_%d", at ? " " : "", architecture / 10);
}
#endif
