/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"
#include "graph/ops/window.h"

static int infer_pool(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place;
    struct shape shape = x->shape;
    struct window window;
    int i;

    if (need_float(graph, node, 0, err) ||
        window_of(graph, node, &x->shape, NULL, &window, err) ||
        batch_find(graph, node, x, &place, err))
        return -1;
    if (place.axis >= 2 && graph->batch > 1)
        return op_error(graph, node, err, "pools over the samples of the batch");
    for (i = 0; i < window.rank; i++)
        shape.dim[2 + i] = window.out[i];
    if (strcmp(graph->nodes[node].op->name, "MaxPoolIndices") == 0)
        return set_output(graph, node, 0, DTYPE_I64, &shape, batch_at(&shape, place), err);
    if (set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err))
        return -1;
    return set_output(graph, node, 1, DTYPE_I32, &shape, batch_at(&shape, place), err);
}

static int infer_global(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place;
    struct shape shape = x->shape;
    int i;

    if (need_float(graph, node, 0, err) || batch_find(graph, node, x, &place, err))
        return -1;
    if (shape.rank < 3)
        return op_error(graph, node, err, "the input has no spatial axes");
    if (place.axis >= 2 && graph->batch > 1)
        return op_error(graph, node, err, "pools over the samples of the batch");
    for (i = 2; i < shape.rank; i++)
        shape.dim[i] = 1;
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static double flops_pool(const struct graph *graph, int node)
{
    const struct value *x = node_input(graph, node, 0);
    struct window window;
    double flops = (double)shape_elements(&node_output(graph, node, 0)->shape);
    int i;

    if (window_of(graph, node, &x->shape, NULL, &window, NULL))
        return flops;
    for (i = 0; i < window.rank; i++)
        flops *= (double)window.kernel[i];
    return flops;
}

static double flops_input(const struct graph *graph, int node)
{
    return (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static int grad_max_pool(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), saved = rule_want_output(grad, 1, err);

    (void)node;
    if (saved < 0)
        return -1;
    return rule_add_like(grad, 0, "MaxPoolGrad", 2, (int[]){ dy, saved }, NULL, err);
}

static int grad_average_pool(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "AveragePoolGrad", 1, &dy, NULL, err);
}

static int grad_global_average_pool(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "GlobalAveragePoolGrad", 1, &dy, NULL, err);
}

const struct op ops_pool[] = {
    { "MaxPool", 0, 1, 1, 1, 2, infer_pool, flops_pool, grad_max_pool },
    { "AveragePool", 0, 1, 1, 1, 1, infer_pool, flops_pool, grad_average_pool },
    { "GlobalAveragePool", 0, 1, 1, 1, 1, infer_global, flops_input,
      grad_global_average_pool },
    { "MaxPoolIndices", OP_INTERNAL | OP_NO_GRAD, 1, 1, 1, 1, infer_pool, flops_pool, NULL },
    { "MaxPoolGrad", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { "AveragePoolGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { "GlobalAveragePoolGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { .name = NULL },
};
