// SPDX-License-Identifier: MIT
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Elements of a row that lie together are read by fours.
template <typename REAL>
CUDA_DEVICE int64_t row_fours(const struct cuda_rows &rows, const REAL *x)
{
    return rows.after == 1 && is_wide_at<REAL>(x) ? rows.length / 4 : 0;
}

// The largest of a row, 0 where that is infinite; then the sum of exponentials below it.
template <typename REAL>
CUDA_DEVICE float row_max(const struct cuda_rows &rows, const REAL *x, float *shared)
{
    int64_t fours = row_fours(rows, x);
    float max = -INFINITY;

    CUDA_UNROLL
    CUDA_EACH_IN(i, 0, fours, rows.team) {
        float4 own = four_of(x, i);

        max = fmaxf(max, fmaxf(fmaxf(own.x, own.y), fmaxf(own.z, own.w)));
    }
    CUDA_EACH_IN(i, 4 * fours, rows.length, rows.team) {
        float own = real_of(x[i * rows.after]);

        max = own > max ? own : max;
    }
    max = team_max(max, rows.team, shared);
    return isinf(max) ? 0 : max;
}

template <typename REAL>
CUDA_DEVICE float row_exponentials(const struct cuda_rows &rows, const REAL *x, float max,
                                   float *shared)
{
    int64_t fours = row_fours(rows, x);
    float sum = 0;

    CUDA_UNROLL
    CUDA_EACH_IN(i, 0, fours, rows.team) {
        float4 own = four_of(x, i);

        sum += expf(own.x - max) + expf(own.y - max) + expf(own.z - max) + expf(own.w - max);
    }
    CUDA_EACH_IN(i, 4 * fours, rows.length, rows.team)
        sum += expf(real_of(x[i * rows.after]) - max);
    return team_sum(sum, rows.team, shared);
}

template <typename REAL>
CUDA_DEVICE void softmax_rows(const struct cuda_softmax &l, float *shared)
{
    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row_start(l.rows, row);
        const REAL *x = (const REAL *)l.x + start;
        REAL *y = (REAL *)l.out + start;
        float max = row_max(l.rows, x, shared);
        float sum = row_exponentials(l.rows, x, max, shared), log_sum = logf(sum);

        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = real_of(x[i * l.rows.after]) - max;

            put_real(&y[i * l.rows.after], l.logarithm            ? d - log_sum
                                           : l.masked && sum == 0 ? 0
                                                                  : expf(d) / sum);
        }
    }
}

// y[before, length, after]
CUDA_KERNEL(kernel_softmax, cuda_softmax)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, softmax_rows, l, shared);
}

template <typename REAL>
CUDA_DEVICE void softmax_slopes(const struct cuda_softmax &l, float *shared)
{
    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row_start(l.rows, row);
        const REAL *y = (const REAL *)l.x + start, *dy = (const REAL *)l.dy + start;
        REAL *dx = (REAL *)l.out + start;
        float sum = 0;

        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            float d = real_of(dy[i * l.rows.after]);

            sum += l.logarithm ? d : d * real_of(y[i * l.rows.after]);
        }
        sum = team_sum(sum, l.rows.team, shared);
        CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
            int64_t at = i * l.rows.after;
            float d = real_of(dy[at]), own = real_of(y[at]);

            put_real(&dx[at], l.logarithm ? d - expf(own) * sum : own * (d - sum));
        }
    }
}

// dx[before, length, after]
CUDA_KERNEL(kernel_softmax_grad, cuda_softmax)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, softmax_slopes, l, shared);
}

extern "C" cudaError_t cuda_launch_softmax(cudaStream_t stream, const struct cuda_softmax *l)
{
    unsigned blocks = team_blocks(l->rows.n, l->rows.team);
    unsigned threads = team_threads(l->rows.length, l->rows.team);

    return l->dy ? CUDA_LAUNCH(kernel_softmax_grad, blocks, threads, l, stream)
                 : CUDA_LAUNCH(kernel_softmax, blocks, threads, l, stream);
}

CUDA_DEVICE int64_t label_of(const struct cuda_entropy &l, int64_t row)
{
    return l.wide ? ((const int64_t *)l.labels)[row] : ((const int32_t *)l.labels)[row];
}

CUDA_DEVICE float weight_of(const struct cuda_entropy &l, int64_t c)
{
    return l.weights ? l.weights[c] : 1;
}

// How many elements of a row come before x[label], the larger first; NaN never comes first.
template <typename REAL>
CUDA_DEVICE float ahead_of(const struct cuda_entropy &l, const REAL *x, int64_t label,
                           float *shared)
{
    float own = real_of(x[label * l.rows.after]), n = own == own ? 0 : 1;

    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team) {
        float other = real_of(x[i * l.rows.after]);

        n += other > own || (other == own && i < label);
    }
    return team_sum(n, l.rows.team, shared);
}

// Sum over all classes of weight * (log_sum - x).
template <typename REAL>
CUDA_DEVICE float spread_terms(const struct cuda_entropy &l, const REAL *x, float log_sum,
                               float *shared)
{
    float sum = 0;

    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
        sum += weight_of(l, i) * (log_sum - real_of(x[i * l.rows.after]));
    return team_sum(sum, l.rows.team, shared);
}

