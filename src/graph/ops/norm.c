/* SPDX-License-Identifier: MIT */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int batchnorm_groups(const struct graph *graph, int node, int64_t *groups,
                            struct err *err)
{
    int64_t samples = graph->batchnorm_samples ? graph->batchnorm_samples : graph->batch;

    if (graph->batch % samples)
        return op_error(graph, node, err,
                        "%d samples are not a multiple of BatchNorm's groups of %d",
                        (int)graph->batch, (int)samples);
    *groups = graph->batch / samples;
    return 0;
}

static int infer_batchnorm(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct shape channels = { 1, { 0 } }, saved = { 2, { 0 } };
    struct batch_place place;
    int i;

    if (infer_images(graph, node, &place, err))
        return -1;
    if (graph->batch > 1 && (place.axis != 0 || place.outer != 1 || place.inner != 1))
        return op_error(graph, node, err, "the samples are not the first axis of its input");
    while (graph->nodes[node].n_outputs < 5)
        graph_add_output(graph, node);
    x = node_input(graph, node, 0);
    channels.dim[0] = saved.dim[1] = x->shape.dim[1];
    if (batchnorm_groups(graph, node, &saved.dim[0], err))
        return -1;
    for (i = 1; i < 5; i++)
        if (need_shape(graph, node, i, &channels, err))
            return -1;
    if (set_output_like(graph, node, 0, 0, err))
        return -1;
    for (i = 1; i < 5; i++)
        if (set_output(graph, node, i, x->dtype, i < 3 ? &channels : &saved, batch_none, err))
            return -1;
    return 0;
}

static int infer_batchnorm_grad(struct graph *graph, int node, struct err *err)
{
    if (set_output_like(graph, node, 0, 1, err) || set_output_like(graph, node, 1, 2, err))
        return -1;
    return set_output_like(graph, node, 2, 2, err);
}

static int infer_layernorm(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct shape normal = { 0 }, mean = x->shape;
    struct batch_place place;
    int axis, i;

    if (need_float(graph, node, 0, err) || batch_find(graph, node, x, &place, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", -1), x->shape.rank,
                    &axis, err))
        return -1;
    if (place.axis >= axis && graph->batch > 1)
        return refuse_batch_axis(graph, node, place, place.axis, "normalises over", err);
    for (i = axis; i < x->shape.rank; i++) {
        normal.dim[normal.rank++] = x->shape.dim[i];
        mean.dim[i] = 1;
    }
    if (need_shape(graph, node, 1, &normal, err) || need_shape(graph, node, 2, &normal, err))
        return -1;
    if (node_input(graph, node, 1)->batch.outer > 0)
        return op_error(graph, node, err, "the scale depends on the sample");
    if (set_output(graph, node, 0, x->dtype, &x->shape, x->batch, err) ||
        set_output(graph, node, 1, x->dtype, &mean, batch_at(&mean, place), err))
        return -1;
    return set_output(graph, node, 2, x->dtype, &mean, batch_at(&mean, place), err);
}

/* The sum of two values and its norm: y, the sum, and what else the norm alone gives. */
static int infer_add_norm(struct graph *graph, int node, struct err *err)
{
    const struct value *a = node_input(graph, node, 0), *b = node_input(graph, node, 1);
    struct shape normal = { 0 }, row = a->shape;
    struct batch_place place;
    int axis, i;

    if (need_float(graph, node, 0, err) || need_float(graph, node, 1, err) ||
        need_shape(graph, node, 1, &a->shape, err) ||
        batch_find(graph, node, a, &place, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", -1), a->shape.rank,
                    &axis, err))
        return -1;
    if ((a->batch.outer > 0) != (b->batch.outer > 0))
        return op_error(graph, node, err, "one of its terms depends on the sample");
    if (place.axis >= axis && graph->batch > 1)
        return refuse_batch_axis(graph, node, place, place.axis, "normalises over", err);
    for (i = axis; i < a->shape.rank; i++) {
        normal.dim[normal.rank++] = a->shape.dim[i];
        row.dim[i] = 1;
    }
    if (need_shape(graph, node, 2, &normal, err) || need_shape(graph, node, 3, &normal, err))
        return -1;
    for (i = 0; i < 2; i++)
        if (set_output_like(graph, node, i, 0, err))
            return -1;
    for (i = 2; i < graph->nodes[node].n_outputs; i++)
        if (set_output(graph, node, i, graph->real, &row, batch_at(&row, place), err))
            return -1;
    return 0;
}

static int infer_layernorm_dgrad(struct graph *graph, int node, struct err *err)
{
    return set_output_like(graph, node, 0, 1, err);
}

static int infer_layernorm_wgrad(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 1);
    struct shape normal = { 0 };
    int axis, i;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", -1), x->shape.rank,
                    &axis, err))
        return -1;
    for (i = axis; i < x->shape.rank; i++)
        normal.dim[normal.rank++] = x->shape.dim[i];
    if (set_output(graph, node, 0, x->dtype, &normal, batch_none, err))
        return -1;
    return set_output(graph, node, 1, x->dtype, &normal, batch_none, err);
}

