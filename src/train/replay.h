/* SPDX-License-Identifier: MIT */
/* A tape in pieces: those that a device can record are recorded once for each slot, then replayed.
 *
 * A kernel that runs on the host is a piece of its own between two others, and pieces end where the
 * caller has something to do. The first run of a tape is a plain one, in which libraries load what
 * they need; the next one for a slot is recorded.
 */
#ifndef TASUKI_TRAIN_REPLAY_H
#define TASUKI_TRAIN_REPLAY_H

#include <stdbool.h>

#include "train/tape.h"

struct replay_piece {
    int first, n;               /* items of the tape */
    struct recording **recordings;  /* [adding or not][slots of the tape]; NULL: never recorded */
};

struct replay {
    const struct tape *tape;
    int n;
    struct replay_piece *pieces;
    bool warm[2];               /* has it run, not adding and adding? */
};

/* 'ends[i]': a piece ends with item i of the tape. Unless 'record' each item is a piece. */
void replay_init(struct replay *replay, const struct tape *tape, const bool *ends, bool record);
void replay_clear(struct replay *replay);

/* As tape_run(), for a piece; pieces are run in order. */
int replay_run(struct replay *replay, int piece, int slot, bool accumulate, struct err *err);

#endif
