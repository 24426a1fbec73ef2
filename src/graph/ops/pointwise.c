/* SPDX-License-Identifier: MIT */
/* Ops that work element by element, with numpy's broadcast. */
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int infer_unary(struct graph *graph, int node, struct err *err)
{
    if (need_float(graph, node, 0, err))
        return -1;
    return infer_like(graph, node, err);
}

static int infer_signed(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    if (dtype_is_unsigned(x->dtype))
        return op_error(graph, node, err, "input 0 is %s", dtype_name(x->dtype));
    return infer_like(graph, node, err);
}

static int infer_nary(struct graph *graph, int node, struct err *err)
{
    enum dtype dtype;

    if (infer_same_types(graph, node, 0, &dtype, err))
        return -1;
    return set_broadcast(graph, node, dtype, err);
}

/* The base, the exponent of any type (x^2 is often written with an integer one); or dy, base
 * and exponent.
 */
static int infer_pow(struct graph *graph, int node, struct err *err)
{
    return set_broadcast(graph, node, node_input(graph, node, 0)->dtype, err);
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

    if (to <= DTYPE_NONE || to > DTYPE_U64)
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
    if (infer_unary(graph, node, err))
        return -1;
    return set_output(graph, node, 1, DTYPE_BOOL, &node_input(graph, node, 0)->shape,
                      node_input(graph, node, 0)->batch, err);
}

static double flops_transcendental(const struct graph *graph, int node)
{
    return 10 * (double)shape_elements(&node_output(graph, node, 0)->shape);
}

static int grad_add_rule(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    for (int i = 0; i < grad->graph->nodes[node].n_inputs; i++)
        if (grad_wanted(grad, i) && rule_add_reduced(grad, i, dy, err))
            return -1;
    return 0;
}

static int grad_sub(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    if (grad_wanted(grad, 0) && rule_add_reduced(grad, 0, dy, err))
        return -1;
    return rule_add_op(grad, 1, "Neg", 1, &dy, err);
}

static int grad_neg(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_op(grad, 0, "Neg", 1, &dy, err);
}

static int grad_mul(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    if (rule_add_op(grad, 0, "Mul", 2, (int[]){ dy, rule_input(grad, 1) }, err))
        return -1;
    return rule_add_op(grad, 1, "Mul", 2, (int[]){ dy, rule_input(grad, 0) }, err);
}

static int grad_div(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), b = rule_input(grad, 1);

    (void)node;
    if (rule_add_op(grad, 0, "Div", 2, (int[]){ dy, b }, err))
        return -1;
    return rule_add_op(grad, 1, "DivGrad", 3, (int[]){ dy, rule_output(grad, 0), b }, err);
}

static int grad_pow(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), a = rule_input(grad, 0);

    (void)node;
    if (rule_add_op(grad, 0, "PowGrad", 3, (int[]){ dy, a, rule_input(grad, 1) }, err))
        return -1;
    return rule_add_op(grad, 1, "PowExponentGrad", 3, (int[]){ dy, a, rule_output(grad, 0) },
                       err);
}

static int grad_where(struct grad *grad, int node, struct err *err)
{
    static const struct shape scalar = { 0, { 0 } };
    const double zero = 0; /* all bits 0: any type's */
    int dy = grad_of_output(grad, 0), condition = rule_input(grad, 0), zeros;

    (void)node;
    zeros = graph_add_const(grad->graph, NULL, grad->graph->values[dy].dtype, &scalar, &zero);
    if (rule_add_op(grad, 1, "Where", 3, (int[]){ condition, dy, zeros }, err))
        return -1;
    return rule_add_op(grad, 2, "Where", 3, (int[]){ condition, zeros, dy }, err);
}

/* Gradients from the output (y) or from the input (x). */
#define GRAD_FROM(NAME, OP, OTHER)                                                            \
    static int NAME(struct grad *grad, int node, struct err *err)                             \
    {                                                                                         \
        int dy = grad_of_output(grad, 0);                                                     \
                                                                                              \
        (void)node;                                                                           \
        return rule_add_like(grad, 0, OP, 2, (int[]){ dy, OTHER }, NULL, err);                \
    }

