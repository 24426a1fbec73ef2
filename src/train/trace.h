/* SPDX-License-Identifier: MIT */
/* What a rank did when, for --trace: the Chrome trace format. */
#ifndef TASUKI_TRAIN_TRACE_H
#define TASUKI_TRAIN_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "scheduler/schedule.h"

/* Seconds of the wall clock, comparable among the ranks of one node. */
double trace_clock(void);

/* Whose time it is: the host's, or that of a stream of a GPU (lanes.h), one of NCCL's among them. */
enum trace_lane { TRACE_HOST, TRACE_COMPUTE, TRACE_IN, TRACE_OUT, TRACE_STREAM };

struct trace_event {
    enum instruction_kind kind;
    int micro, peer;        /* -1: not said */
    int64_t step;
    double start, end;
    enum trace_lane lane;
    int chunk;              /* of the rank, on a GPU; of TRACE_STREAM which stream */
    bool again;             /* an F that is run once more, for a B */
};

/* Room for a fixed number of events; what comes after is counted and dropped. */
struct trace {
    int n, room;
    int64_t dropped;
    struct trace_event *events;
    int n_streams;
    char (*streams)[48];    /* their names */
};

void trace_init(struct trace *trace, int room);
void trace_clear(struct trace *trace);
void trace_add(struct trace *trace, enum instruction_kind kind, int micro, int peer,
               int64_t step, double start, double end);
/* A row for TRACE_STREAM; returns its number. */
int trace_add_stream(struct trace *trace, const char *name);
void trace_put(struct trace *trace, const struct trace_event *event);

/* The events of a rank as a Chrome trace array, in the rows of scheduler/timeline.h; 'origin' seconds
 * become time 0.
 */
json_t *trace_events(const struct trace *trace, int rank, int stage, double origin);

#endif
