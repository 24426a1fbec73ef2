/* SPDX-License-Identifier: MIT */
/* Cases so large that a backend cuts the work into pieces; too large for finite differences. */
#include "op_case.h"

static void softmax_of(struct op_case *c, const char *op)
{
    static const int axes[] = { 2, 3, 0, 0 };

    case_unary(c, op, case_choose(c, 1, 4) == 3 ? case_real(c, 4, DIMS(70, B, 3, 4), 0, 3)
                                               : case_real(c, 4, DIMS(3, B, 20, 300), 0, 3));
    case_attr(c, "axis", axes[case_choose(c, 1, 4)]);
    case_infer(c);
}

static void softmax(struct op_case *c)
{
    softmax_of(c, "Softmax");
}

static void log_softmax(struct op_case *c)
{
    softmax_of(c, "LogSoftmax");
}

/* Samples enough for several pieces of their sum; and rows that one, two, four and eight warps keep in
 * registers, or none can.
 */
#define NORMS 11

static void norm(struct op_case *c, const char *op, bool added, bool biased)
{
    static const int shapes[NORMS][3] = { { B, 160, 70 }, { B, 150, 8 }, { B, 1, 700 },
                                          { B, 33, 32 }, { B, 5, 1024 }, { B, 3, 1032 },
                                          { B, 1, 3000 }, { B, 3, 4096 }, { B, 1, 8200 },
                                          { B, 333, 72 }, { B, 130, 264 } };
    const int *dim = shapes[case_choose(c, 1, NORMS)];
    int ids[4] = { case_real(c, 3, dim, 0.1, 2) }, n = 1;

    if (added)
        ids[n++] = case_real(c, 3, dim, 0.1, 2);
    ids[n++] = case_real(c, 1, dim + 2, 0.5, 1);
    if (biased)
        ids[n++] = case_real(c, 1, dim + 2, 0, 1);
    case_node(c, op, n, ids, 1 + added);
    case_infer(c);
    c->terms = dim[2];
}

static void layer_norm(struct op_case *c)
{
    norm(c, "LayerNormalization", false, case_choose(c, NORMS, 2) != 0);
}

static void rms_norm(struct op_case *c)
{
    norm(c, "RMSNormalization", false, false);
}

static void add_layer_norm(struct op_case *c)
{
    norm(c, "AddLayerNorm", true, true);
}

static void add_rms_norm(struct op_case *c)
{
    norm(c, "AddRmsNorm", true, false);
}

static void group_norm(struct op_case *c)
{
    int ids[3] = { case_real(c, 4, DIMS(B, 12, 40, 30), 0.1, 2),
                   case_real(c, 1, DIMS(12), 0.5, 1), case_real(c, 1, DIMS(12), 0, 1) };

    case_node(c, "GroupNormalization", 3, ids, 1);
    case_attr(c, "num_groups", case_bit(c, 0) ? 4 : 3);
    case_infer(c);
}

static void batch_norm(struct op_case *c)
{
    static const int shapes[][4] = { { B, 8, 64, 50 }, { B, 72, 3, 2 } };
    const int *dim = shapes[case_bit(c, 0)];
    /* A mean near 0 would be compared closer than sums in float can be. */
    int ids[5] = { case_positive(c, 4, dim, 0.1, 2) };

    if (case_bit(c, 1))
        c->graph->batchnorm_samples = c->graph->batch % 2 ? 1 : 2;
    ids[1] = case_real(c, 1, dim + 1, 0.5, 1);
    ids[2] = case_real(c, 1, dim + 1, 0, 1);
    ids[3] = case_real(c, 1, dim + 1, 0, 1);
    ids[4] = case_positive(c, 1, dim + 1, 0.5, 1);
    c->graph->values[ids[3]].kind = c->graph->values[ids[4]].kind = VALUE_STAT;
    c->training = !case_bit(c, 2);
    c->terms = 64 * 50 * (double)c->graph->batch;
    case_node(c, "BatchNormalization", 5, ids, 1);
    case_infer(c);
}

static void reduce(struct op_case *c, const char *op)
{
    static const int64_t lists[][3] = { { 2 }, { 1, 3 }, { -1 }, { 1, 2, 3 }, { 1 } };
    static const int counts[] = { 1, 2, 1, 3, 1 };
    int which = case_choose(c, 1, 5);

    case_unary(c, op, which == 4 ? case_distinct(c, 4, DIMS(B, 300, 2, 3))
                                 : case_distinct(c, 4, DIMS(B, 9, 40, 24)));
    case_list(c, "axes", counts[which], lists[which]);
    case_infer(c);
}

