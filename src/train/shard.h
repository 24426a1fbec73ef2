/* SPDX-License-Identifier: MIT */
/* One rank's file of a checkpoint, and the list of what is in it. */
#ifndef TASUKI_TRAIN_SHARD_H
#define TASUKI_TRAIN_SHARD_H

#include <jansson.h>

#include "train/checkpoint.h"
#include "train/placement.h"
#include "train/store.h"

struct err;

struct shard;

/* This rank's share of its stage's tensors, copied to host memory: the replicas of a stage hold
 * the same, each has an equal range of elements. It refers to the store's graph.
 */
struct shard *shard_copy(const struct store *store, const struct placement *placement,
                         struct err *err);
void shard_free(struct shard *shard);
/* Bytes that shard_copy() takes; '*files' is what it and its description are on disk, or somewhat
 * more.
 */
size_t shard_bytes(const struct store *store, const struct placement *placement, size_t *files);
/* Write it, in any thread. Returns {"file", "xxh3", "bytes", "pieces": [{"name", "kind", "dtype",
 * "shape", "start", "count", "key"}]}, or NULL.
 */
json_t *shard_write(const struct shard *shard, const char *directory, const char *name,
                    struct err *err);

extern const char *const shard_kinds[CHECKPOINT_KINDS];

#endif
