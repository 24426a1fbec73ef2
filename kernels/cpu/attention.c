/* SPDX-License-Identifier: MIT */
/* Attention by blocks of queries: a block's scores are made, used and forgotten, in the forward
 * pass and again in the backward pass.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "graph/ops/attention.h"
#include "kernels/cpu/cpu.h"

enum { QUERIES = 64 };      /* of a block: their scores stay in the cache */

struct attention_kernel {
    struct kernel base;
    struct attention a;
    bool saved, dmask;      /* is the output there? */
    int64_t blocks;         /* of the queries of one matrix */
    int64_t room;           /* floats of workspace for each thread */
};

struct attention_run {
    const struct attention_kernel *k;
    const struct simd *simd;
    const float *q, *keys, *values, *dy, *saved;
    const void *mask;
    float *y, *log_sums, *dq, *dk, *dv;
    float *workspace;
    int failed[256];
};

/* Queries first … first+rows-1 of matrix s, and as many keys as any of them sees. */
struct block {
    int64_t s, first, rows, seen;
    const float *q, *k, *v;
    int64_t ldk;
};

static struct block block_of(const struct attention_run *run, int64_t s, int64_t index)
{
    const struct attention *a = &run->k->a;
    struct block b = { .s = s, .first = index * QUERIES };

    b.rows = a->m - b.first < QUERIES ? a->m - b.first : QUERIES;
    b.seen = attention_seen(a, b.first + b.rows - 1);
    b.q = run->q + (s * a->m + b.first) * a->d;
    b.k = run->keys + s / a->group * a->n * a->d;
    b.v = run->values + s / a->group * a->n * a->e;
    b.ldk = a->trans_k ? a->n : a->d;
    return b;
}

static bool hides(const struct attention *a, const uint8_t *row, int64_t j)
{
    return (row[j * a->step_n] != 0) == a->hide;
}

static void apply_mask(const struct attention_run *run, int64_t s, int64_t i, int64_t n,
                       float *score)
{
    const struct attention *a = &run->k->a;
    int64_t at = attention_mask(a, s) + i * a->step_m;

    if (a->mask == ATTENTION_ADD) {
        const float *row = (const float *)run->mask + at;

        run->simd->binary(SIMD_ADD, (size_t)n, score, 1, row, a->step_n != 0, score);
    } else {
        const uint8_t *row = (const uint8_t *)run->mask + at;

        for (int64_t j = 0; j < n; j++)
            if (hides(a, row, j))
                score[j] = (float)a->fill;
    }
}

/* Scores of a block, 'seen' to a row; what a query does not see is minus infinity. */
static int make_scores(const struct attention_run *run, const struct block *b, float *scores)
{
    const struct attention *a = &run->k->a;

    if (onednn_gemm(false, !a->trans_k, b->rows, b->seen, a->d, (float)a->scale, b->q, a->d,
                    b->k, b->ldk, 0, scores, b->seen, NULL))
        return -1;
    for (int64_t i = 0; i < b->rows; i++) {
        float *row = scores + i * b->seen;
        int64_t n = attention_seen(a, b->first + i);

        if (a->mask != ATTENTION_NO_MASK)
            apply_mask(run, b->s, b->first + i, n, row);
        for (int64_t j = n; j < b->seen; j++)
            row[j] = -INFINITY;
    }
    return 0;
}

static void forward_blocks(void *context, int64_t begin, int64_t end, int thread)
{
    struct attention_run *run = context;
    const struct attention_kernel *k = run->k;
    const struct attention *a = &k->a;
    float *scores = run->workspace + thread * k->room;

    for (int64_t index = begin; index < end; index++) {
        struct block b = block_of(run, index / k->blocks, index % k->blocks);
        int64_t at = b.s * a->m + b.first;

        if (make_scores(run, &b, scores))
            run->failed[thread % 256] = 1;
        for (int64_t i = 0; i < b.rows; i++) {
            float *row = scores + i * b.seen, sum = 0;

            if (a->masked && run->simd->max((size_t)b.seen, row) < -FLT_MAX)
                memset(row, 0, (size_t)b.seen * sizeof(*row));
            else
                sum = run->simd->log_sum_exp((size_t)b.seen, row, row);
            if (k->saved)
                run->log_sums[at + i] = sum;
        }
        if (onednn_gemm(false, false, b.rows, a->e, b.seen, 1, scores, b.seen, b.v, a->e, 0,
                        run->y + at * a->e, a->e, NULL))
            run->failed[thread % 256] = 1;
    }
}

