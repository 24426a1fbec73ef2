/* SPDX-License-Identifier: MIT */
/* What a stage of a cost file has beside the arenas of its values (stage_layout.h), as the runtime
 * allocates it: arrays of parameters, gradients and optimizer state, each parameter aligned in all of
 * them, buffers of messages, and scratch for sums of gradients.
 */
#ifndef TASUKI_SCHEDULER_STAGE_ARRAYS_H
#define TASUKI_SCHEDULER_STAGE_ARRAYS_H

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"
#include "scheduler/stage.h"

/* Bytes. */
struct stage_arrays {
    double parameters;      /* and statistics, of one version */
    double statistics;      /* of these */
    double aligning;        /* what is counted among "prepared" for that */
    double state;           /* of an array as large as the parameters, or a replica's slices of it */
    double sums;
};

/* Of the blocks b with stage[b] == s; of the plan: devices, and whether it has ZeRO-1. */
void stage_arrays_get(const struct cost *cost, const struct plan *plan, const int *stage, int s,
                      struct stage_arrays *result);

/* Of replica 'replica': a buffer for each message with a replica of another stage, and as many of
 * these as the schedule may have under way.
 */
double stage_message_buffers(const struct cost *cost, const struct plan *plan,
                             const struct traffic_list *traffic, const struct schedule *schedule,
                             int s, int replica);

#endif
