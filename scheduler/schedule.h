/* SPDX-License-Identifier: MIT */
/* Schedules as instruction lists: what a rank does, in order. The simulator and the runtime
 * execute the same lists.
 *
 * A list belongs to a (pipeline, device position) and names the stages that are its chunks: one,
 * but under interleaved and zb-v; all replicas of these stages run the same list. Sends are
 * posted and complete on their own, those to another chunk of the list too; a SEND waits where as
 * many as schedule_sends() of those before it have not been received; a receive must have
 * completed before the F or B that reads it.
 * Under these rules a list must not deadlock even where no send completes before its receive
 * is posted. A SEND directly follows the computation that makes it. Between two stages and in
 * one direction the k-th SEND meets the k-th RECV.
 *
 * gpipe: all F, then all B from the last micro-batch to the first; as many slots as
 * micro-batches. 1f1b: min(S - s, M) slots; the last stage's B directly follows its F.
 * zb-h1: 1f1b, with W of stage s put off by s micro-batches, so that it fills the time in which
 * the stage would wait; min(S, M) slots in each stage. zb: up to S - 1 slots more, by which
 * stages run further ahead. Without communication, where B takes no less than W, a stage under
 * zb-h1 is idle for (S - 1)(F + B - W) of an iteration; W less for each slot more, as long as
 * there are as many micro-batches as slots, but no less than (S - 1)F.
 *
 * interleaved: chunk c of list d of p is stage c·p + d, in the order of Megatron-LM (Narayanan et
 * al. 2021): p micro-batches through a chunk, then through the next. Micro-batches come in
 * multiples of p; idle for (p - 1)(F + B + W)/chunks, where F, B, W are those of a device.
 * zb-v: list d has stages d and 2p - 1 - d (Qi et al., "Pipeline Parallelism with Controllable
 * Memory", 2024), so that the loss is where the first stage is; 2p slots of half a device each.
 * From 2p micro-batches on no device is idle between its first F and its last W where F, B and W
 * take the same.
 *
 * 2bw is asynchronous (PipeDream-2BW: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN
 * Training", 2021): 1f1b whose pipeline does not run empty between two batches. Its list, which
 * is repeated, names by micro-batch M + m the m-th of the batch that follows: those that 1f1b
 * runs ahead. They are left out where no batch follows, and run by themselves where none went
 * before. There are two versions of the weights: batch t is computed with W(t - 1), one update
 * old, and W(t + 1) = W(t) - its update, where W(-1) = W(0). From S micro-batches on no stage of
 * a balanced pipeline is idle but at the start and the end of a run.
 *
 * All post a RECV one computation ahead, that for an F where its slot is free by then. A stage that
 * sends gradients runs B, SEND, W, so that the stage before need not wait for W; one that sends
 * none runs BW.
 *
 * Text form (schedule_print): a line "schedule NAME stages S micro-batches M", then for each
 * list a line "stage S slots N" for each of its chunks and one instruction per line: "F micro
 * chunk", "B …", "W …", "BW …", "SEND micro chunk -> peer [gradient]",
 * "RECV micro chunk <- peer [gradient]", "REDUCE", "STEP". Empty lines and what follows '#' are
 * skipped. NAME is anything. Where there are two versions of the weights the first line goes on
 * "versions 2".
 */
#ifndef TASUKI_SCHEDULER_SCHEDULE_H
#define TASUKI_SCHEDULER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
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
    int micro;
    int chunk;              /* of the list */
    int peer;               /* SEND, RECV: the other stage */
    bool gradient;          /* SEND, RECV: travels backwards */
};

enum schedule_kind {
    SCHEDULE_1F1B, SCHEDULE_GPIPE, SCHEDULE_ZB_H1, SCHEDULE_ZB, SCHEDULE_INTERLEAVED,
    SCHEDULE_ZB_V, SCHEDULE_2BW
};

#define SCHEDULE_KINDS 7
#define SCHEDULE_NAMES "gpipe, 1f1b, interleaved, zb-h1, zb, zb-v or 2bw"
#define SCHEDULE_VERSIONS 2     /* of the weights, at most … */
#define SCHEDULE_STALE \
    "asynchronous: each update is computed from gradients of weights one update old"
#define SCHEDULE_MEMORY 2.0     /* where 'zb' is not told how much it may use */
#define SCHEDULE_MAX_CHUNKS 64

struct schedule_options {
    double memory;          /* of zb, see schedule_slots(); 0: SCHEDULE_MEMORY */
    int chunks;             /* of interleaved, at least 2 */
};

struct instruction_list {
    int n;
    struct instruction *items;
    int n_chunks;
    int *stages;            /* of each chunk, ascending */
};

/* Which list runs a stage, and as which chunk. */
struct schedule_stage {
    int list, chunk;
    int slots;              /* micro-batches in flight at once: slot = micro % slots */
};

struct schedule {
    char *name;
    char *source;           /* where it was read from; NULL: made here */
    int n_stages, n_lists, micro_batches;
    int versions;           /* of the weights; 2: asynchronous, as 2bw */
    struct schedule_stage *stages;
    struct instruction_list *lists;
};

