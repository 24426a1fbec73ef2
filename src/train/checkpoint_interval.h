/* SPDX-License-Identifier: MIT */
/* How often a run writes checkpoints, by what the last one cost. */
#ifndef TASUKI_TRAIN_CHECKPOINT_INTERVAL_H
#define TASUKI_TRAIN_CHECKPOINT_INTERVAL_H

struct checkpoint_pace {
    double paused, written;     /* seconds that training stood still, and in all */
    double mtbf;                /* seconds between failures of a node */
    int nodes;                  /* 1 at least */
    double most_share;          /* of the time that training may stand still; 0: any */
};

/* Seconds from the start of one to that of the next, by Young (1974): the least is lost where that
 * is the square root of twice the cost times the time between failures. None begins before the one
 * before it is complete.
 */
double checkpoint_interval(const struct checkpoint_pace *pace);

#endif
