/* SPDX-License-Identifier: MIT */
/* The streams of a stage: one computes, and beside it one brings what arrives and one takes away
 * what leaves, in order among each other by events alone.
 *
 * What is computed with a slot, and what is sent out of it, ends before the slot is written anew.
 * Scratch is of all micro-batches: what arrives there waits for all that was computed before, and
 * what is sent out of it holds up what is computed next. Where the backend has memory in common
 * with the host all three are the same stream, and there is nothing to order.
 */
#ifndef TASUKI_TRAIN_LANES_H
#define TASUKI_TRAIN_LANES_H

#include <stdbool.h>

#include "kernels/backend.h"

struct lanes {
    const struct backend *backend;
    struct stream *compute, *in, *out;
    int n_slots;
    struct event *made;         /* all that was computed so far; NULL: one stream */
    struct event *arrived;
    struct lane_slot {
        struct event *used, *sent;
        bool is_used, is_sent;  /* recorded, and not waited for yet */
    } *slots;
};

int lanes_init(struct lanes *lanes, const struct backend *backend, struct device *device,
               int n_slots, struct err *err);
void lanes_clear(struct lanes *lanes);

/* Around what is handed to 'in' for a slot; 'scratch': some of it goes there. */
int lanes_begin_arrival(struct lanes *lanes, int slot, bool scratch, struct err *err);
int lanes_end_arrival(struct lanes *lanes, struct err *err);
/* Around what is computed with a slot. */
int lanes_begin_use(struct lanes *lanes, int slot, struct err *err);
int lanes_end_use(struct lanes *lanes, int slot, struct err *err);
/* Around what is handed to 'out'. */
int lanes_begin_leaving(struct lanes *lanes, struct err *err);
int lanes_end_leaving(struct lanes *lanes, int slot, bool scratch, struct err *err);

#endif
