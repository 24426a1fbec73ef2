/* SPDX-License-Identifier: MIT */
/* A few numbers of every step, summed over all ranks without stalling the pipeline: posted at
 * the end of a step, read at the end of the next. All ranks take part, also those without
 * work, so what is decided from the sums is decided alike everywhere.
 */
#ifndef TASUKI_TRAIN_BOARD_H
#define TASUKI_TRAIN_BOARD_H

#include "comm/comm.h"

enum board_entry {
    BOARD_LOSS, BOARD_CORRECT, BOARD_NORM, BOARD_SCALE, BOARD_SKIPPED, BOARD_STOP,
    BOARD_BAD,                                  /* ranks whose numbers are bad, see guard.h */
    BOARD_REPORT, BOARD_SAVE,                   /* it is time for one, a checkpoint */
    BOARD_STAGED,                               /* ranks that have done with it, and bytes */
    BOARD_STAGED_BYTES, BOARD_COPIED_BYTES,
    BOARD_WRITTEN, BOARD_NAMED,                 /* ranks that have done with a checkpoint's … */
    BOARD_UNWRITTEN,                            /* … stages, and that failed to */
    BOARD_COUNT
};

struct board {
    struct comm_group *group;   /* NULL: one rank */
    struct comm_request *requests[2];
    double sums[2][BOARD_COUNT];
    int turn, unread;
};

int board_init(struct board *board, struct comm *comm, struct err *err);
void board_clear(struct board *board);
/* At most one post may be unread when the next is made. */
int board_post(struct board *board, const double entries[BOARD_COUNT], struct err *err);
/* The sums of the oldest unread post. */
int board_read(struct board *board, double entries[BOARD_COUNT], struct err *err);

#endif
