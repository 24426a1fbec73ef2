/* SPDX-License-Identifier: MIT */
/* Schedules as instruction lists: what a rank does, in order. The simulator and the runtime
 * execute the same lists.
 *
 * A list belongs to a (pipeline, stage); all replicas of a stage run the same one. Sends are
 * posted and complete on their own; a receive must have completed before the F or B that
 * reads it; an F, or a RECV for it, that reuses a slot waits for the sends out of that slot.
 * Under these rules a list must not deadlock even where no send completes before its receive
 * is posted. A SEND directly follows the computation that makes it, and W directly its B, but
 * for SENDs: what lives between them has one place (memory.h). Between two stages and in one
 * direction the k-th SEND meets the k-th RECV.
 *
 * gpipe: all F, then all B from the last micro-batch to the first; as many slots as
 * micro-batches. 1f1b: min(S - s, M) slots; the last stage's B directly follows its F.
 * Both post a RECV one computation ahead where its slot is free by then. A stage that sends
 * gradients runs B, SEND, W, so that the stage before need not wait for W; one that sends none
 * runs BW.
 *
 * Text form (schedule_print): a line "schedule NAME stages S micro-batches M", then for each
 * stage "stage S slots N" and one instruction per line: "F micro chunk", "B …", "W …",
 * "BW …", "SEND micro chunk -> peer [gradient]", "RECV micro chunk <- peer [gradient]",
 * "REDUCE", "STEP". Empty lines and what follows '#' are skipped.
 */
#ifndef TASUKI_SCHEDULER_SCHEDULE_H
#define TASUKI_SCHEDULER_SCHEDULE_H

#include <stdbool.h>
#include <stdio.h>

struct err;

enum instruction_kind {
    INSTRUCTION_F,          /* forward of (micro, chunk) */
    INSTRUCTION_B,          /* dgrad */
    INSTRUCTION_W,          /* wgrad */
    INSTRUCTION_BW,         /* B and W merged node by node */
    INSTRUCTION_SEND,       /* all values of one edge for (micro, chunk), to stage 'peer' */
    INSTRUCTION_RECV,
    INSTRUCTION_REDUCE,     /* sum gradients over replicas; buckets are posted as the last
                             * W makes them final, this one waits for all */
    INSTRUCTION_STEP        /* optimizer */
};

struct instruction {
    enum instruction_kind kind;
    int micro, chunk;
    int peer;               /* SEND, RECV: the other stage */
    bool gradient;          /* SEND, RECV: travels backwards */
};

struct instruction_list {
    int n;
    struct instruction *items;
    int slots;              /* micro-batches in flight at once: slot = micro % slots */
};

struct schedule {
    char *name;
    int n_stages, micro_batches;
    struct instruction_list *stages;
};

/* Two stages, from < to, that exchange values. */
struct schedule_edge {
    int from, to;
    bool gradient;          /* a gradient travels back */
};

/* NULL with 'err' for an unknown name. 'edges' sorted by (from, to). */
struct schedule *schedule_new(const char *name, int n_stages, int micro_batches,
                              const struct schedule_edge *edges, int n_edges,
                              struct err *err);
void schedule_free(struct schedule *schedule);
/* Complete, free of deadlock under rendezvous, within its slots; else 'err' names stage and
 * instruction.
 */
int schedule_check(const struct schedule *schedule, const struct schedule_edge *edges,
                   int n_edges, struct err *err);
int schedule_print(const struct schedule *schedule, FILE *out);
struct schedule *schedule_read(const char *path, FILE *in, struct err *err);
/* Micro-batches whose activations stage 's' holds at once at most: each from its first RECV or
 * F to its last B or W. Never more than the list's slots.
 */
int schedule_in_flight(const struct schedule *schedule, int s);
/* Does stage 's' run BW (memory_place's 'merged')? */
bool schedule_merged(const struct schedule *schedule, int s);
/* "F", "BW", "REDUCE", … */
const char *instruction_name(enum instruction_kind kind);

#endif