static void reduce_mean(struct op_case *c)
{
    reduce(c, "ReduceMean");
}

static void reduce_max(struct op_case *c)
{
    reduce(c, "ReduceMax");
}

static void reduce_min(struct op_case *c)
{
    reduce(c, "ReduceMin");
}

static void reduce_l2(struct op_case *c)
{
    reduce(c, "ReduceL2");
}

/* Its gradients are sums over samples, of few and of many columns, by words or not. */
static void addition(struct op_case *c)
{
    int which = case_choose(c, 1, 3), ids[2];

    ids[0] = case_real(c, 3, which == 2 ? DIMS(B, 16, 528) : DIMS(B, 160, 70), 0, 2);
    ids[1] = which == 0   ? case_real(c, 2, DIMS(160, 1), 0, 2)
             : which == 1 ? case_real(c, 1, DIMS(70), 0, 2)
                          : case_real(c, 1, DIMS(528), 0, 2);
    case_node(c, "Add", 2, ids, 1);
    case_infer(c);
}

/* For the gradient of a bias: columns that are no words, less than a strip, and parts of strips; rows
 * of one chunk, of many and of what is no whole one.
 */
#define BIASES 6

static void linear(struct op_case *c)
{
    static const int shapes[BIASES][2] = { { 160, 70 },  { 160, 8 },   { 333, 72 },
                                           { 97, 520 }, { 700, 264 }, { 9, 1024 } };
    const int *dim = shapes[case_choose(c, 1, BIASES)];
    int ids[3] = { case_real(c, 3, DIMS(B, dim[0], 3), 0, 1), case_real(c, 2, DIMS(3, dim[1]), 0, 1),
                   case_real(c, 1, dim + 1, 0, 1) };

    case_node(c, "Linear", 3, ids, 1);
    case_infer(c);
}

static void global_average_pool(struct op_case *c)
{
    case_unary(c, "GlobalAveragePool", case_real(c, 4, DIMS(B, 3, 50, 60), 0, 2));
    case_infer(c);
}

static void cross_entropy(struct op_case *c)
{
    bool along = case_bit(c, 0), weights = case_bit(c, 1);
    int ids[4], n = 3;

    ids[0] = along ? case_real(c, 3, DIMS(B, 300, 70), 0, 3)
                   : case_real(c, 3, DIMS(B, 70, 100), 0, 3);
    ids[1] = along ? case_integers(c, DTYPE_I64, 2, DIMS(B, 300), -1, 69)
                   : case_integers(c, DTYPE_I32, 2, DIMS(B, 100), -1, 69);
    ids[2] = case_weight_sum(c);
    if (weights) {
        ids[n++] = case_positive(c, 1, DIMS(70), 0.5, 2);
        c->graph->values[ids[3]].kind = VALUE_INPUT;
    }
    case_node(c, "CrossEntropySum", n, ids, 2);
    case_attr(c, "axis", along ? 2 : 1);
    case_attr(c, "ignore_index", -1);
    if (case_bit(c, 2))
        graph_set_float(c->graph, c->node, "label_smoothing", 0.125);
    c->training = !case_bit(c, 3);
    case_infer(c);
    c->graph->loss = c->graph->nodes[c->node].outputs[0];
}

static void squared_error(struct op_case *c)
{
    int ids[3] = { case_real(c, 2, DIMS(B, 9000), 0, 2), case_real(c, 2, DIMS(B, 9000), 0, 2),
                   case_weight_sum(c) };

    c->graph->values[ids[1]].kind = VALUE_INPUT;
    case_node(c, "MseSum", 3, ids, 1);
    case_infer(c);
    c->graph->loss = c->graph->nodes[c->node].outputs[0];
}

/* Heads as wide as networks have them, which a backend may fuse; of each query the keys up to it. */
static void heads(struct op_case *c, bool causal)
{
    int dim[] = { B, 2, 64, 32 }, ids[3];

    for (int i = 0; i < 3; i++)
        ids[i] = case_real(c, 4, dim, 0, 2);
    case_node(c, "Attention", 3, ids, 1);
    graph_set_float(c->graph, c->node, "scale", 0.18);
    case_attr(c, "causal", causal);
    case_attr(c, "past", 0);
    case_infer(c);
}