template <typename REAL>
CUDA_DEVICE void entropy_rows(const struct cuda_entropy &l, float *shared)
{
    float smoothing = *l.training ? (float)l.smoothing : 0;

    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        const REAL *x = (const REAL *)l.x + row_start(l.rows, row);
        float max = row_max(l.rows, x, shared);
        float log_sum = logf(row_exponentials(l.rows, x, max, shared)), ahead = 0, spread = 0;
        int64_t label = label_of(l, row);
        bool ignored = l.ignores && label == l.ignore_index;
        bool known = label >= 0 && label < l.rows.length;
        double term = 0;

        if (!ignored && known) {
            ahead = l.correct ? ahead_of(l, x, label, shared) : 0;
            spread = smoothing > 0 ? spread_terms(l, x, max + log_sum, shared) : 0;
            term = (double)(weight_of(l, label) * (max - real_of(x[label * l.rows.after]) + log_sum));
            term += (double)smoothing * ((double)spread / (double)l.rows.length - term);
        }
        if (!team_writes(l.rows.team))
            continue;
        l.parts[row] = ignored ? 0 : known ? term : NAN;
        l.parts[l.rows.n + row] = !ignored && known && ahead == 0;
        if (l.log_sums)
            l.log_sums[row] = max + log_sum;
    }
}

// parts[2, rows]: what each adds to the loss, and whether the label is the largest
CUDA_KERNEL(kernel_entropy, cuda_entropy)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, entropy_rows, l, shared);
}

// The sum of all weights.
CUDA_DEVICE float all_weights(const struct cuda_entropy &l, float *shared)
{
    float sum = 0;

    if (!l.weights)
        return (float)l.rows.length;
    CUDA_EACH_IN(i, 0, l.rows.length, l.rows.team)
        sum += l.weights[i];
    return team_sum(sum, l.rows.team, shared);
}

// factor * (p - whether it is the label) by fours; how many of them there are.
template <typename REAL>
CUDA_DEVICE int64_t four_slopes(const struct cuda_entropy &l, const REAL *x, REAL *dx,
                                int64_t label, float factor, float log_sum)
{
    int64_t fours = is_wide_at<REAL>(dx) ? row_fours(l.rows, x) : 0;

    CUDA_UNROLL
    CUDA_EACH_IN(i, 0, fours, l.rows.team) {
        float4 p = four_of(x, i);

        p.x = factor * (expf(p.x - log_sum) - (4 * i == label));
        p.y = factor * (expf(p.y - log_sum) - (4 * i + 1 == label));
        p.z = factor * (expf(p.z - log_sum) - (4 * i + 2 == label));
        p.w = factor * (expf(p.w - log_sum) - (4 * i + 3 == label));
        put_four(dx, i, p);
    }
    return fours;
}

template <typename REAL>
CUDA_DEVICE void entropy_slopes(const struct cuda_entropy &l, float *shared)
{
    const REAL *x = (const REAL *)l.x;
    REAL *dx = (REAL *)l.dx;
    float factor = (float)((double)*l.dloss / *l.weight_sum);
    float share = (float)(l.smoothing / (double)l.rows.length);
    float all = share > 0 ? all_weights(l, shared) : 0;

    CUDA_EACH_OF(row, l.rows.n, l.rows.team) {
        int64_t start = row_start(l.rows, row), label = label_of(l, row);
        bool ignored = l.ignores && label == l.ignore_index;
        bool known = label >= 0 && label < l.rows.length;
        float own = known ? (float)(1 - l.smoothing) * weight_of(l, label) : NAN;
        int64_t fours = 0;

        if (known && !ignored && share == 0 && !l.weights)
            fours = four_slopes(l, x + start, dx + start, label, factor * own, l.log_sums[row]);
        CUDA_EACH_IN(i, 4 * fours, l.rows.length, l.rows.team) {
            int64_t at = start + i * l.rows.after;
            float p = expf(real_of(x[at]) - l.log_sums[row]), d = own * (p - (i == label));

            if (share > 0)
                d += share * (all * p - weight_of(l, i));
            put_real(&dx[at], ignored ? 0 : factor * d);
        }
    }
}

// dx[before, length, after]
CUDA_KERNEL(kernel_entropy_grad, cuda_entropy)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, entropy_slopes, l, shared);
}

extern "C" cudaError_t cuda_launch_entropy(cudaStream_t stream, const struct cuda_entropy *l)
{
    unsigned blocks = team_blocks(l->rows.n, l->rows.team);
    unsigned threads = team_threads(l->rows.length, l->rows.team);
    struct cuda_total total = { l->rows.n, { l->parts, l->parts + l->rows.n }, l->weight_sum,
                                { l->loss, l->correct } };
    cudaError_t code;

    if (l->dx)
        return CUDA_LAUNCH(kernel_entropy_grad, blocks, threads, l, stream);
    code = CUDA_LAUNCH(kernel_entropy, blocks, threads, l, stream);
    return code == cudaSuccess ? launch_total(stream, &total) : code;
}
