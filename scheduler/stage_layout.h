/* SPDX-License-Identifier: MIT */
/* A stage of a cost file that says what runs in a step ("steps" of tasuki-cost(5)), laid out as the
 * runtime lays out the stage's program: what the stage is fed, receives and sends has a place of
 * its own there, sums of gradients are made where the cuts put them, and what crosses a border in
 * another layout is copied.
 */
#ifndef TASUKI_SCHEDULER_STAGE_LAYOUT_H
#define TASUKI_SCHEDULER_STAGE_LAYOUT_H

#include "scheduler/cost.h"
#include "scheduler/plan.h"

struct err;
struct memory_use;

/* Bytes of the slots and the scratch of stage 's' of 'stage' (of each block), where so many samples
 * are one of BatchNorm's groups; 0: as many as the file says.
 */
double stage_layout_bytes(const struct cost *cost, const int *stage, int s, double samples,
                          double group, enum backward_form form, enum plan_recompute recompute,
                          int slots);

/* For plan_request.memory_of: 'cost' is a struct cost that has steps; of its kinds of device the
 * one that wants most.
 */
int stage_layout_memory(void *cost, const struct plan *plan, int stage, struct memory_use *use,
                        struct err *err);
/* All of that; 0 where the plan is none of these blocks, or its schedule does not suit it. */
double stage_layout_total(const struct cost *cost, const struct plan *plan, int stage);

#endif
