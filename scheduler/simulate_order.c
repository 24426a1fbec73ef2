/* SPDX-License-Identifier: MIT */
/* Events by start, then by stage and replica; what is equal stays as it was recorded. */
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/mem.h"
#include "scheduler/simulate_private.h"

static uint64_t replica_of(const struct simulated_event *e)
{
    return (uint64_t)e->replica;
}

static uint64_t stage_of(const struct simulated_event *e)
{
    return (uint64_t)e->stage;
}

/* The bits of times that are not negative ascend as these do. */
static uint64_t start_of(const struct simulated_event *e)
{
    uint64_t bits;

    memcpy(&bits, &e->start, sizeof(bits));
    return bits;
}

static void sort_by(const struct sim *sim, uint64_t (*key)(const struct simulated_event *),
                    struct digits_key **keys)
{
    for (int i = 0; i < sim->n_events; i++)
        (*keys)[i].key = key(&sim->events[(*keys)[i].at]);
    digits_sort(keys, sim->n_events);
}

void sim_sort_events(struct sim *sim)
{
    int n = sim->n_events;
    struct digits_key *keys = mem_new((size_t)n, sizeof(*keys));
    struct simulated_event *sorted;

    for (int i = 0; i < n; i++)
        keys[i].at = i;
    sort_by(sim, replica_of, &keys);
    sort_by(sim, stage_of, &keys);
    sort_by(sim, start_of, &keys);
    sorted = mem_new((size_t)n, sizeof(*sorted));
    for (int i = 0; i < n; i++)
        sorted[i] = sim->events[keys[i].at];
    free(sim->events);
    sim->events = sorted;
    free(keys);
}
