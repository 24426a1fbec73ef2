/* SPDX-License-Identifier: MIT */
/* Attention by products of cuBLASLt with the scores of some matrices of the stack at a time in the
 * workspace.
 */
#include "kernels/cuda/cuda.h"

#define MOST_AT_ONCE 65535                  /* products of one launch */
#define ALIGNMENT ((size_t)256)

/* In 'products'; the first two of the gradient come before its kernel. */
enum { SCORES, VALUES };
enum { SLOPES = 1, DQ, DK, DV };

/* Queries of a group of matrices meet the same keys: together they are one matrix. */
struct turn {
    int64_t n_groups, at_once;  /* of them, in one go */
    int64_t rows;               /* of queries: those of a group */
    int64_t scores;             /* elements, in one go */
};

static bool aligned(int64_t elements)
{
    return elements % (int64_t)(16 / sizeof(float)) == 0;
}

/* What is done at a time begins where cuBLASLt wants it to. */
static bool fits(const struct attention *a, const struct turn *p, int64_t n)
{
    return p->n_groups % n == 0 && n <= MOST_AT_ONCE &&
           (n == p->n_groups || (aligned(n * p->rows * a->d) && aligned(n * p->rows * a->e) &&
                                 aligned(n * a->n * a->d) && aligned(n * a->n * a->e)));
}

static struct turn turn_with(const struct attention *a, int64_t at_once)
{
    int64_t rows = a->group * a->m;

    return (struct turn){ a->stack / a->group, at_once, rows, at_once * rows * a->n };
}

/* 'most': bytes of scores at a time, if they can be that few. */
static struct turn turn_of(const struct attention *a, int64_t most)
{
    struct turn p = turn_with(a, 0);

    for (int64_t n = p.n_groups; n > 0; n--)
        if (fits(a, &p, n)) {
            p = turn_with(a, n);
            if (p.scores * (int64_t)sizeof(float) <= most)
                break;
        }
    return p;
}

