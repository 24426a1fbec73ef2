/* SPDX-License-Identifier: MIT */
/* Gradients of parameters that several stages read, where ranks run several stages: the copies of a
 * rank are added, summed over the ranks, and given back to each copy, when all else is reduced.
 * Where each rank runs one stage, reduce.h does it, and there are no ties.
 */
#ifndef TASUKI_TRAIN_TIES_H
#define TASUKI_TRAIN_TIES_H

#include <stdbool.h>

#include "comm/comm.h"
#include "train/executor.h"

struct ties;

/* Collective over the ranks of the plan; 'executors' of this rank's 'n' chunks. */
struct ties *ties_new(struct comm *comm, const struct plan *plan,
                      const struct placement *placement, int n, struct executor *const *executors,
                      bool deterministic, struct err *err);
void ties_free(struct ties *ties);
/* Collective over the ranks of the plan, once each stage's own gradients are final. */
int ties_sum(struct ties *ties, struct err *err);

#endif
