// SPDX-License-Identifier: MIT
#include "graph/ops/attention_large.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// One row of scores: a query of a matrix of the stack.
struct query {
    float *x;
    const void *mask;           // the first element of its row
    int64_t seen;               // of the keys, but for the mask
};

CUDA_DEVICE struct query query_of(const struct cuda_attention &l, int64_t row)
{
    int64_t s = l.first + row / l.m, i = row % l.m, at = i * l.step_m;
    int64_t seen = l.causal && i + l.past + 1 < l.n ? i + l.past + 1 : l.n;

    for (int k = l.rank - 1; k >= 0; k--) {
        at += s % l.dim[k] * l.step[k];
        s /= l.dim[k];
    }
    if (l.mask_kind == CUDA_MASK_ADD)
        return { l.scores + row * l.n, (const float *)l.mask + at, seen };
    return { l.scores + row * l.n, (const unsigned char *)l.mask + at, seen };
}

CUDA_DEVICE bool is_hidden(const struct cuda_attention &l, const struct query &q, int64_t j)
{
    return l.mask_kind == CUDA_MASK_CHOOSE &&
           (((const unsigned char *)q.mask)[j * l.step_n] != 0) == (l.hide != 0);
}

// The mask comes into the scores; the largest of them, 0 where nothing is seen.
CUDA_DEVICE float apply_mask(const struct cuda_attention &l, const struct query &q,
                             float *shared)
{
    float max = -INFINITY;

    CUDA_EACH_IN(j, 0, q.seen, l.team) {
        float x = q.x[j];

        if (l.mask_kind == CUDA_MASK_ADD)
            x += ((const float *)q.mask)[j * l.step_n];
        else if (is_hidden(l, q, j))
            x = l.fill;
        q.x[j] = x;
        max = x > max ? x : max;
    }
    max = team_max(max, l.team, shared);
    return max == -INFINITY ? 0 : max;
}

// Scores become exponentials, whose sum it is.
CUDA_DEVICE float exponentials(const struct cuda_attention &l, const struct query &q, float max,
                               float *shared)
{
    float sum = 0;

    CUDA_EACH_IN(j, 0, q.seen, l.team) {
        q.x[j] = expf(q.x[j] - max);
        sum += q.x[j];
    }
    return team_sum(sum, l.team, shared);
}

// Exponentials become probabilities; 0 beyond what is seen.
CUDA_DEVICE void divide_by(const struct cuda_attention &l, const struct query &q, float sum)
{
    CUDA_EACH_IN(j, 0, l.n, l.team)
        q.x[j] = j >= q.seen || (l.masked && sum == 0) ? 0 : q.x[j] / sum;
}

// scores[count, m, n], saved[stack, m]
CUDA_KERNEL(kernel_attention, cuda_attention)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_EACH_OF(row, l.count * l.m, l.team) {
        struct query q = query_of(l, row);
        float max = apply_mask(l, q, shared);
        float sum = exponentials(l, q, max, shared);

        divide_by(l, q, sum);
        if (l.saved && team_writes(l.team))
            l.saved[l.first * l.m + row] = l.masked && sum == 0 ? 0 : max + logf(sum);
    }
}

// Probabilities again, from what was saved of their sum.
CUDA_DEVICE void attend(const struct cuda_attention &l, const struct query &q, float saved,
                        float *shared)
{
    float max = apply_mask(l, q, shared);

    if (fabsf(saved) > (float)ATTENTION_LARGE) {
        divide_by(l, q, exponentials(l, q, max, shared));
        return;
    }
    CUDA_EACH_IN(j, 0, l.n, l.team)
        q.x[j] = j < q.seen ? expf(q.x[j] - saved) : 0;
}

// scores, slopes[count, m, n], saved[stack, m]
CUDA_KERNEL(kernel_attention_grad, cuda_attention)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_EACH_OF(row, l.count * l.m, l.team) {
        struct query q = query_of(l, row);
        float *slopes = l.slopes + row * l.n, total = 0;

        attend(l, q, l.saved[l.first * l.m + row], shared);
        CUDA_EACH_IN(j, 0, q.seen, l.team)
            total += q.x[j] * slopes[j];
        total = team_sum(total, l.team, shared);
        CUDA_EACH_IN(j, 0, l.n, l.team)
            slopes[j] = j < q.seen && !is_hidden(l, q, j) ? q.x[j] * (slopes[j] - total) : 0;
    }
}

extern "C" cudaError_t cuda_launch_attention(cudaStream_t stream, const struct cuda_attention *l)
{
    unsigned blocks = team_blocks(l->count * l->m, l->team);
    unsigned threads = team_threads(l->n, l->team);

    return l->slopes ? CUDA_LAUNCH(kernel_attention_grad, blocks, threads, l, stream)
                     : CUDA_LAUNCH(kernel_attention, blocks, threads, l, stream);
}
