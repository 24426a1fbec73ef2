/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"
#include "train/optimizer.h"
#include "train/shard.h"

static json_t *state_json(const struct checkpoint_state *s)
{
    json_t *top = json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:s, s:o}", "schema",
        "tasuki-checkpoint", "version", 1, "step", (json_int_t)s->step, "data_samples",
        (json_int_t)s->data_samples, "global_batch", (json_int_t)s->global_batch,
        "batchnorm_samples", (json_int_t)s->batchnorm_samples, "random", "philox4x32-10",
        "seed", (json_int_t)s->seed, "shuffle", s->shuffle, "precision", s->precision,
        "optimizer", optimizer_to_json(&s->optimizer));

    if (s->best.step > 0)
        json_object_set_new(top, "best", json_pack("{s:s, s:f, s:I}", "metric",
                                                   s->best.by == BEST_ACCURACY ? "accuracy"
                                                                               : "loss",
                                                   "value", s->best.value, "step",
                                                   (json_int_t)s->best.step));
    json_object_set_new(top, "recipe", recipe_to_json(&s->recipe));
    if (s->loss)
        json_object_set_new(top, "loss", json_string(s->loss));
    json_object_set_new(top, "model", json_pack("{s:s, s:s}", "path", s->model_path, "xxh3",
                                                s->model_hash));
    if (s->plan)
        json_object_set(top, "plan", s->plan);
    return top;
}

/* Shards as the ranks described them, in rank order. */
static int write_state(const char *temporary, const struct checkpoint_state *state,
                       const void **parts, const size_t *sizes, int n, struct err *err)
{
    json_t *top = state_json(state), *files = json_array();
    char *path = mem_printf("%s/state.json", temporary);
    int bad = 0;

    for (int r = 0; r < n && !bad; r++) {
        json_t *shards = json_loadb(parts[r], sizes[r], 0, NULL);

        bad = shards ? json_array_extend(files, shards) : -1;
        json_decref(shards);
    }
    json_object_set_new(top, "files", files);
    if (bad)
        err_set(err, "%s: a rank's list of tensors does not parse", path);
    else
        bad = json_save(top, path, err);
    json_decref(top);
    free(path);
    return bad;
}

/* Every rank's list, in rank order, on all. */
static int exchange(struct comm *comm, const json_t *shards, void **block, const void **parts,
                    size_t *sizes, struct err *err)
{
    char *text = json_dumps(shards, JSON_COMPACT);
    int bad = comm_exchange(comm, text, strlen(text), block, parts, sizes, err);

    free(text);
    return bad;
}

/* A file for each store: descriptions, or NULL. */
static json_t *write_shards(const char *temporary, int rank, int n, struct store *const *stores,
                            const struct placement *placement, struct err *err)
{
    json_t *shards = json_array();

    for (int c = 0; c < n; c++) {
        char file[64], more[16] = "";
        json_t *shard;

        if (c)
            snprintf(more, sizeof(more), "-%d", c);
        snprintf(file, sizeof(file), "shard-%04d%s.safetensors", rank, more);
        shard = shard_write(temporary, file, stores[c], placement, err);
        if (!shard) {
            json_decref(shards);
            return NULL;
        }
        json_array_append_new(shards, shard);
    }
    return shards;
}

static int save_parts(const char *directory, const char *temporary, const char *name, int keep,
                      const struct checkpoint_state *state, int n_stores,
                      struct store *const *stores, const struct placement *placement,
                      struct comm *comm, struct err *err)
{
    int size = comm_size(comm), rank = comm_rank(comm), bad;
    const void **parts = mem_new((size_t)size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)size, sizeof(*sizes));
    void *block = NULL;
    json_t *shards = write_shards(temporary, rank, n_stores, stores, placement, err);

    bad = comm_agree(comm, err, !shards);
    if (!bad)
        bad = exchange(comm, shards, &block, parts, sizes, err);
    if (!bad) {
        int failed = rank == 0 &&
                     (write_state(temporary, state, parts, sizes, size, err) < 0 ||
                      checkpoint_finish(directory, temporary, name, keep, err) < 0);

        bad = comm_agree(comm, err, failed);
    }
    json_decref(shards);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

int checkpoint_save(const char *directory, int keep, const struct checkpoint_state *state,
                    int n_stores, struct store *const *stores,
                    const struct placement *placement, struct comm *comm, struct err *err)
{
    char *name = mem_printf("step-%08lld", (long long)state->step);
    char *temporary = mem_printf("%s/.%s.tmp", directory, name);
    int rank = comm_rank(comm);
    int failed = rank == 0 && checkpoint_start(directory, temporary, err) < 0;
    int bad = comm_agree(comm, err, failed);

    if (!bad) {
        bad = save_parts(directory, temporary, name, keep, state, n_stores, stores, placement,
                         comm, err);
        if (bad && rank == 0)
            checkpoint_remove(temporary);
    }
    free(temporary);
    free(name);
    return bad;
}
