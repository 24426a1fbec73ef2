/* SPDX-License-Identifier: MIT */
/* Products of matrices by cuBLASLt: MatMul, Gemm, and Linear with its gradients. */
#include "base/err.h"
#include "kernels/cuda/cuda.h"

#define MOST_AT_ONCE 65535      /* products of one launch: blocks along an axis of a grid */

/* The stack ------------------------------------------------------------------------------ */

struct axis {
    int64_t dim, a, b, y;       /* and steps */
};

static void add_axis(struct cuda_matmul *w, struct axis axis)
{
    w->dim[w->rank] = axis.dim;
    w->step_a[w->rank] = axis.a;
    w->step_b[w->rank] = axis.b;
    w->step_y[w->rank] = axis.y;
    w->rank++;
}

static struct axis last_axis(const struct cuda_matmul *w)
{
    int i = w->rank - 1;

    return (struct axis){ w->dim[i], w->step_a[i], w->step_b[i], w->step_y[i] };
}

/* From the innermost axis outwards, those of one element left out and those merged that are one
 * behind the other for all three.
 */
static void find_stack(struct cuda_matmul *w, const struct matmul *m)
{
    struct axis axis = { .a = m->m * m->k, .b = m->k * m->n, .y = m->m * m->n };

    for (int i = m->rank - 1; i >= 0; i--) {
        struct axis now = { m->dim[i], m->dim_a[i] == 1 ? 0 : axis.a,
                            m->dim_b[i] == 1 ? 0 : axis.b, axis.y };
        struct axis inner = w->rank ? last_axis(w) : now;

        axis = (struct axis){ 0, axis.a * m->dim_a[i], axis.b * m->dim_b[i],
                              axis.y * m->dim[i] };
        if (now.dim == 1)
            continue;
        if (w->rank && now.a == inner.a * inner.dim && now.b == inner.b * inner.dim &&
            now.y == inner.y * inner.dim)
            w->dim[w->rank - 1] *= now.dim;
        else
            add_axis(w, now);
    }
}

/* [s, m, k] x [k, n] is one product of s*m rows. */
static void merge_rows(struct cuda_matmul *w)
{
    if (w->rank == 0 || w->trans_a || w->step_b[0] != 0 || w->step_a[0] != w->m * w->k ||
        w->step_y[0] != w->m * w->n)
        return;
    w->m *= w->dim[0];
    w->rank--;
    for (int i = 0; i < w->rank; i++) {
        w->dim[i] = w->dim[i + 1];
        w->step_a[i] = w->step_a[i + 1];
        w->step_b[i] = w->step_b[i + 1];
        w->step_y[i] = w->step_y[i + 1];
    }
    w->dim[w->rank] = w->step_a[w->rank] = w->step_b[w->rank] = w->step_y[w->rank] = 0;
}

/* The longest axis to the end: one launch does it all, if it can. */
static void order_axes(struct cuda_matmul *w)
{
    struct axis longest, last;
    int at = 0;
    int64_t part;

    for (int i = 1; i < w->rank; i++)
        at = w->dim[i] > w->dim[at] ? i : at;
    if (w->rank == 0)
        return;
    longest = (struct axis){ w->dim[at], w->step_a[at], w->step_b[at], w->step_y[at] };
    last = last_axis(w);
    w->dim[at] = last.dim;
    w->step_a[at] = last.a;
    w->step_b[at] = last.b;
    w->step_y[at] = last.y;
    w->rank--;
    part = longest.dim < MOST_AT_ONCE ? longest.dim : MOST_AT_ONCE;
    while (part > 1 && longest.dim % part)
        part--;
    if (part > 0 && part < longest.dim)
        add_axis(w, (struct axis){ longest.dim / part, longest.a * part, longest.b * part,
                                   longest.y * part });
    longest.dim = part > 0 ? part : longest.dim;
    add_axis(w, longest);
}

/* All of them ---------------------------------------------------------------------------- */

