/* SPDX-License-Identifier: MIT */
/* Bytes that one rank reads, for all ranks that want them.
 *
 * Each range of bytes goes from its reader to the first rank that wants it, and from there down a
 * binary tree, in pieces: nobody holds more of it than two of these beside what becomes of it. All
 * go through the ranges in one order, so that none waits for one that waits.
 */
#ifndef TASUKI_TRAIN_FORWARD_H
#define TASUKI_TRAIN_FORWARD_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct err;

struct forward_range {
    int reader;
    size_t bytes;
    const void *data;       /* on the reader */
};

struct forward {
    int n;                          /* ranges: the same on all ranks, but for 'data' */
    const struct forward_range *ranges;
    const bool *wanted;             /* [n]: by this rank */
    /* Bytes of a range, from 'at' on, a multiple of 8, have come where they are wanted. */
    int (*take)(void *user, int range, size_t at, const void *data, size_t bytes,
                struct err *err);
    /* On the reader: they have been sent, and are not needed any more. May be NULL. */
    void (*sent)(void *user, const void *data, size_t bytes);
    void *user;
    /* After so many bytes of ranges all meet: who waits for its turn sees that things go on, and
     * where one has failed it ends there.
     */
    size_t meet;
};

#define FORWARD_MEET ((size_t)16 << 30)

/* Collective. 'failed': this rank comes with an error, upon which nothing is sent. A rank that
 * fails in the midst of it sends on, until they meet; then all have the error, see comm_agree().
 */
int forward_run(const struct forward *forward, struct comm *comm, int failed, struct err *err);

#endif
