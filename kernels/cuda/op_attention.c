/* SPDX-License-Identifier: MIT */
/* Attention by products of cuBLASLt with the scores of some matrices of the stack at a time in the
 * workspace; of 16 bits by cuDNN, which keeps none, where it can.
 */
#include <math.h>

#include "base/err.h"
#include "graph/ops/attention.h"
#include "kernels/cuda/cuda.h"

#define MOST_AT_ONCE 65535                  /* products of one launch */
#define ALIGNMENT ((size_t)256)             /* a power of two */
#define MASK_GRADIENT 3                     /* the output of AttentionGrad */

/* In 'products'; the first two of the gradient come before its kernel. */
enum { SCORES, VALUES };
enum { SLOPES = 1, DQ, DK, DV };

/* Queries of a group of matrices meet the same keys: together they are one matrix. */
struct turn {
    int64_t n_groups, at_once;  /* of them, in one go */
    int64_t rows;               /* of queries: those of a group */
    int64_t scores;             /* elements, in one go */
};

static size_t element_bytes(const struct cuda_kernel *k)
{
    return cuda_element_bytes(k, DTYPE_F32);
}

/* What is done at a time begins where cuBLASLt wants it to. */
static bool fits(const struct cuda_kernel *k, const struct turn *p, int64_t n)
{
    const struct attention *a = &k->digest->attention;
    int64_t step = 16 / (int64_t)element_bytes(k);

    return p->n_groups % n == 0 && n <= MOST_AT_ONCE &&
           (n == p->n_groups || (n * p->rows * a->d % step == 0 && n * p->rows * a->e % step == 0 &&
                                 n * a->n * a->d % step == 0 && n * a->n * a->e % step == 0));
}

static struct turn turn_with(const struct attention *a, int64_t at_once)
{
    int64_t rows = a->group * a->m;

    return (struct turn){ a->stack / a->group, at_once, rows, at_once * rows * a->n };
}

/* 'most': bytes of scores at a time, if they can be that few. */
static struct turn turn_of(const struct cuda_kernel *k, int64_t most)
{
    const struct attention *a = &k->digest->attention;
    struct turn p = turn_with(a, 0);

    for (int64_t n = p.n_groups; n > 0; n--)
        if (fits(k, &p, n)) {
            p = turn_with(a, n);
            if (p.scores * (int64_t)sizeof(float) <= most)
                break;
        }
    return p;
}

/* What a turn has in the workspace; where values are float32 results take the place of scores. */
struct room {
    float *scores, *slopes;
    void *probabilities, *gradients;
    void *products;             /* of what cuBLASLt works with */
};

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

static char *take(char **at, size_t bytes)
{
    char *place = *at;

    *at += rounded(bytes);
    return place;
}

