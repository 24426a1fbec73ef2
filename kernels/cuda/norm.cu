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

// For a loop over the words that a thread keeps of a row: its k-th is the row's i-th.
#define EACH_KEPT_WORD(k, i, threads)                                                     \
    CUDA_UNROLL_ALL                                                                       \
    for (int k = 0, i = (int)threadIdx.x & ((threads) - 1); k < CUDA_KEPT; k++, i += (threads))

// For a loop over the rows of a block, each of which 'threads' keep; first: the first thread's.
#define EACH_KEPT_ROWS(first, rows, threads)                                              \
    for (int64_t first = (int64_t)blockIdx.x * (blockDim.x / (threads)); first < (rows);  \
         first += (int64_t)gridDim.x * (blockDim.x / (threads)))

// What is normed of a row of n words, and zeros beyond.
template <typename REAL>
CUDA_DEVICE void keep_words(const struct cuda_norm &l, int64_t start, int n,
                            float (*x)[CUDA_WIDTH(REAL)])
{
    uint4 word[CUDA_KEPT], other[CUDA_KEPT];
    float y[CUDA_WIDTH(REAL)];

    EACH_KEPT_WORD(k, i, l.kept)
        word[k] = word_at(l.x, start + i, i < n);
    EACH_KEPT_WORD(k, i, l.kept)
        other[k] = word_at(l.other, start + i, l.sum && i < n);
    EACH_KEPT_WORD(k, i, l.kept) {
        spread_word<REAL>(word[k], x[k]);
        if (!l.sum)
            continue;
        spread_word<REAL>(other[k], y);
        for (int j = 0; j < CUDA_WIDTH(REAL); j++)
            x[k][j] += y[j];
        if (i < n)
            put_word((REAL *)l.sum, start + i, x[k]);
    }
}

// Word k of what is kept of a row, the row's i-th, less its mean.
template <typename REAL>
CUDA_DEVICE void put_normed(const struct cuda_norm &l, int64_t start, int i, float inverse,
                            const float *x)
{
    float y[CUDA_WIDTH(REAL)], scale[CUDA_WIDTH(REAL)], bias[CUDA_WIDTH(REAL)] = { 0 };

    floats_at<CUDA_WIDTH(REAL)>(l.scale, i, scale);
    if (l.bias)
        floats_at<CUDA_WIDTH(REAL)>(l.bias, i, bias);
    CUDA_UNROLL_ALL
    for (int j = 0; j < CUDA_WIDTH(REAL); j++)
        y[j] = x[j] * inverse * scale[j] + bias[j];
    put_word((REAL *)l.y, start + i, y);
}

// Rows that are kept in registers, with one scale for each element.
template <typename REAL>
CUDA_DEVICE void norm_words(const struct cuda_norm &l)
{
    __shared__ float shared[CUDA_BLOCK / CUDA_WARP];
    int words = (int)l.rows.length / CUDA_WIDTH(REAL);

    EACH_KEPT_ROWS(first, l.rows.n, l.kept) {
        int64_t row = first + (int)threadIdx.x / l.kept, start = row * words;
        int n = row < l.rows.n ? words : 0;
        float x[CUDA_KEPT][CUDA_WIDTH(REAL)], mean = 0, sum = 0, inverse;

        keep_words<REAL>(l, start, n, x);
        for (int k = 0; k < CUDA_KEPT; k++)
            for (int j = 0; j < CUDA_WIDTH(REAL); j++)
                sum += x[k][j];
        if (l.centred) {
            warps_sums<1>(&sum, l.kept, shared);
            mean = sum / (float)l.rows.length;
        }
        sum = 0;
        EACH_KEPT_WORD(k, i, l.kept)
            for (int j = 0; j < CUDA_WIDTH(REAL); j++) {
                x[k][j] = i < n ? x[k][j] - mean : 0;
                sum += x[k][j] * x[k][j];
            }
        warps_sums<1>(&sum, l.kept, shared);
        inverse = 1 / sqrtf(sum / (float)l.rows.length + (float)l.epsilon);
        EACH_KEPT_WORD(k, i, l.kept)
            if (i < n)
                put_normed<REAL>(l, start, i, inverse, x[k]);
        if (n == 0 || threadIdx.x % l.kept)
            continue;
        if (l.mean)
            l.mean[row] = mean;
        if (l.inverse)
            l.inverse[row] = inverse;
    }
}

CUDA_KERNELS_BY_TYPE(kernel_norm_words, cuda_norm, 3, norm_words)

