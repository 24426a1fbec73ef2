/* SPDX-License-Identifier: MIT */
/* Cases of functions, comparisons and logic. */
#include <math.h>

#include "op_case.h"
#include "unit.h"

/* Functions of one number, with values on all sides of their kinks and none near one. */
static void curve(struct op_case *c, const char *op, double low, double high)
{
    case_unary(c, op, case_any_real(c, low, high));
}

#define CURVE(NAME, OP, LOW, HIGH)                          \
    static void NAME(struct op_case *c)                     \
    {                                                       \
        curve(c, OP, LOW, HIGH);                            \
        case_infer(c);                                      \
    }

CURVE(absolute, "Abs", 0.1, 2)
CURVE(reciprocal, "Reciprocal", 0.5, 2)
CURVE(sine, "Sin", 0, 3)
CURVE(cosine, "Cos", 0, 3)
CURVE(softplus, "Softplus", 0, 3)
CURVE(softsign, "Softsign", 0.1, 2)
CURVE(mish, "Mish", 0, 3)

#define ALPHA(NAME, OP, ALPHA)                                                    \
    static void NAME(struct op_case *c)                                           \
    {                                                                             \
        curve(c, OP, 0.1, 2);                                                     \
        graph_set_float(c->graph, c->node, "alpha", case_bit(c, 2) ? (ALPHA) : 1); \
        case_infer(c);                                                            \
    }

ALPHA(leaky_relu, "LeakyRelu", 0.01)
ALPHA(elu, "Elu", 0.7)
ALPHA(celu, "Celu", 0.7)
ALPHA(swish, "Swish", 1.702)

static void selu(struct op_case *c)
{
    curve(c, "Selu", 0.1, 2);
    graph_set_float(c->graph, c->node, "alpha", 1.5);
    graph_set_float(c->graph, c->node, "beta", 1.25);
    case_infer(c);
}

static void hard_sigmoid(struct op_case *c)
{
    curve(c, "HardSigmoid", case_bit(c, 2) ? 3.2 : 0, case_bit(c, 2) ? 5 : 2.4);
    graph_set_float(c->graph, c->node, "alpha", 1.0 / 6);
    graph_set_float(c->graph, c->node, "beta", 0.5);
    case_infer(c);
}

static void hard_swish(struct op_case *c)
{
    curve(c, "HardSwish", case_bit(c, 2) ? 3.2 : 0, case_bit(c, 2) ? 5 : 2.8);
    case_infer(c);
}

static void clip(struct op_case *c)
{
    curve(c, "Clip", 0.6, 2);
    if (case_choose(c, 4, 4) != 1)
        graph_set_float(c->graph, c->node, "min", -0.5);
    if (case_choose(c, 4, 4) != 2)
        graph_set_float(c->graph, c->node, "max", case_bit(c, 2) ? 0.5 : 9);
    case_infer(c);
}

static void step(struct op_case *c, const char *op)
{
    c->gradient = false;
    curve(c, op, 0, 5);
    case_infer(c);
}

static void floors(struct op_case *c)
{
    step(c, "Floor");
}

static void ceils(struct op_case *c)
{
    step(c, "Ceil");
}

static void rounds(struct op_case *c)
{
    step(c, "Round");
}

static void signs(struct op_case *c)
{
    step(c, "Sign");
}

/* Whole numbers of some type, broadcast. */
static void whole(struct op_case *c, int low, int high, int ids[2])
{
    enum dtype dtype = case_integer_type(c);

    c->gradient = false;
    ids[0] = case_integers(c, dtype, 2, DIMS(B, 4), low, high);
    ids[1] = case_integers(c, dtype, 1, DIMS(4), 1, high);
}

/* Of numbers that differ by 0.125 or more where they are not the same value. */
static void choice(struct op_case *c, const char *op)
{
    int ids[2];

    if (c->variant >= 14) {
        whole(c, -7, 7, ids);
    } else {
        case_two(c, 0, 2, &ids[0], &ids[1]);
        for (int i = 0; i < 2; i++)
            for (int64_t k = 0; k < shape_elements(&c->graph->values[ids[i]].shape); k++)
                c->data[ids[i]][k] = 0.25 * case_int(c, -8, 8) + 0.125 * i;
    }
    case_node(c, op, 2, ids, 1);
    case_infer(c);
}

static void larger(struct op_case *c)
{
    choice(c, "Max");
}

static void smaller(struct op_case *c)
{
    choice(c, "Min");
}

