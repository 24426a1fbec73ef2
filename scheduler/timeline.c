/* SPDX-License-Identifier: MIT */
#include "scheduler/timeline.h"

#include <stdio.h>

int timeline_row(enum instruction_kind kind)
{
    switch (kind) {
    case INSTRUCTION_REDUCE: return TIMELINE_REDUCE;
    case INSTRUCTION_RECV: return TIMELINE_RECEIVE;
    case INSTRUCTION_SEND: return TIMELINE_SEND;
    default: return TIMELINE_INSTRUCTIONS;
    }
}

int timeline_gpu_row(enum timeline_lane lane, int chunk)
{
    return TIMELINE_LANES + TIMELINE_LANES_EACH * chunk + (int)lane;
}

static json_t *name_of(const char *what, int pid, int row, const char *name)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", pid, "tid",
                     row, "args", "name", name);
}

json_t *timeline_process(int pid, const char *name)
{
    return name_of("process_name", pid, 0, name);
}

json_t *timeline_row_name(int pid, int row)
{
    static const char *const rows[] = { "instructions", "reduce", "receive", "send" };
    static const char *const lanes[] = { "GPU, compute", "GPU, in", "GPU, out" };
    int lane = row - TIMELINE_LANES, chunk = lane / TIMELINE_LANES_EACH;
    char name[64];

    if (lane < 0)
        snprintf(name, sizeof(name), "%s", rows[row]);
    else if (chunk == 0)
        snprintf(name, sizeof(name), "%s", lanes[lane]);
    else
        snprintf(name, sizeof(name), "%s, chunk %d", lanes[lane % TIMELINE_LANES_EACH], chunk);
    return name_of("thread_name", pid, row, name);
}

json_t *timeline_stream_name(int pid, int stream, const char *name)
{
    return name_of("thread_name", pid, TIMELINE_STREAMS + stream, name);
}

static int row_of(const struct timeline *timeline, const struct instruction *i)
{
    if (!timeline->gpu || i->kind == INSTRUCTION_REDUCE)
        return timeline_row(i->kind);
    return timeline_gpu_row(i->kind == INSTRUCTION_RECV   ? TIMELINE_IN
                            : i->kind == INSTRUCTION_SEND ? TIMELINE_OUT
                                                          : TIMELINE_COMPUTE,
                            i->chunk);
}

static json_t *event_of(const struct timeline *timeline, const struct simulated_event *e)
{
    const struct instruction *i = &e->instruction;
    bool whole = i->kind == INSTRUCTION_REDUCE || i->kind == INSTRUCTION_STEP;
    char name[32];

    snprintf(name, sizeof(name), whole ? "%s" : "%s %d", instruction_name(i->kind), i->micro);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:i}}", "name", name, "cat",
                     "forecast", "ph", "X", "pid", timeline->process(e, timeline->user), "tid",
                     row_of(timeline, i), "ts", 1e6 * (timeline->start + e->start), "dur",
                     1e6 * (e->end - e->start), "args", "step", timeline->step);
}

void timeline_add(const struct timeline *timeline, const struct simulation *simulation,
                  json_t *events)
{
    for (int i = 0; i < simulation->n_events; i++)
        json_array_append_new(events, event_of(timeline, &simulation->events[i]));
}

json_t *timeline_file(json_t *events)
{
    return json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
}