static size_t scores_bytes(const struct turn *p)
{
    return ((size_t)p->scores * sizeof(float) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

/* The gradient of a mask needs all of the stack at once. */
static int64_t most_at_once(const struct cuda_kernel *k)
{
    return k->digest->n_outputs > 3 && k->digest->out[3].elements >= 0 ? INT64_MAX
                                                                      : k->device->scores;
}

/* [m, k] [k, n], 'stack' times one behind the other, either stored transposed. */
struct product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    double alpha;
};

static int choose(struct cuda_kernel *k, int which, int64_t stack, struct product p)
{
    const struct cuda_runtime *cuda = k->device->cuda;
    struct cuda_matmul w = { .m = p.m, .n = p.n, .k = p.k, .lda = p.trans_a ? p.m : p.k,
                             .ldb = p.trans_b ? p.k : p.n, .ldy = p.n, .alpha = p.alpha,
                             .trans_a = p.trans_a, .trans_b = p.trans_b,
                             .tf32 = k->device->tf32 };
    size_t workspace;

    if (stack > 1) {
        w.rank = 1;
        w.dim[0] = stack;
        w.step_a[0] = p.m * p.k;
        w.step_b[0] = p.k * p.n;
        w.step_y[0] = p.m * p.n;
    }
    k->failed = cuda->matmul_new(k->device->gpu, &w, &k->products[which], k->err) < 0;
    if (!k->products[which])
        return -1;
    workspace = cuda->matmul_workspace(k->products[which]);
    k->workspace = workspace > k->workspace ? workspace : k->workspace;
    return 0;
}

static void describe(struct cuda_kernel *k, const struct turn *p)
{
    static const enum cuda_mask_kind kinds[] = {
        [ATTENTION_NO_MASK] = CUDA_MASK_NONE, [ATTENTION_ADD] = CUDA_MASK_ADD,
        [ATTENTION_CHOOSE] = CUDA_MASK_CHOOSE,
    };
    const struct attention *a = &k->digest->attention;
    struct cuda_attention *l = &k->launch.attention;

    *l = (struct cuda_attention){
        .count = p->at_once * a->group, .m = a->m, .n = a->n, .past = a->past,
        .step_m = a->step_m, .step_n = a->step_n,
        .rank = a->rank, .causal = a->causal, .masked = a->masked, .hide = a->hide,
        .mask_kind = kinds[a->mask], .team = a->n > 16, .fill = (float)a->fill,
    };
    for (int i = 0; i < a->rank; i++) {
        l->dim[i] = a->dim[i];
        l->step[i] = a->step[i];
    }
}

static bool has_output(const struct cuda_kernel *k, const struct kernel_args *args, int i)
{
    return k->digest->n_outputs > i && args->outputs[i];
}

static int multiply(const struct cuda_kernel *k, struct stream *stream, int which,
                    const float *a, const float *b, float *y, void *workspace, struct err *err)
{
    struct cuda_matmul_args r = { .a = a, .b = b, .y = y, .workspace = workspace };

    return k->device->cuda->matmul(stream->cuda, k->products[which], &r, err);
}

/* The scores' place, with 'index' before it that are as large. */
static float *place(const struct kernel_args *args, const struct turn *p, size_t index)
{
    uintptr_t base = ((uintptr_t)args->workspace + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);

    return (float *)(base + index * scores_bytes(p));
}

/* Forward -------------------------------------------------------------------------------- */

static int run_attention(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const float *query = args->inputs[0], *key = args->inputs[1], *value = args->inputs[2];
    struct cuda_attention l = k->launch.attention;
    struct turn p = turn_with(a, l.count / a->group);
    float *y = args->outputs[0], *workspace = place(args, &p, 1);

    l.mask = k->digest->n_inputs > 3 ? args->inputs[3] : NULL;
    l.scores = place(args, &p, 0);
    l.saved = has_output(k, args, 1) ? args->outputs[1] : NULL;
    for (int64_t g = 0; g < p.n_groups; g += p.at_once) {
        l.first = g * a->group;
        if (multiply(k, stream, SCORES, query + g * p.rows * a->d, key + g * a->n * a->d,
                     l.scores, workspace, err) ||
            k->device->cuda->attention(stream->cuda, &l, err) ||
            multiply(k, stream, VALUES, l.scores, value + g * a->n * a->e,
                     y + g * p.rows * a->e, workspace, err))
            return -1;
    }
    return 0;
}

static int make_attention(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct attention *a = &k->digest->attention;
    struct turn p = turn_of(a, most_at_once(k));

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || p.scores == 0 ||
        choose(k, SCORES, p.at_once, (struct product){ p.rows, a->n, a->d, false, !a->trans_k,
                                                       a->scale }) ||
        choose(k, VALUES, p.at_once, (struct product){ p.rows, a->e, a->n, false, false, 1 }))
        return -1;
    describe(k, &p);
    k->workspace += scores_bytes(&p) + ALIGNMENT;
    k->run = run_attention;
    return 0;
}

/* Backward ------------------------------------------------------------------------------- */

/* What the mask was broadcast over is summed up. */
static size_t plan_mask(const struct attention *a, struct cuda_reduce *reduce)
{
    struct walk walk = { .rank = a->rank + 2, .n = 1 };

    for (int i = 0; i < a->rank; i++) {
        walk.dim[i] = a->dim[i];
        walk.stride[0][i] = a->step[i];
    }
    walk.dim[a->rank] = a->m;
    walk.stride[0][a->rank] = a->step_m;
    walk.dim[a->rank + 1] = a->n;
    walk.stride[0][a->rank + 1] = a->step_n;
    return cuda_plan_sum(reduce, &walk);
}

static int sum_mask(const struct cuda_kernel *k, struct stream *stream, const float *slopes,
                    void *parts, float *dmask, struct err *err)
{
    struct cuda_reduce reduce = { .x = slopes, .out = dmask, .parts = parts };

    (void)plan_mask(&k->digest->attention, &reduce);
    return k->device->cuda->reduce(stream->cuda, &reduce, err);
}

