/* SPDX-License-Identifier: MIT */
/* When a GPU's streams did what they were handed, for --trace: events with a time around that, a row for
 * each stream, read against an event of which the host knows when it was: a time is off by what the host
 * takes to notice, tens of microseconds. What is still under way then is read later.
 *
 * A message of NCCL begins when its stream comes to it: so one that is received waits there for its sender.
 */
#ifndef TASUKI_TRAIN_MARKS_H
#define TASUKI_TRAIN_MARKS_H

#include <stdbool.h>

#include "train/trace.h"

struct backend;
struct device;
struct err;
struct event;
struct mark;
struct stream;

/* Without a trace, or where nothing runs beside the host, nothing is recorded. */
struct marks {
    struct trace *trace;        /* NULL: nothing is */
    const struct backend *backend;
    struct device *device;
    struct stream *stream;      /* of 'base' */
    bool own;                   /* that stream has nothing else */
    struct event *base;
    double base_clock;          /* of 'base', as trace_clock() has it */
};

/* Of a stream. */
struct marks_row {
    enum trace_lane lane;
    int chunk;                  /* of struct trace_event */
    int n, made;                /* that are not read yet, and with events */
    struct mark *list;
};

/* 'stream': one whose work is done whenever a base is set; NULL: one of its own. */
int marks_init(struct marks *marks, struct trace *trace, const struct backend *backend,
               struct device *device, struct stream *stream, struct err *err);
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
