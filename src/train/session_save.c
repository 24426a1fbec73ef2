/* SPDX-License-Identifier: MIT */
/* Checkpoints of a run: begun between two steps, written while the next ones go on. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/checkpoint_interval.h"
#include "train/checkpoint_lock.h"
#include "train/session.h"

#define MOST_SHARE 0.03     /* of the time that checkpoints take, unless --mtbf is given */

/* It stands: that is told, in words and in the log. */
static void tell(struct session *s)
{
    struct saving *v = &s->saving;

    if (s->rank == 0)
        log_info("checkpoint: %s/step-%08lld", v->directory, (long long)v->step);
    s->metrics.checkpoint_step = v->step;
    session_log(s, json_pack("{s:s, s:I, s:s, s:f, s:f, s:I}", "event", "checkpoint", "step",
                             (json_int_t)v->step, "directory", v->directory, "seconds",
                             v->paused, "written", trace_clock() - v->start, "copied",
                             (json_int_t)checkpoint_copied(v->checkpoint)));
}

static void forget(struct saving *v)
{
    checkpoint_saving_free(v->checkpoint);
    free(v->directory);
    *v = (struct saving){ .checkpoint = NULL };
}

int session_advance_save(struct session *session, struct err *err)
{
    struct session *s = session;
    struct saving *v = &s->saving;
    double start = trace_clock();
    int bad = session_agreed(s, checkpoint_advance(v->checkpoint, s->comm, err), err);

    v->paused += trace_clock() - start;
    v->ready = false;
    if (bad)
        return -1;
    if (checkpoint_stage(v->checkpoint) != CHECKPOINT_DONE)
        return 0;
    tell(s);
    s->saved = (struct saved_cost){ v->step, v->start, v->paused, trace_clock() - v->start };
    forget(v);
    return 0;
}

/* When it comes ------------------------------------------------------------------------ */

bool session_adapts_saves(const struct session *session)
{
    const struct train_settings *t = &session->settings;

    return t->checkpoint && t->mtbf > 0 && t->checkpoint_every.n == 0;
}

/* Of host names each that is new. */
static int count_hosts(const struct session *s)
{
    int n = 0;

    for (int r = 0; r < s->size; r++) {
        int same = 0;

        while (!comm_same_host(s->comm, same, r))
            same++;
        n += same == r;
    }
    return n;
}

static double interval(const struct session *s)
{
    struct checkpoint_pace pace = {
        .paused = s->saved.paused, .written = s->saved.written, .mtbf = s->settings.mtbf,
        .nodes = s->n_hosts, .most_share = s->settings.mtbf_given ? 0 : MOST_SHARE,
    };

    return checkpoint_interval(&pace);
}

bool session_saves_first(const struct session *session, int64_t done)
{
    const struct session *s = session;

    return session_adapts_saves(s) && s->settings.mtbf_given &&
           done == s->first_step + SESSION_FIRST_SAVE;
}

static bool first_is_due(const struct session *s, int64_t done)
{
    return !s->settings.mtbf_given && done - s->first_step >= SESSION_FIRST_SAVE &&
           trace_clock() - s->loop_start >= SESSION_FIRST_SECONDS;
}

bool session_save_is_due(struct session *session, int64_t done)
{
    struct session *s = session;
    bool due;

    if (s->rank != 0 || !session_adapts_saves(s) || s->saving.checkpoint || s->save_asked)
        return false;
    if (s->n_hosts == 0)
        s->n_hosts = count_hosts(s);
    due = s->saved.step > 0 ? trace_clock() - s->saved.start >= interval(s)
                            : first_is_due(s, done);
    if (due && s->saved.step > 0)
        log_debug("checkpoint: the last one took %.3g s of training: the next one after %.3g s",
                  s->saved.paused, trace_clock() - s->saved.start);
    s->save_asked = due;
    return due;
}

int session_end_save(struct session *session, struct err *err)
{
    while (session->saving.checkpoint)
        if (session_advance_save(session, err) < 0)
            return -1;
    return 0;
}

void session_drop_save(struct session *session)
{
    forget(&session->saving);
}

void session_note_save(struct session *session, double entries[BOARD_COUNT])
{
    struct checkpoint_saving *checkpoint = session->saving.checkpoint;
    enum checkpoint_stage stage = checkpoint ? checkpoint_stage(checkpoint) : CHECKPOINT_DONE;
    bool failed = false, done = checkpoint && !checkpoint_busy(checkpoint, &failed);

    entries[BOARD_WRITTEN] = done && stage == CHECKPOINT_SHARDS;
    entries[BOARD_NAMED] = done && stage == CHECKPOINT_STATE;
    entries[BOARD_UNWRITTEN] = failed;
}

void session_follow_save(struct session *session, const double sums[BOARD_COUNT])
{
    struct saving *v = &session->saving;
    enum board_entry entry;

    if (!v->checkpoint)
        return;
    entry = checkpoint_stage(v->checkpoint) == CHECKPOINT_SHARDS ? BOARD_WRITTEN : BOARD_NAMED;
    v->ready = v->ready || sums[entry] >= session->size || sums[BOARD_UNWRITTEN] > 0;
}

/* Rank 0 need not have a part in the steps. Collective. */
static int share_scale(struct session *s, struct loss_scale *scale, struct err *err)
{
    int rank = placement_rank(&s->placement, 0, 0, 0);
    void *data = scale;
    size_t size = sizeof(*scale);

    *scale = s->runner ? runner_loss_scale(s->runner) : s->settings.scale;
    if (s->settings.scale.factor <= 0)
        return 0;
    if (s->rank != rank)
        data = NULL;
    if (comm_broadcast(s->comm, rank, &data, &size, err) < 0)
        return -1;
    if (s->rank != rank) {
        memcpy(scale, data, sizeof(*scale));
        free(data);
    }
    return 0;
}

int session_save(struct session *session, const char *directory, int keep,
                 int64_t steps_done, struct err *err)
{
    struct session *s = session;
    const struct train_settings *t = &s->settings;
    struct checkpoint_state state = {
        .step = steps_done, .data_samples = data_samples(s->train.data),
        .global_batch = t->global_batch, .batchnorm_samples = t->batchnorm_samples,
        .seed = t->seed, .shuffle = t->shuffle, .optimizer = t->optimizer,
        .recipe = t->recipe, .best = s->best,
        .precision = planning_precision(s->backend, t->float64), .loss = t->loss,
        .model_path = s->model_path, .model_hash = model_hash(s->model),
        .plan = s->plan_json,
    };
    struct checkpoint_options options = {
        .directory = directory, .keep = keep, .state = &state, .n_stores = s->n_chunks,
        .stores = s->stores, .placement = &s->placement, .delay = t->write_delay,
    };
    struct saving *v = &s->saving;
    double start = trace_clock();

    s->save_asked = false;
    comm_at(s->comm, "checkpoint", s->placement.stage, steps_done, -1);
    if (session_end_save(s, err) < 0 || (s->runner && runner_drain(s->runner, err) < 0) ||
        share_scale(s, &state.scale, err) < 0)
        return -1;
    if (session_agree(s, s->lock && checkpoint_lock_check(s->lock, err) < 0, err))
        return -1;
    v->checkpoint = checkpoint_begin(&options, s->comm, err);
    if (session_agreed(s, v->checkpoint ? 0 : -1, err))
        return -1;
    v->step = steps_done;
    v->directory = mem_strdup(directory);
    v->start = start;
    v->paused = trace_clock() - start;
    return 0;
}
