/* SPDX-License-Identifier: MIT */
/* The cases: each variant number chooses among the attributes and forms of its operator. */
#include <math.h>

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
    int x = case_any_real(c, 0.1, 2);

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

/* Products ---------------------------------------------------------------------------- */

/* [m, k] and [k, n], stacked, stored transposed where the attribute says so. */
static int matrix(struct op_case *c, int rank, const int *stack, int rows, int columns,
                  bool transposed)
{
    int dim[GRAPH_MAX_RANK];

    for (int i = 0; i < rank; i++)
        dim[i] = stack[i];
    dim[rank] = transposed ? columns : rows;
    dim[rank + 1] = transposed ? rows : columns;
    return case_real(c, rank + 2, dim, 0, 1);
}

static void matmul(struct op_case *c)
{
    bool ta = case_bit(c, 0), tb = case_bit(c, 1);
    int ids[2];

    switch (case_choose(c, 4, 8)) {
    case 0:
        ids[0] = matrix(c, 0, NULL, B, 3, ta);
        ids[1] = matrix(c, 0, NULL, 3, 4, tb);
        break;
    case 1:
        ids[0] = matrix(c, 1, DIMS(B), 2, 3, ta);
        ids[1] = matrix(c, 0, NULL, 3, 4, tb);
        break;
    case 2:
        ids[0] = matrix(c, 2, DIMS(B, 2), 2, 3, ta);
        ids[1] = matrix(c, 2, DIMS(B, 2), 3, 5, tb);
        break;
    case 3:
        ids[0] = matrix(c, 2, DIMS(B, 1), 2, 3, ta);
        ids[1] = matrix(c, 1, DIMS(3), 3, 2, tb);
        break;
    case 4:
        ids[0] = matrix(c, 0, NULL, 2, 3, ta);
        ids[1] = matrix(c, 1, DIMS(B), 3, 2, tb);
        break;
    case 5:
        ids[0] = case_real(c, 1, DIMS(3), 0, 1);
        ids[1] = matrix(c, 1, DIMS(B), 3, 2, tb);
        break;
    case 6:
        ids[0] = matrix(c, 1, DIMS(B), 2, 3, ta);
        ids[1] = case_real(c, 1, DIMS(3), 0, 1);
        break;
    default:
        ids[0] = case_real(c, 1, DIMS(4), 0, 1);
        ids[1] = case_real(c, 1, DIMS(4), 0, 1);
    }
    case_node(c, "MatMul", 2, ids, 1);
    if (ta)
        case_attr(c, "transA", 1);
    if (tb)
        case_attr(c, "transB", 1);
    if (case_choose(c, 32, 2))
        graph_set_float(c->graph, c->node, "alpha", 0.5);
    case_infer(c);
}

static void gemm(struct op_case *c)
{
    bool ta = case_bit(c, 0), tb = case_bit(c, 1);
    int ids[3] = { matrix(c, 0, NULL, B, 3, ta), matrix(c, 0, NULL, 3, 4, tb), -1 }, n = 3;

    switch (case_choose(c, 4, 5)) {
    case 0:
        ids[2] = case_real(c, 1, DIMS(4), 0, 1);
        break;
    case 1:
        ids[2] = case_real(c, 0, NULL, 0, 1);
        break;
    case 2:
        ids[2] = case_real(c, 2, DIMS(B, 1), 0, 1);
        break;
    case 3:
        ids[2] = case_real(c, 2, DIMS(B, 4), 0, 1);
        break;
    default:
        n = 2;
    }
    case_node(c, "Gemm", n, ids, 1);
    case_attr(c, "transA", ta);
    case_attr(c, "transB", tb);
    if (case_choose(c, 20, 2)) {
        graph_set_float(c->graph, c->node, "alpha", 0.75);
        graph_set_float(c->graph, c->node, "beta", 0.5);
    }
    case_infer(c);
}

/* Relu's kink must not be met: a bias beyond the reach of the weights, or rows of one sign
 * and positive weights.
 */
