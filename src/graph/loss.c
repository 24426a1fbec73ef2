/* SPDX-License-Identifier: MIT */
#include "graph/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/model.h"
#include "graph/op.h"

#define IGNORED_LABEL (-100)    /* PyTorch's default */

enum kind { CROSS_ENTROPY, MSE, DOT, VALUE, N_KINDS };

static const char *const kinds[] = { "cross-entropy", "mse", "dot", "value" };

struct work {
    struct graph *graph;
    const struct loss_choice *choice;
    struct err *err;
};

int loss_weight_sum(struct graph *graph)
{
    if (graph->weight_sum < 0)
        graph->weight_sum = graph_add_value(graph, "weight sum of the batch", VALUE_INPUT,
                                            graph->real, &(struct shape){ 0 },
                                            (struct batch){ 0 });
    return graph->weight_sum;
}

/* What there is, for messages: outputs and tensors with their shapes. */
static char *describe(const struct work *w)
{
    const struct model_options *options = w->choice->options;
    char *text = mem_strdup("the outputs are"), shape[160], *next;
    int i;

    for (i = 0; i < w->choice->n_outputs; i++) {
        const struct value *value = &w->graph->values[w->graph->outputs[i]];

        next = mem_printf("%s%s \"%s\" (%s %s)", text, i ? "," : "", w->choice->outputs[i],
                          dtype_name(value->dtype),
                          shape_text(&value->shape, shape, sizeof(shape)));
        free(text);
        text = next;
    }
    for (i = 0; i < options->n_tensors; i++) {
        next = mem_printf("%s%s \"%s\" (%s, %s per sample)", text,
                          i ? "," : "; the data have", options->tensors[i].name,
                          dtype_name(options->tensors[i].dtype),
                          shape_text(&options->tensors[i].shape, shape, sizeof(shape)));
        free(text);
        text = next;
    }
    return text;
}

static int fail(const struct work *w, const char *what, const char *name)
{
    char *text = describe(w);

    err_set(w->err, "loss: %s%s%s%s: %s", what, name ? " \"" : "", name ? name : "",
            name ? "\"" : "", text);
    free(text);
    return -1;
}

static int find_output(const struct work *w, const char *name)
{
    int i;

    for (i = 0; i < w->choice->n_outputs; i++)
        if (strcmp(w->choice->outputs[i], name) == 0)
            return w->graph->outputs[i];
    return graph_find_value(w->graph, name);
}

static const struct model_tensor *find_tensor(const struct work *w, const char *name)
{
    const struct model_options *options = w->choice->options;
    int i;

    for (i = 0; i < options->n_tensors; i++)
        if (strcmp(options->tensors[i].name, name) == 0)
            return &options->tensors[i];
    return NULL;
}

/* The shape of one sample. */
static struct shape per_sample(const struct shape *shape)
{
    struct shape result = { .rank = shape->rank - 1 };

    memcpy(result.dim, shape->dim + 1, sizeof(result.dim) - sizeof(result.dim[0]));
    return result;
}

static struct shape without_axis(const struct shape *shape, int axis)
{
    struct shape result = { 0 };
    int i;

    for (i = 0; i < shape->rank; i++)
        if (i != axis)
            result.dim[result.rank++] = shape->dim[i];
    return result;
}

/* The axis of the classes: the one without which the logits have the labels' shape. The second
 * one where both would do, as in PyTorch; the last one where no labels are known.
 */
static int class_axis(const struct shape *logits, const struct shape *labels)
{
    int axis;

    for (axis = 1; labels && axis < logits->rank; axis += logits->rank > 2 ? logits->rank - 2
                                                                           : 1) {
        struct shape rest = without_axis(logits, axis), sample = per_sample(&rest);

        if (shape_equal(&sample, labels) ||
            (sample.rank == 0 && labels->rank == 1 && labels->dim[0] == 1))
            return axis;
    }
    return labels ? -1 : logits->rank - 1;
}

static bool is_ambiguous(const struct shape *logits, int axis)
{
    struct shape one = without_axis(logits, axis);
    struct shape other = without_axis(logits, logits->rank - 1);

    return axis < logits->rank - 1 && shape_equal(&one, &other);
}

