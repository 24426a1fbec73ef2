/* SPDX-License-Identifier: MIT */
/* When NCCL's streams did what they were handed, for --trace: as stamps.h, for streams whose work may go
 * on beyond a step, and which nothing waits for here.
 *
 * A message begins when its stream comes to it: so one that is received waits there for its sender.
 */
#ifndef TASUKI_TRAIN_MARKS_H
#define TASUKI_TRAIN_MARKS_H

#include "train/trace.h"

struct backend;
struct device;
struct err;
struct event;
struct mark;
struct stream;

/* Of a rank; without a trace nothing is recorded. */
struct marks {
    struct trace *trace;        /* NULL: none is written */
    const struct backend *backend;
    struct device *device;
    struct stream *idle;        /* has nothing but 'base' */
    struct event *base;
    double base_clock;          /* of 'base', as trace_clock() has it */
};

/* Of a stream. */
struct marks_row {
    int row;                    /* trace_add_stream()'s */
    int n, made;                /* that are not read yet, and with events */
    struct mark *list;
};

int marks_init(struct marks *marks, struct trace *trace, const struct backend *backend,
               struct device *device, struct err *err);
void marks_clear(struct marks *marks);
void marks_row_clear(const struct marks *marks, struct marks_row *row);

/* Around what is handed to the stream: one at a time. */
int marks_begin(const struct marks *marks, struct marks_row *row, struct stream *stream,
                struct err *err);
int marks_end(const struct marks *marks, struct marks_row *row, const struct trace_event *what,
              struct stream *stream, struct err *err);
/* What has been done comes into the trace. */
int marks_read(const struct marks *marks, struct marks_row *row, struct err *err);
/* After all rows were read: later times are told from now on, unless some are still to come. */
int marks_rebase(struct marks *marks, bool pending, struct err *err);

#endif
