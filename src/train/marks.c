/* SPDX-License-Identifier: MIT */
#include "train/marks.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kernels/backend.h"

struct mark {
    struct trace_event what;
    struct event *start, *end;
};

int marks_rebase(struct marks *marks, bool pending, struct err *err)
{
    if (!marks->trace || pending)
        return 0;
    if (marks->backend->event_record(marks->base, marks->stream, err) < 0 ||
        marks->backend->stream_sync(marks->stream, err) < 0)
        return -1;
    marks->base_clock = trace_clock();
    return 0;
}

int marks_init(struct marks *marks, struct trace *trace, const struct backend *backend,
               struct device *device, struct stream *stream, struct err *err)
{
    struct marks *m = marks;

    *m = (struct marks){ .backend = backend, .device = device };
    if (!trace || !backend->event_new_timed)
        return 0;
    m->trace = trace;
    m->own = !stream;
    m->stream = stream ? stream : backend->stream_new(device, err);
    m->base = m->stream ? backend->event_new_timed(device, err) : NULL;
    return m->base ? marks_rebase(m, false, err) : -1;
}

void marks_clear(struct marks *marks)
{
    if (marks->base)
        marks->backend->event_free(marks->base);
    if (marks->own && marks->stream)
        marks->backend->stream_free(marks->stream);
    *marks = (struct marks){ 0 };
}

void marks_row_clear(const struct marks *marks, struct marks_row *row)
{
    for (int i = 0; i < row->made; i++) {
        marks->backend->event_free(row->list[i].start);
        marks->backend->event_free(row->list[i].end);
    }
    free(row->list);
    *row = (struct marks_row){ 0 };
}

/* Those that were read are used again. */
static int make_next(const struct marks *m, struct marks_row *row, struct err *err)
{
    struct mark next = { .start = NULL };

    if (row->n < row->made)
        return 0;
    next.start = m->backend->event_new_timed(m->device, err);
    next.end = next.start ? m->backend->event_new_timed(m->device, err) : NULL;
    if (!next.end) {
        if (next.start)
            m->backend->event_free(next.start);
        return -1;
    }
    *(struct mark *)mem_push((void **)&row->list, &row->made, sizeof(next)) = next;
    return 0;
}

int marks_begin(const struct marks *marks, struct marks_row *row, struct stream *stream,
                struct err *err)
{
    if (!marks->trace)
        return 0;
    return make_next(marks, row, err) < 0
               ? -1
               : marks->backend->event_record(row->list[row->n].start, stream, err);
}

int marks_end(const struct marks *marks, struct marks_row *row, const struct trace_event *what,
              struct stream *stream, struct err *err)
{
    struct mark *mark;

    if (!marks->trace)
        return 0;
    mark = &row->list[row->n++];
    mark->what = *what;
    mark->what.lane = row->lane;
    mark->what.chunk = row->chunk;
    return marks->backend->event_record(mark->end, stream, err);
}

static int put(const struct marks *m, struct mark *mark, struct err *err)
{
    double start, end;

    if (m->backend->event_elapsed(m->base, mark->start, &start, err) < 0 ||
        m->backend->event_elapsed(m->base, mark->end, &end, err) < 0)
        return -1;
    mark->what.start = m->base_clock + start;
    mark->what.end = m->base_clock + end;
    trace_put(m->trace, &mark->what);
    return 0;
}

int marks_read(const struct marks *marks, struct marks_row *row, struct err *err)
{
    int kept = 0;
    bool done = true;

    for (int i = 0; i < row->n; i++) {
        struct mark mark = row->list[i];

        /* A stream is in order: behind one that is not done none is. */
        if (done && marks->backend->event_done(mark.end, &done, err) < 0)
            return -1;
        if (done && put(marks, &mark, err) < 0)
            return -1;
        if (!done) {
            row->list[i] = row->list[kept];
            row->list[kept++] = mark;
        }
    }
    row->n = kept;
    return 0;
}
