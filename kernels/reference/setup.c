/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/ops/infer.h"
#include "graph/ops/reduce.h"
#include "kernels/reference/reference.h"

int setup_plain(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];

    (void)err;
    k->epsilon = node_float(n, "epsilon", 1e-5);
    return 0;
}

/* Output 0 and all inputs. */
int setup_broadcast(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    int i;

    (void)graph, (void)node, (void)err;
    walk_start(&k->walk, &k->out[0].shape);
    for (i = 0; i < k->n_inputs && i < WALK_MAX; i++)
        walk_broadcast(&k->walk, i, &k->in[i].shape);
    return 0;
}

int setup_curve(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];

    (void)err;
    k->alpha = node_float(n, "alpha", 1);
    k->beta = node_float(n, "beta", 0);
    return 0;
}

int setup_clip(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];

    k->alpha = node_float(n, "min", (double)-INFINITY);
    k->beta = node_float(n, "max", (double)INFINITY);
    return setup_broadcast(k, graph, node, err);
}

int setup_mod(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    k->swap = node_int(&graph->nodes[node], "fmod", 0) != 0;
    return setup_broadcast(k, graph, node, err);
}

int setup_is_inf(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)err;
    k->alpha = (double)node_int(&graph->nodes[node], "detect_negative", 1);
    k->beta = (double)node_int(&graph->nodes[node], "detect_positive", 1);
    return 0;
}

int setup_gelu(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const char *kind = node_string(&graph->nodes[node], "approximate", "none");

    k->activation = strcmp(kind, "tanh") == 0 ? REF_GELU_TANH : REF_GELU;
    return setup_broadcast(k, graph, node, err);
}

int setup_dropout(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)err;
    k->ratio = node_float(&graph->nodes[node], "ratio", 0.5);
    return 0;
}

int setup_around(struct kernel *k, const struct graph *graph, int node,
                 const struct shape *shape, int64_t def, struct err *err)
{
    int axis, i;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", def), shape->rank, &axis,
                    err))
        return -1;
    k->before = k->after = 1;
    k->length = shape->dim[axis];
    for (i = 0; i < axis; i++)
        k->before *= shape->dim[i];
    for (i = axis + 1; i < shape->rank; i++)
        k->after *= shape->dim[i];
    return 0;
}

int setup_axis(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    bool first = strcmp(graph->nodes[node].op->name, "Concat") == 0;
    bool split = strcmp(graph->nodes[node].op->name, "Split") == 0;

    k->masked = node_int(&graph->nodes[node], "masked", 0) != 0;
    return setup_around(k, graph, node, first ? &k->out[0].shape : &k->in[0].shape,
                       first || split ? 0 : -1, err);
}

/* Products ---------------------------------------------------------------------------- */

int setup_matmul(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (matmul_dims(graph, node, &k->matmul))
        return op_error(graph, node, err, "the operands do not fit");
    k->beta = node_float(&graph->nodes[node], "beta", 1);
    k->workspace = (size_t)k->matmul.n * sizeof(double);
    if (k->n_inputs > 2 && k->in[2].elements >= 0) {
        walk_start(&k->walk, &k->out[0].shape);
        walk_broadcast(&k->walk, 0, &k->in[2].shape);
    }
    return 0;
}

static void one_product(struct kernel *k, int64_t m, int64_t n, int64_t depth, bool trans_a,
                        bool trans_b)
{
    k->matmul = (struct matmul){ .m = m, .n = n, .k = depth, .trans_a = trans_a,
                                 .trans_b = trans_b, .alpha = 1 };
    k->workspace = (size_t)n * sizeof(double);
}

static int64_t last_dim(const struct ref_tensor *t)
{
    return t->shape.dim[t->shape.rank - 1];
}

int setup_linear(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const char *activation = node_string(&graph->nodes[node], "activation", "none");
    int64_t depth = last_dim(&k->in[0]);

    (void)err;
    one_product(k, depth ? k->in[0].elements / depth : 0, last_dim(&k->out[0]), depth, false,
                node_int(&graph->nodes[node], "transB", 0) != 0);
    k->activation = strcmp(activation, "relu") == 0        ? REF_RELU
                    : strcmp(activation, "gelu") == 0      ? REF_GELU
                    : strcmp(activation, "gelu_tanh") == 0 ? REF_GELU_TANH
                    : strcmp(activation, "silu") == 0      ? REF_SILU
                                                           : REF_NONE;
    return 0;
}

