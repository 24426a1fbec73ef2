/* SPDX-License-Identifier: MIT */
/* How long messages between two ranks take, and sums over a group.
 *
 * Messages go through a wire (wire.h): between buffers of the host, as those of a run do, or
 * between GPUs. Sizes are measured in turn, so that what disturbs one disturbs all, and each
 * time from another part of a buffer that is larger than caches.
 */
#ifndef TASUKI_TRAIN_PROBE_H
#define TASUKI_TRAIN_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct err;
struct wire;

#define PROBE_SIZES 32          /* at most, at a time */

struct probe_effort {
    double seconds;             /* for all sizes of a pair, about, until it is known */
    int fewest, most;           /* of each size, in any case and at most */
    int repeats;                /* so often anew where the two halves of the times differ */
};

struct probe;

/* How large the pool of a wire is to be for messages of up to 'most' bytes. */
size_t probe_pool(size_t most);
/* The wire stays the caller's. */
struct probe *probe_new(struct comm *comm, struct wire *wire);
void probe_free(struct probe *probe);

/* Seconds of a message of each size, one way: to the peer and back, halved; the lower decile
 * (fit_quiet()) and the median. Both ranks call, one of them 'starts', which decides how often;
 * only it learns the times.
 */
int probe_trips(struct probe *probe, int peer, bool starts, const struct probe_effort *effort,
                int n, const size_t *bytes, double *quiet, double *median, struct err *err);
/* Bytes per second of messages that follow each other in one direction; both learn it. */
int probe_stream(struct probe *probe, int peer, bool sends, double *rate, struct err *err);
/* Once: seconds until all of 'bytes', in such messages, have arrived. */
int probe_burst(struct probe *probe, int peer, bool sends, size_t *bytes, double *seconds,
                struct err *err);

/* Seconds of a sum of so many floats over the group, the median of some rounds in which each
 * is measured once. 'work' (NULL: none): for so many seconds each member computes meanwhile,
 * and then waits for the rest; 0 floats: it only computes. The same on all members, which are all
 * ranks. Collective. On a wire that sums by itself 'group' and 'work' are NULL.
 */
int probe_sums(struct probe *probe, struct comm_group *group, int n, const size_t *floats,
               const double *work, double *seconds, struct err *err);

/* What a message between this rank and its peer (-1: none) and 'work', so many seconds of computing,
 * take at the same time: who sends, until it has computed, or without work until it has sent; who
 * receives, until it has done both. The lower deciles (fit_quiet()), for each of 'n'; 'moves' says where
 * there is a message. The same on all ranks: those of rank 0, which is both in turn. Collective; on a
 * wire of hosts alone.
 */
struct probe_ends {
    double send, receive;
};

int probe_messages(struct probe *probe, int peer, size_t bytes, int n, const bool *moves,
                   const double *work, struct probe_ends *ends, struct err *err);

#endif
