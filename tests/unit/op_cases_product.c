/* SPDX-License-Identifier: MIT */
/* Cases of products with weights, and of windows. */
#include "op_case.h"
#include "unit.h"

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
    int ids[3], activation = case_choose(c, 8, 5), columns = case_choose(c, 40, 2) ? 8 : 4;

    ids[0] = case_bit(c, 2) ? case_positive(c, 2, DIMS(B, 3), 0.1, 0.3)
                       : case_positive(c, 3, DIMS(B, 2, 3), 0.1, 0.3);
    for (int64_t i = 0; i < (case_bit(c, 2) ? 3 : 6); i++)
        c->data[ids[0]][i] *= -1;
    ids[1] = case_positive(c, 2, tb ? DIMS(columns, 3) : DIMS(3, columns), 0.1, 1);
    if (bias)
        ids[2] = case_real(c, 1, DIMS(columns), 1, 2);
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

const struct op_kind op_kinds_product[] = {
    { "MatMul", 64, matmul },
    { "Gemm", 40, gemm },
    { "Linear", 80, linear },
    { "Conv", 48, conv },
    { "ConvTranspose", 32, conv_transpose },
    { "MaxPool", 16, max_pool },
    { "MaxPoolIndices", 16, max_pool_indices },
    { "AveragePool", 32, average_pool },
    { "GlobalAveragePool", 8, global_average_pool },
    { .op = NULL },
};