int setup_linear_dgrad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    int64_t depth = last_dim(&k->in[0]);

    (void)err;
    one_product(k, depth ? k->in[0].elements / depth : 0, last_dim(&k->out[0]), depth, false,
                node_int(&graph->nodes[node], "transB", 0) == 0);
    return 0;
}

/* dw = x' dz, or dz' x where w is stored transposed: then the kernel swaps its inputs. */
int setup_linear_wgrad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    int64_t columns = last_dim(&k->in[0]);

    (void)err;
    one_product(k, k->out[0].shape.dim[0], k->out[0].shape.dim[1],
                columns ? k->in[0].elements / columns : 0, true, false);
    k->swap = node_int(&graph->nodes[node], "transB", 0) != 0;
    return 0;
}

int setup_attention(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct attention *a = &k->attention;

    if (attention_dims(graph, node, 0, 3, &k->attention))
        return op_error(graph, node, err, "the operands do not fit");
    k->workspace = (size_t)(a->n + a->e) * sizeof(double);
    return 0;
}

int setup_attention_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct attention *a = &k->attention;

    if (attention_dims(graph, node, 1, 5, &k->attention))
        return op_error(graph, node, err, "the operands do not fit");
    k->workspace = (size_t)(2 * a->n + a->d + a->n * (a->d + a->e) + a->mask_elements) *
                   sizeof(double);
    return 0;
}

/* Windows ----------------------------------------------------------------------------- */

/* Two-dimensional kernels are three-dimensional ones with a first axis of one. */
static int three_axes(struct kernel *k, const struct graph *graph, int node,
                      const struct shape *x, const struct shape *w, struct err *err)
{
    struct window *win = &k->window;
    int shift, i;

    if (window_of(graph, node, x, w, win, err))
        return -1;
    shift = WINDOW_MAX - win->rank;
    for (i = WINDOW_MAX - 1; i >= 0; i--) {
        bool real_axis = i >= shift;
        int from = real_axis ? i - shift : 0;

        win->in[i] = real_axis ? win->in[from] : 1;
        win->out[i] = real_axis ? win->out[from] : 1;
        win->kernel[i] = real_axis ? win->kernel[from] : 1;
        win->stride[i] = real_axis ? win->stride[from] : 1;
        win->dilation[i] = real_axis ? win->dilation[from] : 1;
        win->before[i] = real_axis ? win->before[from] : 0;
        win->after[i] = real_axis ? win->after[from] : 0;
    }
    return 0;
}

static size_t plane(const int64_t *dim)
{
    return (size_t)(dim[0] * dim[1] * dim[2]);
}

/* Along axis 'd', for position 'p' of the kernel. False where there are none. */
static bool find_span(const struct window *w, int d, int64_t p, struct ref_tap *tap)
{
    int64_t shift = p * w->dilation[d] - w->before[d];
    int64_t last = w->in[d] - 1 - shift;

    tap->first[d] = shift >= 0 ? 0 : (-shift + w->stride[d] - 1) / w->stride[d];
    tap->end[d] = last < 0 ? 0 : last / w->stride[d] + 1;
    if (tap->end[d] > w->out[d])
        tap->end[d] = w->out[d];
    tap->start[d] = tap->first[d] * w->stride[d] + shift;
    return tap->first[d] < tap->end[d];
}

static void find_taps(struct kernel *k)
{
    const struct window *w = &k->window;
    struct ref_tap tap = { 0 };

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; find_span(w, 0, i, &tap) && j < w->kernel[1]; j++)
            for (int64_t l = 0; find_span(w, 1, j, &tap) && l < w->kernel[2]; l++) {
                tap.at = (i * w->kernel[1] + j) * w->kernel[2] + l;
                if (find_span(w, 2, l, &tap))
                    *(struct ref_tap *)mem_push((void **)&k->taps, &k->n_taps,
                                                sizeof(tap)) = tap;
            }
}

static int64_t out_channels_of_group(const struct kernel *k)
{
    return k->window.out_channels / k->window.groups;
}

