/* SPDX-License-Identifier: MIT */
/* Which part of its gradients a rank steps, and where the optimizer's state of that lies.
 *
 * Alone, or without ZeRO-1, that is all, and the state lies as the gradients do. With it every
 * bucket (buckets.h) is cut into one slice for each rank of its group, as comm_reduce_scatter()
 * leaves it, and a rank has state for its slices alone, one behind the other. What ties.h sums,
 * where a rank has several stages, every rank that has a copy steps whole.
 */
#ifndef TASUKI_TRAIN_SLICES_H
#define TASUKI_TRAIN_SLICES_H

#include <stdbool.h>
#include <stddef.h>

#include "train/buckets.h"
#include "train/compile.h"
#include "train/placement.h"

struct slice {
    size_t bucket, bucket_bytes;    /* in the gradient array */
    size_t offset, bytes;           /* of it, this rank's */
    size_t state;                   /* in an array of state */
    int group;                      /* of the bucket */
    bool whole;                     /* others have the same, and step it alike */
    bool counts;                    /* in norms: no other rank of the stage counts it */
};

struct slices {
    int n;
    struct slice *items;            /* by offset */
};

/* Bytes of one array of state, the same on all ranks of a stage. */
size_t slices_bytes(const struct compiled *compiled, const struct plan *plan);
/* 'placement' may be NULL where compiled->sharded is false. */
void slices_make(struct slices *slices, const struct compiled *compiled,
                 const struct placement *placement);
void slices_clear(struct slices *slices);
/* What this rank has of bytes of the gradient array that lie in one bucket; maybe nothing. */
struct slice slices_part(const struct slices *slices, size_t offset, size_t bytes);

#endif
