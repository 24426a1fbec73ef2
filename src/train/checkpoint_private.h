/* SPDX-License-Identifier: MIT */
/* For checkpoint_load.c and checkpoint_forward.c. */
#ifndef TASUKI_TRAIN_CHECKPOINT_PRIVATE_H
#define TASUKI_TRAIN_CHECKPOINT_PRIVATE_H

#include "train/checkpoint.h"
#include "train/safetensors.h"

struct extent {
    int64_t start, count;
    int file;
    const void *data;         /* NULL where another rank has the file */
};

struct saved {
    const char *name;
    enum checkpoint_kind kind;
    enum dtype dtype;
    struct shape shape;
    int n_parts;
    struct extent *parts;     /* by start, without holes once the file is read */
};

struct checkpoint {
    char *path, *state_path;
    json_t *json;           /* owns names */
    const char **no_decay;
    struct checkpoint_state state;
    int rank, ranks;        /* this one has the files rank, rank + ranks, … */
    int n_shards;
    struct safetensors **shards;    /* NULL where another rank has it */
    int n;
    struct saved *tensors;
};

#endif
