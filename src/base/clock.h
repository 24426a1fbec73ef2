/* SPDX-License-Identifier: MIT */
/* Seconds that only ever grow, to measure how long something takes. */
#ifndef TASUKI_BASE_CLOCK_H
#define TASUKI_BASE_CLOCK_H

#include <time.h>

static inline double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
