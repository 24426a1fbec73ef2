/* SPDX-License-Identifier: MIT */
/* Which rank executes which replica of which stage of which pipeline. */
#ifndef TASUKI_TRAIN_PLACEMENT_H
#define TASUKI_TRAIN_PLACEMENT_H

#include <stdbool.h>

#include "scheduler/plan.h"
#include "topology/cluster.h"

struct err;

struct placement {
    int n_stages, pipelines;
    int n_ranks;            /* different ranks that the plan uses */
    int *first;             /* [n_stages + 1]: start of a stage in 'rank' */
    int *rank;              /* [first[stage] + pipeline * replicas + replica] */
    int stage, pipeline, replica;   /* of the rank asked for; stage -1: it has no work */
    int list;               /* which it runs; 'stage' is its first chunk */
};

/* Device ids are looked up in the cluster (whose devices know their ranks); without a cluster
 * they are rank numbers. A device without a rank, or used twice, is an error that names it.
 */
int placement_make(struct placement *placement, const struct plan *plan,
                   const struct cluster *cluster, int rank, int size, struct err *err);
void placement_clear(struct placement *placement);
int placement_rank(const struct placement *placement, int stage, int pipeline, int replica);
/* Different ranks of the plan, ascending by stage, into 'ranks', which has room for all replicas of
 * all stages; returns n_ranks.
 */
int placement_ranks(const struct placement *placement, int *ranks);
/* The ranks of a stage, over all pipelines; '*n' of them. */
const int *placement_stage(const struct placement *placement, int stage, int *n);

#endif
