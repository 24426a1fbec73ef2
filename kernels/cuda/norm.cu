// SPDX-License-Identifier: MIT
// Norms over rows: LayerNorm, RmsNorm, GroupNorm, and what they are added to before.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Rows are shorter than 2^31: see op_norm.c.
CUDA_DEVICE int64_t scale_at(int64_t first, int64_t i, int64_t after)
{
    return first + (after == 1 ? i : (int64_t)((uint32_t)i / (uint32_t)after));
}

// Mean (0 where it is not centred) and inverse of a row.
template <typename REAL>
CUDA_DEVICE void row_moments(const struct cuda_norm &l, const REAL *x, float *mean,
                             float *inverse, float *shared)
{
    float n = (float)l.rows.length, sum = 0;

    *mean = 0;
    if (l.centred) {
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
            sum += real_of(x[i]);
        *mean = team_sum(sum, l.rows.team, shared) / n;
    }
    sum = 0;
    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
        float d = real_of(x[i]) - *mean;

        sum += d * d;
    }
    *inverse = 1 / sqrtf(team_sum(sum, l.rows.team, shared) / n + (float)l.epsilon);
}

// Each thread reads what it wrote itself.
template <typename REAL>
CUDA_DEVICE const REAL *row_to_norm(const struct cuda_norm &l, int64_t start)
{
    const REAL *x = (const REAL *)l.x + start, *other = (const REAL *)l.other + start;
    REAL *sum = (REAL *)l.sum + start;

    if (!l.sum)
        return x;
    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
        put_real(&sum[i], real_of(x[i]) + real_of(other[i]));
    return sum;
}

template <typename REAL>
CUDA_DEVICE void norm_rows(const struct cuda_norm &l, float *shared)
{
    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row * l.rows.length, first = row % l.groups * l.channels;
        const REAL *x = row_to_norm<REAL>(l, start);
        REAL *y = (REAL *)l.y + start;
        float mean, inverse;

        row_moments(l, x, &mean, &inverse, shared);
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            int64_t c = scale_at(first, i, l.after);

            put_real(&y[i], (real_of(x[i]) - mean) * inverse * l.scale[c] +
                                (l.bias ? l.bias[c] : 0));
        }
        if (l.mean && team_writes(l.rows.team))
            l.mean[row] = mean;
        if (l.inverse && team_writes(l.rows.team))
            l.inverse[row] = inverse;
    }
}

// y[rows, length]
CUDA_KERNEL(kernel_norm, cuda_norm)
{
    __shared__ float shared[CUDA_BLOCK];

    if (l.narrow)
        norm_rows<struct bfloat>(l, shared);
    else
        norm_rows<float>(l, shared);
}

extern "C" cudaError_t cuda_launch_norm(cudaStream_t stream, const struct cuda_norm *l)
{
    return CUDA_LAUNCH(kernel_norm, team_blocks(l->rows.n, l->rows.team),
                       team_threads(l->rows.length, l->rows.team), l, stream);
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

// dx[rows, length]
CUDA_KERNEL(kernel_norm_grad, cuda_norm_grad)
{
    __shared__ float shared[CUDA_BLOCK];

    if (l.narrow)
        norm_slopes<struct bfloat>(l, shared);
    else
        norm_slopes<float>(l, shared);
}

extern "C" cudaError_t cuda_launch_norm_grad(cudaStream_t stream,
                                             const struct cuda_norm_grad *l)
{
    return CUDA_LAUNCH(kernel_norm_grad, team_blocks(l->rows.n, l->rows.team),
                       team_threads(l->rows.length, l->rows.team), l, stream);
}
