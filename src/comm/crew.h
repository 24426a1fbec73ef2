/* SPDX-License-Identifier: MIT */
/* A process that is several ranks: a thread for each. */
#ifndef TASUKI_COMM_CREW_H
#define TASUKI_COMM_CREW_H

struct err;
struct launch;

/* Call 'work' as each of 'n' ranks, with a launch for comm_open(); the first is the calling thread,
 * signals are its own, and so is 'err'. A single rank has 'launch' as it is, unless it belongs to
 * launch->processes: then there are others in other processes, and that is closed when all have
 * returned. Returns what the first did, or another where that was 0; where 'work' is never called,
 * since a thread cannot be started or MPI has too few tags, the code of 'err'.
 */
int crew_run(int n, const struct launch *launch,
             int (*work)(const struct launch *launch, void *context, struct err *err),
             void *context, struct err *err);

#endif