static void linear(struct op_case *c)
{
    static const char *const names[] = { "none", "relu", "gelu", "gelu_tanh", "silu" };
    bool tb = case_bit(c, 0), bias = case_bit(c, 1);
    int ids[3], activation = case_choose(c, 8, 5);

    ids[0] = case_bit(c, 2) ? case_positive(c, 2, DIMS(B, 3), 0.1, 0.3)
                       : case_positive(c, 3, DIMS(B, 2, 3), 0.1, 0.3);
    for (int64_t i = 0; i < (case_bit(c, 2) ? 3 : 6); i++)
        c->data[ids[0]][i] *= -1;
    ids[1] = case_positive(c, 2, tb ? DIMS(4, 3) : DIMS(3, 4), 0.1, 1);
    if (bias)
        ids[2] = case_real(c, 1, DIMS(4), 1, 2);
    case_node(c, "Linear", bias ? 3 : 2, ids, 1);
    if (tb)
        case_attr(c, "transB", 1);
    if (activation)
        graph_set_string(c->graph, c->node, "activation", names[activation]);
    case_infer(c);
}

/* Windows ----------------------------------------------------------------------------- */

struct form {
    int rank;
    int64_t kernel[3], strides[3], dilations[3], pads[6];
};

static const struct form forms[] = {
    { 2, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1, 1, 1 } },
    { 2, { 2, 3 }, { 2, 1 }, { 1, 1 }, { 0, 1, 1, 0 } },
    { 2, { 2, 2 }, { 1, 2 }, { 2, 1 }, { 1, 0, 1, 1 } },
    { 2, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 0, 0, 0, 0 } },
    { 2, { 1, 1 }, { 2, 2 }, { 1, 1 }, { 0, 0, 0, 0 } },
    { 1, { 3 }, { 2 }, { 1 }, { 1, 1 } },
    { 3, { 2, 1, 2 }, { 1, 1, 2 }, { 1, 1, 1 }, { 0, 0, 1, 1, 0, 0 } },
    { 2, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1, 1, 1 } },
};

static void set_form(struct op_case *c, const struct form *f)
{
    case_list(c, "kernel_shape", f->rank, f->kernel);
    case_list(c, "strides", f->rank, f->strides);
    case_list(c, "dilations", f->rank, f->dilations);
    case_list(c, "pads", 2 * f->rank, f->pads);
}

static int image(struct op_case *c, const struct form *f, int channels, bool distinct)
{
    int dim[5] = { B, channels, 6, 5, 4 }, rank = 2 + f->rank;

    if (f->rank == 3)
        dim[2] = dim[3] = 3;
    return distinct ? case_distinct(c, rank, dim) : case_real(c, rank, dim, 0, 1);
}

static void conv(struct op_case *c)
{
    static const int groups[] = { 1, 2, 4 };
    const struct form *f = &forms[case_choose(c, 1, 8)];
    int group = groups[case_choose(c, 8, 3)], dim[5] = { 8, 4 / group };
    bool bias = case_choose(c, 24, 2);
    int ids[3];

    ids[0] = image(c, f, 4, false);
    for (int i = 0; i < f->rank; i++)
        dim[2 + i] = (int)f->kernel[i];
    ids[1] = case_real(c, 2 + f->rank, dim, 0, 1);
    if (bias)
        ids[2] = case_real(c, 1, DIMS(8), 0, 1);
    case_node(c, "Conv", bias ? 3 : 2, ids, 1);
    if (c->variant >= 4)
        set_form(c, f);
    else
        case_list(c, "pads", 2 * f->rank, f->pads);
    case_attr(c, "group", group);
    case_infer(c);
}

/* Onto an image as large as the form's own window may come from. */
static void conv_transpose(struct op_case *c)
{
    static const int groups[] = { 1, 2 };
    const struct form *f = &forms[case_choose(c, 1, 8)];
    int group = groups[case_choose(c, 8, 2)], dim[5] = { 4, 6 / group }, x[5] = { B, 4 };
    int ids[2];
    int64_t out[3];

    for (int i = 0; i < f->rank; i++) {
        int64_t reach = (f->kernel[i] - 1) * f->dilations[i] + 1;

        dim[2 + i] = (int)f->kernel[i];
        x[2 + i] = 3;
        out[i] = f->strides[i] * 2 + reach - f->pads[i] - f->pads[f->rank + i] +
                 (case_bit(c, 4) ? f->strides[i] - 1 : 0);
    }
    ids[0] = case_real(c, 2 + f->rank, x, 0, 1);
    ids[1] = case_real(c, 2 + f->rank, dim, 0, 1);
    case_node(c, "ConvTranspose", 2, ids, 1);
    set_form(c, f);
    case_attr(c, "group", group);
    case_list(c, "output_shape", f->rank, out);
    case_infer(c);
}

