// SPDX-License-Identifier: MIT
#include "graph/ops/attention_large.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

#define KEPT 16                 // elements of a row that a thread keeps in registers
#ifdef __CUDACC__
#define KEPT_UNROLL _Pragma("unroll")
#else
#define KEPT_UNROLL
#endif

// One row of scores: a query of a matrix of the stack.
struct query {
    float *x;
    int64_t mask;               // where its row of it begins
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
    return { l.scores + row * l.n, at, seen };
}

CUDA_DEVICE bool is_hidden(const struct cuda_attention &l, const struct query &q, int64_t j)
{
    return l.mask_kind == CUDA_MASK_CHOOSE &&
           (l.mask_choose[q.mask + j * l.step_n] != 0) == (l.hide != 0);
}

// The score of key j of a row, -infinity beyond what is seen.
CUDA_DEVICE float score(const struct cuda_attention &l, const struct query &q, int64_t j)
{
    if (j >= q.seen)
        return -INFINITY;
    if (l.mask_kind == CUDA_MASK_ADD)
        return q.x[j] + l.mask_add[q.mask + j * l.step_n];
    return is_hidden(l, q, j) ? l.fill : q.x[j];
}

CUDA_DEVICE void put_narrow(void *to, int64_t at, enum cuda_narrow narrow, float y)
{
    if (narrow == CUDA_FLOAT16)
        put_real((struct float16 *)to + at, y);
    else
        put_real((struct bfloat *)to + at, y);
}

// What becomes of element j of row 'row'.
CUDA_DEVICE void put_probability(const struct cuda_attention &l, int64_t row, int64_t j, float y)
{
    if (l.narrow)
        put_narrow(l.probabilities, row * l.n + j, l.narrow, y);
    else
        l.scores[row * l.n + j] = y;
}

CUDA_DEVICE void put_gradient(const struct cuda_attention &l, int64_t row, int64_t j, float y)
{
    if (l.narrow)
        put_narrow(l.gradients, row * l.n + j, l.narrow, y);
    else
        l.slopes[row * l.n + j] = y;
}

// The mask comes into the scores; the largest of them, 0 where nothing is seen.
CUDA_DEVICE float apply_mask(const struct cuda_attention &l, const struct query &q,
                             float *shared)
{
    float max = -INFINITY;

    CUDA_EACH_IN(j, 0, q.seen, l.team) {
        float x = score(l, q, j);

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
        if (l.narrow)
            CUDA_EACH_IN(j, 0, l.n, l.team)
                put_probability(l, row, j, q.x[j]);
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
            put_gradient(l, row, j, j < q.seen && !is_hidden(l, q, j)
                                        ? q.x[j] * (slopes[j] - total) : 0);
        if (l.narrow)
            CUDA_EACH_IN(j, 0, l.n, l.team)
                put_probability(l, row, j, q.x[j]);
    }
}

// For a loop over what a thread keeps of a row: its k-th is element j.
#define EACH_KEPT(k, j)                                                                   \
    for (int64_t k = 0, j = threadIdx.x; k < KEPT; k++, j += blockDim.x)

CUDA_DEVICE float largest_kept(const float *x, float *shared)
{
    float max = -INFINITY;

    KEPT_UNROLL
    for (int k = 0; k < KEPT; k++)
        max = x[k] > max ? x[k] : max;
    max = block_max(max, shared);
    return max == -INFINITY ? 0 : max;
}

CUDA_DEVICE float sum_kept(const float *x, float *shared)
{
    float sum = 0;

    KEPT_UNROLL
    for (int k = 0; k < KEPT; k++)
        sum += x[k];
    return block_sum(sum, shared);
}

// As kernel_attention, with each element read once and written once.
CUDA_KERNEL(kernel_attention_kept, cuda_attention)
{
    __shared__ float shared[CUDA_BLOCK];
    float x[KEPT];

    CUDA_EACH_OF(row, l.count * l.m, 1) {
        struct query q = query_of(l, row);
        float max, sum;

        KEPT_UNROLL
        EACH_KEPT(k, j)
            x[k] = score(l, q, j);
        max = largest_kept(x, shared);
        KEPT_UNROLL
        EACH_KEPT(k, j)
            x[k] = j < q.seen ? expf(x[k] - max) : 0;
        sum = sum_kept(x, shared);
        KEPT_UNROLL
        EACH_KEPT(k, j)
            if (j < l.n)
                put_probability(l, row, j,
                                j >= q.seen || (l.masked && sum == 0) ? 0 : x[k] / sum);
        if (l.saved && threadIdx.x == 0)
            l.saved[l.first * l.m + row] = l.masked && sum == 0 ? 0 : max + logf(sum);
    }
}

// What is taken off scores, and what exponentials are divided by, to give probabilities again.
CUDA_DEVICE float divisor_of(const float *x, float saved, float *off, float *shared)
{
    float sum = 0;

    *off = saved;
    if (!(fabsf(saved) > (float)ATTENTION_LARGE))
        return 1;
    *off = largest_kept(x, shared);
    KEPT_UNROLL
    for (int k = 0; k < KEPT; k++)
        sum += expf(x[k] - *off);
    return block_sum(sum, shared);
}

