/* SPDX-License-Identifier: MIT */
/* The loss: which one, and the nodes that compute it.
 *
 * Every loss is sum(term * weight) / weight_sum, where weight_sum is the sum of the weights of
 * the *global* batch: a VALUE_INPUT scalar that the runtime knows before the step
 * ('struct loss_rule' in graph.h says how). What one share computes is therefore its
 * contribution to the global loss: shares only ever add up.
 *
 * The choice:  --loss cross-entropy:LOGITS,LABELS | mse:OUT,TARGET | dot:OUT,TARGET
 *              --loss value:OUT (a scalar output that already is a mean over the batch)
 * or, without --loss, an output that is such a scalar; else one output and one integer tensor
 * that is no model input (cross-entropy) or one float tensor of the output's shape (mse).
 *
 * Internal operators (ops/loss.c), all outputs scalars of the run's floating type:
 *   CrossEntropySum(logits, labels, weight_sum[, class_weights]) -> loss[, correct]
 *       attributes: axis (of the classes), ignore_index (absent: none), label_smoothing (absent:
 *       0; of the classes' share in the target, as in PyTorch, while training). 'correct' counts
 *       the labels that are not ignored and equal to the first largest logit.
 *   MseSum(out, target, weight_sum) -> loss = sum((out - target)^2) / weight_sum
 *   DotSum(out, target, weight_sum) -> loss = sum(out * target) / weight_sum
 *   SumLoss(x, weight_sum)          -> loss = sum(x) / weight_sum
 * No gradient flows to labels, targets, weights or weight_sum.
 */
#ifndef TASUKI_GRAPH_LOSS_H
#define TASUKI_GRAPH_LOSS_H

#include "graph/graph.h"

struct err;
struct model_options;

/* An output of the model that is a loss already. */
struct loss_candidate {
    const char *output;     /* ONNX name */
    int loss, correct;      /* value ids; correct -1: none */
    struct loss_rule rule;
};

/* What there is to choose from. */
struct loss_choice {
    const struct model_options *options;
    int n_outputs;                      /* graph->outputs, by their names in the file */
    const char *const *outputs;
    int n_candidates;
    const struct loss_candidate *candidates;
};

/* Choose the loss and append it: sets graph->loss, weight_sum, correct and loss_rule, and adds
 * the VALUE_INPUTs of labels or targets. '*assumed' is set where nothing told the loss: no
 * --loss, no tensors, no loss in the graph; then it is cross-entropy of the only output.
 */
int loss_append(struct graph *graph, const struct loss_choice *choice, bool *assumed,
                struct err *err);

/* The graph's scalar weight_sum, added where there is none yet. */
int loss_weight_sum(struct graph *graph);

#endif
