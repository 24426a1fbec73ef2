/* SPDX-License-Identifier: MIT */
/* Ops that work element by element, with numpy's broadcast. */
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"

static int infer_unary(struct graph *graph, int node, struct err *err)
{
    if (need_float(graph, node, 0, err))
        return -1;
    return infer_like(graph, node, err);
}

static int infer_signed(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    if (x->dtype == DTYPE_BOOL || x->dtype == DTYPE_U8)
        return op_error(graph, node, err, "input 0 is %s", dtype_name(x->dtype));
    return infer_like(graph, node, err);
}

static int infer_same_types(struct graph *graph, int node, int first, enum dtype *dtype,
                            struct err *err)
{
    int i;

    *dtype = node_input(graph, node, first)->dtype;
    for (i = first; i < graph->nodes[node].n_inputs; i++)
        if (node_input(graph, node, i)->dtype != *dtype)
            return op_error(graph, node, err, "input %d is %s, the first is %s", i,
                            dtype_name(node_input(graph, node, i)->dtype), dtype_name(*dtype));
    return 0;
}

static int infer_nary(struct graph *graph, int node, struct err *err)
{
    struct shape shape;
    struct batch batch;
    enum dtype dtype;

    if (infer_same_types(graph, node, 0, &dtype, err) ||
        infer_broadcast(graph, node, 0, graph->nodes[node].n_inputs, &shape, &batch, err))
        return -1;
    return set_output(graph, node, 0, dtype, &shape, batch, err);
}

/* x^2 is often written with an integer exponent. */
static int infer_pow(struct graph *graph, int node, struct err *err)
{
    struct shape shape;
    struct batch batch;

    if (need_float(graph, node, 0, err) ||
        infer_broadcast(graph, node, 0, 2, &shape, &batch, err))
        return -1;
    return set_output(graph, node, 0, node_input(graph, node, 0)->dtype, &shape, batch, err);
}

/* dy, the base, the exponent. */
static int infer_pow_grad(struct graph *graph, int node, struct err *err)
{
    struct shape shape;
    struct batch batch;

    if (infer_broadcast(graph, node, 0, 3, &shape, &batch, err))
        return -1;
    return set_output(graph, node, 0, node_input(graph, node, 0)->dtype, &shape, batch, err);
}

static int infer_where(struct graph *graph, int node, struct err *err)
{
    struct shape shape;
    struct batch batch;
    enum dtype dtype;

    if (node_input(graph, node, 0)->dtype != DTYPE_BOOL)
        return op_error(graph, node, err, "the condition is not boolean");
    if (infer_same_types(graph, node, 1, &dtype, err) ||
        infer_broadcast(graph, node, 0, 3, &shape, &batch, err))
        return -1;
    return set_output(graph, node, 0, dtype, &shape, batch, err);
}

static int infer_cast(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int64_t to = node_int(&graph->nodes[node], "to", DTYPE_NONE);

    if (to <= DTYPE_NONE || to > DTYPE_U8)
        return op_error(graph, node, err, "type %d is not supported", (int)to);
    return set_output(graph, node, 0, (enum dtype)to, &x->shape, x->batch, err);
}

static int infer_gelu(struct graph *graph, int node, struct err *err)
{
    const char *kind = node_string(&graph->nodes[node], "approximate", "none");

    if (strcmp(kind, "none") != 0 && strcmp(kind, "tanh") != 0)
        return op_error(graph, node, err, "approximate \"%s\": expected none or tanh", kind);
    return infer_unary(graph, node, err);
}

static int infer_dropout(struct graph *graph, int node, struct err *err)
{
    double ratio = node_float(&graph->nodes[node], "ratio", 0.5);

    if (!(ratio >= 0 && ratio < 1))
        return op_error(graph, node, err, "ratio %g: expected 0 <= ratio < 1", ratio);
    return infer_unary(graph, node, err);
}

static double flops_transcendental(const struct graph *graph, int node)
{
    return 10 * (double)shape_elements(&node_output(graph, node, 0)->shape);
}

#define UNARY(NAME, FLAGS, FLOPS, GRAD) \
    { NAME, FLAGS, 1, 1, 1, 1, infer_unary, FLOPS, GRAD }
#define INTERNAL(NAME, INPUTS, INFER) \
    { NAME, OP_INTERNAL | OP_INPLACE, INPUTS, INPUTS, 1, 1, INFER, NULL, NULL }

const struct op ops_pointwise[] = {
    UNARY("Relu", OP_INPLACE, NULL, NULL),
    UNARY("Sqrt", OP_INPLACE, NULL, NULL),
    UNARY("Exp", OP_INPLACE, flops_transcendental, NULL),
    UNARY("Log", OP_INPLACE, flops_transcendental, NULL),
    UNARY("Erf", OP_INPLACE, flops_transcendental, NULL),
    UNARY("Tanh", OP_INPLACE, flops_transcendental, NULL),
    UNARY("Sigmoid", OP_INPLACE, flops_transcendental, NULL),
    { "Neg", OP_INPLACE, 1, 1, 1, 1, infer_signed, NULL, NULL },
    { "Gelu", OP_INPLACE, 1, 1, 1, 1, infer_gelu, flops_transcendental, NULL },
    { "Add", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, NULL },
    { "Sub", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, NULL },
    { "Mul", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, NULL },
    { "Div", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, NULL },
    { "Pow", OP_INPLACE, 2, 2, 1, 1, infer_pow, flops_transcendental, NULL },
    { "Where", 0, 3, 3, 1, 1, infer_where, NULL, NULL },
    { "Cast", 0, 1, 1, 1, 1, infer_cast, NULL, NULL },
    { "Dropout", OP_INPLACE, 1, 1, 1, 1, infer_dropout, flops_transcendental, NULL },
    INTERNAL("ReluGrad", 2, infer_like),
    INTERNAL("TanhGrad", 2, infer_like),
    INTERNAL("SigmoidGrad", 2, infer_like),
    INTERNAL("SqrtGrad", 2, infer_like),
    INTERNAL("ErfGrad", 2, infer_like),
    INTERNAL("GeluGrad", 2, infer_like),
    INTERNAL("DivGrad", 3, infer_nary),
    INTERNAL("PowGrad", 3, infer_pow_grad),
    INTERNAL("PowExponentGrad", 3, infer_nary),
    INTERNAL("DropoutGrad", 1, infer_like),
    { "AddN", OP_INTERNAL | OP_INPLACE, 1, -1, 1, 1, infer_like, NULL, NULL },
    { "Copy", OP_INTERNAL, 1, 1, 1, 1, infer_like, NULL, NULL },
    { "Reorder", OP_INTERNAL, 1, 1, 1, 1, infer_like, NULL, NULL },
    { .name = NULL },
};
