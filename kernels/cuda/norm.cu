// SPDX-License-Identifier: MIT
// Norms over rows: LayerNorm, RmsNorm, GroupNorm, and what they are added to before.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Rows are shorter than 2^31: see op_norm.c.
CUDA_DEVICE int64_t scale_at(int64_t first, int64_t i, int64_t after)
{
    return first + (after == 1 ? i : (int64_t)((uint32_t)i / (uint32_t)after));
}

// What is normed: a sum as it is before it is rounded, where there is one.
template <typename REAL> CUDA_DEVICE float value_to_norm(const struct cuda_norm &l, int64_t at)
{
    float x = real_of(((const REAL *)l.x)[at]);

    return l.sum ? x + real_of(((const REAL *)l.other)[at]) : x;
}

// Mean (0 where it is not centred) and inverse of a row.
template <typename REAL>
CUDA_DEVICE void row_moments(const struct cuda_norm &l, int64_t start, float *mean,
                             float *inverse, float *shared)
{
    float n = (float)l.rows.length, sum = 0;

    *mean = 0;
    if (l.centred) {
        CUDA_EACH_IN(i, start, start + l.rows.length, l.rows.team)
            sum += value_to_norm<REAL>(l, i);
        *mean = team_sum(sum, l.rows.team, shared) / n;
    }
    sum = 0;
    CUDA_EACH_IN(i, start, start + l.rows.length, l.rows.team) {
        float d = value_to_norm<REAL>(l, i) - *mean;

        sum += d * d;
    }
    *inverse = 1 / sqrtf(team_sum(sum, l.rows.team, shared) / n + (float)l.epsilon);
}

template <typename REAL>
CUDA_DEVICE void norm_rows(const struct cuda_norm &l, float *shared)
{
    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row * l.rows.length, first = row % l.groups * l.channels;
        float mean, inverse;

        row_moments<REAL>(l, start, &mean, &inverse, shared);
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            int64_t c = scale_at(first, i, l.after);
            float x = value_to_norm<REAL>(l, start + i);

            if (l.sum)
                put_real((REAL *)l.sum + start + i, x);
            put_real((REAL *)l.y + start + i,
                     (x - mean) * inverse * l.scale[c] + (l.bias ? l.bias[c] : 0));
        }
        if (l.mean && team_writes(l.rows.team))
            l.mean[row] = mean;
        if (l.inverse && team_writes(l.rows.team))
            l.inverse[row] = inverse;
    }
}

#define MOST_FOURS 4            // that a thread keeps of a row
#ifdef __CUDACC__
#define FOURS_UNROLL _Pragma("unroll")
#else
#define FOURS_UNROLL
#endif

// For a loop over what a thread keeps of a row of n fours: its k-th is four i.
#define EACH_FOUR(k, i, n)                                                                \
    FOURS_UNROLL                                                                          \
    for (int64_t k = 0, i = threadIdx.x; k < MOST_FOURS; k++, i += blockDim.x)            \
        if (i < (n))

CUDA_DEVICE float add_up(float4 x)
{
    return x.x + x.y + x.z + x.w;
}

CUDA_DEVICE float4 minus(float4 x, float y)
{
    x.x -= y, x.y -= y, x.z -= y, x.w -= y;
    return x;
}

CUDA_DEVICE float4 times(float4 x, float4 y)
{
    x.x *= y.x, x.y *= y.y, x.z *= y.z, x.w *= y.w;
    return x;
}

CUDA_DEVICE float4 plus(float4 x, float4 y)
{
    x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
    return x;
}

CUDA_DEVICE float4 scaled(float4 x, float y)
{
    x.x *= y, x.y *= y, x.z *= y, x.w *= y;
    return x;
}

template <typename REAL>
CUDA_DEVICE float4 four_to_norm(const struct cuda_norm &l, int64_t at)
{
    float4 x = four_of((const REAL *)l.x, at);

    if (l.sum) {
        x = plus(x, four_of((const REAL *)l.other, at));
        put_four((REAL *)l.sum, at, x);
    }
    return x;
}

