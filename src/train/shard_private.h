/* SPDX-License-Identifier: MIT */
/* What shard.c and shard_even.c share. */
#ifndef TASUKI_TRAIN_SHARD_PRIVATE_H
#define TASUKI_TRAIN_SHARD_PRIVATE_H

#include "train/shard.h"

/* A range of elements of a tensor of this kind, whose name is the graph's, or was told. */
struct piece {
    const char *name;
    enum checkpoint_kind kind;
    enum dtype dtype;
    struct shape shape;         /* of the whole tensor */
    int64_t start, count;
    const char *from;           /* where it is copied from, on the device */
    char *data;                 /* on the host */
    void *memory;               /* that this piece is to free; NULL where another one does */
};

struct shard {
    int n;
    struct piece *pieces;
    char *block, *told;         /* of what has come: its elements and their names, or NULL */
};

static inline size_t piece_bytes(const struct piece *piece)
{
    return (size_t)piece->count * dtype_size(piece->dtype);
}

#endif
