/* SPDX-License-Identifier: MIT */
/* SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss: one operator where the file ends with
 * it, otherwise what they are made of.
 */
#include "graph/canon.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"

struct entropy {
    int scores, labels, weights;    /* values; weights -1 where there are none */
    bool log;                       /* the scores are logarithms of probabilities */
    bool mean, sum;
    bool ignores;
    int64_t ignore_index;
};

static int read_entropy(struct build *build, const struct onnx_node *node, struct entropy *e,
                        struct err *err)
{
    const OnnxFile__Node *proto = node->proto;

    e->mean = onnx_string_is(proto, "reduction", "mean", true);
    e->sum = onnx_string_is(proto, "reduction", "sum", false);
    if (!e->mean && !e->sum && !onnx_string_is(proto, "reduction", "none", false))
        return err_set(err, "its reduction is not known");
    e->log = strcmp(proto->op_type, "NegativeLogLikelihoodLoss") == 0;
    e->ignores = onnx_attr(proto, "ignore_index") != NULL;
    e->ignore_index = onnx_int(proto, "ignore_index", 0);
    e->scores = canon_input(build, node, 0, err);
    e->labels = e->scores < 0 ? -1 : canon_input(build, node, 1, err);
    if (e->labels < 0)
        return -1;
    if (canon_shape_of(build, e->scores, 0)->rank < 2)
        return err_set(err, "its input has no classes");
    e->weights = -1;
    if (proto->n_input < 3 || node->inputs[2] < 0)
        return 0;
    e->weights = canon_constant(build, node, 2, err);
    if (e->weights >= 0 && !build->graph[0]->values[e->weights].data)
        return err_set(err, "its class weights are no constants of the file");
    return e->weights < 0 ? -1 : 0;
}

static void fill_rule(struct build *build, const struct entropy *e, struct loss_rule *rule)
{
    const struct value *labels = &build->graph[0]->values[e->labels];

    rule->weight = e->mean ? LOSS_WEIGHT_LABELS : LOSS_WEIGHT_ONE;
    rule->per_sample = (double)(labels->batch.outer * labels->batch.inner);
    rule->labels = e->labels;
    rule->classify = true;
    rule->classes = canon_shape_of(build, e->scores, 0)->dim[1];
    rule->ignores = e->ignores;
    rule->ignore_index = e->ignore_index;
    rule->class_weights = e->weights;
    rule->text = arena_printf(build->graph[0]->arena, "cross-entropy of \"%s\" and \"%s\", in "
                              "the graph", build->graph[0]->values[e->scores].name,
                              labels->name);
}

/* The loss and the number of right predictions. A softmax of a softmax's logarithms is it. */
static int emit_final(struct build *build, const struct onnx_node *node,
                      const struct entropy *e, struct err *err)
{
    int ids[4] = { e->scores, e->labels, canon_weight_sum(build), e->weights }, t, id;
    struct loss_candidate *loss;
    int correct = -1;

    id = build_emit(build, node, "CrossEntropySum", e->weights < 0 ? 3 : 4, ids, 1, err);
    if (id < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS; t++)
        correct = graph_add_output(build->graph[t], id);
    build_set_int(build, id, "axis", 1);
    if (e->ignores)
        build_set_int(build, id, "ignore_index", e->ignore_index);
    if (build_settle(build, id, err))
        return -1;
    loss = canon_new_loss(build, node, id);
    loss->correct = correct;
    fill_rule(build, e, &loss->rule);
    return 0;
}

/* The parts --------------------------------------------------------------------------- */

static int log_softmax(struct build *build, const struct onnx_node *node, int scores,
                       struct err *err)
{
    int id = canon_new(build, node, "LogSoftmax", 1, &scores, err);

    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", 1);
    return canon_settle(build, id, err);
}

/* Labels with an axis of classes of length 1, or without it. */
static int reshape_labels(struct build *build, const struct onnx_node *node, int value,
                          bool classes, struct err *err)
{
    struct shape shapes[BUILD_TWINS] = { 0 };
    int t, i;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *from = canon_shape_of(build, value, t);

        for (i = 0; i < from->rank; i++) {
            if (classes || i != 1)
                shapes[t].dim[shapes[t].rank++] = from->dim[i];
            if (classes && i == 0)
                shapes[t].dim[shapes[t].rank++] = 1;
        }
    }
    return canon_shaped(build, node, value, shapes, err);
}

/* Minus the score of each label. */
static int pick(struct build *build, const struct onnx_node *node, int scores, int labels,
                struct err *err)
{
    int index = reshape_labels(build, node, labels, true, err), id, y;

