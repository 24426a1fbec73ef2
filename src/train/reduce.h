/* SPDX-License-Identifier: MIT */
/* Summing gradients over the replicas, in buckets, while the backward still runs.
 *
 * The gradient array is ordered by when a gradient becomes final. Its buckets (see buckets.h)
 * are posted in its order, each as soon as the last kernel that writes into it has run for the
 * last time and as there is scratch for it: few are under way at once. Under ZeRO-1 a rank gets the
 * sums of its slices (slices.h) only, and what it makes of them is gathered after the update.
 *
 * Where the gradients are on a device with memory of its own, each bucket is copied to the host
 * first, in the lane of what leaves, summed there, and copied back in that of what arrives. Or NCCL
 * sums them where they are, among all ranks or those of each node; of these one then sums with those
 * of other nodes, through its host, and gives the others what it has.
 */
#ifndef TASUKI_TRAIN_REDUCE_H
#define TASUKI_TRAIN_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"
#include "train/buckets.h"
#include "train/compile.h"
#include "train/lanes.h"
#include "train/nccl.h"
#include "train/placement.h"

/* Where the sum of a bucket that was posted has got to. */
enum bucket_step {
    BUCKET_JOINS,               /* by NCCL: with all ranks of the group, or of this node */
    BUCKET_COPIES,              /* to the host */
    BUCKET_SUMS,                /* there */
    BUCKET_SPREADS              /* by NCCL, from the rank that has summed over nodes */
};

/* How a group sums by NCCL. */
struct sum_teams {
    struct nccl_team *joins, *spreads;  /* NULL: none but this rank; nothing is left to spread */
    struct comm_group *across;  /* of the first rank on each node, if this is one; else NULL */
    bool across_nodes;
};

struct bucket {
    size_t offset, bytes;       /* in the gradient array */
    struct comm_group *group;   /* NULL: this rank alone */
    struct comm_request *request;
    int writers, pending;       /* kernels whose last run is still to come */
    struct sum_areas *areas;    /* of its group */
    int area;                   /* of these, while it is under way */
    bool posted, done;
    struct event *arrived;      /* behind the step's work on the GPU; NULL: there is none */
    enum bucket_step step;
    struct sum_teams *teams;    /* NULL: the hosts sum */
    double start, end;          /* seconds, for the trace */
};

/* Scratch for a group's sums that are under way. */
struct sum_areas {
    char *start;
    size_t bytes;               /* of one */
    int n;
    bool taken[SUMS_AT_ONCE];
};

struct reduce {
    struct comm *comm;
    int n_groups, n_buckets;
    struct comm_group **groups;
    struct sum_areas *areas;    /* of each group */
    struct sum_teams *teams;    /* of each group; NULL: NCCL is not used */
    struct bucket *buckets;
    char *gradients;            /* the array */
    struct reduce_mirror {
        const struct backend *backend;
        struct device *device;
        struct lanes *lanes;
        char *memory;           /* of the host, as long as the array; NULL: none is needed */
    } mirror;
    enum dtype dtype;
    bool deterministic, sharded;
    int64_t step;               /* of what is posted, for the trace; -1: it is not traced */
    struct comm_request *request;   /* of norms */
    int *first, *list;          /* buckets that a node writes: list[first[node] …] */
};

/* Collective over the ranks of the plan, which buckets_check() has found alike. 'gradients' is the
 * array, 'scratch' has the bytes of buckets_scratch(). 'shared': parameters of several stages, too;
 * else their gradients stay what they are here (ties.h).
 */
int reduce_init(struct reduce *reduce, struct comm *comm, const struct compiled *compiled,
                const struct plan *plan, const struct placement *placement, char *gradients,
                char *scratch, bool shared, bool deterministic, struct err *err);
/* After that, where the gradients, of so many bytes, are not in memory of the host. */
int reduce_use_mirror(struct reduce *reduce, const struct backend *backend, struct device *device,
                      struct lanes *lanes, size_t bytes, struct err *err);
/* Before that: NCCL sums as far as it 'reaches' (nccl.h). It is connected later. */
int reduce_use_nccl(struct reduce *reduce, struct nccl *nccl, const struct compiled *compiled,
                    const struct placement *placement, bool shared, struct err *err);
void reduce_clear(struct reduce *reduce);

void reduce_start(struct reduce *reduce);   /* of a step */
/* The node has run for the last time in this step: post what became final. */
int reduce_final(struct reduce *reduce, int node, struct err *err);
/* Does the node write a bucket that is summed with others and is not 'seen' yet? Then it is. */
bool reduce_writes(const struct reduce *reduce, int node, bool *seen);
/* Post what is left and wait for all. */
int reduce_wait(struct reduce *reduce, struct err *err);
/* Drive progress; notes which buckets have completed. */
int reduce_test(struct reduce *reduce, struct err *err);

/* Under ZeRO-1, where every rank has its slices of 'array', laid out as the gradients: all of it
 * on all ranks that share it.
 */
int reduce_gather(struct reduce *reduce, char *array, struct err *err);
/* Sum 'n' numbers over the ranks of the buckets' group. */
int reduce_numbers(struct reduce *reduce, int group, double *numbers, int n, struct err *err);

#endif
