/* SPDX-License-Identifier: MIT */
/* Between cost.c (checks, arithmetic, writing) and cost_read.c. */
#ifndef TASUKI_SCHEDULER_COST_INTERNAL_H
#define TASUKI_SCHEDULER_COST_INTERNAL_H

#include "scheduler/cost.h"

/* Sort blocks topologically, stable, and renumber edges, inputs and shared parameters. */
int cost_sort(struct cost *cost, const char *path, struct err *err);

#endif