GRAD_FROM(grad_relu, "ReluGrad", rule_output(grad, 0))
GRAD_FROM(grad_sqrt, "SqrtGrad", rule_output(grad, 0))
GRAD_FROM(grad_exp, "Mul", rule_output(grad, 0))
GRAD_FROM(grad_log, "Div", rule_input(grad, 0))
GRAD_FROM(grad_erf, "ErfGrad", rule_input(grad, 0))
GRAD_FROM(grad_tanh, "TanhGrad", rule_output(grad, 0))
GRAD_FROM(grad_sigmoid, "SigmoidGrad", rule_output(grad, 0))
GRAD_FROM(grad_gelu, "GeluGrad", rule_input(grad, 0))

static int grad_dropout(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "DropoutGrad", 1, &dy, NULL, err);
}

#define UNARY(NAME, FLAGS, FLOPS, GRAD) \
    { NAME, FLAGS, 1, 1, 1, 1, infer_unary, FLOPS, GRAD }
#define INTERNAL(NAME, INPUTS, INFER) \
    { NAME, OP_INTERNAL | OP_INPLACE, INPUTS, INPUTS, 1, 1, INFER, NULL, NULL }

const struct op ops_pointwise[] = {
    UNARY("Relu", OP_INPLACE, NULL, grad_relu),
    UNARY("Sqrt", OP_INPLACE, NULL, grad_sqrt),
    UNARY("Exp", OP_INPLACE, flops_transcendental, grad_exp),
    UNARY("Log", OP_INPLACE, flops_transcendental, grad_log),
    UNARY("Erf", OP_INPLACE, flops_transcendental, grad_erf),
    UNARY("Tanh", OP_INPLACE, flops_transcendental, grad_tanh),
    UNARY("Sigmoid", OP_INPLACE, flops_transcendental, grad_sigmoid),
    { "Neg", OP_INPLACE, 1, 1, 1, 1, infer_signed, NULL, grad_neg },
    { "Gelu", OP_INPLACE, 1, 1, 1, 1, infer_gelu, flops_transcendental, grad_gelu },
    { "Add", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, grad_add_rule },
    { "Sub", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, grad_sub },
    { "Mul", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, grad_mul },
    { "Div", OP_INPLACE, 2, 2, 1, 1, infer_nary, NULL, grad_div },
    { "Pow", OP_INPLACE, 2, 2, 1, 1, infer_pow, flops_transcendental, grad_pow },
    { "Where", 0, 3, 3, 1, 1, infer_where, NULL, grad_where },
    { "Cast", 0, 1, 1, 1, 1, infer_cast, NULL, NULL },
    { "Dropout", OP_INPLACE, 1, 1, 1, 2, infer_dropout, flops_transcendental, grad_dropout },
    INTERNAL("ReluGrad", 2, infer_like),
    INTERNAL("TanhGrad", 2, infer_like),
    INTERNAL("SigmoidGrad", 2, infer_like),
    INTERNAL("SqrtGrad", 2, infer_like),
    INTERNAL("ErfGrad", 2, infer_like),
    INTERNAL("GeluGrad", 2, infer_like),
    INTERNAL("DivGrad", 3, infer_nary),
    INTERNAL("PowGrad", 3, infer_pow),
    INTERNAL("PowExponentGrad", 3, infer_nary),
    INTERNAL("DropoutGrad", 1, infer_like),
    { "AddN", OP_INTERNAL | OP_INPLACE, 1, -1, 1, 1, infer_like, NULL, NULL },
    { "Copy", OP_INTERNAL, 1, 1, 1, 1, infer_like, NULL, NULL },
    { "Chain", OP_INTERNAL, 1, -1, 1, 1, infer_like, NULL, NULL },
    { "Reorder", OP_INTERNAL, 1, 1, 1, 1, infer_like, NULL, NULL },
    { .name = NULL },
};
