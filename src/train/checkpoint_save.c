/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/file.h"
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
    if (s->scale.factor > 0 || s->scale.skipped > 0)
        json_object_set_new(top, "loss_scale",
                            json_pack("{s:f, s:I, s:I}", "factor", s->scale.factor, "good_steps",
                                      (json_int_t)s->scale.good, "skipped_steps",
                                      (json_int_t)s->scale.skipped));
    if (s->loss)
        json_object_set_new(top, "loss", json_string(s->loss));
    json_object_set_new(top, "model", json_pack("{s:s, s:s}", "path", s->model_path, "xxh3",
                                                s->model_hash));
    /* A copy: a thread writes it, while others may count references. */
    if (s->plan)
        json_object_set_new(top, "plan", json_deep_copy(s->plan));
    return top;
}

struct checkpoint_saving {
    char *directory, *name, *temporary;
    int keep, rank;
    double delay;
    enum checkpoint_stage stage;
    int n;
    struct shard **shards;
    size_t bytes;
    json_t *state;              /* rank 0 */
    json_t *described;          /* what is written, of this rank, then, on rank 0, of all */
    pthread_t thread;
    bool threaded;              /* it is to be joined */
    atomic_bool busy;
    bool failed;                /* of the stage; to be read once it is no longer busy */
    struct err err;
};

/* What the threads do ----------------------------------------------------------------- */

static void wait_for_tests(double seconds)
{
    struct timespec time = { .tv_sec = (time_t)seconds };

    time.tv_nsec = (long)(1e9 * (seconds - (double)time.tv_sec));
    if (seconds > 0)
        nanosleep(&time, NULL);
}

/* A file for each store, and one for what has come from other ranks. */
static int write_shards(struct checkpoint_saving *s, struct err *err)
{
    for (int c = 0; c < s->n; c++) {
        char file[64], more[16] = "";
        json_t *shard;

        if (c)
            snprintf(more, sizeof(more), "-%d", c);
        snprintf(file, sizeof(file), "shard-%04d%s.safetensors", s->rank, more);
        shard = shard_write(s->shards[c], s->temporary, file, err);
        if (!shard)
            return -1;
        json_array_append_new(s->described, shard);
        shard_free(s->shards[c]);
        s->shards[c] = NULL;
    }
    return 0;
}

static int write_state(struct checkpoint_saving *s, struct err *err)
{
    char *path = mem_printf("%s/state.json", s->temporary), hex[17];
    int bad;

    json_object_set(s->state, "files", s->described);
    checkpoint_state_hash(s->state, hex);
    json_object_set_new(s->state, "xxh3", json_string(hex));
    bad = json_save(s->state, path, err);
    free(path);
    return bad ? -1 : checkpoint_finish(s->directory, s->temporary, s->name, s->keep, err);
}

static void *run_stage(void *argument)
{
    struct checkpoint_saving *s = argument;

    wait_for_tests(s->delay);
    s->failed = (s->stage == CHECKPOINT_SHARDS ? write_shards : write_state)(s, &s->err) < 0;
    atomic_store(&s->busy, false);
    return NULL;
}

static void start_stage(struct checkpoint_saving *s)
{
    sigset_t all, before;

    atomic_store(&s->busy, true);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    s->threaded = pthread_create(&s->thread, NULL, run_stage, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!s->threaded)           /* then training waits for it */
        run_stage(s);
}

static void join(struct checkpoint_saving *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = false;
}

/* What all ranks do ------------------------------------------------------------------- */

/* Shards as the ranks described them, in rank order. */
static int merge(struct checkpoint_saving *s, const void **parts, const size_t *sizes, int n,
                 struct err *err)
{
    json_array_clear(s->described);
    for (int r = 0; r < n; r++) {
        json_t *shards = json_loadb(parts[r], sizes[r], 0, NULL);
        int bad = shards ? json_array_extend(s->described, shards) : -1;

        json_decref(shards);
        if (bad)
            return err_set(err, "%s: rank %d's list of tensors does not parse", s->temporary, r);
    }
    return 0;
}

