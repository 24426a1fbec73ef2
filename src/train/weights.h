/* SPDX-License-Identifier: MIT */
/* The large weights of the model, whose files rank 0 alone reads, for the stages that keep them. */
#ifndef TASUKI_TRAIN_WEIGHTS_H
#define TASUKI_TRAIN_WEIGHTS_H

#include "comm/comm.h"
#include "graph/model.h"
#include "train/store.h"

struct err;

/* The stages of this rank; on one without any, n is 0. 'resumed': a checkpoint has all that is
 * trained, and only the rest comes. What was prepared of the weights is to be prepared again.
 * Collective, 'failed' as in forward_run().
 */
int weights_forward(const struct model *model, int n, struct store *const *stores, bool resumed,
                    struct comm *comm, int failed, struct err *err);

#endif
