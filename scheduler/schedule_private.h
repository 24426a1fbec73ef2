/* SPDX-License-Identifier: MIT */
/* Between schedule.c and schedule_chunks.c (lists of several chunks). */
#ifndef TASUKI_SCHEDULER_SCHEDULE_PRIVATE_H
#define TASUKI_SCHEDULER_SCHEDULE_PRIVATE_H

#include "scheduler/schedule.h"

/* One chunk of a list in the making. */
struct builder {
    struct instruction_list *list;
    int stage, chunk, slots;
    struct schedule_edge *edges;    /* of the stage */
    int n_edges;
    bool sends_gradient;
};

/* Stage 's', which follows those that were assigned before, is a chunk of list 'l'. */
void schedule_assign(struct schedule *schedule, int s, int l);

/* What comes with a computation of a micro-batch: its receives; itself and its sends. */
void builder_recvs(struct builder *b, int micro, bool gradient);
void builder_forward(struct builder *b, int micro);
void builder_dgrad(struct builder *b, int micro);
/* W; BW where the stage sends no gradient, so that it has no B. */
void builder_wgrad(struct builder *b, int micro);

/* All but REDUCE and STEP of list 'l' of 'schedule', a kind of several chunks. Sets the slots. */
void schedule_build_chunks(const struct schedule *schedule, enum schedule_kind kind, int l,
                           struct builder *chunks);

#endif