// y[rows, length]
CUDA_KERNEL(kernel_norm, cuda_norm)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, norm_rows, l, shared);
}

#define KEPT_BLOCK 128          // threads, if a row does not want more

static cudaError_t launch_kept(const void *kernel, int64_t rows, int kept, const void *l,
                               cudaStream_t stream)
{
    int threads = kept > KEPT_BLOCK ? kept : KEPT_BLOCK, each = threads / kept;

    return CUDA_LAUNCH(kernel, team_blocks((rows + each - 1) / each, 1), (unsigned)threads, l,
                       stream);
}

extern "C" cudaError_t cuda_launch_norm(cudaStream_t stream, const struct cuda_norm *l)
{
    if (l->kept)
        return launch_kept(CUDA_KERNEL_OF_TYPE(kernel_norm_words, l->narrow), l->rows.n, l->kept,
                           l, stream);
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

// The two factors in a word's gradients, the row's i-th: dy * scale, and x as it was normed.
template <typename REAL>
CUDA_DEVICE void slope_factors(const struct cuda_norm_grad &l, int i, float mean, float inverse,
                               uint4 dy, uint4 x, float *d, float *normed)
{
    float scale[CUDA_WIDTH(REAL)];

    floats_at<CUDA_WIDTH(REAL)>(l.scale, i, scale);
    spread_word<REAL>(dy, d);
    spread_word<REAL>(x, normed);
    CUDA_UNROLL_ALL
    for (int j = 0; j < CUDA_WIDTH(REAL); j++) {
        d[j] *= scale[j];
        normed[j] = (normed[j] - mean) * inverse;
    }
}

// As norm_words(): both words are kept as they are read.
template <typename REAL>
CUDA_DEVICE void slope_words(const struct cuda_norm_grad &l)
{
    __shared__ float shared[2 * CUDA_BLOCK / CUDA_WARP];
    int words = (int)l.rows.length / CUDA_WIDTH(REAL);

    EACH_KEPT_ROWS(first, l.rows.n, l.kept) {
        int64_t row = first + (int)threadIdx.x / l.kept, start = row * words;
        int n = row < l.rows.n ? words : 0;
        uint4 dy[CUDA_KEPT], x[CUDA_KEPT];
        float mean = n && l.mean ? l.mean[row] : 0, inverse = n ? l.inverse[row] : 0;
        float d[CUDA_WIDTH(REAL)], normed[CUDA_WIDTH(REAL)], sums[2] = { 0, 0 };

        EACH_KEPT_WORD(k, i, l.kept) {
            dy[k] = word_at(l.dy, start + i, i < n);
            x[k] = word_at(l.x, start + i, i < n);
        }
        EACH_KEPT_WORD(k, i, l.kept) {
            if (i >= n)
                continue;
            slope_factors<REAL>(l, i, mean, inverse, dy[k], x[k], d, normed);
            for (int j = 0; j < CUDA_WIDTH(REAL); j++) {
                sums[0] += d[j];
                sums[1] += d[j] * normed[j];
            }
        }
        warps_sums<2>(sums, l.kept, shared);
        sums[0] = l.mean ? sums[0] / (float)l.rows.length : 0;
        sums[1] /= (float)l.rows.length;
        EACH_KEPT_WORD(k, i, l.kept) {
            if (i >= n)
                continue;
            slope_factors<REAL>(l, i, mean, inverse, dy[k], x[k], d, normed);
            for (int j = 0; j < CUDA_WIDTH(REAL); j++)
                d[j] = inverse * (d[j] - sums[0] - normed[j] * sums[1]);
            put_word((REAL *)l.dx, start + i, d);
        }
    }
}

CUDA_KERNELS_BY_TYPE(kernel_norm_grad_words, cuda_norm_grad, 3, slope_words)

// dx[rows, length]
CUDA_KERNEL(kernel_norm_grad, cuda_norm_grad)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, norm_slopes, l, shared);
}

extern "C" cudaError_t cuda_launch_norm_grad(cudaStream_t stream,
                                             const struct cuda_norm_grad *l)
{
    if (l->kept)
        return launch_kept(CUDA_KERNEL_OF_TYPE(kernel_norm_grad_words, l->narrow), l->rows.n,
                           l->kept, l, stream);
    return CUDA_LAUNCH(kernel_norm_grad, team_blocks(l->rows.n, l->rows.team),
                       team_threads(l->rows.length, l->rows.team), l, stream);
}
