/* SPDX-License-Identifier: MIT */
/* A tournament: of two neighbours the one whose timer is first goes on, up to the root. Setting one
 * plays the matches above it anew, of which there are as few as a heap has levels, and moves nothing.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

/* At one time the left one, which has the lower id. */
static const struct timer *winner(const struct timers *t, int match)
{
    const struct timer *left = &t->first[2 * match], *right = left + 1;

    return right->when < left->when ? right : left;
}

/* From the match of 'id' on, until another one wins that won before. */
static void play(struct timers *t, int id)
{
    for (int match = (t->room + id) / 2; match > 0; match /= 2) {
        const struct timer *now = winner(t, match);
        int before = t->first[match].id;

        t->first[match] = *now;
        if (now->id == before && before != id)
            return;
    }
}

/* A power of two. */
static void make_room(struct timers *t, int id)
{
    struct timer *old = t->first + t->room;
    int room = t->room ? t->room : 2;
    struct timer *first;

    if (id < t->room)
        return;
    while (room <= id)
        room *= 2;
    first = mem_new(2 * (size_t)room, sizeof(*first));
    for (int i = 0; i < room; i++)
        first[room + i] = i < t->room ? old[i] : (struct timer){ INFINITY, i };
    free(t->first);
    t->first = first;
    t->room = room;
    for (int match = room - 1; match > 0; match--)
        t->first[match] = *winner(t, match);
}

void timer_set(struct sim *sim, int id, double when)
{
    struct timers *t = &sim->timers;

    make_room(t, id);
    t->first[t->room + id].when = when;
    play(t, id);
    t->taken = t->taken == id ? -1 : t->taken;
}

double timer_first(struct sim *sim)
{
    struct timers *t = &sim->timers;

    if (t->taken >= 0)
        play(t, t->taken);
    t->taken = -1;
    return t->room ? t->first[1].when : INFINITY;
}

/* Mostly it is set anew before anybody asks who comes next: until then it wins all its matches. */
int timer_take(struct sim *sim)
{
    struct timers *t = &sim->timers;

    t->taken = t->first[1].id;
    t->first[t->room + t->taken].when = INFINITY;
    return t->taken;
}
