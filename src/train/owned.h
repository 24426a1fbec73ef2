/* SPDX-License-Identifier: MIT */
/* The tensors that a rank answers for: parameters, optimizer state and statistics. */
#ifndef TASUKI_TRAIN_OWNED_H
#define TASUKI_TRAIN_OWNED_H

#include <stdbool.h>

#include "train/checkpoint.h"
#include "train/store.h"

struct owned_tensor {
    int value;              /* VALUE_PARAM or VALUE_STAT */
    enum checkpoint_kind kind;
    int64_t start, count;   /* elements: under ZeRO-1 this rank's share of optimizer state */
    bool share;             /* it is one: nobody else has these */
    char *memory;           /* of the first of them, on the device */
    char *gradient;         /* of a parameter; NULL otherwise */
    bool owner;             /* this is the lowest stage that has it */
};

/* Has no stage below this one the parameter, too? */
bool owned_here(const struct compiled *compiled, int param);
/* Everything that this rank keeps from step to step, in a fixed order; '*list' is malloc'ed. */
int owned_list(const struct store *store, struct owned_tensor **list);

#endif
