/* SPDX-License-Identifier: MIT */
/* Which gradients are summed in one go, and over which ranks: from a compiled stage alone.
 *
 * The gradient array is cut into buckets of neighbours. Group 0 are the replicas of the stage;
 * a parameter that several stages read has a group and a bucket of its own, the replicas of all
 * of them. Groups come in the order of parameters, which all ranks share.
 */
#ifndef TASUKI_TRAIN_BUCKETS_H
#define TASUKI_TRAIN_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"
#include "scheduler/sums.h"
#include "train/compile.h"
#include "train/placement.h"

struct bucket_range {
    size_t offset, bytes;       /* in the gradient array */
    int value;                  /* root of the gradient */
    int state;                  /* the parameter or statistic */
    int group;
};

struct bucket_cut {
    size_t offset, bytes;
    int group;
    int first, n;               /* ranges */
};

struct buckets {
    int n_stages, n_groups, n_ranges, n_cuts;
    bool *groups;               /* [n_groups * n_stages]: is the stage in it? */
    struct bucket_range *ranges;    /* by offset */
    struct bucket_cut *cuts;
};

/* 'limit': bytes of a bucket; 0: stage_bucket_bytes() of the array. */
void buckets_make(struct buckets *buckets, const struct compiled *compiled, int n_stages,
                  size_t limit);
void buckets_clear(struct buckets *buckets);
/* The different ranks of a group into 'ranks' (room for all); returns how many. */
int buckets_ranks(const struct buckets *buckets, int group, const struct placement *placement,
                  int *ranks);
/* The same from the plan alone. */
int buckets_members(const struct buckets *buckets, int group, const struct plan *plan);

/* Where a group's sums have their scratch: at most so many at once, of so many bytes each, from
 * 'at' on. Of group n_groups 'at' is the end of all. Buckets made with a limit of their own have
 * these, too.
 */
struct bucket_scratch {
    size_t at, bytes;
    int n;
};

struct bucket_scratch buckets_scratch(const struct buckets *buckets,
                                      const struct compiled *compiled, const struct plan *plan,
                                      int group);

/* Collective over all ranks, before anything is summed: would all members of each group sum the
 * same gradients, by name, size and order? Else what does not belong together would be added,
 * or waited for in vain. 'compiled' are the rank's 'n' stages. Every rank has the same error.
 */
int buckets_check(struct comm *comm, int n, struct compiled *const *compiled,
                  const struct placement *placement, struct err *err);

#endif
