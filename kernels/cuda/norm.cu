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
CUDA_DEVICE void row_moments(const struct cuda_norm &l, const float *x, float *mean,
                             float *inverse, float *shared)
{
    float n = (float)l.rows.length, sum = 0;

    *mean = 0;
    if (l.centred) {
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
            sum += x[i];
        *mean = team_sum(sum, l.rows.team, shared) / n;
    }
    sum = 0;
    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
        sum += (x[i] - *mean) * (x[i] - *mean);
    *inverse = 1 / sqrtf(team_sum(sum, l.rows.team, shared) / n + (float)l.epsilon);
}

// y[rows, length]
CUDA_KERNEL(kernel_norm, cuda_norm)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row * l.rows.length, first = row % l.groups * l.channels;
        const float *x = (l.sum ? l.sum : l.x) + start;
        float mean, inverse;

        // Each thread reads what it wrote itself.
        if (l.sum)
            CUDA_EACH_IN(i, start, start + l.rows.length, l.rows.team)
                l.sum[i] = l.x[i] + l.other[i];
        row_moments(l, x, &mean, &inverse, shared);
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            int64_t c = scale_at(first, i, l.after);

            l.y[start + i] = (x[i] - mean) * inverse * l.scale[c] + (l.bias ? l.bias[c] : 0);
        }
        if (l.mean && team_writes(l.rows.team))
            l.mean[row] = mean;
        if (l.inverse && team_writes(l.rows.team))
            l.inverse[row] = inverse;
    }
}

extern "C" cudaError_t cuda_launch_norm(cudaStream_t stream, const struct cuda_norm *l)
{
    return CUDA_LAUNCH(kernel_norm, team_blocks(l->rows.n, l->rows.team),
                       team_threads(l->rows.length, l->rows.team), l, stream);
}

// dx[rows, length]
CUDA_KERNEL(kernel_norm_grad, cuda_norm_grad)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row * l.rows.length, first = row % l.groups * l.channels;
        float mean = l.mean ? l.mean[row] : 0, inverse = l.inverse[row];
        float n = (float)l.rows.length, sum = 0, product = 0;

        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = l.dy[start + i] * l.scale[scale_at(first, i, l.after)];

            sum += d;
            product += d * (l.x[start + i] - mean) * inverse;
        }
        sum = l.mean ? team_sum(sum, l.rows.team, shared) / n : 0;
        product = team_sum(product, l.rows.team, shared) / n;
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = l.dy[start + i] * l.scale[scale_at(first, i, l.after)];

            l.dx[start + i] =
                inverse * (d - sum - (l.x[start + i] - mean) * inverse * product);
        }
    }
}

extern "C" cudaError_t cuda_launch_norm_grad(cudaStream_t stream,
                                             const struct cuda_norm_grad *l)
{
    return CUDA_LAUNCH(kernel_norm_grad, team_blocks(l->rows.n, l->rows.team),
                       team_threads(l->rows.length, l->rows.team), l, stream);
}
