/* SPDX-License-Identifier: MIT */
/* A tournament: of two neighbours the one whose timer is first goes on, up to the root. Setting one
 * plays the matches above it anew, of which there are as few as a heap has levels, and moves nothing.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

/* At one time the left one, which has the lower id. */
static int winner(const struct timers *t, int match)
{
    int left = t->first[2 * match], right = t->first[2 * match + 1];

    return t->when[right] < t->when[left] ? right : left;
}

/* From the match of 'id' on, until another one wins that won before. */
static void play(struct timers *t, int id)
{
    for (int match = (t->room + id) / 2; match > 0; match /= 2) {
        int before = t->first[match], now = winner(t, match);

        t->first[match] = now;
        if (now == before && now != id)
            return;
    }
}

/* A power of two. */
static void make_room(struct timers *t, int id)
{
    int room = t->room ? t->room : 2;

    if (id < t->room)
        return;
    while (room <= id)
        room *= 2;
    t->when = mem_resize(t->when, (size_t)room, sizeof(*t->when));
    t->first = mem_resize(t->first, 2 * (size_t)room, sizeof(*t->first));
    for (int i = t->room; i < room; i++)
        t->when[i] = INFINITY;
    for (int i = 0; i < room; i++)
        t->first[room + i] = i;
    t->room = room;
    for (int match = room - 1; match > 0; match--)
        t->first[match] = winner(t, match);
}

void timer_set(struct sim *sim, int id, double when)
{
    struct timers *t = &sim->timers;

    make_room(t, id);
    t->when[id] = when;
    play(t, id);
    t->taken = t->taken == id ? -1 : t->taken;
}

double timer_first(struct sim *sim)
{
    struct timers *t = &sim->timers;

    if (t->taken >= 0)
        play(t, t->taken);
    t->taken = -1;
    return t->room ? t->when[t->first[1]] : INFINITY;
}

/* Mostly it is set anew before anybody asks who comes next. */
int timer_take(struct sim *sim)
{
    struct timers *t = &sim->timers;

    t->taken = t->first[1];
    t->when[t->taken] = INFINITY;
    return t->taken;
}
