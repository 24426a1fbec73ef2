/* SPDX-License-Identifier: MIT */
/* Notices at once when another rank dies, whatever the launcher does about it.
 *
 * Each rank keeps an idle TCP connection to rank 0, and one to a second rank, on another node
 * where there are several, for when rank 0 itself dies. The kernel closes those of a process
 * however it ends, and a thread that sleeps in poll() sees it. A broken network is no death: it
 * is left to the deadline, as is a rank whose connection could not be made.
 */
#ifndef TASUKI_COMM_WATCH_H
#define TASUKI_COMM_WATCH_H

#include <stdbool.h>

struct comm;
struct err;
struct watch;

struct watch_verdict {
    int rank;       /* lowest of the ranks that died; -1: one failed, and says why itself */
    int lost;       /* how many died at once */
    int speaker;    /* the lowest rank that lives: it is to say so */
};

/* Collective. '*watch' is NULL where this machine allows no such thing. From a verdict on, the
 * waits of 'comm' end (see patience.h).
 */
int watch_start(struct comm *comm, struct watch **watch, struct err *err);
/* Is there a verdict? Waits so many seconds for it. */
bool watch_verdict(struct watch *watch, double seconds, struct watch_verdict *verdict);
/* This rank leaves: its end is no death. 'failed': and says why, the others need not wait. Ends
 * the thread and frees the watch, which may be NULL.
 */
void watch_leave(struct watch *watch, bool failed);

#endif
