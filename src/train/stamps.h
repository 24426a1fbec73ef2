/* SPDX-License-Identifier: MIT */
/* When a GPU ran what it was handed, for --trace: marks in the lanes of an executor. The host's own times
 * only say when it was handed over. They are read at the end of a step, when all is done.
 */
#ifndef TASUKI_TRAIN_STAMPS_H
#define TASUKI_TRAIN_STAMPS_H

#include <stdbool.h>

#include "train/lanes.h"
#include "train/marks.h"

struct err;

struct stamps {
    struct marks marks;
    const struct lanes *lanes;
    bool on;                    /* of a step, not of an evaluation */
    enum trace_lane lane;       /* of what has begun */
    struct marks_row rows[TRACE_OUT + 1];
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
