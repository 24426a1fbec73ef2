/* SPDX-License-Identifier: MIT */
/* The cases: each variant number chooses among the attributes and forms of its operator. */
#include "op_case.h"
#include "unit.h"

/* Pointwise --------------------------------------------------------------------------- */

#define UNARY(NAME, OP, MAKE, LOW, HIGH)                    \
    static void NAME(struct op_case *c)                     \
    {                                                       \
        case_unary(c, OP, MAKE(c, LOW, HIGH));               \
        case_infer(c);                                      \
    }

static int any_positive(struct op_case *c, double low, double high)
{
    return case_bit(c, 0) ? case_positive(c, 2, DIMS(B, 5), low, high)
                     : case_positive(c, 1, DIMS(6), low, high);
}

UNARY(relu, "Relu", case_any_real, 0.1, 2)
UNARY(square_root, "Sqrt", any_positive, 0.3, 3)
UNARY(exponential, "Exp", case_any_real, 0, 2)
UNARY(logarithm, "Log", any_positive, 0.3, 3)
UNARY(error_function, "Erf", case_any_real, 0, 2)
UNARY(hyperbolic, "Tanh", case_any_real, 0, 2)
UNARY(sigmoid, "Sigmoid", case_any_real, 0, 3)
UNARY(negative, "Neg", case_any_real, 0, 3)

static void gelu(struct op_case *c)
{
    case_unary(c, "Gelu", case_any_real(c, 0, 3));
    if (case_bit(c, 2))
        graph_set_string(c->graph, c->node, "approximate", case_bit(c, 3) ? "tanh" : "none");
    case_infer(c);
}

static void dropout(struct op_case *c)
{
    int x = c->variant < 32 ? case_any_real(c, 0.1, 2)
                            : case_real(c, 3, DIMS(2, B, 20), 0.1, 2);

    case_node(c, "Dropout", 1, &x, c->variant < 16 ? 1 : 2);
    graph_set_float(c->graph, c->node, "ratio",
                    case_bit(c, 2) ? 0.5 : case_bit(c, 3) ? 0 : 0.1);
    case_infer(c);
}

/* Of whole numbers, too, of which the small ones wrap around. What they are divided by is not 0;
 * what no double holds (a uint64 below 0) is left to test_dtype.c.
 */
static void arithmetic(struct op_case *c, const char *op, double low, double high)
{
    enum dtype dtype = case_integer_type(c);
    int most = dtype_size(dtype) == 1 ? 120 : 9, ids[2];

    if (c->variant < 14) {
        case_two(c, low, high, &ids[0], &ids[1]);
    } else {
        c->gradient = false;
        ids[0] = case_integers(c, dtype, 2, DIMS(B, 4), dtype == DTYPE_U64 ? 7 : -most, most);
        ids[1] = case_integers(c, dtype, 1, DIMS(4), 1, 7);
    }
    case_node(c, op, 2, ids, 1);
    case_infer(c);
}

#define BINARY(NAME, OP, LOW, HIGH)                         \
    static void NAME(struct op_case *c)                     \
    {                                                       \
        arithmetic(c, OP, LOW, HIGH);                       \
    }

BINARY(addition, "Add", 0, 2)
BINARY(subtraction, "Sub", 0, 2)
BINARY(multiplication, "Mul", 0, 2)
BINARY(division, "Div", 0.5, 2)

/* A positive base with any exponent, or any base with a whole one, perhaps an integer. */
static void power(struct op_case *c)
{
    static const double whole[] = { 2, 3, 0, 1 };
    int ids[2];

    if (case_choose(c, 14, 2) == 0) {
        case_two(c, 0.5, 2, &ids[0], &ids[1]);
    } else {
        ids[0] = case_real(c, 2, DIMS(B, 4), 0.3, 2);
        ids[1] = case_integers(c, case_bit(c, 2) ? DTYPE_I64 : c->graph->real, 0, NULL, 0, 0);
        c->data[ids[1]][0] = whole[case_choose(c, 1, 4)];
    }
    case_node(c, "Pow", 2, ids, 1);
    case_infer(c);
}

