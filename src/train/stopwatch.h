/* SPDX-License-Identifier: MIT */
/* Running one operator by itself, on made-up input, to see how long it takes. */
#ifndef TASUKI_TRAIN_STOPWATCH_H
#define TASUKI_TRAIN_STOPWATCH_H

#include <stdbool.h>

#include "kernels/backend.h"
#include "train/reuse.h"

struct err;

struct stopwatch;

struct stopwatch *stopwatch_new(const struct backend *backend, struct device *device,
                                struct err *err);
void stopwatch_free(struct stopwatch *stopwatch);
/* TASUKI_TEST_HASTE: each is measured once, with operands that are near, for tests that ask for no figure. What
 * was so measured is kept apart.
 */
bool stopwatch_in_haste(void);

/* 'seconds': the median of the runs. Far operands (reuse.h; integers are always near) lie
 * elsewhere at each run, so that so many bytes pass before a place is used again; those that no
 * ring is long enough for are dropped from the caches, where the backend can. Results are added
 * to what is there, as all but the first micro-batch do.
 */
int stopwatch_node(struct stopwatch *stopwatch, const struct graph *graph, int node,
                   const struct value_layout *layouts, const struct reuse *reuse,
                   double *seconds, struct err *err);
/* Of one megabyte of parameters, with their gradients and states as far as a step of 'reuse' is long; NULL:
 * near. 'offload': the states in memory of the host.
 */
int stopwatch_update(struct stopwatch *stopwatch, const struct optimizer_args *args,
                     bool offload, const struct reuse *reuse, double *seconds, struct err *err);

#endif