static struct cuda_matmul describe(const struct cuda_kernel *k)
{
    const struct matmul *m = &k->digest->matmul;
    struct cuda_matmul w = { .m = m->m, .n = m->n, .k = m->k, .alpha = m->alpha,
                             .trans_a = m->trans_a, .trans_b = m->trans_b,
                             .tf32 = k->device->tf32 && !k->narrow, .narrow = k->narrow,
                             .narrow_y = cuda_narrow_of(k, k->digest->n_inputs) };

    find_stack(&w, m);
    merge_rows(&w);
    order_axes(&w);
    w.lda = w.trans_a ? w.m : w.k;
    w.ldb = w.trans_b ? w.k : w.n;
    w.ldy = w.n;
    return w;
}

static bool has_input(const struct cuda_kernel *k, int i)
{
    return k->digest->n_inputs > i && k->digest->in[i].elements >= 0;
}

static bool has_output(const struct cuda_kernel *k, int i)
{
    return k->digest->n_outputs > i && k->digest->out[i].elements >= 0;
}

static int choose(struct cuda_kernel *k, const struct cuda_matmul *w)
{
    const struct cuda_runtime *cuda = k->device->cuda;

    k->failed = cuda->matmul_new(k->device->gpu, w, &k->products[0], k->err) < 0;
    if (!k->products[0])
        return -1;
    k->workspace = cuda->matmul_workspace(k->products[0]);
    return 0;
}

/* The same, but without what comes after the product where cuBLASLt cannot do all at once: without
 * the activation first, then without the bias.
 */
static int choose_any(struct cuda_kernel *k, struct cuda_matmul *w)
{
    if (choose(k, w) == 0)
        return 0;
    if (!k->failed && w->activation) {
        w->activation = CUDA_NOT_ACTIVATED;
        w->ldkept = 0;
        if (choose(k, w) == 0)
            return 0;
    }
    if (k->failed || !w->bias)
        return -1;
    w->bias = CUDA_NO_BIAS;
    return choose(k, w);
}

/* 'swap': of LinearWgrad's factors. */
static struct cuda_matmul_args operands(const struct cuda_kernel *k,
                                        const struct kernel_args *args)
{
    int swap = k->digest->swap;

    return (struct cuda_matmul_args){ .a = args->inputs[swap],
                                      .b = args->inputs[!swap],
                                      .y = args->outputs[0],
                                      .beta = args->accumulate == ACCUMULATE_YES,
                                      .workspace = args->workspace };
}

static int run_product(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);

    return k->device->cuda->matmul(stream->cuda, k->products[0], &r, err);
}

static int run_with_bias(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);

    r.bias = args->inputs[2];
    return k->device->cuda->matmul(stream->cuda, k->products[0], &r, err);
}

static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_matmul w = describe(k);

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || choose(k, &w))
        return -1;
    k->run = run_product;
    k->accumulates = true;
    return 0;
}

/* Gemm ------------------------------------------------------------------------------------- */

/* y = alpha A B + beta c, where c is as large as y. */
static int run_whole(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);

    r.c = args->inputs[2];
    r.beta = k->digest->beta;
    return k->device->cuda->matmul(stream->cuda, k->products[0], &r, err);
}

/* The same after c was broadcast to y. */
static int run_spread(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);
    struct cuda_pointwise l = k->launch.pointwise;

    l.in[0] = args->inputs[2];
    l.out = args->outputs[0];
    r.beta = k->digest->beta;
    if (k->device->cuda->pointwise(stream->cuda, &l, err))
        return -1;
    return k->device->cuda->matmul(stream->cuda, k->products[0], &r, err);
}

/* Is c one row? */
static bool is_bias(const struct kernel *d)
{
    const struct shape *c = &d->in[2].shape;

    return d->beta == 1 && c->rank > 0 && c->dim[c->rank - 1] == d->matmul.n &&
           d->in[2].elements == d->matmul.n;
}