static void where(struct op_case *c)
{
    int ids[3];

    case_two(c, 0, 2, &ids[1], &ids[2]);
    switch (case_choose(c, 14, 3)) {
    case 0:
        ids[0] = case_integers(c, DTYPE_BOOL, 0, NULL, 0, 1);
        break;
    case 1:
        ids[0] = case_integers(c, DTYPE_BOOL, 1, DIMS(1), 0, 1);
        break;
    default: {
        const struct shape *a = &c->graph->values[ids[1]].shape;
        const struct shape *b = &c->graph->values[ids[2]].shape;
        int v = a->rank > b->rank ? ids[1] : ids[2];
        int dim[GRAPH_MAX_RANK], rank = c->graph->values[v].shape.rank;

        for (int i = 0; i < rank; i++)
            dim[i] = i < rank - 1 ? 1 : (int)c->graph->values[v].shape.dim[i];
        ids[0] = case_integers(c, DTYPE_BOOL, rank, dim, 0, 1);
    }
    }
    case_node(c, "Where", 3, ids, 1);
    case_infer(c);
}

static void cast(struct op_case *c)
{
    enum dtype other = c->variant < 16 ? case_integer_type(c) : DTYPE_BOOL;

    c->gradient = false;
    if (c->variant >= 8 && c->variant < 17) {
        case_unary(c, "Cast", case_integers(c, other, 2, DIMS(B, 5), 0, 1));
        case_attr(c, "to", c->graph->real);
    } else {
        case_unary(c, "Cast", case_positive(c, 2, DIMS(B, 5), 0, 9));
        case_attr(c, "to", other);
    }
    case_infer(c);
}

/* Ops that only passes append: they have no gradient of their own. */
static void internal(struct op_case *c, const char *op, int n)
{
    int ids[3];

    c->gradient = false;
    for (int i = 0; i < n; i++)
        ids[i] = case_real(c, 2, DIMS(B, 5), 0, 2);
    case_node(c, op, n, ids, 1);
    case_infer(c);
}

static void add_n(struct op_case *c)
{
    internal(c, "AddN", 1 + c->variant);
}

static void copy(struct op_case *c)
{
    internal(c, "Copy", 1);
}

static void reorder(struct op_case *c)
{
    internal(c, "Reorder", 1);
}

/* Moves ------------------------------------------------------------------------------- */

static void reshape(struct op_case *c)
{
    int64_t shape[3] = { 2 * c->graph->batch, 3, 2 };

    case_unary(c, "Reshape", case_real(c, 3, DIMS(2, B, 6), 0, 2));
    case_list(c, "shape", 3, shape);
    case_infer(c);
}

/* Behind a gradient only: a Reshape's or a vector's. */
static void view(struct op_case *c)
{
    struct value *y;

    c->gradient = false;
    case_unary(c, "View", case_real(c, 2, DIMS(B, 6), 0, 2));
    y = &c->graph->values[c->graph->nodes[c->node].outputs[0]];
    y->dtype = c->graph->real;
    y->shape = case_shape(c, 3, DIMS(B, 2, 3));
    y->batch = (struct batch){ 1, 6, 1 };
    case_infer(c);
}

static void transpose(struct op_case *c)
{
    static const int64_t perms[][4] = { { 0, 2, 1, 3 }, { 3, 0, 1, 2 }, { 1, 0, 3, 2 },
                                        { 0, 1, 2, 3 } };

    if (c->variant < 5)
        case_unary(c, "Transpose", case_real(c, 4, DIMS(B, 2, 3, 4), 0, 2));
    else if (c->variant < 7)    /* several tiles of a backend */
        case_unary(c, "Transpose", c->variant == 5 ? case_real(c, 3, DIMS(40, B, 70), 0, 2)
                                                   : case_real(c, 3, DIMS(B, 70, 40), 0, 2));
    else                        /* the heads of an attention */
        case_unary(c, "Transpose", case_real(c, 4, DIMS(B, 20, 3, 16), 0, 2));
    if (c->variant < 4)
        case_list(c, "perm", 4, perms[c->variant]);
    else if (c->variant == 6)
        case_list(c, "perm", 3, (const int64_t[]){ 0, 2, 1 });
    else if (c->variant == 7)
        case_list(c, "perm", 4, perms[0]);
    case_infer(c);
}