int setup_conv(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (three_axes(k, graph, node, &k->in[0].shape, &k->in[1].shape, err))
        return -1;
    k->workspace = plane(k->window.out) *
                   (1 + (size_t)ref_channels_at_once(out_channels_of_group(k))) * sizeof(double);
    find_taps(k);
    return 0;
}

int setup_conv_dgrad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (three_axes(k, graph, node, &k->out[0].shape, &k->in[1].shape, err))
        return -1;
    k->workspace = (plane(k->window.out) + plane(k->window.in)) * sizeof(double);
    find_taps(k);
    return 0;
}

int setup_conv_wgrad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (three_axes(k, graph, node, &k->in[0].shape, &k->out[0].shape, err))
        return -1;
    k->workspace = (plane(k->window.out) +
                    plane(k->window.kernel) * (size_t)out_channels_of_group(k)) * sizeof(double);
    find_taps(k);
    return 0;
}

int setup_pool(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    k->swap = node_int(&graph->nodes[node], "storage_order", 0) != 0;
    return three_axes(k, graph, node, &k->in[0].shape, NULL, err);
}

int setup_pool_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (three_axes(k, graph, node, &k->out[0].shape, NULL, err))
        return -1;
    k->workspace = plane(k->window.in) * sizeof(double);
    return 0;
}

/* One plane of 'length' for each of 'before'. */
static void planes(struct kernel *k, const struct shape *shape)
{
    int i;

    k->before = shape->dim[0] * shape->dim[1];
    k->length = 1;
    for (i = 2; i < shape->rank; i++)
        k->length *= shape->dim[i];
}

int setup_global(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)graph, (void)node, (void)err;
    planes(k, &k->in[0].shape);
    return 0;
}

int setup_global_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)graph, (void)node, (void)err;
    planes(k, &k->out[0].shape);
    return 0;
}

/* Normalisation ----------------------------------------------------------------------- */

int setup_batchnorm(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    bool gradient = strcmp(graph->nodes[node].op->name, "BatchNormGrad") == 0;
    const struct shape *x = &k->in[gradient].shape;
    int i;

    (void)err;
    k->epsilon = node_float(&graph->nodes[node], "epsilon", 1e-5);
    k->momentum = node_float(&graph->nodes[node], "momentum", 0.9);
    k->length = x->dim[1];
    k->after = 1;
    for (i = 2; i < x->rank; i++)
        k->after *= x->dim[i];
    return 0;
}

static int rows_of_norm(struct kernel *k, const struct graph *graph, int node,
                        const struct shape *x, struct err *err)
{
    if (setup_around(k, graph, node, x, -1, err))
        return -1;
    k->length *= k->after;
    k->epsilon = node_float(&graph->nodes[node], "epsilon", 1e-5);
    return 0;
}

int setup_layernorm(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    return rows_of_norm(k, graph, node, &k->in[0].shape, err);
}

int setup_layernorm_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    if (rows_of_norm(k, graph, node, &k->in[1].shape, err))
        return -1;
    k->workspace = 2 * (size_t)k->length * sizeof(double);
    return 0;
}

/* x is [N, groups * length, after]. */
static int groups_of_norm(struct kernel *k, const struct graph *graph, int node,
                          const struct shape *x)
{
    int i;

    k->epsilon = node_float(&graph->nodes[node], "epsilon", 1e-5);
    k->batch = x->dim[0];
    k->before = node_int(&graph->nodes[node], "num_groups", 1);
    k->length = x->dim[1] / k->before;
    k->after = 1;
    for (i = 2; i < x->rank; i++)
        k->after *= x->dim[i];
    return 0;
}

int setup_groupnorm(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)err;
    return groups_of_norm(k, graph, node, &k->in[0].shape);
}

int setup_groupnorm_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)err;
    return groups_of_norm(k, graph, node, &k->in[1].shape);
}

/* Sums and moves ---------------------------------------------------------------------- */

/* Walk over the input; entry 0 is the output with stride 0 along the axes summed over. */
static void walk_reduce(struct kernel *k, unsigned axes)
{
    const struct shape *x = &k->in[0].shape;
    int64_t stride[GRAPH_MAX_RANK] = { 0 }, step = 1;
    int i;

    walk_start(&k->walk, x);
    for (i = x->rank - 1; i >= 0; i--) {
        stride[i] = axes >> i & 1 ? 0 : step;
        step *= axes >> i & 1 ? 1 : x->dim[i];
    }
    walk_strides(&k->walk, 0, 0, stride);
    k->workspace = (size_t)k->out[0].elements * sizeof(double);
}

