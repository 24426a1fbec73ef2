/* SPDX-License-Identifier: MIT */
#include "comm/patience.h"

#include <sched.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void patience_renew(struct patience *patience)
{
    patience->waited = 0;
    patience->last = 0;
    patience->idle = 0;
}

bool patience_over(struct patience *patience)
{
    double time = now(), since = time - patience->last;

    if (patience->last > 0 && since < 1)
        patience->waited += since;
    patience->last = time;
    return patience->deadline > 0 && patience->waited > patience->deadline;
}

void patience_pause(struct patience *patience)
{
    /* A core of one's own: stay awake for some milliseconds, a wake-up costs more than that
     * saves. On shared cores a spinning rank steals time from those it waits for.
     */
    unsigned awake = patience->crowded ? 50 : 20000;
    struct timespec nap = { .tv_sec = 0, .tv_nsec = patience->crowded ? 20000 : 50000 };

    if (patience->idle < awake) {
        patience->idle++;
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}
