/* SPDX-License-Identifier: MIT */
/* Which of many timers is first. Of several at one time it is that with the lowest id. */
#ifndef TASUKI_BASE_TIMERS_H
#define TASUKI_BASE_TIMERS_H

#include <math.h>

#define TIMERS_WIDTH 8
#define TIMERS_LEVELS 11                /* the width to that power is more than there are ids */

struct timers {
    int room, levels;                   /* of the lowest level: a power of the width, or 0 */
    double *when[TIMERS_LEVELS + 1];    /* of each id, INFINITY: not set; above, the first of each
                                         * group below, up to that of all */
    int taken;                          /* the last that was, which is still there; -1 */
};

/* Begin with { .taken = -1 }. */
void timers_clear(struct timers *timers);
void timers_set(struct timers *timers, int id, double when);
/* The same where there is room for it. */
void timers_put(struct timers *timers, int id, double when);
/* The first of all. */
int timers_find(const struct timers *timers);

/* When is the first? INFINITY: there is none. */
static inline double timers_first(struct timers *t)
{
    if (t->taken >= 0)
        timers_put(t, t->taken, INFINITY);
    t->taken = -1;
    return t->room ? t->when[t->levels][0] : INFINITY;
}

/* Take the first; there is one. Mostly it is set anew before anybody asks who comes next, and so
 * stays where it is until then.
 */
static inline int timers_take(struct timers *t)
{
    return t->taken = timers_find(t);
}

#endif
