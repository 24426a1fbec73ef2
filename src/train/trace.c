/* SPDX-License-Identifier: MIT */
#include "train/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"

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
    *trace = (struct trace){ 0 };
}

void trace_add(struct trace *trace, enum instruction_kind kind, int micro, int peer,
               int64_t step, double start, double end)
{
    if (trace->n == trace->room) {
        trace->dropped++;
        return;
    }
    trace->events[trace->n++] = (struct trace_event){ kind, micro, peer, step, start, end };
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

static int row(enum instruction_kind kind)
{
    return kind == INSTRUCTION_REDUCE ? 1 : 0;
}

static json_t *name_row(int rank, const char *what, const char *name, int tid)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", rank,
                     "tid", tid, "args", "name", name);
}

json_t *trace_events(const struct trace *trace, int rank, int stage, double origin)
{
    json_t *array = json_array();
    char name[64];

    snprintf(name, sizeof(name), "rank %d, stage %d", rank, stage);
    json_array_append_new(array, name_row(rank, "process_name", name, 0));
    json_array_append_new(array, name_row(rank, "thread_name", "instructions", 0));
    json_array_append_new(array, name_row(rank, "thread_name", "reduce", 1));
    for (int i = 0; i < trace->n; i++) {
        const struct trace_event *e = &trace->events[i];

        if (e->micro >= 0)
            snprintf(name, sizeof(name), "%s %d", kind_name(e->kind), e->micro);
        else
            snprintf(name, sizeof(name), "%s", kind_name(e->kind));
        json_array_append_new(
            array, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I, s:i}}", "name",
                             name, "cat", kind_name(e->kind), "ph", "X", "pid", rank, "tid",
                             row(e->kind), "ts", 1e6 * (e->start - origin), "dur",
                             1e6 * (e->end - e->start), "args", "step",
                             (json_int_t)e->step, "peer", e->peer));
    }
    return array;
}