static void pool(struct op_case *c, const char *op, bool distinct)
{
    const struct form *f = &forms[case_choose(c, 1, 8)];

    case_unary(c, op, image(c, f, 2, distinct));
    set_form(c, f);
    if (case_choose(c, 8, 2))
        case_attr(c, "ceil_mode", 1);
    if (!distinct)
        case_attr(c, "count_include_pad", case_choose(c, 16, 2));
    case_infer(c);
}

static void max_pool(struct op_case *c)
{
    pool(c, "MaxPool", true);
}

static void max_pool_indices(struct op_case *c)
{
    c->gradient = false;
    pool(c, "MaxPoolIndices", true);
    if (case_bit(c, 3))
        case_attr(c, "storage_order", 1);
}

static void average_pool(struct op_case *c)
{
    pool(c, "AveragePool", false);
}

static void global_average_pool(struct op_case *c)
{
    case_unary(c, "GlobalAveragePool", image(c, &forms[case_choose(c, 1, 8)], 3, false));
    case_infer(c);
}

/* Normalisation ----------------------------------------------------------------------- */

static void batch_norm(struct op_case *c)
{
    int dim[] = { B, 3, 2, 4 }, ids[5];

    if (case_bit(c, 0))
        c->graph->batchnorm_samples = c->graph->batch % 2 ? 1 : 2;
    ids[0] = case_real(c, case_bit(c, 1) ? 4 : case_bit(c, 2) ? 3 : 2, dim, 0.1, 2);
    ids[1] = case_real(c, 1, DIMS(3), 0.5, 1);
    ids[2] = case_real(c, 1, DIMS(3), 0, 1);
    ids[3] = case_real(c, 1, DIMS(3), 0, 1);
    ids[4] = case_positive(c, 1, DIMS(3), 0.5, 1);
    c->graph->values[ids[3]].kind = c->graph->values[ids[4]].kind = VALUE_STAT;
    case_node(c, "BatchNormalization", 5, ids, 1);
    /* Groups of one sample have no variance to divide by. */
    graph_set_float(c->graph, c->node, "epsilon", 0.01);
    if (case_bit(c, 3))
        graph_set_float(c->graph, c->node, "momentum", 0.8);
    case_infer(c);
}

static void layer_norm(struct op_case *c)
{
    int ids[3], axis = 1 + case_choose(c, 4, 2), from = axis == 1 ? 0 : 1;
    int dim[] = { 3, 4 };

    ids[0] = case_real(c, 3, DIMS(B, 3, 4), 0.1, 2);
    ids[1] = case_real(c, 2 - from, dim + from, 0.5, 1);
    if (case_bit(c, 0))
        ids[2] = case_real(c, 2 - from, dim + from, 0, 1);
    case_node(c, "LayerNormalization", case_bit(c, 0) ? 3 : 2, ids, 1);
    case_attr(c, "axis", axis);
    if (case_bit(c, 1))
        graph_set_float(c->graph, c->node, "epsilon", 0.01);
    case_infer(c);
}

static void add_norm(struct op_case *c, const char *op, bool biased)
{
    int ids[4], axis = 1 + case_choose(c, 2, 2), from = axis - 1, dim[] = { 3, 4 };

    ids[0] = case_real(c, 3, DIMS(B, 3, 4), 0.1, 2);
    ids[1] = case_choose(c, 4, 4) == 3 ? ids[0] : case_real(c, 3, DIMS(B, 3, 4), 0.1, 2);
    ids[2] = case_real(c, 2 - from, dim + from, 0.5, 1);
    if (biased)
        ids[3] = case_real(c, 2 - from, dim + from, 0, 1);
    case_node(c, op, biased ? 4 : 3, ids, 2);
    case_attr(c, "axis", axis);
    if (case_choose(c, 4, 2))
        graph_set_float(c->graph, c->node, "epsilon", 0.01);
    case_infer(c);
}

static void add_layer_norm(struct op_case *c)
{
    add_norm(c, "AddLayerNorm", case_bit(c, 0));
}

static void add_rms_norm(struct op_case *c)
{
    add_norm(c, "AddRmsNorm", false);
}

