/* SPDX-License-Identifier: MIT */
/* Checkpoints: one directory per step, independent of the plan (tasuki-checkpoint(5)).
 *
 *   DIR/step-00000020/state.json            what and where; written last
 *   DIR/step-00000020/shard-0000.safetensors  written by rank 0, …
 *   DIR/latest                              the newest directory's name
 *
 * Every tensor is addressed as (name of the parameter in the ONNX model, kind, element range).
 * The directory is written under a temporary name, fsync'ed and renamed: it is there complete
 * or not at all.
 */
#ifndef TASUKI_TRAIN_CHECKPOINT_H
#define TASUKI_TRAIN_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "train/best.h"
#include "train/loss_scale.h"
#include "train/placement.h"
#include "train/recipe.h"
#include "train/store.h"

struct err;
struct checkpoint;

/* What a tensor is to its parameter. */
enum checkpoint_kind {
    CHECKPOINT_VALUE, CHECKPOINT_M, CHECKPOINT_V, CHECKPOINT_EMA,
    CHECKPOINT_PREVIOUS,        /* the value before the last update */
    CHECKPOINT_KINDS
};

/* The run, beside its tensors. Strings of a loaded one live as long as the checkpoint. */
struct checkpoint_state {
    int64_t step;           /* steps done */
    int64_t data_samples;
    int64_t global_batch, batchnorm_samples;
    uint64_t seed;
    bool shuffle;
    struct optimizer_args optimizer;
    struct recipe recipe;   /* resolved; defaults where a file has none */
    struct loss_scale scale;    /* after these steps; factor 0: none */
    struct checkpoint_best {
        enum best_by by;
        double value;
        int64_t step;       /* 0: there was no evaluation yet */
    } best;
    const char *precision;  /* a word of --precision */
    const char *loss;       /* --loss, or NULL */
    const char *model_path, *model_hash;
    json_t *plan;           /* plan_to_json() */
};

/* How many steps stay once a new one is complete: so many of those up to it. */
enum {
    CHECKPOINT_KEEP_ONLY = -1,  /* it alone, whatever else there is */
    CHECKPOINT_KEEP_ALL = 0
};

struct checkpoint_options {
    const char *directory;
    int keep;
    const struct checkpoint_state *state;
    int n_stores;               /* of the rank's stages; 0 on a rank without work */
    struct store *const *stores;
    const struct placement *placement;
    double delay;               /* tests: seconds to wait before anything is written */
};

/* A checkpoint that is written by threads while training goes on: first its shards, by each
 * rank, then its state and its name, by rank 0. Each stage ends by a collective call.
 */
struct checkpoint_saving;
enum checkpoint_stage { CHECKPOINT_SHARDS, CHECKPOINT_STATE, CHECKPOINT_DONE };

/* Collective over all ranks: what there is now is copied to host memory, evenly (shard.h). What
 * 'options' and 'state' point to may go; the stores must stay until the end.
 */
struct checkpoint_saving *checkpoint_begin(const struct checkpoint_options *options,
                                           struct comm *comm, struct err *err);
enum checkpoint_stage checkpoint_stage(const struct checkpoint_saving *saving);
/* Does this rank's part in the stage go on? '*failed': it went wrong. */
bool checkpoint_busy(struct checkpoint_saving *saving, bool *failed);
/* Collective: wait for the end of the stage on all ranks; the next one begins. On failure every
 * rank has the same error, and nothing new is left in the directory.
 */
int checkpoint_advance(struct checkpoint_saving *saving, struct comm *comm, struct err *err);
/* Bytes of this rank's copy. */
size_t checkpoint_copied(const struct checkpoint_saving *saving);
/* Waits for this rank's thread alone. */
void checkpoint_saving_free(struct checkpoint_saving *saving);

/* The newest checkpoint in a directory: '*path' is malloc'ed, NULL where there is none. Where a
 * run was killed while it replaced that step, this is the older one, renamed away. Without
 * "latest" it is the highest step, which need not be whole.
 */
int checkpoint_latest(const char *directory, char **path, struct err *err);
bool checkpoint_names_latest(const char *directory);    /* Is "latest" there? */
bool checkpoint_is_aside(const char *path);     /* Is it such an older one? */
/* The newest step in 'directory' before that of 'path'; malloc'ed, NULL where there is none. */
char *checkpoint_before(const char *directory, const char *path);
/* By what the newest checkpoint in DIR/best of 'directory' was chosen; step 0 where there is
 * none. The checkpoints of 'directory' itself may be older than that one.
 */
int checkpoint_best(const char *directory, struct checkpoint_best *best, struct err *err);
/* 'path' is one step's directory, or one of checkpoints: its newest. Sizes, ranges and checksums
 * of all files are checked.
 */
struct checkpoint *checkpoint_open(const char *path, struct err *err);
/* As one of so many ranks, each of which maps and checks files of its own, so that all are read
 * once: 'text' is what rank 0 has by checkpoint_read_state() of a step's directory, malloc'ed. Only
 * the rank that has a file finds it damaged.
 */
int checkpoint_read_state(const char *path, void **text, size_t *size, struct err *err);
struct checkpoint *checkpoint_open_part(const char *path, const void *text, size_t size, int rank,
                                        int ranks, struct err *err);
void checkpoint_close(struct checkpoint *checkpoint);
const char *checkpoint_path(const struct checkpoint *checkpoint);
const struct checkpoint_state *checkpoint_state(const struct checkpoint *checkpoint);

/* Tensors by index, then by content. */
int checkpoint_count(const struct checkpoint *checkpoint);
const char *checkpoint_name(const struct checkpoint *checkpoint, int index,
                            enum checkpoint_kind *kind, struct shape *shape,
                            enum dtype *dtype);
int checkpoint_find(const struct checkpoint *checkpoint, const char *name,
                    enum checkpoint_kind kind);     /* -1 */
/* The whole tensor in type 'dtype' into 'data', of a checkpoint that is one rank's alone. */
void checkpoint_read(const struct checkpoint *checkpoint, int index, enum dtype dtype,
                     void *data);

/* Parameters, statistics and optimizer state of this rank's stages. Averages, and values before
 * the last update, that were not kept are the parameters. All ranks have opened it, each its part;
 * 'checkpoint' is NULL on one that comes with an error ('failed', see forward_run()). Collective.
 */
int checkpoint_load(const struct checkpoint *checkpoint, int n, struct store *const *stores,
                    struct comm *comm, int failed, struct err *err);

#endif
