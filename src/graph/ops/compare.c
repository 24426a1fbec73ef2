/* SPDX-License-Identifier: MIT */
/* What gives truth values, or works on whole numbers: no gradient flows through. */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"

static int infer_compare(struct graph *graph, int node, struct err *err)
{
    enum dtype dtype;

    if (infer_same_types(graph, node, 0, &dtype, err))
        return -1;
    return set_broadcast(graph, node, DTYPE_BOOL, err);
}

static int need_bool(const struct graph *graph, int node, struct err *err)
{
    int i;

    for (i = 0; i < graph->nodes[node].n_inputs; i++)
        if (node_input(graph, node, i)->dtype != DTYPE_BOOL)
            return op_error(graph, node, err, "input %d is %s, expected bool", i,
                            dtype_name(node_input(graph, node, i)->dtype));
    return 0;
}

static int infer_logic(struct graph *graph, int node, struct err *err)
{
    return need_bool(graph, node, err) ? -1 : set_broadcast(graph, node, DTYPE_BOOL, err);
}

static int infer_mod(struct graph *graph, int node, struct err *err)
{
    enum dtype dtype;

    if (infer_same_types(graph, node, 0, &dtype, err))
        return -1;
    if (dtype_is_float(dtype) && node_int(&graph->nodes[node], "fmod", 0) == 0)
        return op_error(graph, node, err, "fmod=0 is for integers");
    return set_broadcast(graph, node, dtype, err);
}

static int infer_test(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    if (need_float(graph, node, 0, err))
        return -1;
    return set_output(graph, node, 0, DTYPE_BOOL, &x->shape, x->batch, err);
}

#define PAIR(NAME, INFER) { NAME, OP_NO_GRAD, 2, 2, 1, 1, INFER, NULL, NULL }
#define ONE(NAME, INFER) { NAME, OP_NO_GRAD, 1, 1, 1, 1, INFER, NULL, NULL }

const struct op ops_compare[] = {
    PAIR("Equal", infer_compare),
    PAIR("Less", infer_compare),
    PAIR("LessOrEqual", infer_compare),
    PAIR("Greater", infer_compare),
    PAIR("GreaterOrEqual", infer_compare),
    PAIR("And", infer_logic),
    PAIR("Or", infer_logic),
    PAIR("Xor", infer_logic),
    ONE("Not", infer_logic),
    PAIR("Mod", infer_mod),
    ONE("IsNaN", infer_test),
    ONE("IsInf", infer_test),
    { .name = NULL },
};
