/* SPDX-License-Identifier: MIT */
/* Notices at once when another rank dies, whatever the launcher does about it.
 *
 * Each rank keeps an idle TCP connection to rank 0, and one to a second rank, on another node
 * where there are several, and in another process, for when rank 0 itself dies. The kernel closes
 * those of a process however it ends, and a thread that sleeps in poll() sees it. A node that
 * vanishes, or whose network is cut, closes nothing: its kernel falls silent, which else answers
 * whatever its processes do, and after so many seconds its ranks are lost. Whoever can reach only
 * one of the two tells that one. Left to the deadline are a rank whose connection could not be
 * made, and a cut between two nodes of which neither has one of the two; left to the launcher what
 * happens before, while MPI starts.
 *
 * By the same connections a thread of each rank says every 2 seconds where it is (where.h), so
 * that, when nothing moves, one of the two can tell what each does, and what one did last that does
 * not answer. A process whose main thread computes, or waits for a file system, says so all the
 * same; one of which nothing is heard for 20 seconds, or the bound of silence where that is more,
 * does not run.
 */
#ifndef TASUKI_COMM_WATCH_H
#define TASUKI_COMM_WATCH_H

#include <stdbool.h>

#include "comm/where.h"

struct comm;
struct comm_words;
struct err;
struct watch;

enum watch_cause {
    WATCH_DIED,
    WATCH_FAILED,   /* by itself, and says why */
    WATCH_CUT,      /* cannot be reached */
    WATCH_STUCK,    /* nothing moves */
    WATCH_SILENT    /* its process does not run: it is stopped, say */
};

struct watch_verdict {
    enum watch_cause cause;
    int rank;       /* lowest of those lost; the one that failed, or is stuck; -1: not known */
    int lost;       /* how many are at once */
    int speaker;    /* the rank that is to say so, -1: none; the lowest that lives, where one died */
    char text[240]; /* what the one that failed says, on rank 0; who cannot be reached; of the one
                     * that died, that its node was short of memory, if so */
    const struct sighting *ranks;   /* [size], on the speaker of the last two; to be freed */
};

/* Collective. '*watch' is NULL where this machine allows no such thing. From a verdict on, the
 * waits of 'comm' end (see patience.h).
 */
int watch_start(struct comm *comm, struct watch **watch, struct err *err);
/* Does it watch all that it is to? Those whom it does not are not to wait for it. */
bool watch_has_room(const struct watch *watch);
/* Once all have started: waits until this rank is watched, or for as long as that may take. */
void watch_settle(struct watch *watch);
/* Silence that is too much: 20 seconds, unless it is said; 0: any is left to the deadline. */
void watch_set_bound(struct watch *watch, double seconds);
/* See comm_set_words(). */
void watch_set_words(struct watch *watch, const struct comm_words *words);
/* Is there a verdict? Waits so many seconds for it. */
bool watch_verdict(struct watch *watch, double seconds, struct watch_verdict *verdict);
/* Nothing has moved here for too long: a verdict is wanted, which tells where all are. */
void watch_stuck(struct watch *watch);
/* There is a verdict, and what is still to do may hang: whatever it is, the process ends when all are
 * to have left.
 */
void watch_hurry(struct watch *watch);
/* This rank leaves: its end is no death. 'failed': why, which it says itself, the others need not
 * wait; NULL: it has not. Ends the thread and frees the watch, which may be NULL.
 */
void watch_leave(struct watch *watch, const char *failed);

#endif