/* Rows of scores that a warp, a block, and a block in several goes can hold. */
static void attention(struct op_case *c)
{
    static const int keys[] = { 40, 700, 4200 };
    int n = keys[case_choose(c, 1, 3)], form = case_choose(c, 3, 3), ids[4] = { 0 };
    int dim[] = { B, 2, n, 3 };

    if (c->variant >= 18) {
        heads(c, c->variant == 19);
        return;
    }
    ids[0] = case_real(c, 4, DIMS(B, 4, 3, 3), 0, 2);
    ids[1] = case_real(c, 4, dim, 0, 2);
    ids[2] = case_real(c, 4, dim, 0, 2);
    ids[3] = form == 1   ? case_real(c, 2, (int[]){ 3, n }, 0, 2)
             : form == 2 ? case_integers(c, DTYPE_BOOL, 4, (int[]){ B, 1, 1, n }, 0, 1)
                         : -1;
    case_node(c, "Attention", form ? 4 : 3, ids, 1);
    graph_set_float(c->graph, c->node, "scale", 0.75);
    case_attr(c, "causal", case_choose(c, 9, 2) != 0);
    case_attr(c, "past", n - 5);
    case_attr(c, "masked", form == 2);
    case_infer(c);
}

/* Some thousand words of 16 bytes, or of less: heads, and the way back. */
static void transpose(struct op_case *c)
{
    static const int shapes[][4] = { { B, 40, 6, 64 }, { B, 6, 40, 64 }, { B, 31, 6, 66 },
                                     { B, 70, 5, 3 }, { 3, B, 20, 80 } };

    case_unary(c, "Transpose", case_real(c, 4, shapes[case_choose(c, 1, 5)], 0, 2));
    case_list(c, "perm", 4, c->variant == 4 ? (const int64_t[]){ 1, 2, 0, 3 }
                                            : (const int64_t[]){ 0, 2, 1, 3 });
    case_infer(c);
}

/* Of words, of what is not as wide, and of a width that is prime. */
static const int64_t widths[][3] = { { 128, 128, 128 }, { 64, 4, 72 }, { 30, 31, 2 } };

static void concat(struct op_case *c)
{
    const int64_t *width = widths[case_choose(c, 1, 3)];
    int ids[3];

    for (int i = 0; i < 3; i++)
        ids[i] = case_real(c, 3, DIMS(B, 60, (int)width[i]), 0, 2);
    case_node(c, "Concat", 3, ids, 1);
    case_attr(c, "axis", 2);
    case_infer(c);
}

static void split(struct op_case *c)
{
    const int64_t *width = widths[case_choose(c, 1, 3)];
    int x = case_real(c, 3, DIMS(B, 60, (int)(width[0] + width[1] + width[2])), 0, 2);

    case_node(c, "Split", 1, &x, 3);
    case_attr(c, "axis", 2);
    case_list(c, "split", 3, width);
    case_infer(c);
}

/* Rows from one on, every other one, and backwards. */
static void slice(struct op_case *c)
{
    static const int64_t starts[] = { 1, 0, 59 }, ends[] = { 60, 60, 2 }, steps[] = { 1, 2, -1 };
    static const int64_t axis = 1;
    int i = case_choose(c, 1, 3);

    case_unary(c, "Slice", case_real(c, 3, DIMS(B, 60, 128), 0, 2));
    case_list(c, "starts", 1, &starts[i]);
    case_list(c, "ends", 1, &ends[i]);
    case_list(c, "axes", 1, &axis);
    case_list(c, "steps", 1, &steps[i]);
    case_infer(c);
}

const struct op_kind op_kinds_large[] = {
    { "Transpose", 5, transpose },
    { "Concat", 3, concat },
    { "Split", 3, split },
    { "Slice", 3, slice },
    { "Attention", 20, attention },
    { "Softmax", 4, softmax },
    { "LogSoftmax", 4, log_softmax },
    { "LayerNormalization", 2 * NORMS, layer_norm },
    { "RMSNormalization", NORMS, rms_norm },
    { "AddLayerNorm", NORMS, add_layer_norm },
    { "AddRmsNorm", NORMS, add_rms_norm },
    { "GroupNormalization", 2, group_norm },
    { "BatchNormalization", 8, batch_norm },
    { "ReduceMean", 5, reduce_mean },
    { "ReduceMax", 5, reduce_max },
    { "ReduceMin", 5, reduce_min },
    { "ReduceL2", 5, reduce_l2 },
    { "Add", 3, addition },
    { "Linear", BIASES, linear },
    { "GlobalAveragePool", 1, global_average_pool },
    { "CrossEntropySum", 16, cross_entropy },
    { "MseSum", 1, squared_error },
    { .op = NULL },
};
