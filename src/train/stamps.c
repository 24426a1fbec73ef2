/* SPDX-License-Identifier: MIT */
#include "train/stamps.h"

#include <stdlib.h>

#include "base/mem.h"

struct stamp {
    struct trace_event what;
    struct event *start, *end;
};

static struct stream *stream_of(const struct stamps *s, enum trace_lane lane)
{
    return lane == TRACE_IN    ? s->lanes->in
           : lane == TRACE_OUT ? s->lanes->out
                               : s->lanes->compute;
}

/* All that was handed over is done by then. */
static int set_base(struct stamps *s, struct err *err)
{
    const struct backend *backend = s->lanes->backend;

    if (backend->event_record(s->base, s->lanes->compute, err) < 0 ||
        backend->stream_sync(s->lanes->compute, err) < 0)
        return -1;
    s->base_clock = trace_clock();
    return 0;
}

int stamps_init(struct stamps *stamps, struct trace *trace, const struct lanes *lanes,
                struct device *device, int chunk, struct err *err)
{
    struct stamps *s = stamps;

    *s = (struct stamps){ .lanes = lanes, .device = device, .chunk = chunk };
    if (!trace || !lanes->backend->event_new_timed)
        return 0;
    s->trace = trace;
    s->base = lanes->backend->event_new_timed(device, err);
    return s->base ? set_base(s, err) : -1;
}

void stamps_clear(struct stamps *stamps)
{
    struct stamps *s = stamps;

    for (int i = 0; i < s->made; i++) {
        s->lanes->backend->event_free(s->list[i].start);
        s->lanes->backend->event_free(s->list[i].end);
    }
    if (s->base)
        s->lanes->backend->event_free(s->base);
    free(s->list);
    *s = (struct stamps){ 0 };
}

/* Those of the steps before are used again. */
static int make_next(struct stamps *s, struct err *err)
{
    const struct backend *backend = s->lanes->backend;
    struct stamp next = { .start = NULL };

    if (s->n < s->made)
        return 0;
    next.start = backend->event_new_timed(s->device, err);
    next.end = next.start ? backend->event_new_timed(s->device, err) : NULL;
    if (!next.end) {
        if (next.start)
            backend->event_free(next.start);
        return -1;
    }
    *(struct stamp *)mem_push((void **)&s->list, &s->made, sizeof(next)) = next;
    return 0;
}

int stamps_begin(struct stamps *stamps, enum trace_lane lane, struct err *err)
{
    struct stamps *s = stamps;

    if (!s->trace || !s->on)
        return 0;
    if (make_next(s, err) < 0)
        return -1;
    s->list[s->n].what.lane = lane;
    return s->lanes->backend->event_record(s->list[s->n].start, stream_of(s, lane), err);
}

int stamps_end(struct stamps *stamps, const struct trace_event *what, struct err *err)
{
    struct stamps *s = stamps;
    enum trace_lane lane;

    if (!s->trace || !s->on)
        return 0;
    lane = s->list[s->n].what.lane;
    s->list[s->n].what = *what;
    s->list[s->n].what.lane = lane;
    s->list[s->n].what.chunk = s->chunk;
    return s->lanes->backend->event_record(s->list[s->n++].end, stream_of(s, lane), err);
}

static int read_one(const struct stamps *s, struct stamp *stamp, struct err *err)
{
    const struct backend *backend = s->lanes->backend;
    double start, end;

    if (backend->event_elapsed(s->base, stamp->start, &start, err) < 0 ||
        backend->event_elapsed(s->base, stamp->end, &end, err) < 0)
        return -1;
    stamp->what.start = s->base_clock + start;
    stamp->what.end = s->base_clock + end;
    trace_put(s->trace, &stamp->what);
    return 0;
}

int stamps_read(struct stamps *stamps, struct err *err)
{
    struct stamps *s = stamps;
    const struct lanes *l = s->lanes;

    if (!s->trace || s->n == 0)
        return 0;
    if (l->backend->stream_sync(l->in, err) < 0 || l->backend->stream_sync(l->out, err) < 0 ||
        l->backend->stream_sync(l->compute, err) < 0)
        return -1;
    for (int i = 0; i < s->n; i++)
        if (read_one(s, &s->list[i], err) < 0)
            return -1;
    s->n = 0;
    return set_base(s, err);
}
