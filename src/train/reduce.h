/* SPDX-License-Identifier: MIT */
/* Summing gradients over the replicas, in buckets, while the backward still runs.
 *
 * The gradient array is ordered by when a gradient becomes final. It is cut into buckets that
 * are posted in its order, each as soon as the last kernel that writes into it has run for the
 * last time. A parameter that several stages read has a bucket of its own over the replicas of
 * all.
 */
#ifndef TASUKI_TRAIN_REDUCE_H
#define TASUKI_TRAIN_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "train/compile.h"
#include "train/placement.h"

struct bucket {
    size_t offset, bytes;       /* in the gradient array */
    struct comm_group *group;   /* NULL: this rank alone */
    struct comm_request *request;
    int writers, pending;       /* kernels whose last run is still to come */
    bool posted, done;
    double start, end;          /* seconds, for the trace */
};

struct reduce {
    struct comm *comm;
    int n_groups, n_buckets;
    struct comm_group **groups;
    struct bucket *buckets;
    enum dtype dtype;
    bool deterministic;
    int *first, *list;          /* buckets that a node writes: list[first[node] …] */
};

/* Collective over the ranks of the plan, and in the same order on all. 'bucket_bytes' 0: a
 * quarter of the array, at least 16 KiB and at most 4 MiB.
 */
int reduce_init(struct reduce *reduce, struct comm *comm, const struct compiled *compiled,
                const struct placement *placement, size_t bucket_bytes, bool deterministic,
                struct err *err);
void reduce_clear(struct reduce *reduce);

/* What replicas must have alike to be summed: names and places of the gradients of a stage, as
 * a hash. Two ranks with different ones would add what does not belong together.
 */
uint64_t reduce_fingerprint(const struct compiled *compiled);

void reduce_start(struct reduce *reduce);   /* of a step */
/* The node has run for the last time in this step: post what became final. */
int reduce_final(struct reduce *reduce, int node, char *gradients, struct err *err);
/* Post what is left and wait for all. */
int reduce_wait(struct reduce *reduce, char *gradients, struct err *err);
/* Drive progress; notes which buckets have completed. */
int reduce_test(struct reduce *reduce, struct err *err);

#endif
