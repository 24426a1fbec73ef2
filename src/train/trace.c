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

static const char *const lane_names[] = { "instructions", "GPU, compute", "GPU, in", "GPU, out" };

#define LANES 3             /* of a GPU */

static int row(const struct trace_event *e)
{
    if (e->lane == TRACE_HOST)
        return e->kind == INSTRUCTION_REDUCE ? 1 : 0;
    return 2 + LANES * e->chunk + (int)e->lane - (int)TRACE_COMPUTE;
}

static json_t *name_row(int rank, const char *what, const char *name, int tid)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", rank,
                     "tid", tid, "args", "name", name);
}

/* Those that there is something of. */
static void name_lanes(const struct trace *trace, int rank, json_t *array)
{
    int named = 1;          /* the last row that has its name */

    for (int i = 0; i < trace->n; i++) {
        int last = row(&trace->events[i]);

        while (named < last) {
            int lane = (++named - 2) % LANES, chunk = (named - 2) / LANES;
            char name[64];

            if (chunk > 0)
                snprintf(name, sizeof(name), "%s, chunk %d", lane_names[lane + 1], chunk);
            else
                snprintf(name, sizeof(name), "%s", lane_names[lane + 1]);
            json_array_append_new(array, name_row(rank, "thread_name", name, named));
        }
    }
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
    json_array_append_new(array, name_row(rank, "process_name", name, 0));
    json_array_append_new(array, name_row(rank, "thread_name", lane_names[TRACE_HOST], 0));
    json_array_append_new(array, name_row(rank, "thread_name", "reduce", 1));
    name_lanes(trace, rank, array);
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