    id = index < 0 ? -1 : canon_new(build, node, "GatherElements", 2, (int[]){ scores, index },
                                    err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", 1);
    y = canon_settle(build, id, err);
    y = y < 0 ? -1 : reshape_labels(build, node, y, false, err);
    return y < 0 ? -1 : canon_step(build, node, "Neg", 1, &y, err);
}

/* What each label weighs, 0 for one that is ignored ('ignored' -1: none is); '*weight' is -1
 * where all weigh 1.
 */
static int weigh(struct build *build, const struct onnx_node *node, const struct entropy *e,
                 int labels, int ignored, int *weight, struct err *err)
{
    enum dtype real = build->options->real;
    int id, zero;

    *weight = -1;
    if (e->weights >= 0) {
        id = canon_new(build, node, "Gather", 2, (int[]){ e->weights, labels }, err);
        if (id < 0)
            return -1;
        build_set_int(build, id, "axis", 0);
        *weight = canon_settle(build, id, err);
        if (*weight < 0)
            return -1;
    }
    if (ignored < 0)
        return 0;
    zero = canon_scalar(build, real, 0, err);
    if (*weight < 0)
        *weight = canon_scalar(build, real, 1, err);
    if (zero < 0 || *weight < 0)
        return -1;
    *weight = canon_step(build, node, "Where", 3, (int[]){ ignored, zero, *weight }, err);
    return *weight < 0 ? -1 : 0;
}

/* One term for each label, and its weight. */
static int make_terms(struct build *build, const struct onnx_node *node,
                      const struct entropy *e, int scores, int *weight, struct err *err)
{
    enum dtype dtype = build->graph[0]->values[e->labels].dtype;
    int labels = e->labels, ignored = -1, constant, terms;

    if (e->ignores) {
        constant = canon_scalar(build, dtype, (double)e->ignore_index, err);
        ignored = constant < 0 ? -1 : canon_step(build, node, "Equal", 2,
                                                 (int[]){ labels, constant }, err);
        constant = ignored < 0 ? -1 : canon_scalar(build, dtype, 0, err);
        labels = constant < 0 ? -1 : canon_step(build, node, "Where", 3,
                                                (int[]){ ignored, constant, labels }, err);
    }
    terms = labels < 0 ? -1 : pick(build, node, scores, labels, err);
    if (terms < 0 || weigh(build, node, e, labels, ignored, weight, err))
        return -1;
    return *weight < 0 ? terms : canon_step(build, node, "Mul", 2, (int[]){ terms, *weight },
                                            err);
}

/* Values without samples are summed as they are. */
static int reduce_terms(struct build *build, const struct onnx_node *node,
                        const struct entropy *e, int terms, int weight, struct err *err)
{
    int64_t axes[GRAPH_MAX_RANK];
    int rank = canon_shape_of(build, terms, 0)->rank, i, total;

    for (i = 0; i < rank; i++)
        axes[i] = i;
    total = canon_reduce_step(build, node, e->mean && weight < 0 ? "ReduceMean" : "ReduceSum",
                              terms, rank, axes, 0, err);
    if (!e->mean || weight < 0 || total < 0)
        return total;
    weight = canon_reduce_step(build, node, "ReduceSum", weight, rank, axes, 0, err);
    return weight < 0 ? -1 : canon_step(build, node, "Div", 2, (int[]){ total, weight }, err);
}

/* Terms of samples: their sum over the whole batch is the loss. */
static int sum_terms(struct build *build, const struct onnx_node *node,
                     const struct entropy *e, int terms, struct err *err)
{
    int id = build_emit(build, node, "SumLoss", 2, (int[]){ terms, canon_weight_sum(build) }, 1,
                        err);

    if (id < 0 || build_settle(build, id, err))
        return -1;
    fill_rule(build, e, &canon_new_loss(build, node, id)->rule);
    return 0;
}

static bool from_log_softmax(const struct build *build, int value)
{
    int producer = build->graph[0]->values[value].producer;
    const struct node *node = producer < 0 ? NULL : &build->graph[0]->nodes[producer];

    return node && strcmp(node->op->name, "LogSoftmax") == 0 && node_int(node, "axis", -1) == 1;
}

int canon_cross_entropy(struct build *build, const struct onnx_node *node, struct err *err)
{
    int scores, terms, weight;
    bool samples, ends;
    struct entropy e;

    if (read_entropy(build, node, &e, err))
        return -1;
    samples = build->graph[1]->values[e.scores].batch.outer > 0;
    ends = samples && (e.mean || e.sum);
    if (ends && !canon_is_final(build, node))
        return err_set(err, "a loss inside the graph is supported only as an output");
    if (ends && build->graph[0]->values[e.labels].kind != VALUE_INPUT)
        return err_set(err, "its labels are no input of the model");
    scores = e.scores;
    if (!e.log && (!ends || canon_read(build, node, 1)))
        scores = log_softmax(build, node, e.scores, err);
    if (scores < 0)
        return -1;
    if (canon_read(build, node, 1))
        canon_result(build, node, 1, scores);
    if (ends && (!e.log || from_log_softmax(build, e.scores)))
        return emit_final(build, node, &e, err);
    terms = make_terms(build, node, &e, scores, &weight, err);
    if (terms < 0 || ends)
        return terms < 0 ? -1 : sum_terms(build, node, &e, terms, err);
    if (e.mean || e.sum)
        terms = reduce_terms(build, node, &e, terms, weight, err);
    return terms < 0 ? -1 : canon_result(build, node, 0, terms);
}
