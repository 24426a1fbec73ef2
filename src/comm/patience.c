/* SPDX-License-Identifier: MIT */
#include "comm/patience.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

#define SHORTEST_NAP 20e-6      /* seconds; the kernel adds some 50 of its own */
#define LONGEST_NAP 2e-3

void patience_renew(struct patience *patience)
{
    if (patience->waited > 0)
        atomic_store_explicit(&patience->remarkable, 0, memory_order_relaxed);
    patience->waited = 0;
    patience->last = 0;
    patience->idle = 0;
}

bool patience_over(struct patience *patience)
{
    double time = clock_now(), since = time - patience->last;

    if (patience->last > 0 && since < 1)
        patience->waited += since;
    patience->last = time;
    if (patience->remark > 0 && patience->waited > patience->remark)
        atomic_store_explicit(&patience->remarkable, 1, memory_order_relaxed);
    return atomic_load_explicit(&patience->broken, memory_order_relaxed) ||
           (patience->deadline > 0 && patience->waited > patience->deadline);
}

bool patience_expired(struct patience *patience)
{
    return !atomic_load(&patience->broken) && patience->deadline > 0 &&
           patience->waited > patience->deadline;
}

void patience_reason(const struct patience *patience, char *text, size_t size)
{
    if (atomic_load(&patience->broken))
        snprintf(text, size, "another rank is lost");
    else
        snprintf(text, size, "nothing moved for %.0f seconds", patience->deadline);
}

int patience_fail(const struct patience *patience, const char *what, struct err *err)
{
    char reason[64];

    patience_reason(patience, reason, sizeof(reason));
    return err_set(err, "%s: %s: another rank has ended or does not take part", what, reason);
}

void patience_pause(struct patience *patience)
{
    /* A wake-up costs more than sleep saves: stay awake for some milliseconds. On shared cores
     * others go first at each yield, but asking again and again takes time from those that one
     * waits for: sleep sooner, a tenth of what was waited already, so that this is the most that
     * sleeping can add.
     */
    unsigned awake = patience->crowded ? 1000 : 20000;
    double nap = patience->waited / 10;

    if (patience->idle < awake) {
        patience->idle++;
        sched_yield();
        return;
    }
    nap = nap < SHORTEST_NAP ? SHORTEST_NAP : nap > LONGEST_NAP ? LONGEST_NAP : nap;
    nanosleep(&(struct timespec){ .tv_nsec = (long)(nap * 1e9) }, NULL);
}
