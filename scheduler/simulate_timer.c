/* SPDX-License-Identifier: MIT */
/* A binary heap whose members know their place. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

static bool before(const struct sim *sim, int a, int b)
{
    double x = sim->timers.when[a], y = sim->timers.when[b];

    if (x < y || x > y)
        return x < y;
    if ((a < sim->n_workers) != (b < sim->n_workers))
        return b < sim->n_workers;
    return a < b;
}

static void put(struct timers *t, int place, int id)
{
    t->heap[place] = id;
    t->place[id] = place + 1;
}

static void rise(struct sim *sim, int place)
{
    struct timers *t = &sim->timers;
    int id = t->heap[place];

    for (; place > 0 && before(sim, id, t->heap[(place - 1) / 2]); place = (place - 1) / 2)
        put(t, place, t->heap[(place - 1) / 2]);
    put(t, place, id);
}

static void sink(struct sim *sim, int place)
{
    struct timers *t = &sim->timers;
    int id = t->heap[place], child;

    for (; (child = 2 * place + 1) < t->n; place = child) {
        if (child + 1 < t->n && before(sim, t->heap[child + 1], t->heap[child]))
            child++;
        if (before(sim, id, t->heap[child]))
            break;
        put(t, place, t->heap[child]);
    }
    put(t, place, id);
}

static void make_room(struct timers *t, int id)
{
    int room = t->room;

    if (id < room)
        return;
    t->room = 2 * id + 2;
    t->heap = mem_resize(t->heap, (size_t)t->room, sizeof(*t->heap));
    t->place = mem_resize(t->place, (size_t)t->room, sizeof(*t->place));
    t->when = mem_resize(t->when, (size_t)t->room, sizeof(*t->when));
    memset(t->place + room, 0, (size_t)(t->room - room) * sizeof(*t->place));
}

void timer_set(struct sim *sim, int id, double when)
{
    struct timers *t = &sim->timers;

    make_room(t, id);
    t->when[id] = when;
    if (!t->place[id])
        put(t, t->n++, id);
    rise(sim, t->place[id] - 1);
    sink(sim, t->place[id] - 1);
}

double timer_first(const struct sim *sim)
{
    const struct timers *t = &sim->timers;

    return t->n ? t->when[t->heap[0]] : INFINITY;
}

int timer_take(struct sim *sim)
{
    struct timers *t = &sim->timers;
    int id = t->n ? t->heap[0] : -1;

    if (id < 0)
        return -1;
    t->place[id] = 0;
    if (--t->n) {
        put(t, 0, t->heap[t->n]);
        sink(sim, 0);
    }
    return id;
}