static void group_norm(struct op_case *c)
{
    static const int groups[] = { 1, 2, 4 };
    int dim[] = { B, 4, 3, 2 }, ids[3];

    ids[0] = case_real(c, case_bit(c, 0) ? 4 : 3, dim, 0.1, 2);
    ids[1] = case_real(c, 1, DIMS(4), 0.5, 1);
    ids[2] = case_real(c, 1, DIMS(4), 0, 1);
    case_node(c, "GroupNormalization", 3, ids, 1);
    case_attr(c, "num_groups", groups[case_choose(c, 2, 3)]);
    graph_set_float(c->graph, c->node, "epsilon", 0.01);
    case_infer(c);
}

static void rms_norm(struct op_case *c)
{
    int ids[2], axis = 1 + case_choose(c, 1, 2);
    int dim[] = { 3, 4 };

    ids[0] = case_real(c, 3, DIMS(B, 3, 4), 0.1, 2);
    ids[1] = case_real(c, 3 - axis, dim + axis - 1, 0.5, 1);
    case_node(c, "RMSNormalization", 2, ids, 1);
    case_attr(c, "axis", axis);
    if (case_bit(c, 1))
        graph_set_float(c->graph, c->node, "epsilon", 0.01);
    case_infer(c);
}

/* In the forms of masks: none; added, with and without samples; chosen, with the score of what
 * is hidden given or not.
 */
static int attention_mask_of(struct op_case *c, int form, bool flat, int m)
{
    switch (form) {
    case 1:
        return case_real(c, 2, DIMS(m, 5), 0, 2);
    case 2:
        return flat ? case_real(c, 3, DIMS(B, 1, 5), 0, 2)
                    : case_real(c, 4, DIMS(B, 4, m, 5), 0, 2);
    case 3:
        return flat ? case_integers(c, DTYPE_BOOL, 3, DIMS(B, m, 1), 0, 1)
                    : case_integers(c, DTYPE_BOOL, 4, DIMS(B, 1, 1, 5), 0, 1);
    default:
        return case_integers(c, DTYPE_BOOL, 2, DIMS(m, 5), 0, 1);
    }
}

static void attention(struct op_case *c)
{
    bool trans = case_bit(c, 0), flat = case_choose(c, 2, 2) != 0;
    int form = case_choose(c, 4, 5), causal = case_choose(c, 20, 3), ids[4] = { 0 };
    int k[4] = { B, 2, trans ? 2 : 5, trans ? 5 : 2 };
    int m = causal == 2 ? 67 : 3;       /* more than a backend may take at once */

    ids[0] = flat ? case_real(c, 3, DIMS(B, m, 2), 0, 2)
                  : case_real(c, 4, DIMS(B, 4, m, 2), 0, 2);
    if (flat)
        k[1] = B;
    ids[1] = case_real(c, flat ? 3 : 4, k + flat, 0, 2);
    ids[2] = flat ? case_real(c, 3, DIMS(B, 5, 3), 0, 2)
                  : case_real(c, 4, DIMS(B, 2, 5, 3), 0, 2);
    ids[3] = form ? attention_mask_of(c, form, flat, m) : -1;
    case_node(c, "Attention", form ? 4 : 3, ids, 1);
    graph_set_float(c->graph, c->node, "scale", 0.75);
    case_attr(c, "transK", trans);
    case_attr(c, "causal", causal != 0);
    case_attr(c, "past", causal == 1 ? 0 : 2);
    case_attr(c, "masked", form == 3);
    case_attr(c, "hide", form == 4);
    if (form == 4)
        graph_set_float(c->graph, c->node, "fill", -2);
    case_infer(c);
}

static void soft(struct op_case *c, const char *op)
{
    static const int axes[] = { 0, 2, 3, -1 };

    case_unary(c, op, case_real(c, 4, DIMS(3, B, 2, 4), 0, 3));
    case_attr(c, "axis", axes[case_choose(c, 1, 4)]);
    case_infer(c);
}

/* The last variants see rows of nothing, which no difference can be taken of. */
static void softmax(struct op_case *c)
{
    int x;

    soft(c, "Softmax");
    if (c->variant < 4)
        return;
    c->gradient = false;
    case_attr(c, "masked", 1);
    x = c->graph->nodes[c->node].inputs[0];
    for (int64_t i = 0; i < shape_elements(&c->graph->values[x].shape); i++)
        if (i / 4 % 2 || i % 4 == 0)
            c->data[x][i] = (double)-INFINITY;
}

static void log_softmax(struct op_case *c)
{
    soft(c, "LogSoftmax");
}