static int run_products(const struct cuda_kernel *k, struct stream *stream,
                        const struct kernel_args *args, const struct turn *p, int64_t g,
                        const struct cuda_attention *l, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const float *dy = (const float *)args->inputs[0] + g * p->rows * a->e;
    const float *query = (const float *)args->inputs[1] + g * p->rows * a->d;
    const float *key = (const float *)args->inputs[2] + g * a->n * a->d;
    float *workspace = place(args, p, 2), *out;

    out = has_output(k, args, 0) ? (float *)args->outputs[0] + g * p->rows * a->d : NULL;
    if (out && multiply(k, stream, DQ, l->slopes, key, out, workspace, err))
        return -1;
    out = has_output(k, args, 1) ? (float *)args->outputs[1] + g * a->n * a->d : NULL;
    if (out && multiply(k, stream, DK, a->trans_k ? query : l->slopes,
                        a->trans_k ? l->slopes : query, out, workspace, err))
        return -1;
    out = has_output(k, args, 2) ? (float *)args->outputs[2] + g * a->n * a->e : NULL;
    return out ? multiply(k, stream, DV, l->scores, dy, out, workspace, err) : 0;
}

static int run_attention_grad(const struct cuda_kernel *k, struct stream *stream,
                              const struct kernel_args *args, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const float *dy = args->inputs[0], *query = args->inputs[1], *key = args->inputs[2],
                *value = args->inputs[3];
    struct cuda_attention l = k->launch.attention;
    struct turn p = turn_with(a, l.count / a->group);
    float *workspace = place(args, &p, 2);

    l.mask = k->digest->n_inputs > 5 ? args->inputs[5] : NULL;
    l.scores = place(args, &p, 0);
    l.slopes = place(args, &p, 1);
    l.saved = (float *)(uintptr_t)args->inputs[4];
    for (int64_t g = 0; g < p.n_groups; g += p.at_once) {
        l.first = g * a->group;
        if (multiply(k, stream, SCORES, query + g * p.rows * a->d, key + g * a->n * a->d,
                     l.scores, workspace, err) ||
            multiply(k, stream, SLOPES, dy + g * p.rows * a->e, value + g * a->n * a->e,
                     l.slopes, workspace, err) ||
            k->device->cuda->attention(stream->cuda, &l, err) ||
            run_products(k, stream, args, &p, g, &l, err))
            return -1;
    }
    return has_output(k, args, 3)
               ? sum_mask(k, stream, l.slopes, workspace, args->outputs[3], err)
               : 0;
}

static int choose_gradients(struct cuda_kernel *k, const struct turn *p)
{
    const struct attention *a = &k->digest->attention;
    int64_t n = p->at_once;

    if (choose(k, SCORES, n, (struct product){ p->rows, a->n, a->d, false, !a->trans_k,
                                               a->scale }) ||
        choose(k, SLOPES, n, (struct product){ p->rows, a->n, a->e, false, true, 1 }) ||
        choose(k, DQ, n, (struct product){ p->rows, a->d, a->n, false, a->trans_k, a->scale }) ||
        choose(k, DV, n, (struct product){ a->n, a->e, p->rows, true, false, 1 }))
        return -1;
    return a->trans_k ? choose(k, DK, n, (struct product){ a->d, a->n, p->rows, true, false,
                                                           a->scale })
                      : choose(k, DK, n, (struct product){ a->n, a->d, p->rows, true, false,
                                                           a->scale });
}

static int make_attention_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct attention *a = &k->digest->attention;
    bool sums = k->digest->n_outputs > 3 && k->digest->out[3].elements >= 0;
    struct turn p = turn_of(a, most_at_once(k));
    struct cuda_reduce reduce = { 0 };
    size_t parts = sums ? plan_mask(a, &reduce) : 0;

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || p.scores == 0 || (sums && p.at_once < p.n_groups) ||
        choose_gradients(k, &p))
        return -1;
    describe(k, &p);
    k->workspace = (parts > k->workspace ? parts : k->workspace) + 2 * scores_bytes(&p) +
                   ALIGNMENT;
    k->run = run_attention_grad;
    return 0;
}

const struct cuda_op cuda_ops_attention[] = {
    { "Attention", make_attention, 0 },
    { "AttentionGrad", make_attention_grad, 0 },
    { NULL, NULL, 0 },
};
