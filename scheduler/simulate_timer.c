/* SPDX-License-Identifier: MIT */
/* A binary heap whose members know their place. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

/* Timers of workers have lower ids than those of flows. Without branches: nothing foretells them. */
static bool before(const struct timer *a, const struct timer *b)
{
    bool less = a->when < b->when, more = a->when > b->when;

    return less | (!more & (a->id < b->id));
}

static void put(struct timers *t, int place, struct timer timer)
{
    t->heap[place] = timer;
    t->place[timer.id] = place + 1;
}

/* From 'place' on, which is free. */
static void rise(struct timers *t, int place, struct timer timer)
{
    for (; place > 0 && before(&timer, &t->heap[(place - 1) / 2]); place = (place - 1) / 2)
        put(t, place, t->heap[(place - 1) / 2]);
    put(t, place, timer);
}

static void sink(struct timers *t, int place, struct timer timer)
{
    for (int child; (child = 2 * place + 1) < t->n; place = child) {
        child += child + 1 < t->n && before(&t->heap[child + 1], &t->heap[child]);
        if (before(&timer, &t->heap[child]))
            break;
        put(t, place, t->heap[child]);
    }
    put(t, place, timer);
}

/* The last of the heap in place of the first, which is taken. It mostly belongs near the leaves, so
 * that it is not compared on the way down.
 */
static void close_gap(struct timers *t)
{
    struct timer timer = t->heap[t->n];
    int place = 0;

    for (int child; (child = 2 * place + 1) < t->n; place = child) {
        child += child + 1 < t->n && before(&t->heap[child + 1], &t->heap[child]);
        put(t, place, t->heap[child]);
    }
    rise(t, place, timer);
}

static void make_room(struct timers *t, int id)
{
    int room = t->room;

    if (id < room)
        return;
    t->room = 2 * id + 2;
    t->heap = mem_resize(t->heap, (size_t)t->room, sizeof(*t->heap));
    t->place = mem_resize(t->place, (size_t)t->room, sizeof(*t->place));
    memset(t->place + room, 0, (size_t)(t->room - room) * sizeof(*t->place));
}

void timer_set(struct sim *sim, int id, double when)
{
    struct timers *t = &sim->timers;
    struct timer timer = { when, id };
    int place;

    make_room(t, id);
    place = t->place[id] ? t->place[id] - 1 : t->n++;
    if (place > 0 && before(&timer, &t->heap[(place - 1) / 2]))
        rise(t, place, timer);
    else
        sink(t, place, timer);
}

double timer_first(const struct sim *sim)
{
    return sim->timers.n ? sim->timers.heap[0].when : INFINITY;
}

int timer_take(struct sim *sim)
{
    struct timers *t = &sim->timers;
    int id = t->n ? t->heap[0].id : -1;

    if (id < 0)
        return -1;
    t->place[id] = 0;
    if (--t->n)
        close_gap(t);
    return id;
}
