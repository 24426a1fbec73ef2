/* SPDX-License-Identifier: MIT */
#include "train/stamps.h"

static struct stream *stream_of(const struct stamps *s, enum trace_lane lane)
{
    return lane == TRACE_IN    ? s->lanes->in
           : lane == TRACE_OUT ? s->lanes->out
                               : s->lanes->compute;
}

int stamps_init(struct stamps *stamps, struct trace *trace, const struct lanes *lanes,
                struct device *device, int chunk, struct err *err)
{
    *stamps = (struct stamps){ .lanes = lanes };
    for (enum trace_lane lane = TRACE_COMPUTE; lane <= TRACE_OUT; lane++)
        stamps->rows[lane] = (struct marks_row){ .lane = lane, .chunk = chunk };
    return marks_init(&stamps->marks, trace, lanes->backend, device, lanes->compute, err);
}

void stamps_clear(struct stamps *stamps)
{
    for (enum trace_lane lane = TRACE_COMPUTE; lane <= TRACE_OUT; lane++)
        marks_row_clear(&stamps->marks, &stamps->rows[lane]);
    marks_clear(&stamps->marks);
    *stamps = (struct stamps){ 0 };
}

int stamps_begin(struct stamps *stamps, enum trace_lane lane, struct err *err)
{
    if (!stamps->on)
        return 0;
    stamps->lane = lane;
    return marks_begin(&stamps->marks, &stamps->rows[lane], stream_of(stamps, lane), err);
}

int stamps_end(struct stamps *stamps, const struct trace_event *what, struct err *err)
{
    enum trace_lane lane = stamps->lane;

    if (!stamps->on)
        return 0;
    return marks_end(&stamps->marks, &stamps->rows[lane], what, stream_of(stamps, lane), err);
}

int stamps_read(struct stamps *stamps, struct err *err)
{
    struct stamps *s = stamps;
    int n = 0;

    for (enum trace_lane lane = TRACE_COMPUTE; lane <= TRACE_OUT; lane++)
        n += s->rows[lane].n;
    if (n == 0)
        return 0;
    for (enum trace_lane lane = TRACE_COMPUTE; lane <= TRACE_OUT; lane++)
        if (s->lanes->backend->stream_sync(stream_of(s, lane), err) < 0)
            return -1;
    for (enum trace_lane lane = TRACE_COMPUTE; lane <= TRACE_OUT; lane++)
        if (marks_read(&s->marks, &s->rows[lane], err) < 0)
            return -1;
    return marks_rebase(&s->marks, false, err);
}
