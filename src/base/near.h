/* SPDX-License-Identifier: MIT */
/* Near misses: "did you mean …?". */
#ifndef TASUKI_BASE_NEAR_H
#define TASUKI_BASE_NEAR_H

/* Feed candidates one by one; 'best' is the nearest so far, NULL while none is near. */
struct near {
    const char *word;
    const char *best;
    unsigned distance;
};

void near_start(struct near *near, const char *word);
void near_try(struct near *near, const char *candidate);

#endif