/* Everybody's list, which rank 0 writes. */
static int collect(struct checkpoint_saving *s, struct comm *comm, struct err *err)
{
    int size = comm_size(comm);
    const void **parts = mem_new((size_t)size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)size, sizeof(*sizes));
    char *text = json_dumps(s->described, JSON_COMPACT);
    void *block = NULL;
    int bad = comm_exchange(comm, text, strlen(text), &block, parts, sizes, err);

    if (!bad)
        bad = comm_agree(comm, err, s->rank == 0 && merge(s, parts, sizes, size, err) < 0);
    free(text);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

int checkpoint_advance(struct checkpoint_saving *saving, struct comm *comm, struct err *err)
{
    struct checkpoint_saving *s = saving;
    int bad;

    join(s);
    if (s->failed)
        *err = s->err;
    bad = comm_agree(comm, err, s->failed);
    if (!bad && s->stage == CHECKPOINT_SHARDS)
        bad = collect(s, comm, err);
    /* All have stopped writing there. */
    if (bad && s->rank == 0)
        file_remove_directory(s->temporary);
    if (bad)
        return -1;
    s->stage++;
    if (s->stage == CHECKPOINT_STATE && s->rank == 0)
        start_stage(s);
    return 0;
}

enum checkpoint_stage checkpoint_stage(const struct checkpoint_saving *saving)
{
    return saving->stage;
}

bool checkpoint_busy(struct checkpoint_saving *saving, bool *failed)
{
    bool busy = atomic_load(&saving->busy);

    *failed = !busy && saving->failed;
    return busy;
}

size_t checkpoint_copied(const struct checkpoint_saving *saving)
{
    return saving->bytes;
}

static int copy(struct checkpoint_saving *s, const struct checkpoint_options *options,
                struct err *err)
{
    for (int c = 0; c < options->n_stores; c++) {
        struct shard *shard = shard_copy(options->stores[c], options->placement, err);

        if (!shard)
            return -1;
        *(struct shard **)mem_push((void **)&s->shards, &s->n, sizeof(shard)) = shard;
    }
    return 0;
}

/* Of all ranks, so that none has more bytes to write than others. */
static int copy_evenly(struct checkpoint_saving *s, const struct checkpoint_options *options,
                       struct comm *comm, struct err *err)
{
    int bad = (s->rank == 0 && checkpoint_start(s->directory, s->temporary, err) < 0) ||
              copy(s, options, err) < 0;

    if (comm_agree(comm, err, bad) || shard_even(&s->shards, &s->n, comm, err))
        return -1;
    for (int c = 0; c < s->n; c++)
        s->bytes += shard_size(s->shards[c]);
    return 0;
}

struct checkpoint_saving *checkpoint_begin(const struct checkpoint_options *options,
                                           struct comm *comm, struct err *err)
{
    struct checkpoint_saving *s = mem_new(1, sizeof(*s));
    long long step = options->state->step;

    s->directory = mem_strdup(options->directory);
    s->name = mem_printf("step-%08lld", step);
    s->temporary = mem_printf("%s/.%s.tmp", s->directory, s->name);
    s->keep = options->keep;
    s->delay = options->delay;
    s->rank = comm_rank(comm);
    s->described = json_array();
    if (s->rank == 0)
        s->state = state_json(options->state);
    if (copy_evenly(s, options, comm, err) == 0) {
        start_stage(s);
        return s;
    }
    if (s->rank == 0)
        file_remove_directory(s->temporary);
    /* Else messages may be under way yet, from there. */
    if (comm_agreed(comm))
        checkpoint_saving_free(s);
    return NULL;
}

void checkpoint_saving_free(struct checkpoint_saving *saving)
{
    struct checkpoint_saving *s = saving;

    if (!s)
        return;
    join(s);
    for (int c = 0; c < s->n; c++)
        shard_free(s->shards[c]);
    free(s->shards);
    json_decref(s->state);
    json_decref(s->described);
    free(s->directory);
    free(s->name);
    free(s->temporary);
    free(s);
}