static double flops_norm(const struct graph *graph, int node)
{
    return 8 * (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static int grad_batchnorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), result;

    (void)node;
    result = grad_node(grad, "BatchNormGrad", 5,
                       (int[]){ dy, rule_input(grad, 0), rule_input(grad, 1),
                                rule_output(grad, 3), rule_output(grad, 4) }, 3, err);
    if (result < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (grad_wanted(grad, i))
            grad_add(grad, i, grad->graph->nodes[result].outputs[i]);
    return 0;
}

static int grad_layernorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), x = rule_input(grad, 0), parts, result;
    int invstd = rule_want_output(grad, 2, err), mean = rule_output(grad, 1);

    if (grad_of_output(grad, 1) >= 0 || grad_of_output(grad, 2) >= 0)
        return op_error(grad->graph, node, err, "a gradient through its mean or deviation is "
                        "not supported");
    if (invstd < 0 ||
        rule_add_like(grad, 0, "LayerNormDgrad", 5,
                      (int[]){ dy, x, rule_input(grad, 1), mean, invstd }, NULL, err))
        return -1;
    if (!grad_wanted(grad, 1) && !grad_wanted(grad, 2))
        return 0;
    parts = grad_wanted(grad, 2) ? 2 : 1;
    result = grad_node(grad, "LayerNormWgrad", 4, (int[]){ dy, x, mean, invstd }, parts, err);
    if (result < 0)
        return -1;
    for (int i = 0; i < parts; i++)
        if (grad_wanted(grad, 1 + i))
            grad_add(grad, 1 + i, grad->graph->nodes[result].outputs[i]);
    return 0;
}

/* Both terms have the gradient of the sum. */
static int add_to_terms(struct grad *grad, const char *op, int n_inputs, const int *inputs,
                        struct err *err)
{
    bool first = grad_wanted(grad, 0), second = grad_wanted(grad, 1);
    int sum = first || second ? grad_emit(grad, op, n_inputs, inputs, !first, err) : 0, i;

    for (i = 0; sum >= 0 && i < 2; i++)
        if (grad_wanted(grad, i))
            grad_add(grad, i, sum);
    return sum < 0 ? -1 : 0;
}

static int grad_add_layernorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), invstd = rule_want_output(grad, 3, err), parts, result;
    int sum = rule_output(grad, 1), mean = rule_output(grad, 2);

    (void)node;
    if (invstd < 0 ||
        add_to_terms(grad, "LayerNormDgrad", 5,
                     (int[]){ dy, sum, rule_input(grad, 2), mean, invstd }, err))
        return -1;
    if (!grad_wanted(grad, 2) && !grad_wanted(grad, 3))
        return 0;
    parts = grad_wanted(grad, 3) ? 2 : 1;
    result = grad_node(grad, "LayerNormWgrad", 4, (int[]){ dy, sum, mean, invstd }, parts, err);
    for (int i = 0; result >= 0 && i < parts; i++)
        if (grad_wanted(grad, 2 + i))
            grad_add(grad, 2 + i, grad->graph->nodes[result].outputs[i]);
    return result < 0 ? -1 : 0;
}

static int grad_add_rmsnorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), saved = rule_want_output(grad, 2, err);
    int sum = rule_output(grad, 1);

    (void)node;
    if (saved < 0 || add_to_terms(grad, "RmsNormDgrad", 4,
                                  (int[]){ dy, sum, rule_input(grad, 2), saved }, err))
        return -1;
    return rule_add_like(grad, 2, "RmsNormWgrad", 3, (int[]){ dy, sum, saved }, NULL, err);
}

const struct op ops_norm[] = {
    { "BatchNormalization", OP_NORM, 5, 5, 1, 5, infer_batchnorm, flops_norm,
      grad_batchnorm },
    { "BatchNormGrad", OP_INTERNAL | OP_NORM, 5, 5, 3, 3, infer_batchnorm_grad, flops_norm,
      NULL },
    { "LayerNormalization", OP_NORM, 2, 3, 1, 3, infer_layernorm, flops_norm,
      grad_layernorm },
    { "LayerNormDgrad", OP_INTERNAL | OP_NORM, 5, 5, 1, 1, infer_layernorm_dgrad, flops_norm,
      NULL },
    { "LayerNormWgrad", OP_INTERNAL | OP_NORM, 4, 4, 1, 2, infer_layernorm_wgrad, flops_norm,
      NULL },
    { "AddLayerNorm", OP_INTERNAL | OP_NORM, 3, 4, 2, 4, infer_add_norm, flops_norm,
      grad_add_layernorm },
    { "AddRmsNorm", OP_INTERNAL | OP_NORM, 3, 3, 2, 3, infer_add_norm, flops_norm,
      grad_add_rmsnorm },
    { .name = NULL },
};