static void prelu(struct op_case *c)
{
    int ids[2];

    ids[0] = case_real(c, 3, DIMS(B, 3, 4), 0.1, 2);
    ids[1] = case_bit(c, 0) ? case_real(c, 2, DIMS(3, 1), 0, 1) : case_real(c, 0, NULL, 0, 1);
    case_node(c, "PRelu", 2, ids, 1);
    case_infer(c);
}

static void compare(struct op_case *c, const char *op)
{
    int ids[2];

    if (c->variant >= 14)
        whole(c, -2, 3, ids);
    else
        case_two(c, 0, 2, &ids[0], &ids[1]);
    c->gradient = false;
    case_node(c, op, 2, ids, 1);
    case_infer(c);
}

#define COMPARE(NAME, OP)                                   \
    static void NAME(struct op_case *c)                     \
    {                                                       \
        compare(c, OP);                                     \
    }

COMPARE(equal, "Equal")
COMPARE(less, "Less")
COMPARE(less_or_equal, "LessOrEqual")
COMPARE(greater, "Greater")
COMPARE(greater_or_equal, "GreaterOrEqual")

static void logic(struct op_case *c, const char *op, int n)
{
    int ids[2];

    c->gradient = false;
    ids[0] = case_integers(c, DTYPE_BOOL, 2, DIMS(B, 8), 0, 1);
    ids[1] = case_integers(c, DTYPE_BOOL, 1, DIMS(8), 0, 1);
    case_node(c, op, n, ids, 1);
    case_infer(c);
}

#define LOGIC(NAME, OP, N)                                  \
    static void NAME(struct op_case *c)                     \
    {                                                       \
        logic(c, OP, N);                                    \
    }

LOGIC(both, "And", 2)
LOGIC(either, "Or", 2)
LOGIC(one_of, "Xor", 2)
LOGIC(not, "Not", 1)

static void modulo(struct op_case *c)
{
    int ids[2];

    if (c->variant >= 16) {
        c->gradient = false;
        case_two(c, 0.5, 3, &ids[0], &ids[1]);
    } else {
        whole(c, -9, 9, ids);
    }
    case_node(c, "Mod", 2, ids, 1);
    if (c->variant >= 8)
        case_attr(c, "fmod", 1);
    case_infer(c);
}

static void test_of(struct op_case *c, const char *op)
{
    static const double special[] = { (double)NAN, (double)INFINITY, (double)-INFINITY, 0 };
    int x = case_real(c, 2, DIMS(B, 4), 0, 2);

    c->gradient = false;
    for (int i = 0; i < 4; i++)
        c->data[x][i] = special[i];
    case_unary(c, op, x);
    case_infer(c);
}

static void is_nan(struct op_case *c)
{
    test_of(c, "IsNaN");
}

static void is_inf(struct op_case *c)
{
    test_of(c, "IsInf");
    if (c->variant == 1)
        case_attr(c, "detect_negative", 0);
    if (c->variant == 2)
        case_attr(c, "detect_positive", 0);
}

const struct op_kind op_kinds_math[] = {
    { "Abs", 4, absolute },
    { "Reciprocal", 4, reciprocal },
    { "Sin", 4, sine },
    { "Cos", 4, cosine },
    { "LeakyRelu", 8, leaky_relu },
    { "Elu", 8, elu },
    { "Celu", 8, celu },
    { "Selu", 4, selu },
    { "Softplus", 4, softplus },
    { "Softsign", 4, softsign },
    { "HardSigmoid", 8, hard_sigmoid },
    { "HardSwish", 8, hard_swish },
    { "Swish", 8, swish },
    { "Mish", 4, mish },
    { "Clip", 16, clip },
    { "Floor", 4, floors },
    { "Ceil", 4, ceils },
    { "Round", 4, rounds },
    { "Sign", 4, signs },
    { "Max", 22, larger },
    { "Min", 22, smaller },
    { "PRelu", 2, prelu },
    { "Equal", 22, equal },
    { "Less", 22, less },
    { "LessOrEqual", 22, less_or_equal },
    { "Greater", 22, greater },
    { "GreaterOrEqual", 22, greater_or_equal },
    { "And", 1, both },
    { "Or", 1, either },
    { "Xor", 1, one_of },
    { "Not", 1, not },
    { "Mod", 30, modulo },
    { "IsNaN", 1, is_nan },
    { "IsInf", 3, is_inf },
    { .op = NULL },
};