int setup_reduce(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    bool mean = strcmp(graph->nodes[node].op->name, "ReduceMean") == 0;
    unsigned axes;

    if (reduce_axes(graph, node, &axes, err))
        return -1;
    walk_reduce(k, axes);
    k->swap = strcmp(graph->nodes[node].op->name, "ReduceMin") == 0;
    k->scale = mean && k->in[0].elements
                   ? (double)k->out[0].elements / (double)k->in[0].elements : 1;
    return 0;
}

int setup_reduce_to(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    (void)graph, (void)node, (void)err;
    walk_start(&k->walk, &k->in[0].shape);
    walk_broadcast(&k->walk, 0, &k->out[0].shape);
    k->workspace = (size_t)k->out[0].elements * sizeof(double);
    k->scale = 1;
    return 0;
}

int setup_reduce_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct shape *x = &k->out[0].shape;
    int64_t axes[GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK] = { 0 }, step = 1;
    unsigned reduced = 0;
    int n, i;

    if (attr_ints(graph, node, "axes", GRAPH_MAX_RANK, axes, &n, err))
        return -1;
    for (i = 0; i < n; i++)
        reduced |= 1u << (axes[i] < 0 ? axes[i] + x->rank : axes[i]);
    walk_start(&k->walk, x);
    for (i = x->rank - 1; i >= 0; i--) {
        stride[i] = reduced >> i & 1 ? 0 : step;
        step *= reduced >> i & 1 ? 1 : x->dim[i];
    }
    walk_strides(&k->walk, 0, 0, stride);
    k->workspace = k->n_inputs > 2 ? (size_t)k->in[2].elements * sizeof(double) : 0;
    k->scale = node_float(&graph->nodes[node], "scale", 1);
    return 0;
}

int setup_transpose(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    int64_t own[GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK] = { 0 };
    int perm[GRAPH_MAX_RANK], i;

    if (transpose_perm(graph, node, perm, err))
        return -1;
    shape_strides(&k->in[0].shape, own);
    for (i = 0; i < k->in[0].shape.rank; i++)
        stride[i] = own[perm[i]];
    walk_start(&k->walk, &k->out[0].shape);
    walk_strides(&k->walk, 0, 0, stride);
    return 0;
}

static void walk_slice(struct kernel *k, const struct slice *slice, const struct shape *large)
{
    int64_t stride[GRAPH_MAX_RANK] = { 0 }, start = 0;
    int i;

    shape_strides(large, stride);
    for (i = 0; i < large->rank; i++) {
        start += slice->start[i] * stride[i];
        stride[i] *= slice->step[i];
    }
    walk_start(&k->walk, &slice->shape);
    walk_strides(&k->walk, 0, start, stride);
}

int setup_slice(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    struct slice slice;

    if (slice_of(graph, node, &slice, err))
        return -1;
    walk_slice(k, &slice, &k->in[0].shape);
    return 0;
}

int setup_slice_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    struct slice slice;

    if (slice_of_grad(graph, node, &slice, err))
        return -1;
    walk_slice(k, &slice, &k->out[0].shape);
    return 0;
}

int setup_gather(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    return setup_around(k, graph, node, &k->in[0].shape, 0, err);
}

int setup_gather_grad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    k->workspace = (size_t)k->out[0].elements * sizeof(double);
    return setup_around(k, graph, node, &k->out[0].shape, 0, err);
}

static int setup_classes(struct kernel *k, const struct graph *graph, int node, int logits,
                         struct err *err)
{
    const struct node *n = &graph->nodes[node];

    k->ignores = node_attr(n, "ignore_index") != NULL;
    k->ignore_index = node_int(n, "ignore_index", 0);
    k->smoothing = node_float(n, "label_smoothing", 0);
    return setup_around(k, graph, node, &k->in[logits].shape, 1, err);
}

int setup_cross_entropy(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    return setup_classes(k, graph, node, 0, err);
}

int setup_cross_entropy_grad(struct kernel *k, const struct graph *graph, int node,
                             struct err *err)
{
    return setup_classes(k, graph, node, 1, err);
}
