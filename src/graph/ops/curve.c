/* SPDX-License-Identifier: MIT */
/* Functions of one number, some with one or two parameters, and those of two whose gradients
 * choose a side.
 */
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

/* What the gradient is computed from beside dy. */
static const struct curve {
    const char *op, *grad;
    bool from_output;
} curves[] = {
    { "Abs", "AbsGrad", false },
    { "Reciprocal", "ReciprocalGrad", true },
    { "Sin", "SinGrad", false },
    { "Cos", "CosGrad", false },
    { "LeakyRelu", "LeakyReluGrad", false },
    { "Elu", "EluGrad", false },
    { "Celu", "CeluGrad", false },
    { "Selu", "SeluGrad", false },
    { "Softplus", "SoftplusGrad", false },
    { "Softsign", "SoftsignGrad", false },
    { "HardSigmoid", "HardSigmoidGrad", false },
    { "HardSwish", "HardSwishGrad", false },
    { "Swish", "SwishGrad", false },
    { "Mish", "MishGrad", false },
    { "Clip", "ClipGrad", false },
};

static int grad_curve(struct grad *grad, int node, struct err *err)
{
    const char *op = grad->graph->nodes[node].op->name;
    int dy = grad_of_output(grad, 0);
    const struct curve *c = curves;

    while (strcmp(c->op, op) != 0)
        c++;
    return rule_add_like(grad, 0, c->grad, 2,
                         (int[]){ dy, c->from_output ? rule_output(grad, 0)
                                                     : rule_input(grad, 0) }, NULL, err);
}

static int infer_curve(struct graph *graph, int node, struct err *err)
{
    return need_float(graph, node, 0, err) ? -1 : infer_like(graph, node, err);
}

static int infer_number(struct graph *graph, int node, struct err *err)
{
    if (node_input(graph, node, 0)->dtype == DTYPE_BOOL)
        return op_error(graph, node, err, "input 0 is bool");
    return infer_like(graph, node, err);
}

static int infer_pair(struct graph *graph, int node, struct err *err)
{
    enum dtype dtype;

    if (infer_same_types(graph, node, 0, &dtype, err))
        return -1;
    return set_broadcast(graph, node, dtype, err);
}

static double flops_curve(const struct graph *graph, int node)
{
    return 10 * (double)shape_elements(&node_output(graph, node, 0)->shape);
}

/* dy goes to the operand that was taken, half to each of two equal ones. */
static int grad_choice(struct grad *grad, const char *op, struct err *err)
{
    int dy = grad_of_output(grad, 0), a = rule_input(grad, 0), b = rule_input(grad, 1);

    if (rule_add_op(grad, 0, op, 3, (int[]){ dy, a, b }, err))
        return -1;
    return rule_add_op(grad, 1, op, 3, (int[]){ dy, b, a }, err);
}

static int grad_max(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return grad_choice(grad, "MaxGrad", err);
}

static int grad_min(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return grad_choice(grad, "MinGrad", err);
}

static int grad_prelu(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), x = rule_input(grad, 0);

    (void)node;
    if (rule_add_op(grad, 0, "PReluGrad", 3, (int[]){ dy, x, rule_input(grad, 1) }, err))
        return -1;
    return rule_add_op(grad, 1, "PReluSlopeGrad", 2, (int[]){ dy, x }, err);
}

#define CURVE(NAME, FLOPS)                                                             \
    { NAME, OP_INPLACE, 1, 1, 1, 1, infer_curve, FLOPS, grad_curve },                  \
    { NAME "Grad", OP_INTERNAL | OP_INPLACE, 2, 2, 1, 1, infer_like, FLOPS, NULL }
#define NUMBER(NAME)                                                                   \
    { NAME, OP_INPLACE, 1, 1, 1, 1, infer_number, NULL, grad_curve },                  \
    { NAME "Grad", OP_INTERNAL | OP_INPLACE, 2, 2, 1, 1, infer_like, NULL, NULL }

const struct op ops_curve[] = {
    NUMBER("Abs"),
    CURVE("Clip", NULL),
    CURVE("Reciprocal", NULL),
    CURVE("Sin", flops_curve),
    CURVE("Cos", flops_curve),
    CURVE("LeakyRelu", NULL),
    CURVE("Elu", flops_curve),
    CURVE("Celu", flops_curve),
    CURVE("Selu", flops_curve),
    CURVE("Softplus", flops_curve),
    CURVE("Softsign", NULL),
    CURVE("HardSigmoid", NULL),
    CURVE("HardSwish", NULL),
    CURVE("Swish", flops_curve),
    CURVE("Mish", flops_curve),
    { "Floor", OP_INPLACE | OP_NO_GRAD, 1, 1, 1, 1, infer_curve, NULL, NULL },
    { "Ceil", OP_INPLACE | OP_NO_GRAD, 1, 1, 1, 1, infer_curve, NULL, NULL },
    { "Round", OP_INPLACE | OP_NO_GRAD, 1, 1, 1, 1, infer_curve, NULL, NULL },
    { "Sign", OP_INPLACE | OP_NO_GRAD, 1, 1, 1, 1, infer_number, NULL, NULL },
    { "Max", OP_INPLACE, 2, 2, 1, 1, infer_pair, NULL, grad_max },
    { "Min", OP_INPLACE, 2, 2, 1, 1, infer_pair, NULL, grad_min },
    { "MaxGrad", OP_INTERNAL | OP_INPLACE, 3, 3, 1, 1, infer_pair, NULL, NULL },
    { "MinGrad", OP_INTERNAL | OP_INPLACE, 3, 3, 1, 1, infer_pair, NULL, NULL },
    { "PRelu", OP_INPLACE, 2, 2, 1, 1, infer_pair, NULL, grad_prelu },
    { "PReluGrad", OP_INTERNAL | OP_INPLACE, 3, 3, 1, 1, infer_pair, NULL, NULL },
    { "PReluSlopeGrad", OP_INTERNAL | OP_INPLACE, 2, 2, 1, 1, infer_pair, NULL, NULL },
    { .name = NULL },
};
