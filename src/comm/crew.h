/* SPDX-License-Identifier: MIT */
/* A process that is several ranks: a thread for each. */
#ifndef TASUKI_COMM_CREW_H
#define TASUKI_COMM_CREW_H

struct err;
struct launch;

/* Call 'work' as each of 'n' ranks, with a launch for comm_open(); rank 0 is the calling thread,
 * signals are its own, and so is 'err'. A single rank has 'launch' as it is. Returns, when all
 * have returned, what rank 0 did, or another where that was 0; EXIT_FAILED where a thread cannot
 * be started, and then 'work' is never called.
 */
int crew_run(int n, const struct launch *launch,
             int (*work)(const struct launch *launch, void *context, struct err *err),
             void *context, struct err *err);

#endif
