/* SPDX-License-Identifier: MIT */
/* A rank's files of a checkpoint, and the lists of what is in them.
 *
 * The replicas of a stage hold the same: each copies an equal range of it, and of what ZeRO-1
 * divides what it has (shard_copy()). Stages differ: ranks that have more than the mean send what
 * is above it to those that have less (shard_even()), so that none has 1 MiB more to write.
 */
#ifndef TASUKI_TRAIN_SHARD_H
#define TASUKI_TRAIN_SHARD_H

#include <jansson.h>

#include "train/checkpoint.h"
#include "train/placement.h"
#include "train/store.h"

struct err;

struct shard;

/* This rank's share of its stage's tensors, copied to host memory; names are the graph's. */
struct shard *shard_copy(const struct store *store, const struct placement *placement,
                         struct err *err);
void shard_free(struct shard *shard);
size_t shard_size(const struct shard *shard);       /* bytes of its elements */
/* Bytes that shard_copy() takes; '*files' is what it and its description are on disk, or somewhat
 * more.
 */
size_t shard_bytes(const struct store *store, const struct placement *placement, size_t *files);
/* Write it, in any thread. Returns {"file", "xxh3", "bytes", "pieces": [{"name", "kind", "dtype",
 * "shape", "start", "count", "key"}]}, or NULL.
 */
json_t *shard_write(const struct shard *shard, const char *directory, const char *name,
                    struct err *err);

/* Bytes that go from one rank to another. */
struct shard_move {
    int from, to;
    size_t bytes;
};
/* Less than this nobody sends, so that no rank ends with as much more than the mean. */
#define SHARD_MOVED ((size_t)1 << 20)
/* Moves among 'n' ranks that have so many bytes each, ascending in 'from' and in 'to'; '*moves' is
 * malloc'ed.
 */
int shard_moves(const size_t *bytes, int n, struct shard_move **moves);
/* Collective, of '*n' shards of this rank: they get smaller, or there is one more of what has come.
 * After a failure that not all ranks know of, see comm_agreed(), they are not to be freed.
 */
int shard_even(struct shard ***shards, int *n, struct comm *comm, struct err *err);

#define SHARD_DESCRIBED 512     /* bytes at most, beside names, of all that is said of a piece */

extern const char *const shard_kinds[CHECKPOINT_KINDS];

#endif