static int any_failed(const struct attention_run *run, struct err *err)
{
    for (int i = 0; i < 256; i++)
        if (run->failed[i])
            return err_set(err, "oneDNN: sgemm failed");
    return 0;
}

/* Enough pieces: a thread each. Few: the threads share each product. */
static void over_pieces(const struct attention_run *run, int64_t n, cpu_range *range)
{
    const struct device *device = run->k->base.device;

    if (n >= device->threads)
        cpu_parallel(device, n, 1, range, (void *)run);
    else
        range((void *)run, 0, n, 0);
}

static int attention_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct attention_kernel *k = (const struct attention_kernel *)kernel;
    struct attention_run run = { .k = k,
                                 .simd = kernel->device->simd,
                                 .q = args->inputs[0],
                                 .keys = args->inputs[1],
                                 .values = args->inputs[2],
                                 .mask = k->a.mask ? args->inputs[3] : NULL,
                                 .y = args->outputs[0],
                                 .log_sums = k->saved ? args->outputs[1] : NULL,
                                 .workspace = args->workspace };

    over_pieces(&run, k->a.stack * k->blocks, forward_blocks);
    return any_failed(&run, err);
}

/* Nothing is left to compute where there are no elements; the reference knows that. */
static bool is_empty(const struct attention *a)
{
    return a->stack < 1 || a->m < 1 || a->n < 1 || a->d < 1 || a->e < 1;
}

int cpu_make_attention(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct attention_kernel *k;
    struct attention a;

    (void)err;
    if (!cpu_all_plain(build) || attention_dims(build->graph, build->node, 0, 3, &a) ||
        is_empty(&a))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), attention_run);
    k->a = a;
    k->saved = cpu_output(build, 1) != NULL;
    k->blocks = (a.m + QUERIES - 1) / QUERIES;
    k->room = QUERIES * a.n;
    k->base.workspace = (size_t)(build->device->threads * k->room) * sizeof(float);
    *kernel = &k->base;
    return 0;
}

/* Gradients --------------------------------------------------------------------------- */

/* From scores to probabilities, and from the gradients of these to those of the scores. */
static void score_gradients(const struct attention_run *run, const struct block *b, float *p,
                            float *dp, float *dmask)
{
    const struct attention *a = &run->k->a;
    size_t n = (size_t)b->seen;

    for (int64_t i = 0; i < b->rows; i++, p += b->seen, dp += b->seen) {
        float sum = run->saved[b->s * a->m + b->first + i];
        int64_t at = attention_mask(a, b->s) + (b->first + i) * a->step_m;

        if (fabsf(sum) > (float)ATTENTION_LARGE) {
            run->simd->log_sum_exp(n, p, p);
        } else {
            run->simd->binary(SIMD_SUB, n, p, 1, &sum, 0, p);
            run->simd->unary(SIMD_EXP, n, p, p);
        }
        run->simd->softmax_grad(n, p, dp, dp);
        for (int64_t j = 0; a->mask == ATTENTION_CHOOSE && j < b->seen; j++)
            if (hides(a, (const uint8_t *)run->mask + at, j))
                dp[j] = 0;
        for (int64_t j = 0; dmask && j < b->seen; j++)
            dmask[at + j * a->step_n] += dp[j];
    }
}