// As kernel_attention_grad.
CUDA_KERNEL(kernel_attention_grad_kept, cuda_attention)
{
    __shared__ float shared[CUDA_BLOCK];
    float x[KEPT], slope[KEPT], terms[KEPT];

    CUDA_EACH_OF(row, l.count * l.m, 1) {
        struct query q = query_of(l, row);
        float *slopes = l.slopes + row * l.n, off, divisor, total;

        KEPT_UNROLL
        EACH_KEPT(k, j) {
            x[k] = score(l, q, j);
            slope[k] = j < q.seen ? slopes[j] : 0;
        }
        divisor = divisor_of(x, l.saved[l.first * l.m + row], &off, shared);
        KEPT_UNROLL
        EACH_KEPT(k, j) {
            x[k] = j < q.seen ? expf(x[k] - off) / divisor : 0;
            terms[k] = x[k] * slope[k];
        }
        total = sum_kept(terms, shared);
        KEPT_UNROLL
        EACH_KEPT(k, j) {
            if (j >= l.n)
                continue;
            put_probability(l, row, j, x[k]);
            put_gradient(l, row, j,
                         j < q.seen && !is_hidden(l, q, j) ? x[k] * (slope[k] - total) : 0);
        }
    }
}

// Threads that keep a row between them.
static unsigned kept_threads(int64_t n)
{
    unsigned threads = CUDA_WARP;

    while (threads < CUDA_BLOCK && (int64_t)threads * KEPT < n)
        threads *= 2;
    return threads;
}

static cudaError_t launch_kept(cudaStream_t stream, const struct cuda_attention *l)
{
    unsigned blocks = team_blocks(l->count * l->m, 1), threads = kept_threads(l->n);

    return l->slopes ? CUDA_LAUNCH(kernel_attention_grad_kept, blocks, threads, l, stream)
                     : CUDA_LAUNCH(kernel_attention_kept, blocks, threads, l, stream);
}

extern "C" cudaError_t cuda_launch_attention(cudaStream_t stream, const struct cuda_attention *l)
{
    unsigned blocks = team_blocks(l->count * l->m, l->team);
    unsigned threads = team_threads(l->n, l->team);

    if (l->team && l->n <= (int64_t)CUDA_BLOCK * KEPT)
        return launch_kept(stream, l);
    return l->slopes ? CUDA_LAUNCH(kernel_attention_grad, blocks, threads, l, stream)
                     : CUDA_LAUNCH(kernel_attention, blocks, threads, l, stream);
}

CUDA_DEVICE float mask_at(const struct cuda_mask &l, int64_t at)
{
    if (l.add)
        return l.add[at];
    return (l.choose[at] != 0) == (l.hide != 0) ? -INFINITY : 0;
}

CUDA_DEVICE float shifted(float x, float max)
{
    return x - max < -CUDA_MASK_HIDES ? -CUDA_MASK_HIDES : x - max;
}

CUDA_KERNEL(kernel_mask, cuda_mask)
{
    __shared__ float shared[CUDA_BLOCK];

    CUDA_EACH_OF(row, l.rows, l.team) {
        int64_t seen = l.causal && row % l.m + 1 < l.columns ? row % l.m + 1 : l.columns;
        int64_t start = row * l.columns;
        float max = -INFINITY;
        bool unseen;

        CUDA_EACH_IN(j, 0, seen, l.team) {
            float x = mask_at(l, start + j);

            max = x > max ? x : max;
        }
        max = team_max(max, l.team, shared);
        unseen = l.unseen && max == -INFINITY;
        CUDA_EACH_IN(j, 0, l.columns, l.team)
            l.out[start + j] = j < seen && !unseen ? shifted(mask_at(l, start + j), max) : 0;
        if (l.unseen && team_writes(l.team))
            l.unseen[row] = unseen;
    }
}

CUDA_KERNEL(kernel_unseen, cuda_unseen)
{
    CUDA_EACH_OF(row, l.stack * l.m, 0) {
        int64_t s = row / l.m, i = row % l.m, mask = i * l.step_m, rest = s;
        int64_t heads = l.turned ? l.dim[l.rank - 1] : 1;
        int64_t at = l.turned ? (s / heads * l.m + i) * heads + s % heads : row;

        for (int k = l.rank - 1; k >= 0; k--) {
            mask += rest % l.dim[k] * l.step[k];
            rest /= l.dim[k];
        }
        if (!l.unseen[mask])
            continue;
        for (int64_t j = 0; j < l.e; j++)
            ((unsigned short *)l.y)[at * l.e + j] = 0;
        l.saved[row] = CUDA_MASK_HIDES;
    }
}

extern "C" cudaError_t cuda_launch_mask(cudaStream_t stream, const struct cuda_mask *l)
{
    return CUDA_LAUNCH(kernel_mask, team_blocks(l->rows, l->team), team_threads(l->columns, l->team), l,
                       stream);
}

extern "C" cudaError_t cuda_launch_unseen(cudaStream_t stream, const struct cuda_unseen *l)
{
    return CUDA_LAUNCH(kernel_unseen, team_blocks(l->stack * l->m, 0), team_threads(l->e, 0), l, stream);
}
