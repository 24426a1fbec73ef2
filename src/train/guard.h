/* SPDX-License-Identifier: MIT */
/* Steps whose numbers are bad: a gradient or the loss is not finite, or the loss is far beyond
 * that of the steps before. What is done about it, each rank decides alike, from sums.
 */
#ifndef TASUKI_TRAIN_GUARD_H
#define TASUKI_TRAIN_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of --on-nan. */
enum guard_policy { GUARD_STOP, GUARD_SKIP, GUARD_ROLLBACK, GUARD_IGNORE };

/* GUARD_NORM: only sums are not finite. The greater is the cause of the smaller. */
enum guard_cause { GUARD_FINE, GUARD_SPIKE, GUARD_NORM, GUARD_LOSS, GUARD_GRADIENT };

/* What a rank has found in a step; sent to all as it is. */
struct guard_find {
    int64_t step;           /* from 0 */
    int32_t cause;          /* in what this rank has itself, or in the sums */
    int32_t stage, order;   /* of the gradient: final as the how manieth of its stage */
    char tensor[160];       /* the parameter it is of */
    double loss, usual;     /* of a spike */
};

struct guard {
    enum guard_policy policy;
    double spike;           /* times the usual loss; 0: no loss is too large */
    double usual;           /* mean of the last losses that were fine */
    int64_t seen;           /* how many these were */
    struct guard_find finds[2];     /* of the last steps, by their number */
};

/* Must all ranks know before the step is taken? */
bool guard_shares(const struct guard *guard);
/* A step begins, in which nothing is found yet. */
struct guard_find *guard_begin(struct guard *guard, int64_t step);
/* What it was found at its end; NULL: nothing. */
const struct guard_find *guard_found(const struct guard *guard, int64_t step);
/* From sums over all ranks, the same on each: is this step bad? */
bool guard_judge(struct guard *guard, int64_t step, double squares, double loss);
/* Of all ranks' finds the one to name: the gradient that was final first, else by
 * cause; -1: there is none.
 */
int guard_first(const struct guard_find *finds, int n);

#endif