static int make_gemm(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_matmul w = describe(k);

    if (!has_input(k, 2))
        return make(k, graph, node);
    w.bias = is_bias(d) ? CUDA_BIAS : CUDA_NO_BIAS;
    if (!cuda_is_f32(k) || choose_any(k, &w))
        return -1;
    k->accumulates = w.bias == CUDA_BIAS;
    k->launch.pointwise = (struct cuda_pointwise){ .function = CUDA_COPY, .narrow = k->narrow,
                                                   .narrow_out = k->narrow };
    cuda_walk_from(&k->launch.pointwise.walk, &d->walk);
    k->run = w.bias ? run_with_bias : k->launch.pointwise.walk.flat ? run_whole : run_spread;
    return 0;
}

/* Linear ----------------------------------------------------------------------------------- */

/* y[m, n] = bias[n] */
static int spread_bias(const struct cuda_kernel *k, struct stream *stream, const void *bias,
                       void *y, struct err *err)
{
    const struct matmul *m = &k->digest->matmul;
    struct cuda_pointwise l = { .function = CUDA_COPY,
                                .walk = { .rank = 2, .n = 1, .elements = m->m * m->n,
                                          .dim = { m->m, m->n }, .stride = { { 0, 1 } } },
                                .in = { bias }, .out = y, .narrow = k->narrow,
                                .narrow_out = k->narrow };

    return k->device->cuda->pointwise(stream->cuda, &l, err);
}

/* The bias first, if the product does not add it; then the product, into what the gradient needs,
 * if that is kept; then the activation.
 */
static int run_steps(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, bool bias_first, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);
    struct cuda_pointwise l = k->launch.pointwise;
    const void *bias = has_input(k, 2) ? args->inputs[2] : NULL;

    r.bias = bias_first ? NULL : bias;
    r.y = has_output(k, 1) ? args->outputs[1] : args->outputs[0];
    r.beta = bias_first && bias;
    l.in[0] = r.y;
    l.out = args->outputs[0];
    if (bias_first && bias && spread_bias(k, stream, bias, r.y, err))
        return -1;
    if (k->device->cuda->matmul(stream->cuda, k->products[0], &r, err))
        return -1;
    if (l.function == CUDA_COPY && l.out == l.in[0])
        return 0;
    return k->device->cuda->pointwise(stream->cuda, &l, err);
}

static int run_then_activate(const struct cuda_kernel *k, struct stream *stream,
                             const struct kernel_args *args, struct err *err)
{
    return run_steps(k, stream, args, false, err);
}

static int run_bias_first(const struct cuda_kernel *k, struct stream *stream,
                          const struct kernel_args *args, struct err *err)
{
    return run_steps(k, stream, args, true, err);
}

/* All at once. */
static int run_activated(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);

    r.bias = has_input(k, 2) ? args->inputs[2] : NULL;
    r.kept = has_output(k, 1) ? args->outputs[1] : NULL;
    return k->device->cuda->matmul(stream->cuda, k->products[0], &r, err);
}

static enum cuda_function function_of(enum ref_activation activation)
{
    switch (activation) {
    case REF_RELU:
        return CUDA_RELU;
    case REF_GELU:
        return CUDA_GELU;
    case REF_GELU_TANH:
        return CUDA_GELU_TANH;
    case REF_SILU:
        return CUDA_SWISH;
    default:
        return CUDA_COPY;
    }
}

/* What cuBLASLt may do behind the product. Of a ReLU it would keep bits, which nobody wants. */
static enum cuda_activation behind(const struct cuda_kernel *k)
{
    bool kept = has_output(k, 1);

    switch (k->digest->activation) {
    case REF_RELU:
        return kept ? CUDA_NOT_ACTIVATED : CUDA_RECTIFIED;
    case REF_GELU:
        return CUDA_GELU_BY_ERF;
    case REF_GELU_TANH:
        return CUDA_GELU_BY_TANH;
    default:
        return CUDA_NOT_ACTIVATED;
    }
}

