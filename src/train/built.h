/* SPDX-License-Identifier: MIT */
/* The graphs of one model, each built once. */
#ifndef TASUKI_TRAIN_BUILT_H
#define TASUKI_TRAIN_BUILT_H

#include <stdint.h>

#include "graph/model.h"

struct err;

struct built;

/* What 'options' points to must outlive it; 'batch' and 'batchnorm_samples' are asked for. */
struct built *built_new(struct model *model, const struct model_options *options);
void built_free(struct built *built);

/* Not to be changed: graph_copy() it. NULL with 'err'. */
const struct graph *built_graph(struct built *built, int64_t batch, int64_t batchnorm_samples,
                                struct err *err);

#endif
