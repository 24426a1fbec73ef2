/* SPDX-License-Identifier: MIT */
/* The graphs of one model, each built once, and differentiated once for a plan. */
#ifndef TASUKI_TRAIN_BUILT_H
#define TASUKI_TRAIN_BUILT_H

#include <stdint.h>

#include "graph/autodiff.h"
#include "graph/model.h"
#include "scheduler/plan.h"

struct err;

struct built;

/* A graph with its gradients, cut into the stages of a plan. */
struct differentiated {
    struct graph *graph;
    struct autodiff autodiff;
    int *stage_of;              /* of each node; in the graph's arena */
};

/* What 'options' points to must outlive it; 'batch' and 'batchnorm_samples' are asked for. */
struct built *built_new(struct model *model, const struct model_options *options);
void built_free(struct built *built);

/* Not to be changed: graph_copy() it. NULL with 'err'. */
const struct graph *built_graph(struct built *built, int64_t batch, int64_t batchnorm_samples,
                                struct err *err);
/* The same for the stages of 'plan', whose 'batchnorm_samples' it has. It stays until one is asked
 * for that has other blocks in its stages.
 */
const struct differentiated *built_differentiated(struct built *built, const struct plan *plan,
                                                  int64_t batch, struct err *err);

/* Append the gradients to a graph, in place. */
int differentiate(struct differentiated *d, struct graph *graph, const struct model *model,
                  const struct plan *plan, struct err *err);

#endif
