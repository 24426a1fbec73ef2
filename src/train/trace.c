/* SPDX-License-Identifier: MIT */
#include "train/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "scheduler/timeline.h"

double trace_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void trace_init(struct trace *trace, int room)
{
    *trace = (struct trace){ .room = room };
    trace->events = mem_new((size_t)room, sizeof(*trace->events));
}

void trace_clear(struct trace *trace)
{
    free(trace->events);
    free(trace->streams);
    *trace = (struct trace){ 0 };
}

int trace_add_stream(struct trace *trace, const char *name)
{
    char (*stream)[48] = mem_push((void **)&trace->streams, &trace->n_streams, sizeof(*stream));

    snprintf(*stream, sizeof(*stream), "%s", name);
    return trace->n_streams - 1;
}

void trace_put(struct trace *trace, const struct trace_event *event)
{
    if (trace->n == trace->room)
        trace->dropped++;
    else
        trace->events[trace->n++] = *event;
}

void trace_add(struct trace *trace, enum instruction_kind kind, int micro, int peer,
               int64_t step, double start, double end)
{
    const struct trace_event event = { .kind = kind, .micro = micro, .peer = peer, .step = step,
                                       .start = start, .end = end };

    trace_put(trace, &event);
}

static const char *kind_name(enum instruction_kind kind)
{
    switch (kind) {
    case INSTRUCTION_F: return "F";
    case INSTRUCTION_B: return "B";
    case INSTRUCTION_W: return "W";
    case INSTRUCTION_BW: return "BW";
    case INSTRUCTION_SEND: return "SEND";
    case INSTRUCTION_RECV: return "RECV";
    case INSTRUCTION_REDUCE: return "REDUCE";
    default: return "STEP";
    }
}

static int row(const struct trace_event *e)
{
    if (e->lane == TRACE_STREAM)
        return TIMELINE_STREAMS + e->chunk;
    return e->lane == TRACE_HOST
               ? timeline_row(e->kind)
               : timeline_gpu_row((enum timeline_lane)(e->lane - TRACE_COMPUTE), e->chunk);
}

/* The host's, and those of a GPU that there is something of. */
static void name_rows(const struct trace *trace, int rank, json_t *array)
{
    int rows = TIMELINE_LANES;

    for (int i = 0; i < trace->n; i++) {
        int last = row(&trace->events[i]);

        rows = last < rows || last >= TIMELINE_STREAMS ? rows : last + 1;
    }
    for (int i = 0; i < rows; i++)
        json_array_append_new(array, timeline_row_name(rank, i));
    for (int i = 0; i < trace->n_streams; i++)
        json_array_append_new(array, timeline_stream_name(rank, i, trace->streams[i]));
}

static void name_event(const struct trace_event *e, char *name, size_t size)
{
    const char *kind = e->again ? "F again" : kind_name(e->kind);

    if (e->micro >= 0)
        snprintf(name, size, "%s %d", kind, e->micro);
    else
        snprintf(name, size, "%s", kind);
}

json_t *trace_events(const struct trace *trace, int rank, int stage, double origin)
{
    json_t *array = json_array();
    char name[64];

    snprintf(name, sizeof(name), "rank %d, stage %d", rank, stage);
    json_array_append_new(array, timeline_process(rank, name));
    name_rows(trace, rank, array);
    for (int i = 0; i < trace->n; i++) {
        const struct trace_event *e = &trace->events[i];

        name_event(e, name, sizeof(name));
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I, s:i}}", "name",
                             name, "cat", kind_name(e->kind), "ph", "X", "pid", rank, "tid",
                             row(e), "ts", 1e6 * (e->start - origin), "dur",
                             1e6 * (e->end - e->start), "args", "step",
                             (json_int_t)e->step, "peer", e->peer));
    }
    return array;
}
