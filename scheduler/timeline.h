/* SPDX-License-Identifier: MIT */
/* Chrome traces: the rows that a run and the forecast of one have alike, so that both can lie side by
 * side, and the events of a forecast.
 */
#ifndef TASUKI_SCHEDULER_TIMELINE_H
#define TASUKI_SCHEDULER_TIMELINE_H

#include <jansson.h>
#include <stdbool.h>

#include "scheduler/simulate.h"

/* Rows of a process, in this order; each chunk of a rank on a GPU has one more for each lane. */
enum timeline_row {
    TIMELINE_INSTRUCTIONS, TIMELINE_REDUCE, TIMELINE_RECEIVE, TIMELINE_SEND, TIMELINE_LANES
};
#define TIMELINE_STREAMS 1000       /* the row of the first of other streams of a GPU */
enum timeline_lane { TIMELINE_COMPUTE, TIMELINE_IN, TIMELINE_OUT, TIMELINE_LANES_EACH };

/* What the host does has a row by its kind, as sums, and messages, overlap with the rest. */
int timeline_row(enum instruction_kind kind);
int timeline_gpu_row(enum timeline_lane lane, int chunk);

/* What names a process, or a row of it. */
json_t *timeline_process(int pid, const char *name);
json_t *timeline_row_name(int pid, int row);
json_t *timeline_stream_name(int pid, int stream, const char *name);

/* Where a simulation goes. */
struct timeline {
    bool gpu;                   /* to the rows of GPUs, not to those of the host */
    double start;               /* seconds that its own begin at */
    int step;
    int (*process)(const struct simulated_event *event, const void *user);
    const void *user;
};

/* Append its events, named as those of a run; processes and rows are the caller's to name. */
void timeline_add(const struct timeline *timeline, const struct simulation *simulation,
                  json_t *events);
/* The whole file; takes the events. */
json_t *timeline_file(json_t *events);

#endif