/* A VALUE_INPUT beside the model's own, with the samples first. */
static int add_input(const struct work *w, const char *name, enum dtype dtype,
                     const struct shape *shape)
{
    struct graph *graph = w->graph;
    struct batch batch = { 1, shape_elements(shape) / graph->batch, 1 };
    int id = graph_find_value(graph, name), *inputs;

    if (id >= 0) {
        if (graph->values[id].kind == VALUE_INPUT && graph->values[id].dtype == dtype &&
            shape_equal(&graph->values[id].shape, shape))
            return id;
        return fail(w, "this name of labels is taken by a value of the model:", name);
    }
    id = graph_add_value(graph, name, VALUE_INPUT, dtype, shape, batch);
    inputs = arena_alloc(graph->arena, (size_t)graph->n_inputs + 1, sizeof(*inputs));
    if (graph->n_inputs)
        memcpy(inputs, graph->inputs, (size_t)graph->n_inputs * sizeof(*inputs));
    inputs[graph->n_inputs++] = id;
    graph->inputs = inputs;
    return id;
}

/* Append the loss operator on (out, labels or target). */
static int append(const struct work *w, const char *op, int out, int target, int n_outputs)
{
    int ids[] = { out, target, loss_weight_sum(w->graph) };
    int node = op_append(w->graph, "loss", op, 3, ids, n_outputs, w->err);

    if (node < 0)
        return -1;
    w->graph->loss = w->graph->nodes[node].outputs[0];
    if (n_outputs > 1)
        w->graph->correct = w->graph->nodes[node].outputs[1];
    return node;
}

static int append_cross_entropy(const struct work *w, int out, const char *out_name,
                                const char *labels_name)
{
    const struct model_tensor *tensor = find_tensor(w, labels_name);
    struct graph *graph = w->graph;
    struct shape logits = graph->values[out].shape, labels;
    int axis = class_axis(&logits, tensor ? &tensor->shape : NULL), id, ids[3], node;

    if (axis < 1)
        return fail(w, "the labels do not fit the output", out_name);
    if (tensor && dtype_is_float(tensor->dtype))
        return fail(w, "the labels are no integers:", labels_name);
    labels = without_axis(&logits, axis);
    id = add_input(w, labels_name, DTYPE_I64, &labels);
    if (id < 0)
        return -1;
    ids[0] = out;
    ids[1] = id;
    ids[2] = loss_weight_sum(graph);
    node = graph_add_node(graph, "loss", op_find("CrossEntropySum"), 3, ids, 0, NULL);
    graph->loss = graph_add_output(graph, node);
    graph->correct = graph_add_output(graph, node);
    graph_set_int(graph, node, "axis", axis);
    graph_set_int(graph, node, "ignore_index", IGNORED_LABEL);
    graph->loss_rule = (struct loss_rule){
        .weight = LOSS_WEIGHT_LABELS,
        .per_sample = (double)(shape_elements(&labels) / graph->batch),
        .labels = id,
        .classify = true,
        .classes = logits.dim[axis],
        .ignores = true,
        .ignore_index = IGNORED_LABEL,
        .class_weights = -1,
        .text = arena_printf(graph->arena, "cross-entropy of \"%s\" and \"%s\"%s", out_name,
                             labels_name, is_ambiguous(&logits, axis)
                                              ? ", classes on the second axis, though the last "
                                                "is as long" : ""),
    };
    return op_infer(graph, node, w->err);
}

/* Mean squared error, or the sum of products. */
static int append_pair(const struct work *w, enum kind kind, int out, const char *out_name,
                       const char *target_name)
{
    const struct model_tensor *tensor = find_tensor(w, target_name);
    struct graph *graph = w->graph;
    struct shape shape = graph->values[out].shape, sample = per_sample(&shape);
    int id;

    if (tensor && (!dtype_is_float(tensor->dtype) || !shape_equal(&sample, &tensor->shape)))
        return fail(w, "the target is not of the output's type and shape:", target_name);
    id = add_input(w, target_name, graph->real, &shape);
    if (id < 0 || append(w, kind == MSE ? "MseSum" : "DotSum", out, id, 1) < 0)
        return -1;
    graph->loss_rule = (struct loss_rule){
        .weight = kind == MSE ? LOSS_WEIGHT_SAMPLES : LOSS_WEIGHT_ONE,
        .per_sample = (double)shape_elements(&sample),
        .labels = id,
        .class_weights = -1,
        .text = arena_printf(graph->arena, "%s of \"%s\" and \"%s\"",
                             kind == MSE ? "mean squared error" : "sum of products", out_name,
                             target_name),
    };
    return 0;
}

static int take_candidate(const struct work *w, const struct loss_candidate *candidate)
{
    w->graph->loss = candidate->loss;
    w->graph->correct = candidate->correct;
    w->graph->loss_rule = candidate->rule;
    return 0;
}

