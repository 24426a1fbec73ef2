/* SPDX-License-Identifier: MIT */
/* Cases of normalisation, attention and sums over axes. */
#include <math.h>

#include "op_case.h"
#include "unit.h"

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

const struct op_kind op_kinds_norm[] = {
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
    { .op = NULL },
};