static void concat(struct op_case *c)
{
    int ids[3] = { case_real(c, 3, DIMS(2, B, 3), 0, 2), -1, -1 }, n = 1 + case_choose(c, 2, 3);

    for (int i = 1; i < n; i++)
        ids[i] = case_bit(c, 0) ? case_real(c, 3, DIMS(2, B, 1 + i), 0, 2)
                           : case_real(c, 3, DIMS(1 + i, B, 3), 0, 2);
    case_node(c, "Concat", n, ids, 1);
    case_attr(c, "axis", case_bit(c, 0) ? 2 : 0);
    case_infer(c);
}

static void slice(struct op_case *c)
{
    static const int64_t starts[][2] = { { 1, 0 }, { 4, 2 }, { 0, 3 }, { 3, 1 } };
    static const int64_t ends[][2] = { { 4, 2 }, { -1, 4 }, { 5, -1 }, { 3, 2 } };
    static const int64_t steps[][2] = { { 1, 1 }, { -1, 1 }, { 2, -2 }, { 1, 1 } };
    static const int64_t axes[2] = { 1, 2 };
    int i = c->variant;

    case_unary(c, "Slice", case_real(c, 3, DIMS(B, 5, 4), 0, 2));
    case_list(c, "starts", 2, starts[i]);
    case_list(c, "ends", 2, ends[i]);
    case_list(c, "axes", 2, axes);
    case_list(c, "steps", 2, steps[i]);
    case_infer(c);
}

static void split(struct op_case *c)
{
    static const int64_t sizes[][3] = { { 2, 2, 2 }, { 1, 5 }, { 6 }, { 3, 0, 3 } };
    static const int counts[] = { 3, 2, 1, 3 };
    int i = case_choose(c, 1, 4), x = case_real(c, 3, DIMS(B, 6, 2), 0, 2);

    case_node(c, "Split", 1, &x, counts[i]);
    case_attr(c, "axis", 1);
    case_list(c, "split", counts[i], sizes[i]);
    case_infer(c);
}

static void expand(struct op_case *c)
{
    int64_t shape[4] = { 2, c->graph->batch, 3, 4 };

    switch (case_choose(c, 1, 3)) {
    case 0:
        case_unary(c, "Expand", case_real(c, 3, DIMS(B, 1, 4), 0, 2));
        break;
    case 1:
        case_unary(c, "Expand", case_real(c, 2, DIMS(1, 4), 0, 2));
        break;
    default:
        case_unary(c, "Expand", case_real(c, 4, DIMS(2, B, 3, 4), 0, 2));
    }
    case_list(c, "shape", 4, shape);
    case_infer(c);
}

static void gather(struct op_case *c)
{
    enum dtype dtype = case_bit(c, 2) ? DTYPE_I32 : DTYPE_I64;
    int ids[2];

    switch (c->variant < 8 ? case_choose(c, 1, 4) : 4) {
    case 4: /* one that many positions share */
        ids[0] = case_real(c, 2, DIMS(5, 4), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(B, 700), -5, 4);
        break;
    case 0: /* an embedding */
        ids[0] = case_real(c, 2, DIMS(5, 3), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(B, 4), 0, 4);
        break;
    case 1: /* one position of a sequence */
        ids[0] = case_real(c, 3, DIMS(B, 5, 3), 0, 2);
        ids[1] = case_integers(c, dtype, 0, NULL, 0, 4);
        break;
    case 2:
        ids[0] = case_real(c, 3, DIMS(5, B, 2), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(2, 3), 0, 4);
        break;
    default:
        ids[0] = case_real(c, 3, DIMS(2, 5, 3), 0, 2);
        ids[1] = case_integers(c, dtype, 1, DIMS(B), 0, 4);
    }
    case_node(c, "Gather", 2, ids, 1);
    case_attr(c, "axis", c->variant % 2);
    case_infer(c);
}

