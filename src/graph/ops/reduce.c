/* SPDX-License-Identifier: MIT */
#include "graph/ops/reduce.h"

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"

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

static int infer_reduce(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    bool keep = node_int(&graph->nodes[node], "keepdims", 1) != 0;
    struct shape kept = x->shape, shape = { 0 };
    struct batch_place place;
    unsigned axes;
    int i;

    if (need_float(graph, node, 0, err) || reduce_axes(graph, node, &axes, err) ||
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

const struct op ops_reduce[] = {
    { "ReduceMean", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, NULL },
    { "ReduceSum", 0, 1, 1, 1, 1, infer_reduce, flops_reduce, NULL },
    { "ReduceGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { "ReduceSumTo", OP_INTERNAL, 1, 1, 1, 1, NULL, flops_reduce, NULL },
    { .name = NULL },
};
