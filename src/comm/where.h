/* SPDX-License-Identifier: MIT */
/* Where a rank is: kept by its main thread, read by the one that watches (watch.h).
 *
 * One writes, any may read, nobody waits: a reader tries again where it was disturbed.
 */
#ifndef TASUKI_COMM_WHERE_H
#define TASUKI_COMM_WHERE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum where_operation {
    WHERE_COMPUTES,     /* or reads data, or whatever needs no other rank */
    WHERE_SENDS, WHERE_RECEIVES, WHERE_SUMS, WHERE_SCATTERS, WHERE_GATHERS,
    WHERE_MEETS         /* with all ranks */
};

/* As it is sent and reported. */
struct whereabouts {
    char what[16];          /* the instruction, or the phase of a run; "": it has not begun */
    int64_t step;           /* from 1; 0: none */
    int32_t stage, micro;   /* -1: none */
    int32_t operation;      /* enum where_operation */
    int32_t peer;           /* rank; -1: none, or several */
    double seconds;         /* since it waits, or, where it computes, since the instruction */
};

struct where {
    atomic_uint turn;       /* odd while it is written */
    _Atomic(const char *) what;
    atomic_llong step;
    atomic_int stage, micro, operation, peer;
    _Atomic(double) since;  /* clock */
};

/* The next instruction begins; 'what' is a constant. */
void where_at(struct where *where, const char *what, int stage, int64_t step, int micro);
/* Within it, from now on. */
void where_does(struct where *where, enum where_operation operation, int peer);
void where_read(struct where *where, struct whereabouts *now);

/* "step 5, stage 1, B of micro-batch 2: receives from rank 3" */
void where_text(const struct whereabouts *at, char *text, size_t size);
/* "compute", "send", "receive", "all-reduce", "reduce-scatter", "all-gather", "meeting" */
const char *where_operation_name(int operation);

/* What was heard of a rank when nothing moved. */
struct sighting {
    struct whereabouts at;
    double silent;          /* seconds since then; 0: it answers; -1: nothing was ever heard */
    bool gone;              /* has left, or died */
};

/* Ranks that do the same. */
struct where_group {
    const struct sighting *one;     /* of them, the one that has done it longest */
    int n;
    int *ranks;                     /* [n], ascending */
};

/* Of all that are not gone, '*n' groups: silent ones first, then those that wait for nobody, then
 * those of which nothing was ever heard, then the smaller. To be freed by where_groups_free().
 */
struct where_group *where_groups(const struct sighting *ranks, int size, int *n);
void where_groups_free(struct where_group *groups, int n);
/* "0-3, 7" */
void where_ranks_text(const struct where_group *group, char *text, size_t size);
/* The rank for which all others wait; -1: they wait for each other. */
int where_stuck(const struct sighting *ranks, int size);
/* Who answers and has waited for this rank the longest, or, if nobody names it, in a collective;
 * -1: nobody.
 */
int where_waiting(const struct sighting *ranks, int size, int rank);

#endif
