/* SPDX-License-Identifier: MIT */
/* The forecast of an iteration, among what --trace shows of the run. */
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/timeline.h"

static int process_of(const struct simulated_event *event, const void *user)
{
    const struct session *s = user;

    return s->size + placement_rank(&s->placement, event->stage, event->pipeline, event->replica);
}

/* -1: none is said. */
static int step_in(const json_t *event)
{
    const json_t *step = json_object_get(json_object_get(event, "args"), "step");

    return step ? (int)json_integer_value(step) : -1;
}

/* The second step that was run, as the first warms caches and connections, or that. */
static int step_of(const json_t *events)
{
    int first = -1, last = -1;
    const json_t *event;
    size_t i;

    json_array_foreach(events, i, event) {
        int step = step_in(event);

        if (step >= 0 && (first < 0 || step < first))
            first = step;
        last = step > last ? step : last;
    }
    return first < last ? first + 1 : first;
}

static bool is_receive(const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "cat"));

    return kind && strcmp(kind, instruction_name(INSTRUCTION_RECV)) == 0;
}

/* Seconds. Who has nothing to do yet waits for a message, maybe since the step before. */
static double start_of(const json_t *events, int step)
{
    double start = HUGE_VAL;
    const json_t *event;
    size_t i;

    json_array_foreach(events, i, event)
        if (step_in(event) == step && !is_receive(event))
            start = fmin(start, 1e-6 * json_number_value(json_object_get(event, "ts")));
    return isfinite(start) ? start : 0;
}

static void name_rank(const struct session *s, int rank, int chunks, json_t *events)
{
    bool gpu = s->backend->separate;
    int end = gpu ? timeline_gpu_row(0, chunks) : TIMELINE_LANES;
    char name[64];

    snprintf(name, sizeof(name), "forecast, rank %d", rank);
    json_array_append_new(events, timeline_process(s->size + rank, name));
    for (int row = 0; row < end; row++)
        if (!gpu || row == TIMELINE_REDUCE || row >= TIMELINE_LANES)
            json_array_append_new(events, timeline_row_name(s->size + rank, row));
}

static void add(const struct session *s, const struct simulation *sim, json_t *events)
{
    const struct placement *p = &s->placement;
    struct timeline timeline = { .gpu = s->backend->separate, .step = step_of(events),
                                 .process = process_of, .user = s };
    bool *named = mem_new((size_t)s->size, sizeof(*named));

    timeline.start = start_of(events, timeline.step);
    for (int i = 0; i < p->first[p->n_stages]; i++) {
        if (!named[p->rank[i]])
            name_rank(s, p->rank[i], schedule_most_chunks(sim->schedule), events);
        named[p->rank[i]] = true;
    }
    timeline_add(&timeline, sim, events);
    free(named);
}

/* A run that has ended well is not made a failed one by this. */
void session_add_forecast(struct session *session, json_t *events)
{
    struct session *s = session;
    struct simulation *sim;
    struct err err = { 0 };

    if (!s->cost && s->settings.n_costs > 0)
        s->cost = planning_choose(s->cluster, s->settings.n_costs, s->settings.costs, &err);
    if (!s->cost && !err.text[0])
        return;
    sim = s->cost ? simulate(s->plan, s->cost, s->cluster, NULL, &err) : NULL;
    if (sim)
        add(s, sim, events);
    else
        log_warning("%s: without a forecast: %s", s->settings.trace, err.text);
    simulation_free(sim);
}