/* Losses ------------------------------------------------------------------------------ */

static void cross_entropy(struct op_case *c)
{
    enum dtype dtype = case_bit(c, 0) ? DTYPE_I32 : DTYPE_I64;
    bool weights = case_bit(c, 1), ignores = case_bit(c, 2);
    int form = case_choose(c, 8, 3), ids[4], n = 3;

    ids[0] = form == 0   ? case_distinct(c, 2, DIMS(B, 5))
             : form == 1 ? case_distinct(c, 3, DIMS(B, 5, 2))
                         : case_distinct(c, 3, DIMS(B, 2, 5));
    ids[1] = form == 0 ? case_integers(c, dtype, 1, DIMS(B), ignores ? -1 : 0, 4)
                       : case_integers(c, dtype, 2, DIMS(B, 2), ignores ? -1 : 0, 4);
    ids[2] = case_weight_sum(c);
    if (weights) {
        ids[n++] = case_positive(c, 1, DIMS(5), 0.5, 2);
        c->graph->values[ids[3]].kind = VALUE_INPUT;
    }
    case_node(c, "CrossEntropySum", n, ids, 1 + case_choose(c, 24, 2));
    case_attr(c, "axis", form == 2 ? 2 : 1);
    if (ignores)
        case_attr(c, "ignore_index", -1);
    if (case_choose(c, 48, 2))
        graph_set_float(c->graph, c->node, "label_smoothing", 0.125);
    case_infer(c);
    c->graph->loss = c->graph->nodes[c->node].outputs[0];
}

static void pair_loss(struct op_case *c, const char *op)
{
    int ids[3] = { case_any_real(c, 0, 2), case_any_real(c, 0, 2), case_weight_sum(c) };

    c->graph->values[ids[1]].kind = VALUE_INPUT;
    case_node(c, op, 3, ids, 1);
    case_infer(c);
    c->graph->loss = c->graph->nodes[c->node].outputs[0];
}

static void mse(struct op_case *c)
{
    pair_loss(c, "MseSum");
}

static void dot(struct op_case *c)
{
    pair_loss(c, "DotSum");
}

static void sum_loss(struct op_case *c)
{
    int ids[2] = { case_any_real(c, 0, 2), case_weight_sum(c) };

    case_node(c, "SumLoss", 2, ids, 1);
    case_infer(c);
    c->graph->loss = c->graph->nodes[c->node].outputs[0];
}

const struct op_kind op_kinds[] = {
    { "Relu", 4, relu },
    { "Sqrt", 2, square_root },
    { "Exp", 4, exponential },
    { "Log", 2, logarithm },
    { "Erf", 4, error_function },
    { "Tanh", 4, hyperbolic },
    { "Sigmoid", 4, sigmoid },
    { "Neg", 4, negative },
    { "Gelu", 16, gelu },
    { "Add", 22, addition },
    { "Sub", 22, subtraction },
    { "Mul", 22, multiplication },
    { "Div", 22, division },
    { "Pow", 28, power },
    { "Where", 42, where },
    { "Cast", 18, cast },
    { "Dropout", 40, dropout },
    { "AddN", 3, add_n },
    { "Copy", 1, copy },
    { "Reorder", 1, reorder },
    { "Reshape", 1, reshape },
    { "View", 1, view },
    { "Transpose", 8, transpose },
    { "Concat", 6, concat },
    { "Slice", 4, slice },
    { "Split", 4, split },
    { "Expand", 3, expand },
    { "Gather", 9, gather },
    { "CrossEntropySum", 96, cross_entropy },
    { "MseSum", 4, mse },
    { "DotSum", 4, dot },
    { "SumLoss", 4, sum_loss },
    { .op = NULL },
};
