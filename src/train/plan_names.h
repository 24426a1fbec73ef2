/* SPDX-License-Identifier: MIT */
/* The nodes of a model by their ONNX names, and the block that each is in. */
#ifndef TASUKI_TRAIN_PLAN_NAMES_H
#define TASUKI_TRAIN_PLAN_NAMES_H

#include "scheduler/partition.h"
#include "train/planning.h"

struct err;

struct plan_names {
    int n;
    struct plan_node *items;
    struct graph *plain, *fused;    /* own the names */
    struct blocks *blocks;
};

/* Those that fusion put into another node, too. What was folded into constants has no block. */
struct plan_names *plan_names_new(const struct planning *planning, struct err *err);
void plan_names_free(struct plan_names *names);

#endif
