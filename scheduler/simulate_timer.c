/* SPDX-License-Identifier: MIT */
/* A tournament: of two neighbours the one whose timer is first goes on, up to the root. Setting one
 * plays the matches above it anew, of which there are as few as a heap has levels, and moves nothing.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

/* Who is first of a match: at one time the left one, which has the lower id. */
static inline unsigned winner(const struct timers *t, size_t match)
{
    unsigned left = t->first[2 * match], right = t->first[2 * match + 1];

    return t->when[right] < t->when[left] ? right : left;
}

/* From the match of 'id' on, until another one wins that won before. */
void timer_play(struct timers *t, unsigned id)
{
    for (size_t match = (t->room + id) / 2; match > 0; match /= 2) {
        unsigned now = winner(t, match), before = t->first[match];

        t->first[match] = now;
        if (now == before && before != id)
            return;
    }
}

/* A power of two. */
static void make_room(struct timers *t, unsigned id)
{
    unsigned old = t->room, room = old ? old : 2;

    while (room <= id)
        room *= 2;
    t->when = mem_resize(t->when, room, sizeof(*t->when));
    t->first = mem_resize(t->first, 2 * (size_t)room, sizeof(*t->first));
    t->room = room;
    for (unsigned i = old; i < room; i++)
        t->when[i] = INFINITY;
    for (unsigned i = 0; i < room; i++)
        t->first[room + i] = i;
    for (unsigned match = room - 1; match > 0; match--)
        t->first[match] = winner(t, match);
}

void timer_set(struct sim *sim, int id, double when)
{
    struct timers *t = &sim->timers;

    if ((unsigned)id >= t->room)
        make_room(t, (unsigned)id);
    t->when[id] = when;
    timer_play(t, (unsigned)id);
    t->taken = t->taken == id ? -1 : t->taken;
}
