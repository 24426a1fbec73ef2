/* SPDX-License-Identifier: MIT */
/* "values", "steps" and "returns" of a cost file. */
#ifndef TASUKI_SCHEDULER_COST_STEPS_H
#define TASUKI_SCHEDULER_COST_STEPS_H

#include <stdbool.h>

#include "graph/graph.h"

/* What runs in a training step of the whole network on one device, and what that reads and makes for
 * one micro-batch: by these a stage is laid out as the runtime does (stage_layout.h).
 */
struct cost_value {
    double *bytes;          /* [n_sizes] */
    bool batch_axis;        /* as of blocks */
    bool grouped;           /* 'bytes' are of one of BatchNorm's groups; then no batch_axis */
    int64_t group;          /* samples of one where the plan does not say; 0: all */
    bool result;            /* it is read when the forward is done */
    bool reordered;         /* it has another layout than what is sent */
    bool prepared;          /* it is there once, and counted with the block of its first reader:
                             * each other stage that reads it has one, too */
    int maker;              /* step; -1: it is fed, or */
    int back;               /* received by this return; -1: it is not */
    int reader;             /* the first step that reads it; -1: none does */
};

struct cost_step {
    const struct op *op;
    enum part part;
    int block;
    int n_reads, n_makes;
    int *reads, *makes;     /* values */
    int follows;            /* the value whose layout tells in which it runs; -1: any that it reads */
};

/* A gradient that goes back from a block to that which made what it is of: where these are in one
 * stage 'received' is 'value'.
 */
struct cost_return {
    int value, received;
    int from, to;           /* blocks */
};

/* Of each of these: laying out takes the square of it. */
#define COST_MOST_STEPS (1 << 17)

struct cost_steps {
    int n_values, n, n_returns;
    struct cost_value *values;
    struct cost_step *items;            /* by part, in the order in which they run */
    struct cost_return *returns;        /* of what is made, or received by an earlier one */
};

void cost_steps_free(struct cost_steps *steps);

#endif