static int block_gradients(const struct attention_run *run, const struct block *b, float *p,
                           float *dp, float *dmask)
{
    const struct attention *a = &run->k->a;
    int64_t at = b->s * a->m + b->first, keys = b->s / a->group;
    const float *dy = run->dy + at * a->e;
    float *dk = run->dk + keys * a->n * a->d, *dv = run->dv + keys * a->n * a->e;
    int failed;

    if (make_scores(run, b, p) ||
        onednn_gemm(false, true, b->rows, b->seen, a->e, 1, dy, a->e, b->v, a->e, 0, dp,
                    b->seen, NULL))
        return -1;
    score_gradients(run, b, p, dp, dmask);
    failed = onednn_gemm(true, false, b->seen, a->e, b->rows, 1, p, b->seen, dy, a->e, 1, dv,
                         a->e, NULL) ||
             onednn_gemm(false, a->trans_k, b->rows, a->d, b->seen, (float)a->scale, dp,
                         b->seen, b->k, b->ldk, 0, run->dq + at * a->d, a->d, NULL);
    if (a->trans_k)
        return failed || onednn_gemm(true, false, a->d, b->seen, b->rows, (float)a->scale, b->q,
                                     a->d, dp, b->seen, 1, dk, a->n, NULL);
    return failed || onednn_gemm(true, false, b->seen, a->d, b->rows, (float)a->scale, dp,
                                 b->seen, b->q, a->d, 1, dk, a->d, NULL);
}

/* All queries of the same keys and values are one thread's, which adds them up in order. */
static void backward_keys(void *context, int64_t begin, int64_t end, int thread)
{
    struct attention_run *run = context;
    const struct attention_kernel *k = run->k;
    const struct attention *a = &k->a;
    float *p = run->workspace + thread * k->room, *dp = p + QUERIES * a->n;
    float *dmask = k->dmask ? dp + QUERIES * a->n : NULL;

    memset(run->dk + begin * a->n * a->d, 0, (size_t)((end - begin) * a->n * a->d) *
           sizeof(float));
    memset(run->dv + begin * a->n * a->e, 0, (size_t)((end - begin) * a->n * a->e) *
           sizeof(float));
    for (int64_t s = begin * a->group; s < end * a->group; s++)
        for (int64_t index = 0; index < k->blocks; index++) {
            struct block b = block_of(run, s, index);

            if (block_gradients(run, &b, p, dp, dmask))
                run->failed[thread % 256] = 1;
        }
}

static int attention_grad_run(struct kernel *kernel, const struct kernel_args *args,
                              struct err *err)
{
    const struct attention_kernel *k = (const struct attention_kernel *)kernel;
    const struct device *device = kernel->device;
    struct attention_run run = { .k = k,
                                 .simd = device->simd,
                                 .dy = args->inputs[0],
                                 .q = args->inputs[1],
                                 .keys = args->inputs[2],
                                 .values = args->inputs[3],
                                 .saved = args->inputs[4],
                                 .mask = k->a.mask ? args->inputs[5] : NULL,
                                 .dq = args->outputs[0],
                                 .dk = args->outputs[1],
                                 .dv = args->outputs[2],
                                 .workspace = args->workspace };
    size_t mask = (size_t)k->a.mask_elements;

    for (int t = 0; k->dmask && t < device->threads; t++)
        memset(run.workspace + (t + 1) * k->room - mask, 0, mask * sizeof(float));
    over_pieces(&run, k->a.stack / k->a.group, backward_keys);
    if (k->dmask)
        memset(args->outputs[3], 0, mask * sizeof(float));
    for (int t = 0; k->dmask && t < device->threads; t++)
        run.simd->axpy(mask, 1, run.workspace + (t + 1) * k->room - mask, args->outputs[3]);
    return any_failed(&run, err);
}

int cpu_make_attention_grad(const struct cpu_build *build, struct kernel **kernel,
                            struct err *err)
{
    struct attention_kernel *k;
    struct attention a;

    (void)err;
    if (!cpu_all_plain(build) || attention_dims(build->graph, build->node, 1, 5, &a) ||
        is_empty(&a) || !cpu_output(build, 0) || !cpu_output(build, 1) || !cpu_output(build, 2))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), attention_grad_run);
    k->a = a;
    k->dmask = cpu_output(build, 3) != NULL;
    k->blocks = (a.m + QUERIES - 1) / QUERIES;
    k->room = 2 * QUERIES * a.n + (k->dmask ? a.mask_elements : 0);
    k->base.workspace = (size_t)(build->device->threads * k->room) * sizeof(float);
    *kernel = &k->base;
    return 0;
}