static char *first_place(void *workspace)
{
    return (char *)(((uintptr_t)workspace + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
}

static struct room room_at(const struct cuda_kernel *k, const struct turn *p, bool gradient,
                           void *workspace)
{
    char *at = first_place(workspace);
    size_t n = (size_t)p->scores;
    struct room r = { .scores = (float *)(void *)take(&at, n * sizeof(float)) };

    if (gradient)
        r.slopes = (float *)(void *)take(&at, n * sizeof(float));
    r.probabilities = k->narrow ? take(&at, n * CUDA_NARROW_BYTES) : (void *)r.scores;
    r.gradients = k->narrow && gradient ? take(&at, n * CUDA_NARROW_BYTES) : (void *)r.slopes;
    r.products = at;
    return r;
}

/* And how much that is, without what products want. */
static size_t room_bytes(const struct cuda_kernel *k, const struct turn *p, bool gradient)
{
    size_t n = (size_t)p->scores;
    size_t results = k->narrow ? rounded(n * CUDA_NARROW_BYTES) : 0;

    return (rounded(n * sizeof(float)) + results) * (gradient ? 2 : 1) + ALIGNMENT;
}

static bool wants(const struct cuda_kernel *k, int i)
{
    return k->digest->n_outputs > i && k->digest->out[i].elements >= 0;
}

/* The gradient of a mask needs all of the stack at once. */
static int64_t most_at_once(const struct cuda_kernel *k)
{
    return wants(k, MASK_GRADIENT) ? INT64_MAX : k->device->scores;
}

/* [m, k] [k, n], 'stack' times one behind the other, either stored transposed. */
struct product {
    int64_t m, n, k;
    bool trans_a, trans_b;
    double alpha;
    bool to_scores;             /* the result is float32 in any case */
};

static int choose(struct cuda_kernel *k, int which, int64_t stack, struct product p)
{
    const struct cuda_runtime *cuda = k->device->cuda;
    struct cuda_matmul w = { .m = p.m, .n = p.n, .k = p.k, .lda = p.trans_a ? p.m : p.k,
                             .ldb = p.trans_b ? p.k : p.n, .ldy = p.n, .alpha = p.alpha,
                             .trans_a = p.trans_a, .trans_b = p.trans_b,
                             .tf32 = k->device->tf32 && !k->narrow, .narrow = k->narrow,
                             .narrow_y = p.to_scores ? CUDA_WIDE : k->narrow };
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
        .narrow = k->narrow, .mask_kind = kinds[a->mask], .team = a->n > 16, .fill = (float)a->fill,
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
                    const void *a, const void *b, void *y, void *workspace, struct err *err)
{
    struct cuda_matmul_args r = { .a = a, .b = b, .y = y, .workspace = workspace };

    return k->device->cuda->matmul(stream->cuda, k->products[which], &r, err);
}

static const void *go_on(const struct cuda_kernel *k, const void *x, int64_t elements)
{
    return (const char *)x + elements * (int64_t)element_bytes(k);
}

/* Of a run: where all is that a turn works with. */
static void set_places(struct cuda_attention *l, const struct room *r, const void *mask)
{
    if (l->mask_kind == CUDA_MASK_ADD)
        l->mask_add = mask;
    else
        l->mask_choose = mask;
    l->scores = r->scores;
    l->slopes = r->slopes;
    l->probabilities = r->probabilities;
    l->gradients = r->gradients;
}

/* Forward -------------------------------------------------------------------------------- */

static int run_attention(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const void *query = args->inputs[0], *key = args->inputs[1], *value = args->inputs[2];
    struct cuda_attention l = k->launch.attention;
    struct turn p = turn_with(a, l.count / a->group);
    struct room r = room_at(k, &p, false, args->workspace);

    set_places(&l, &r, k->digest->n_inputs > 3 ? args->inputs[3] : NULL);
    l.saved = has_output(k, args, 1) ? args->outputs[1] : NULL;
    for (int64_t g = 0; g < p.n_groups; g += p.at_once) {
        void *y = (char *)args->outputs[0] + g * p.rows * a->e * (int64_t)element_bytes(k);

        l.first = g * a->group;
        if (multiply(k, stream, SCORES, go_on(k, query, g * p.rows * a->d),
                     go_on(k, key, g * a->n * a->d), r.scores, r.products, err) ||
            k->device->cuda->attention(stream->cuda, &l, err) ||
            multiply(k, stream, VALUES, r.probabilities, go_on(k, value, g * a->n * a->e), y,
                     r.products, err))
            return -1;
    }
    return 0;
}

/* Without scores ------------------------------------------------------------------------- */

#define FUSED_STEP 8            /* what cuDNN's kernels want widths to be multiples of */
#define FUSED_WIDEST 128

/* Of a row cuDNN's gradient knows no more than the logarithm of its sum, which is not enough of numbers as
 * large as those that hide (attention_large.h), and what begins with infinite ones may be none of its
 * business. What leaves something of each row it gets as it is, other masks are shifted first
 * (launch_attention.h).
 */
enum mask_way { MASK_AS_IT_IS, MASK_SHIFTED, MASK_REFUSED };

/* Lowering says so of an attention and of its gradient, of which each sees what the other saw. */
#define SHIFTED "shifted"

/* A query all of whose keys are hidden by numbers, -1e9 say, would see them all, shifted, as if there was no
 * mask; where that is known beforehand it is left to float32, of which it sees the mean.
 */
static enum mask_way way_of_row(const float *row, int64_t seen)
{
    double most = -INFINITY;
    bool endless = false;

    for (int64_t j = 0; j < seen; j++) {
        most = row[j] > most ? row[j] : most;
        endless |= !isfinite(row[j]);
    }
    if (most == -INFINITY || (endless && !(fabs(row[0]) < ATTENTION_LARGE)))
        return MASK_SHIFTED;
    return fabs(most) < ATTENTION_LARGE ? MASK_AS_IT_IS : MASK_REFUSED;
}

static int64_t mask_columns(const struct attention *a)
{
    return a->step_n ? a->n : 1;
}

static enum mask_way way_of(const struct graph *graph, int v, const struct attention *a)
{
    const struct value *mask = v < 0 ? NULL : &graph->values[v];
    int64_t columns = mask_columns(a);
    enum mask_way way = MASK_AS_IT_IS;
    const float *row;

    if (!mask)
        return MASK_AS_IT_IS;
    if (a->causal && !a->step_m)        /* its rows have several largest numbers */
        return MASK_REFUSED;
    if (a->mask == ATTENTION_CHOOSE || mask->kind != VALUE_CONST || !mask->data ||
        mask->dtype != DTYPE_F32)
        return MASK_SHIFTED;
    row = mask->data;
    for (int64_t i = 0; i < a->mask_elements / columns && way != MASK_REFUSED; i++, row += columns) {
        int64_t seen = attention_seen(a, i % a->m);
        enum mask_way own = way_of_row(row, seen < columns ? seen : columns);

        way = own > way ? own : way;
    }
    return a->causal && way == MASK_AS_IT_IS ? MASK_SHIFTED : way;
}

/* Is there none, or one that is added, or hides, of [samples, heads, m, n]? */
static bool can_mask(const struct attention *a)
{
    return a->mask == ATTENTION_NO_MASK ||
           (a->rank > 0 && a->rank <= 2 && (a->mask == ATTENTION_ADD || a->fill == -INFINITY));
}

static bool can_be_fused(const struct attention *a)
{
    return !a->trans_k && can_mask(a) && !(a->causal && a->past) &&
           a->d % FUSED_STEP == 0 && a->e % FUSED_STEP == 0 && a->d <= FUSED_WIDEST &&
           a->e <= FUSED_WIDEST && a->stack > 0 && a->m > 0 && a->n > 0 && a->d > 0 && a->e > 0;
}

/* Do turns of so many samples begin where cuDNN wants operands to? */
static bool turns_fit(const struct attention *a, int64_t samples, int64_t n)
{
    int64_t words = 16 / (int64_t)sizeof(float);

    return n == samples ||
           (samples % n == 0 && n * a->dim[a->rank - 1] * a->m % words == 0 &&
            (a->mask == ATTENTION_NO_MASK || a->rank < 2 || n * a->step[0] % words == 0));
}

/* A gradient has its scores, of 16 bits, in the scratch: as many samples as may have theirs there at a
 * time, or as few as can.
 */
static int64_t samples_at_once(const struct device *device, const struct attention *a, bool gradient)
{
    int64_t heads = a->dim[a->rank - 1], samples = a->stack / heads, best = 0;
    double each = (double)heads * (double)a->m * (double)a->n * (double)CUDA_NARROW_BYTES;

    if (!gradient)
        return samples;
    for (int64_t n = 1; n <= samples; n++)
        if (turns_fit(a, samples, n) && (best == 0 || (double)n * each <= (double)device->scores))
            best = n;
    return best;
}

static struct cuda_sdpa fused(const struct device *device, const struct attention *a, bool gradient,
                              int64_t turned)
{
    int64_t heads = a->dim[a->rank - 1];
    struct cuda_sdpa sdpa = { .batch = samples_at_once(device, a, gradient), .heads = heads,
                              .group = a->group, .m = a->m, .n = a->n, .d = a->d, .e = a->e,
                              .scale = a->scale, .causal = a->causal, .gradient = gradient,
                              .narrow = device->narrow, .turned = turned,
                              .masked = a->mask != ATTENTION_NO_MASK };

    if (sdpa.masked) {
        sdpa.mask[0] = a->rank > 1 && a->step[0] ? sdpa.batch : 1;
        sdpa.mask[1] = a->step[a->rank - 1] ? heads : 1;
        sdpa.mask[2] = a->step_m ? a->m : 1;
        sdpa.mask[3] = a->step_n ? a->n : 1;
    }
    return sdpa;
}

static bool is_known(struct device *device, const struct cuda_sdpa *sdpa)
{
    struct cuda_sdpa_kernel *kernel = NULL;
    struct err err = { 0 };

    if (device->cuda->sdpa_new(device->gpu, sdpa, &kernel, &err) || !kernel)
        return false;
    device->cuda->sdpa_free(kernel);
    return true;
}

static bool has_fused(struct device *device, const struct attention *a, bool gradient)
{
    struct cuda_sdpa sdpa = fused(device, a, gradient, 0);

    return is_known(device, &sdpa);
}

bool cuda_attention_fused(struct device *device, struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];
    int source = n->source;
    enum mask_way way;
    struct attention a;

    for (int i = 0; i < 4; i++)
        if ((n->n_outputs > i && n->outputs[i] >= 0) != (i < MASK_GRADIENT))
            return false;
    if (attention_dims(graph, node, 1, 5, &a) || !can_be_fused(&a))
        return false;
    way = way_of(graph, n->n_inputs > 5 ? n->inputs[5] : -1, &a);
    if (way == MASK_REFUSED || !has_fused(device, &a, true) ||
        (way == MASK_SHIFTED && !has_fused(device, &a, false)))
        return false;
    if (way == MASK_AS_IT_IS)
        return true;
    graph_set_int(graph, node, SHIFTED, 1);
    graph_set_int(graph, source, SHIFTED, 1);
    return true;
}

#define FORWARD_OPERANDS \
    ((int64_t)(1 << CUDA_SDPA_Q | 1 << CUDA_SDPA_K | 1 << CUDA_SDPA_V | 1 << CUDA_SDPA_Y))

bool cuda_attention_turns(struct device *device, const struct graph *graph, int node, int64_t turned)
{
    struct cuda_sdpa forward, gradient;
    struct attention a;

    if (attention_dims(graph, node, 1, 5, &a))
        return false;
    forward = fused(device, &a, false, turned & FORWARD_OPERANDS);
    gradient = fused(device, &a, true, turned);
    return is_known(device, &forward) && is_known(device, &gradient);
}

/* What takes the place of the mask is at the start of the workspace, which goes on behind it. */
struct shifted {
    float *mask;
    unsigned char *unseen;      /* NULL: nobody asks */
};

/* Bytes, if somebody does. */
static size_t unseen_bytes(const struct attention *a)
{
    return a->masked ? (size_t)(a->mask_elements / mask_columns(a)) : 0;
}

static size_t shifted_bytes(const struct attention *a)
{
    return rounded((size_t)a->mask_elements * sizeof(float)) + rounded(unseen_bytes(a)) + ALIGNMENT;
}

static int shift_mask(const struct cuda_kernel *k, struct stream *stream, struct cuda_sdpa_args *r,
                      struct shifted *shifted, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    struct cuda_mask l = { .columns = mask_columns(a), .m = a->step_m ? a->m : 1,
                           .causal = a->causal, .hide = a->hide };
    char *at = first_place(r->workspace);

    *shifted = (struct shifted){ NULL, NULL };
    if (!k->shifted)
        return 0;
    shifted->mask = (float *)(void *)take(&at, (size_t)a->mask_elements * sizeof(float));
    shifted->unseen = a->masked ? (unsigned char *)take(&at, unseen_bytes(a)) : NULL;
    l.rows = a->mask_elements / l.columns;
    l.team = l.columns > 16;
    if (a->mask == ATTENTION_ADD)
        l.add = r->mask;
    else
        l.choose = (const unsigned char *)(const void *)r->mask;
    l.out = shifted->mask;
    l.unseen = shifted->unseen;
    r->mask = shifted->mask;
    r->workspace = at;
    return k->device->cuda->mask(stream->cuda, &l, err);
}

static int clear_unseen(const struct cuda_kernel *k, struct stream *stream,
                        const struct kernel_args *args, const struct shifted *shifted,
                        struct err *err)
{
    const struct attention *a = &k->digest->attention;
    int64_t columns = mask_columns(a);
    struct cuda_unseen l = { .stack = a->stack, .m = a->m, .e = a->e,
                             .step_m = a->step_m / columns, .rank = a->rank,
                             .turned = k->turned_operand[k->digest->n_inputs],
                             .unseen = shifted->unseen, .y = args->outputs[0],
                             .saved = args->outputs[1] };

    if (!shifted->unseen)
        return 0;
    for (int i = 0; i < a->rank; i++) {
        l.dim[i] = a->dim[i];
        l.step[i] = a->step[i] / columns;
    }
    return k->device->cuda->unseen(stream->cuda, &l, err);
}

static int run_fused(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    struct cuda_sdpa_args r = { .q = args->inputs[0], .k = args->inputs[1], .v = args->inputs[2],
                                .y = args->outputs[0], .saved = args->outputs[1],
                                .mask = k->digest->n_inputs > 3 ? args->inputs[3] : NULL,
                                .workspace = args->workspace };
    struct shifted shifted;

    if (shift_mask(k, stream, &r, &shifted, err) ||
        k->device->cuda->sdpa(stream->cuda, k->sdpa, &r, err))
        return -1;
    return clear_unseen(k, stream, args, &shifted, err);
}

static const void *narrow_on(const void *x, int64_t elements)
{
    return (const char *)x + elements * (int64_t)CUDA_NARROW_BYTES;
}

static const void *float_on(const void *x, int64_t elements)
{
    return x ? (const float *)x + elements : NULL;
}

/* To the samples after those of one turn. */
static void next_turn(const struct cuda_kernel *k, struct cuda_sdpa_args *r)
{
    const struct attention *a = &k->digest->attention;
    int64_t queries = k->samples_at_once * a->dim[a->rank - 1] * a->m;
    int64_t keys = k->samples_at_once * a->dim[a->rank - 1] / a->group * a->n;
    int64_t masks = a->rank > 1 ? k->samples_at_once * a->step[0] : 0;

    r->q = narrow_on(r->q, queries * a->d);
    r->dq = narrow_on(r->dq, queries * a->d);
    r->y = narrow_on(r->y, queries * a->e);
    r->dy = narrow_on(r->dy, queries * a->e);
    r->k = narrow_on(r->k, keys * a->d);
    r->dk = narrow_on(r->dk, keys * a->d);
    r->v = narrow_on(r->v, keys * a->e);
    r->dv = narrow_on(r->dv, keys * a->e);
    r->saved = float_on(r->saved, queries);
    r->mask = float_on(r->mask, masks);
}

static int run_fused_gradient(const struct cuda_kernel *k, struct stream *stream,
                              const struct kernel_args *args, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    int64_t samples = a->stack / a->dim[a->rank - 1];
    struct cuda_sdpa_args r = { .q = args->inputs[1], .k = args->inputs[2], .v = args->inputs[3],
                                .y = args->inputs[CUDA_GRAD_Y], .saved = args->inputs[4],
                                .mask = args->inputs[5], .dy = args->inputs[0], .dq = args->outputs[0],
                                .dk = args->outputs[1], .dv = args->outputs[2],
                                .workspace = args->workspace };
    struct shifted shifted;

    if (shift_mask(k, stream, &r, &shifted, err))
        return -1;
    for (int64_t done = 0; done < samples; done += k->samples_at_once) {
        if (k->device->cuda->sdpa(stream->cuda, k->sdpa, &r, err))
            return -1;
        next_turn(k, &r);
    }
    return 0;
}

/* All that it makes, and nothing else. */
static bool wants_all(const struct cuda_kernel *k, int n)
{
    for (int i = 0; i < n; i++)
        if (!wants(k, i))
            return false;
    return !wants(k, MASK_GRADIENT);
}

/* Bits of cuda_sdpa.turned, as operands of a node are numbered. */
static int64_t turned_of(const struct cuda_kernel *k, bool gradient)
{
    const bool *turned = k->turned_operand;
    int n = k->digest->n_inputs;
    int64_t bits = 0;

    for (int i = 0; i < 3; i++) {
        bits |= (int64_t)turned[gradient ? i + 1 : i] << (CUDA_SDPA_Q + i);
        if (gradient)
            bits |= (int64_t)turned[n + i] << (CUDA_SDPA_DQ + i);
    }
    if (gradient)
        bits |= (int64_t)turned[0] << CUDA_SDPA_DY;
    return bits | (int64_t)turned[gradient ? CUDA_GRAD_Y : n] << CUDA_SDPA_Y;
}

static bool is_turned(const struct cuda_kernel *k)
{
    bool any = false;

    for (int i = 0; i < k->digest->n_inputs + k->digest->n_outputs; i++)
        any = any || k->turned_operand[i];
    return any;
}

/* Nothing else reads operands that are turned, or goes with a partner that sees the mask shifted. */
static int refuse(struct cuda_kernel *k)
{
    if (!k->failed && (is_turned(k) || k->shifted))
        k->failed = err_set(k->err, "%s: cuDNN no longer has this attention", k->device->name) < 0;
    return -1;
}

static int make_fused(struct cuda_kernel *k, const struct graph *graph, int node, bool gradient)
{
    const struct node *n = &graph->nodes[node];
    const struct attention *a = &k->digest->attention;
    struct cuda_sdpa sdpa;
    int mask = gradient ? 5 : 3;

    k->shifted = node_int(n, SHIFTED, 0) != 0;
    if (!k->narrow || !can_be_fused(a) || !wants_all(k, gradient ? 3 : 2) ||
        (!k->shifted &&
         way_of(graph, n->n_inputs > mask ? n->inputs[mask] : -1, a) != MASK_AS_IT_IS) ||
        (gradient && k->digest->n_inputs <= CUDA_GRAD_Y))
        return refuse(k);
    sdpa = fused(k->device, a, gradient, turned_of(k, gradient));
    k->failed = k->device->cuda->sdpa_new(k->device->gpu, &sdpa, &k->sdpa, k->err) < 0;
    if (!k->sdpa)
        return refuse(k);
    k->samples_at_once = sdpa.batch;
    k->workspace = k->device->cuda->sdpa_workspace(k->sdpa) + (k->shifted ? shifted_bytes(a) : 0);
    k->run = gradient ? run_fused_gradient : run_fused;
    return 0;
}

/* Of a run in 16 bits cuDNN's might have been expected. */
static void count_unfused(struct cuda_kernel *k)
{
    if (!k->device->narrow)
        return;
    k->unfused = true;
    fallbacks_add(&k->device->fallbacks, FALLBACK_UNFUSED, k->digest->entry->op, 1);
}

static int make_attention(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct attention *a = &k->digest->attention;
    struct turn p = turn_of(k, most_at_once(k));

    if (make_fused(k, graph, node, false) == 0)
        return 0;
    if (k->failed || !cuda_is_f32(k) || p.scores == 0 ||
        choose(k, SCORES, p.at_once, (struct product){ p.rows, a->n, a->d, false, !a->trans_k,
                                                       a->scale, true }) ||
        choose(k, VALUES, p.at_once, (struct product){ p.rows, a->e, a->n, false, false, 1, false }))
        return -1;
    describe(k, &p);
    k->workspace += room_bytes(k, &p, false);
    k->run = run_attention;
    count_unfused(k);
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

static int sum_mask(const struct cuda_kernel *k, struct stream *stream, const void *gradients,
                    void *parts, float *dmask, struct err *err)
{
    struct cuda_reduce reduce = { .narrow = k->narrow, .x = gradients, .out = dmask,
                                  .parts = parts };

    (void)plan_mask(&k->digest->attention, &reduce);
    return k->device->cuda->reduce(stream->cuda, &reduce, err);
}

/* Where group g's part of output i begins; NULL where nobody wants it. */
static void *output(const struct cuda_kernel *k, const struct kernel_args *args, int i,
                    int64_t elements)
{
    return has_output(k, args, i)
               ? (char *)args->outputs[i] + elements * (int64_t)element_bytes(k) : NULL;
}

static int run_products(const struct cuda_kernel *k, struct stream *stream,
                        const struct kernel_args *args, const struct turn *p, int64_t g,
                        const struct room *r, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const void *dy = go_on(k, args->inputs[0], g * p->rows * a->e);
    const void *query = go_on(k, args->inputs[1], g * p->rows * a->d);
    const void *key = go_on(k, args->inputs[2], g * a->n * a->d);
    void *out = output(k, args, 0, g * p->rows * a->d);

    if (out && multiply(k, stream, DQ, r->gradients, key, out, r->products, err))
        return -1;
    out = output(k, args, 1, g * a->n * a->d);
    if (out && multiply(k, stream, DK, a->trans_k ? query : r->gradients,
                        a->trans_k ? r->gradients : query, out, r->products, err))
        return -1;
    out = output(k, args, 2, g * a->n * a->e);
    return out ? multiply(k, stream, DV, r->probabilities, dy, out, r->products, err) : 0;
}

static int run_attention_grad(const struct cuda_kernel *k, struct stream *stream,
                              const struct kernel_args *args, struct err *err)
{
    const struct attention *a = &k->digest->attention;
    const void *dy = args->inputs[0], *query = args->inputs[1], *key = args->inputs[2],
               *value = args->inputs[3];
    struct cuda_attention l = k->launch.attention;
    struct turn p = turn_with(a, l.count / a->group);
    struct room r = room_at(k, &p, true, args->workspace);

    set_places(&l, &r, k->digest->n_inputs > 5 ? args->inputs[5] : NULL);
    l.saved = (float *)(uintptr_t)args->inputs[4];
    for (int64_t g = 0; g < p.n_groups; g += p.at_once) {
        l.first = g * a->group;
        if (multiply(k, stream, SCORES, go_on(k, query, g * p.rows * a->d),
                     go_on(k, key, g * a->n * a->d), r.scores, r.products, err) ||
            multiply(k, stream, SLOPES, go_on(k, dy, g * p.rows * a->e),
                     go_on(k, value, g * a->n * a->e), r.slopes, r.products, err) ||
            k->device->cuda->attention(stream->cuda, &l, err) ||
            run_products(k, stream, args, &p, g, &r, err))
            return -1;
    }
    return has_output(k, args, 3)
               ? sum_mask(k, stream, r.gradients, r.products, args->outputs[3], err)
               : 0;
}

static int choose_gradients(struct cuda_kernel *k, const struct turn *p)
{
    const struct attention *a = &k->digest->attention;
    int64_t n = p->at_once;

    if (choose(k, SCORES, n, (struct product){ p->rows, a->n, a->d, false, !a->trans_k,
                                               a->scale, true }) ||
        choose(k, SLOPES, n, (struct product){ p->rows, a->n, a->e, false, true, 1, true }) ||
        choose(k, DQ, n, (struct product){ p->rows, a->d, a->n, false, a->trans_k, a->scale, false }) ||
        choose(k, DV, n, (struct product){ a->n, a->e, p->rows, true, false, 1, false }))
        return -1;
    return a->trans_k ? choose(k, DK, n, (struct product){ a->d, a->n, p->rows, true, false,
                                                           a->scale, false })
                      : choose(k, DK, n, (struct product){ a->n, a->d, p->rows, true, false,
                                                           a->scale, false });
}

static int make_attention_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct attention *a = &k->digest->attention;
    bool sums = wants(k, MASK_GRADIENT);
    struct turn p = turn_of(k, most_at_once(k));
    struct cuda_reduce reduce = { .narrow = k->narrow };
    size_t parts = sums ? plan_mask(a, &reduce) : 0;

    if (make_fused(k, graph, node, true) == 0)
        return 0;
    if (k->failed || !cuda_is_f32(k) || p.scores == 0 || (sums && p.at_once < p.n_groups) ||
        choose_gradients(k, &p))
        return -1;
    describe(k, &p);
    k->workspace = (parts > k->workspace ? parts : k->workspace) + room_bytes(k, &p, true);
    k->run = run_attention_grad;
    count_unfused(k);
    return 0;
}

const struct cuda_op cuda_ops_attention[] = {
    { "Attention", make_attention, 0 },
    { "AttentionGrad", make_attention_grad, 0 },
    { NULL, NULL, 0 },
};
