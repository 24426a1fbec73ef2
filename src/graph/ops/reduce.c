/* SPDX-License-Identifier: MIT */
#include "graph/ops/reduce.h"

#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

int reduce_axes(const struct graph *graph, int node, unsigned *axes, struct err *err)
{
    int rank = node_input(graph, node, 0)->shape.rank;
    int64_t list[GRAPH_MAX_RANK];
    int n, i, axis;

    if (attr_ints(graph, node, "axes", GRAPH_MAX_RANK, list, &n, err))
        return -1;
    if (n < 0)
        return op_error(graph, node, err, "attribute \"axes\" is missing");
    *axes = 0;
    for (i = 0; i < n; i++) {
        if (normal_axis(graph, node, list[i], rank, &axis, err))
            return -1;
        *axes |= 1u << axis;
    }
    return 0;
}

/* The largest, the smallest element and the sum are of the elements' type. */
static bool needs_float(const struct graph *graph, int node)
{
    const char *name = graph->nodes[node].op->name;

    return strcmp(name, "ReduceMean") == 0 || strcmp(name, "ReduceL2") == 0;
}

static int infer_reduce(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    bool keep = node_int(&graph->nodes[node], "keepdims", 1) != 0;
    struct shape kept = x->shape, shape = { 0 };
    struct batch_place place;
    unsigned axes;
    int i;

    if ((needs_float(graph, node) && need_float(graph, node, 0, err)) ||
        reduce_axes(graph, node, &axes, err) ||
        batch_find(graph, node, x, &place, err))
        return -1;
    for (i = 0; i < x->shape.rank; i++) {
        if (!(axes >> i & 1)) {
            shape.dim[shape.rank++] = x->shape.dim[i];
            continue;
        }
        if (refuse_batch_axis(graph, node, place, i, "reduces", err))
            return -1;
        kept.dim[i] = 1;
    }
    return set_output(graph, node, 0, x->dtype, keep ? &kept : &shape, batch_at(&kept, place),
                      err);
}

static double flops_reduce(const struct graph *graph, int node)
{
    return (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static int add_spread(struct grad *grad, double scale, struct err *err)
{
    int dy = grad_of_output(grad, 0), node;

    if (rule_add_like(grad, 0, "ReduceGrad", 1, &dy, &node, err))
        return -1;
    if (node >= 0)
        graph_set_float(grad->graph, node, "scale", scale);
    return 0;
}

static int grad_reduce_sum(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return add_spread(grad, 1, err);
}

static int grad_reduce_mean(struct grad *grad, int node, struct err *err)
{
    int64_t from = shape_elements(&node_input(grad->graph, node, 0)->shape);
    int64_t to = shape_elements(&node_output(grad->graph, node, 0)->shape);

    return add_spread(grad, from ? (double)to / (double)from : 0, err);
}

/* From dy, x and the result. */
static int grad_from_all(struct grad *grad, const char *op, struct err *err)
{
    return rule_add_like(grad, 0, op, 3,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 0),
                                  rule_output(grad, 0) }, NULL, err);
}

static int grad_reduce_choice(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return grad_from_all(grad, "ReduceChoiceGrad", err);
}

static int grad_reduce_l2(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return grad_from_all(grad, "ReduceL2Grad", err);
}

const struct op ops_reduce[] = {
    { "ReduceMean", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, grad_reduce_mean },
    { "ReduceSum", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, grad_reduce_sum },
    { "ReduceMax", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, grad_reduce_choice },
    { "ReduceMin", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, grad_reduce_choice },
    { "ReduceL2", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, grad_reduce_l2 },
    { "ReduceChoiceGrad", OP_INTERNAL, 3, 3, 1, 1, NULL, flops_reduce, NULL },
    { "ReduceL2Grad", OP_INTERNAL, 3, 3, 1, 1, NULL, flops_reduce, NULL },
    { "ReduceGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { "ReduceSumTo", OP_INTERNAL, 1, 1, 1, 1, NULL, flops_reduce, NULL },
    { .name = NULL },
};
