/* SPDX-License-Identifier: MIT */
/* Groups of ids, groups of these, and so on, each with the time of its first: a group is one line of the
 * cache. A timer that is neither the first of its group nor becomes that changes nothing above.
 */
#include "base/timers.h"

#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"

static inline double first_of(const double *group)
{
    double a = dmin(dmin(group[0], group[1]), dmin(group[2], group[3]));
    double b = dmin(dmin(group[4], group[5]), dmin(group[6], group[7]));

    return dmin(a, b);
}

void timers_put(struct timers *t, int id, double when)
{
    for (int level = 0;; level++) {
        double before = t->when[level][id], first;
        int group = id / TIMERS_WIDTH;

        t->when[level][id] = when;
        if (level == t->levels)
            return;
        first = t->when[level + 1][group];
        if (when >= first) {
            if (before > first)
                return;
            when = first_of(&t->when[level][group * TIMERS_WIDTH]);
            if (when <= first)
                return;
        }
        id = group;
    }
}

int timers_find(const struct timers *t)
{
    double first = t->when[t->levels][0];
    int id = 0;

    for (int level = t->levels - 1; level >= 0; level--) {
        id *= TIMERS_WIDTH;
        while (t->when[level][id] > first)
            id++;
    }
    return id;
}

static void make_room(struct timers *t, int id)
{
    int old = t->room, room = old ? old : 1;

    while (room <= id || room < TIMERS_WIDTH)
        room *= TIMERS_WIDTH;
    t->room = room;
    t->levels = 0;
    for (int n = room;; n /= TIMERS_WIDTH, t->levels++) {
        double **when = &t->when[t->levels];

        *when = mem_resize(*when, (size_t)n, sizeof(**when));
        for (int i = t->levels ? 0 : old; i < n; i++)
            (*when)[i] = t->levels ? first_of(&when[-1][i * TIMERS_WIDTH]) : INFINITY;
        if (n == 1)
            return;
    }
}

void timers_set(struct timers *t, int id, double when)
{
    if (id >= t->room)
        make_room(t, id);
    timers_put(t, id, when);
    t->taken = t->taken == id ? -1 : t->taken;
}

void timers_clear(struct timers *t)
{
    for (int i = 0; i <= TIMERS_LEVELS; i++)
        free(t->when[i]);
}
