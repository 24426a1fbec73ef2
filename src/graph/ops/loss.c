/* SPDX-License-Identifier: MIT */
/* Sums over the samples, divided by the weight of the global batch: shares only add up. */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static const struct shape scalar = { 0, { 0 } };

static int infer_cross_entropy(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *labels = node_input(graph, node, 1);
    struct shape rows = { 0 }, weights = { 1, { 0 } };
    struct batch_place place;
    int axis, i;

    if (need_float(graph, node, 0, err) || need_integer(graph, node, 1, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 1), x->shape.rank, &axis,
                    err) ||
        batch_find(graph, node, x, &place, err) ||
        refuse_batch_axis(graph, node, place, axis, "has its classes along", err))
        return -1;
    for (i = 0; i < x->shape.rank; i++)
        if (i != axis)
            rows.dim[rows.rank++] = x->shape.dim[i];
    weights.dim[0] = x->shape.dim[axis];
    if (need_shape(graph, node, 1, &rows, err) || need_shape(graph, node, 3, &weights, err) ||
        set_output(graph, node, 0, x->dtype, &scalar, batch_none, err) ||
        set_output(graph, node, 1, x->dtype, &scalar, batch_none, err))
        return -1;
    return set_output(graph, node, 2, x->dtype, &rows, labels->batch, err);
}

static int infer_pair(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *target = node_input(graph, node, 1);

    if (need_float(graph, node, 0, err) || need_float(graph, node, 1, err) ||
        need_shape(graph, node, 1, &x->shape, err))
        return -1;
    if (graph->batch > 1 &&
        (x->batch.outer != target->batch.outer || x->batch.inner != target->batch.inner))
        return op_error(graph, node, err, "combines one sample with another");
    return set_output(graph, node, 0, x->dtype, &scalar, batch_none, err);
}

static int infer_sum(struct graph *graph, int node, struct err *err)
{
    if (need_float(graph, node, 0, err))
        return -1;
    return set_output(graph, node, 0, node_input(graph, node, 0)->dtype, &scalar, batch_none,
                      err);
}

static int infer_second(struct graph *graph, int node, struct err *err)
{
    return set_output_like(graph, node, 0, 1, err);
}

static double flops_cross_entropy(const struct graph *graph, int node)
{
    return 12 * (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static double flops_pair(const struct graph *graph, int node)
{
    return 3 * (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static int grad_cross_entropy(struct grad *grad, int node, struct err *err)
{
    int saved = rule_want_output(grad, 2, err), weights = rule_input(grad, 3);

    (void)node;
    if (saved < 0)
        return -1;
    return rule_add_like(grad, 0, "CrossEntropyGrad", weights < 0 ? 4 : 5,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 0),
                                  rule_input(grad, 1), saved, weights }, NULL, err);
}

static int grad_mse(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_like(grad, 0, "MseGrad", 3,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 0),
                                  rule_input(grad, 1) }, NULL, err);
}

static int grad_dot(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_like(grad, 0, "DotGrad", 2,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 1) }, NULL, err);
}

static int grad_sum_loss(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "SumLossGrad", 1, &dy, NULL, err);
}

const struct op ops_loss[] = {
    { "CrossEntropySum", OP_INTERNAL | OP_NORM, 3, 4, 1, 3, infer_cross_entropy,
      flops_cross_entropy, grad_cross_entropy },
    { "CrossEntropyGrad", OP_INTERNAL | OP_NORM, 4, 5, 1, 1, infer_second, NULL, NULL },
    { "MseSum", OP_INTERNAL, 3, 3, 1, 1, infer_pair, flops_pair, grad_mse },
    { "MseGrad", OP_INTERNAL, 3, 3, 1, 1, infer_second, NULL, NULL },
    { "DotSum", OP_INTERNAL, 3, 3, 1, 1, infer_pair, flops_pair, grad_dot },
    { "DotGrad", OP_INTERNAL, 2, 2, 1, 1, infer_second, NULL, NULL },
    { "SumLoss", OP_INTERNAL, 2, 2, 1, 1, infer_sum, flops_pair, grad_sum_loss },
    { "SumLossGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { .name = NULL },
};