static int make_linear(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_matmul w = describe(k);
    bool bias = has_input(k, 2), kept = has_output(k, 1), activated, added;

    (void)graph, (void)node;
    w.bias = bias ? CUDA_BIAS : CUDA_NO_BIAS;
    w.activation = behind(k);
    w.ldkept = w.activation && kept ? w.ldy : 0;
    if (!cuda_is_f32(k) || choose_any(k, &w))
        return -1;
    k->launch.pointwise = (struct cuda_pointwise){
        .function = function_of(d->activation),
        .walk = { .rank = 1, .n = 1, .elements = d->out[0].elements,
                  .dim = { d->out[0].elements }, .stride = { { 1 } }, .flat = 1 },
        .p = 1,                 /* silu: x sigmoid(1 x) */
        .narrow = k->narrow, .narrow_out = k->narrow,
    };
    activated = !kept && d->activation == REF_NONE;
    added = bias == (w.bias == CUDA_BIAS);
    k->run = w.activation     ? run_activated
             : !added         ? run_bias_first
             : !activated     ? run_then_activate
             : bias           ? run_with_bias
                              : run_product;
    k->accumulates = d->activation == REF_NONE && activated && added;
    return 0;
}

/* The library's part of the workspace follows them. */
static size_t sums_bytes(const struct cuda_kernel *k)
{
    return ((size_t)k->digest->out[1].elements * sizeof(float) + 255) / 256 * 256;
}

/* With the gradient of the bias: see bias.c. The library overwrites sums: those that are added to
 * what is there are made in the workspace.
 */
static int run_with_sums(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_matmul_args r = operands(k, args);
    struct cuda_pointwise l = k->launch.pointwise;
    bool adds = args->accumulate == ACCUMULATE_YES;

    r.sums = adds ? args->workspace : args->outputs[1];
    r.workspace = (char *)args->workspace + sums_bytes(k);
    if (k->device->cuda->matmul(stream->cuda, k->products[0], &r, err))
        return -1;
    if (!adds)
        return 0;
    l.in[0] = r.sums;
    l.out = args->outputs[1];
    return k->device->cuda->pointwise(stream->cuda, &l, err);
}

/* Beside products of one row or column cuBLASLt's sums have ended programs (bias.c). */
static bool may_sum(const struct cuda_kernel *k, const struct cuda_matmul *w)
{
    return w->rank == 0 && w->m > 1 && w->n > 1 && cuda_is_f32(k);
}

/* Lowering has asked whether cuBLASLt can do it before it joined the two. */
static int make_wgrad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_matmul w = describe(k);

    if (k->digest->n_outputs < 2)
        return make(k, graph, node);
    w.bias = k->digest->swap ? CUDA_SUMS_OF_A : CUDA_SUMS_OF_B;
    if (!may_sum(k, &w) || choose(k, &w)) {
        if (!k->failed)
            err_set(k->err, "%s: cuBLASLt has no LinearWgrad of this size that sums beside",
                    k->device->name);
        k->failed = true;
        return -1;
    }
    k->launch.pointwise = (struct cuda_pointwise){
        .function = CUDA_COPY,
        .walk = { .rank = 1, .n = 1, .elements = k->digest->out[1].elements,
                  .dim = { k->digest->out[1].elements }, .stride = { { 1 } }, .flat = 1 },
        .add = 1,
    };
    k->workspace += sums_bytes(k);
    k->run = run_with_sums;
    k->accumulates = true;
    return 0;
}

const struct cuda_op cuda_ops_matmul[] = {
    { "MatMul", make, 0 },
    { "Gemm", make_gemm, 0 },
    { "Linear", make_linear, 0 },
    { "LinearDgrad", make, 0 },
    { "LinearWgrad", make_wgrad, 0 },
    { NULL, NULL, 0 },
};
