/* SPDX-License-Identifier: MIT */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int infer_softmax(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place;
    int axis;

    if (need_float(graph, node, 0, err) || batch_find(graph, node, x, &place, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", -1), x->shape.rank,
                    &axis, err) ||
        refuse_batch_axis(graph, node, place, axis, "normalises over", err))
        return -1;
    return infer_like(graph, node, err);
}

static double flops_softmax(const struct graph *graph, int node)
{
    return 12 * (double)shape_elements(&node_output(graph, node, 0)->shape);
}

static int grad_softmax(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "SoftmaxGrad", 2, (int[]){ dy, rule_output(grad, 0) }, NULL,
                         err);
}

static int grad_log_softmax(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "LogSoftmaxGrad", 2, (int[]){ dy, rule_output(grad, 0) },
                         NULL, err);
}

const struct op ops_softmax[] = {
    { "Softmax", OP_NORM, 1, 1, 1, 1, infer_softmax, flops_softmax, grad_softmax },
    { "LogSoftmax", OP_NORM, 1, 1, 1, 1, infer_softmax, flops_softmax, grad_log_softmax },
    { "SoftmaxGrad", OP_INTERNAL | OP_NORM, 2, 2, 1, 1, infer_like, flops_softmax, NULL },
    { "LogSoftmaxGrad", OP_INTERNAL | OP_NORM, 2, 2, 1, 1, infer_like, flops_softmax, NULL },
    { .name = NULL },
};
