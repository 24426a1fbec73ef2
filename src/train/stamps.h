/* SPDX-License-Identifier: MIT */
/* When a GPU ran what it was handed, for --trace: events with a time around that, in the lane that it
 * goes to. The host's own times only say when it was handed over.
 *
 * They are read at the end of a step, when all is done, against an event of which the host knows when
 * it was: a time is off by what the host takes to notice, tens of microseconds.
 */
#ifndef TASUKI_TRAIN_STAMPS_H
#define TASUKI_TRAIN_STAMPS_H

#include <stdbool.h>

#include "train/lanes.h"
#include "train/trace.h"

struct err;
struct stamp;

struct stamps {
    struct trace *trace;        /* NULL: none is written, or nothing runs beside the host */
    const struct lanes *lanes;
    struct device *device;
    int chunk;                  /* whose rows these are */
    bool on;                    /* of a step, not of an evaluation */
    int n, made;                /* of this step, and with events */
    struct stamp *list;
    struct event *base;
    double base_clock;          /* of 'base', as trace_clock() has it */
};

/* Nothing is recorded unless there is a trace, and what computes runs beside the host. */
int stamps_init(struct stamps *stamps, struct trace *trace, const struct lanes *lanes,
                struct device *device, int chunk, struct err *err);
void stamps_clear(struct stamps *stamps);

/* Around what is handed to this lane: one at a time. */
int stamps_begin(struct stamps *stamps, enum trace_lane lane, struct err *err);
int stamps_end(struct stamps *stamps, const struct trace_event *what, struct err *err);
/* After a step, whose work this waits for: what there is comes into the trace. */
int stamps_read(struct stamps *stamps, struct err *err);

#endif
