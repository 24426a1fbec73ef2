/* SPDX-License-Identifier: MIT */
/* What parameters start from, in files that rank 0 alone reads, for the stages that keep them. */
#ifndef TASUKI_TRAIN_WEIGHTS_H
#define TASUKI_TRAIN_WEIGHTS_H

#include "comm/comm.h"
#include "train/store.h"

struct err;

/* The stages of this rank; on one without any, n is 0. 'resumed': a checkpoint has all that is
 * trained, and only the rest comes. What was prepared of the weights is to be prepared again.
 * Collective, 'failed' as in forward_run().
 */
int weights_forward(const struct initial *initial, int n, struct store *const *stores, bool resumed,
                    struct comm *comm, int failed, struct err *err);

#endif