/* Two stages, from < to, that exchange values. */
struct schedule_edge {
    int from, to;
    bool gradient;          /* a gradient travels back */
};

const char *schedule_name(enum schedule_kind kind);
/* A kind, or -1. */
int schedule_find(const char *name);
/* Versions of the weights: 2 under 2bw, which is not flushed; else 1. */
int schedule_versions(enum schedule_kind kind);
/* Chunks of a list: 1, but under interleaved ('chunks' are asked for) and zb-v. */
int schedule_chunks(enum schedule_kind kind, int chunks);
/* The list that runs stage 's' where each of 'n_lists' has its share. */
int schedule_list(enum schedule_kind kind, int n_lists, int s);
/* Can so many lists run so many micro-batches? Else 'err' names the nearest count. */
int schedule_suits(enum schedule_kind kind, int n_lists, int64_t micro_batches,
                   struct err *err);
/* Where lists have one chunk: micro-batches in flight in stage 's'. 'memory', of 'zb' alone: how
 * many times those of 1f1b's first stage there may be, 1 to 2; 0: SCHEDULE_MEMORY.
 */
int schedule_slots(enum schedule_kind kind, double memory, int n_stages, int64_t micro_batches,
                   int s);
/* The same where lists have several, at most: stages that send no gradient need fewer. */
int schedule_chunk_slots(enum schedule_kind kind, int n_lists, int chunks, int micro_batches,
                         int s);
/* W of stage 's' that run after the last B of the first chunk of its list, at most. */
int schedule_chunk_late(enum schedule_kind kind, int n_lists, int64_t micro_batches, int s);
/* After so many more B does W run in stage 's'? */
int schedule_delay(enum schedule_kind kind, double memory, int n_stages, int64_t micro_batches,
                   int s);

/* NULL with 'err' for an unknown name, or where stages, chunks and micro-batches do not go
 * together. 'edges' sorted by (from, to). 'options' may be NULL.
 */
struct schedule *schedule_new(const char *name, const struct schedule_options *options,
                              int n_stages, int micro_batches,
                              const struct schedule_edge *edges, int n_edges,
                              struct err *err);
void schedule_free(struct schedule *schedule);
/* Of a list. */
int schedule_most_chunks(const struct schedule *schedule);
/* Complete, free of deadlock under rendezvous, within its slots, and such that the runtime can
 * execute it; else 'err' names where it was read, stage and instruction.
 */
int schedule_check(const struct schedule *schedule, const struct schedule_edge *edges,
                   int n_edges, struct err *err);
int schedule_print(const struct schedule *schedule, FILE *out);
struct schedule *schedule_read(const char *path, FILE *in, struct err *err);
/* What --schedule takes where it is no name. */
struct schedule *schedule_load(const char *path, struct err *err);
struct schedule *schedule_copy(const struct schedule *schedule);
#define SCHEDULE_STEADY 3       /* iterations: the first, one like all others, the last */
/* As many iterations end to end, as lists of one for all their micro-batches. 'updates': each with
 * its REDUCE and STEP, else the last alone.
 */
struct schedule *schedule_unroll(const struct schedule *schedule, int iterations, bool updates);
/* 'micros': the micro-batches of a batch in the order in which stage 's' runs their F, or else
 * their B or BW.
 */
void schedule_order(const struct schedule *schedule, int s, bool forward, int *micros);
/* The same instructions and slots, whatever they are called? */
bool schedule_same(const struct schedule *a, const struct schedule *b);
/* The stages that send each other something, as for schedule_new(); to be freed. */
struct schedule_edge *schedule_edges(const struct schedule *schedule, int *n);
/* The kind, with these options, that makes the very same list of these stages and edges; -1: none.
 * Where several do, the one that it is called after.
 */
int schedule_like(const struct schedule *list, struct schedule_options *options);
/* Micro-batches whose activations stage 's' holds at once at most: each from its first RECV or
 * F to its last B or W. Never more than the stage's slots.
 */
int schedule_in_flight(const struct schedule *schedule, int s);
/* Messages of one edge and direction that stage 's' has asked for and not used, at most. */
int schedule_ahead(const struct schedule *schedule, int s);
/* Messages from stage 'from' to 'to', of which the earlier one sends values and the other
 * gradients, that may be on their way at once: two for each stage on the way, since in none of the
 * lists above a stage is more than two F ahead of the next one when a gradient comes from there;
 * and no more than the earlier one has slots, which are as many micro-batches as are between its F
 * and its B.
 */
int schedule_sends(const struct schedule *schedule, int from, int to);
#define SCHEDULE_SENDS 2        /* for neighbours */
/* How the backward of a stage is run. */
enum backward_form {
    BACKWARD_MERGED,        /* BW */
    BACKWARD_SPLIT,         /* W directly behind its B */
    BACKWARD_DELAYED        /* other computations may run between B and W */
};

enum backward_form schedule_backward(const struct schedule *schedule, int s);
/* "F", "BW", "REDUCE", … */
const char *instruction_name(enum instruction_kind kind);

#endif
