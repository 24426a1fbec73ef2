/* SPDX-License-Identifier: MIT */
/* One rank's file of a checkpoint, and the list of what is in it. */
#ifndef TASUKI_TRAIN_SHARD_H
#define TASUKI_TRAIN_SHARD_H

#include <jansson.h>

#include "train/checkpoint.h"
#include "train/placement.h"
#include "train/store.h"

struct err;

/* Write this rank's share of its stage's tensors: the replicas of a stage hold the same, each
 * writes an equal range of elements. Returns {"file", "xxh3", "bytes", "pieces": [{"name",
 * "kind", "dtype", "shape", "start", "count", "key"}]}, or NULL.
 */
json_t *shard_write(const char *directory, const char *name, const struct store *store,
                    const struct placement *placement, struct err *err);

extern const char *const shard_kinds[CHECKPOINT_KINDS];

#endif