static void reduce(struct op_case *c, const char *op)
{
    static const int64_t lists[][3] = { { 2 }, { 1, 3 }, { -1 }, { 1, 2, 3 }, { 0 } };
    static const int counts[] = { 1, 2, 1, 3, 0 };
    int which = case_choose(c, 2, 5);

    c->gradient = c->variant < 10;
    case_unary(c, op, c->gradient ? case_real(c, 4, DIMS(B, 3, 2, 4), 0, 2)
                                  : case_integers(c, case_integer_type(c), 4,
                                                  DIMS(B, 3, 2, 4), -90, 90));
    case_list(c, "axes", counts[which], lists[which]);
    if (case_bit(c, 0))
        case_attr(c, "keepdims", 0);
    case_infer(c);
}

static void reduce_mean(struct op_case *c)
{
    reduce(c, "ReduceMean");
}

static void reduce_sum(struct op_case *c)
{
    reduce(c, "ReduceSum");
}

/* No two elements are equal, but none are 0 either: the norm has no slope there. */
static void reduce_l2(struct op_case *c)
{
    static const int64_t lists[][3] = { { 2 }, { 1, 3 }, { -1 }, { 1, 2, 3 } };
    static const int counts[] = { 1, 2, 1, 3 };
    int which = case_choose(c, 2, 4);

    case_unary(c, "ReduceL2", case_real(c, 4, DIMS(B, 3, 2, 4), 0.2, 2));
    case_list(c, "axes", counts[which], lists[which]);
    case_attr(c, "keepdims", case_bit(c, 0));
    case_infer(c);
}

static void reduce_choice(struct op_case *c, const char *op)
{
    static const int64_t lists[][3] = { { 2 }, { 1, 3 }, { -1 }, { 1, 2, 3 } };
    static const int counts[] = { 1, 2, 1, 3 };
    int which = case_choose(c, 2, 4), x;

    if (c->variant >= 8) {
        c->gradient = false;
        x = case_integers(c, case_integer_type(c), 4, DIMS(B, 3, 2, 4), -9, 9);
    } else {
        x = case_distinct(c, 4, DIMS(B, 3, 2, 4));
    }
    case_unary(c, op, x);
    case_list(c, "axes", counts[which], lists[which]);
    case_attr(c, "keepdims", case_bit(c, 0));
    case_infer(c);
}

static void reduce_max(struct op_case *c)
{
    reduce_choice(c, "ReduceMax");
}

static void reduce_min(struct op_case *c)
{
    reduce_choice(c, "ReduceMin");
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

    case_unary(c, "Transpose", case_real(c, 4, DIMS(B, 2, 3, 4), 0, 2));
    if (c->variant < 4)
        case_list(c, "perm", 4, perms[c->variant]);
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

    switch (case_choose(c, 1, 4)) {
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
    { "Dropout", 32, dropout },
    { "AddN", 3, add_n },
    { "Copy", 1, copy },
    { "Reorder", 1, reorder },
    { "MatMul", 64, matmul },
    { "Gemm", 40, gemm },
    { "Linear", 40, linear },
    { "Conv", 48, conv },
    { "ConvTranspose", 32, conv_transpose },
    { "MaxPool", 16, max_pool },
    { "MaxPoolIndices", 16, max_pool_indices },
    { "AveragePool", 32, average_pool },
    { "GlobalAveragePool", 8, global_average_pool },
    { "BatchNormalization", 16, batch_norm },
    { "LayerNormalization", 8, layer_norm },
    { "GroupNormalization", 6, group_norm },
    { "RMSNormalization", 4, rms_norm },
    { "AddLayerNorm", 16, add_layer_norm },
    { "AddRmsNorm", 16, add_rms_norm },
    { "Attention", 60, attention },
    { "Softmax", 8, softmax },
    { "LogSoftmax", 4, log_softmax },
    { "ReduceMean", 10, reduce_mean },
    { "ReduceSum", 18, reduce_sum },
    { "ReduceMax", 16, reduce_max },
    { "ReduceMin", 16, reduce_min },
    { "ReduceL2", 8, reduce_l2 },
    { "Reshape", 1, reshape },
    { "View", 1, view },
    { "Transpose", 5, transpose },
    { "Concat", 6, concat },
    { "Slice", 4, slice },
    { "Split", 4, split },
    { "Expand", 3, expand },
    { "Gather", 8, gather },
    { "CrossEntropySum", 96, cross_entropy },
    { "MseSum", 4, mse },
    { "DotSum", 4, dot },
    { "SumLoss", 4, sum_loss },
    { .op = NULL },
};