// Rows of which each thread keeps a few fours, with one scale for each element.
template <typename REAL>
CUDA_DEVICE void norm_fours(const struct cuda_norm &l, float *shared)
{
    int64_t n = l.rows.length / 4;

    CUDA_EACH_OF(row, l.rows.n, 1) {
        float4 x[MOST_FOURS];
        float sum = 0, mean = 0, inverse;

        EACH_FOUR(k, i, n) {
            x[k] = four_to_norm<REAL>(l, row * n + i);
            sum += add_up(x[k]);
        }
        if (l.centred)
            mean = block_sum(sum, shared) / (float)l.rows.length;
        sum = 0;
        EACH_FOUR(k, i, n) {
            x[k] = minus(x[k], mean);
            sum += add_up(times(x[k], x[k]));
        }
        inverse = 1 / sqrtf(block_sum(sum, shared) / (float)l.rows.length + (float)l.epsilon);
        EACH_FOUR(k, i, n) {
            float4 y = times(scaled(x[k], inverse), four_of(l.scale, i));

            put_four((REAL *)l.y, row * n + i, l.bias ? plus(y, four_of(l.bias, i)) : y);
        }
        if (threadIdx.x == 0 && l.mean)
            l.mean[row] = mean;
        if (threadIdx.x == 0 && l.inverse)
            l.inverse[row] = inverse;
    }
}

// y[rows, length]
CUDA_KERNEL(kernel_norm, cuda_norm)
{
    __shared__ float shared[CUDA_BLOCK];

    if (l.fours)
        CUDA_BY_TYPE(l.narrow, norm_fours, l, shared);
    else
        CUDA_BY_TYPE(l.narrow, norm_rows, l, shared);
}

static unsigned row_threads(const struct cuda_rows *rows, int fours)
{
    return team_threads(fours ? rows->length / 4 : rows->length, rows->team);
}

extern "C" cudaError_t cuda_launch_norm(cudaStream_t stream, const struct cuda_norm *l)
{
    return CUDA_LAUNCH(kernel_norm, team_blocks(l->rows.n, l->rows.team),
                       row_threads(&l->rows, l->fours), l, stream);
}

template <typename REAL>
CUDA_DEVICE void norm_slopes(const struct cuda_norm_grad &l, float *shared)
{
    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row * l.rows.length, first = row % l.groups * l.channels;
        const REAL *x = (const REAL *)l.x + start, *dy = (const REAL *)l.dy + start;
        REAL *dx = (REAL *)l.dx + start;
        float mean = l.mean ? l.mean[row] : 0, inverse = l.inverse[row];
        float n = (float)l.rows.length, sum = 0, product = 0;

        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = real_of(dy[i]) * l.scale[scale_at(first, i, l.after)];

            sum += d;
            product += d * (real_of(x[i]) - mean) * inverse;
        }
        sum = l.mean ? team_sum(sum, l.rows.team, shared) / n : 0;
        product = team_sum(product, l.rows.team, shared) / n;
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = real_of(dy[i]) * l.scale[scale_at(first, i, l.after)];

            put_real(&dx[i], inverse * (d - sum - (real_of(x[i]) - mean) * inverse * product));
        }
    }
}

// As norm_fours().
template <typename REAL>
CUDA_DEVICE void slope_fours(const struct cuda_norm_grad &l, float *shared)
{
    int64_t n = l.rows.length / 4;

    CUDA_EACH_OF(row, l.rows.n, 1) {
        float4 d[MOST_FOURS], x[MOST_FOURS];
        float mean = l.mean ? l.mean[row] : 0, inverse = l.inverse[row], sum = 0, product = 0;

        EACH_FOUR(k, i, n) {
            d[k] = times(four_of((const REAL *)l.dy, row * n + i), four_of(l.scale, i));
            x[k] = scaled(minus(four_of((const REAL *)l.x, row * n + i), mean), inverse);
            sum += add_up(d[k]);
            product += add_up(times(d[k], x[k]));
        }
        sum = l.mean ? block_sum(sum, shared) / (float)l.rows.length : 0;
        product = block_sum(product, shared) / (float)l.rows.length;
        EACH_FOUR(k, i, n)
            put_four((REAL *)l.dx, row * n + i,
                     scaled(plus(minus(d[k], sum), scaled(x[k], -product)), inverse));
    }
}

// dx[rows, length]
CUDA_KERNEL(kernel_norm_grad, cuda_norm_grad)
{
    __shared__ float shared[CUDA_BLOCK];

    if (l.fours)
        CUDA_BY_TYPE(l.narrow, slope_fours, l, shared);
    else
        CUDA_BY_TYPE(l.narrow, norm_slopes, l, shared);
}

extern "C" cudaError_t cuda_launch_norm_grad(cudaStream_t stream,
                                             const struct cuda_norm_grad *l)
{
    return CUDA_LAUNCH(kernel_norm_grad, team_blocks(l->rows.n, l->rows.team),
                       row_threads(&l->rows, l->fours), l, stream);
}