static int append_kind(const struct work *w, enum kind kind, const char *out_name,
                       const char *target_name)
{
    int out = find_output(w, out_name), i;
    const struct value *value;

    for (i = 0; kind == VALUE && i < w->choice->n_candidates; i++)
        if (strcmp(w->choice->candidates[i].output, out_name) == 0)
            return take_candidate(w, &w->choice->candidates[i]);
    if (kind == VALUE)
        return fail(w, "no output that is a mean or sum over the batch is named", out_name);
    if (out < 0)
        return fail(w, "there is no output", out_name);
    if (w->choice->options->n_tensors && !find_tensor(w, target_name))
        return fail(w, "the data have no tensor", target_name);
    value = &w->graph->values[out];
    if (!dtype_is_float(value->dtype) || value->batch.outer != 1 || value->shape.rank < 1 ||
        value->shape.dim[0] != w->graph->batch)
        return fail(w, "the samples do not come first in", out_name);
    if (kind == CROSS_ENTROPY)
        return append_cross_entropy(w, out, out_name, target_name);
    return append_pair(w, kind, out, out_name, target_name);
}

/* "KIND:OUT,TARGET", "value:OUT" */
static int parse(const struct work *w, const char *text)
{
    const char *colon = strchr(text, ':'), *comma = colon ? strrchr(colon, ',') : NULL;
    size_t length = colon ? (size_t)(colon - text) : 0;
    int kind, result;
    char *out;

    for (kind = 0; kind < N_KINDS; kind++)
        if (strlen(kinds[kind]) == length && strncmp(kinds[kind], text, length) == 0)
            break;
    if (kind == N_KINDS || !colon[1] || (kind != VALUE && (!comma || !comma[1])))
        return err_set_code(w->err, EXIT_USAGE, "--loss: expected cross-entropy:LOGITS,LABELS, "
                            "mse:OUT,TARGET, dot:OUT,TARGET or value:OUT, got \"%.200s\"",
                            text);
    out = mem_strdup(colon + 1);
    if (kind != VALUE)
        out[comma - colon - 1] = '\0';
    result = append_kind(w, (enum kind)kind, out, kind == VALUE ? NULL : comma + 1);
    free(out);
    return result;
}

/* Tensors of the data that are no inputs of the model; the last one found, and how many. */
static const struct model_tensor *spare_tensor(const struct work *w, int *n)
{
    const struct model_options *options = w->choice->options;
    const struct model_tensor *found = NULL;
    int i, id;

    for (i = *n = 0; i < options->n_tensors; i++) {
        id = graph_find_value(w->graph, options->tensors[i].name);
        if (id >= 0 && w->graph->values[id].kind == VALUE_INPUT)
            continue;
        found = &options->tensors[i];
        ++*n;
    }
    return found;
}

static int choose(const struct work *w, bool *assumed)
{
    const struct loss_choice *choice = w->choice;
    const struct model_tensor *tensor;
    int n;

    if (choice->n_candidates == 1)
        return take_candidate(w, &choice->candidates[0]);
    if (choice->n_candidates > 1)
        return fail(w, "several outputs are losses, choose one by --loss value:OUT", NULL);
    if (choice->n_outputs != 1)
        return fail(w, "which output is meant? Use --loss", NULL);
    if (choice->options->n_tensors == 0) {
        *assumed = true;
        return w->graph->values[w->graph->outputs[0]].shape.rank > 1
                   ? append_kind(w, CROSS_ENTROPY, choice->outputs[0], "labels")
                   : append_kind(w, MSE, choice->outputs[0], "target");
    }
    tensor = spare_tensor(w, &n);
    if (n != 1)
        return fail(w, "which tensor has the labels? Use --loss", NULL);
    return append_kind(w, dtype_is_float(tensor->dtype) ? MSE : CROSS_ENTROPY,
                       choice->outputs[0], tensor->name);
}

static int smooth(const struct work *w)
{
    double smoothing = w->choice->options->label_smoothing;
    int node = w->graph->values[w->graph->loss].producer;

    if (smoothing <= 0)
        return 0;
    if (node < 0 || strcmp(w->graph->nodes[node].op->name, "CrossEntropySum") != 0)
        return err_set_code(w->err, EXIT_USAGE, "--label-smoothing: the loss is no cross-entropy, "
                            "but %s", w->graph->loss_rule.text);
    graph_set_float(w->graph, node, "label_smoothing", smoothing);
    return 0;
}

int loss_append(struct graph *graph, const struct loss_choice *choice, bool *assumed,
                struct err *err)
{
    struct work w = { graph, choice, err };
    int bad;

    *assumed = false;
    bad = choice->options->loss ? parse(&w, choice->options->loss) : choose(&w, assumed);
    return bad ? bad : smooth(&w);
}
