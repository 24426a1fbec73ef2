/* SPDX-License-Identifier: MIT */
/* The stages of the plan that this rank runs: compiled, loaded and connected. */
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/buckets.h"
#include "train/initial.h"
#include "train/optimizer.h"
#include "train/session.h"
#include "train/weights.h"

static int check_memory(const struct session *s, struct err *err)
{
    double need = 0;

    for (int c = 0; c < s->n_chunks; c++)
        need += (double)s->compiled[c]->memory.total;
    if (s->settings.memory <= 0 || need <= s->settings.memory)
        return 0;
    return err_set(err, "stage %d (block \"%s\" and on) needs %.0f bytes, %.0f bytes more than "
                   "--memory", s->placement.stage,
                   s->plan->stages[s->placement.stage].blocks[0].name, need,
                   need - s->settings.memory);
}

static int make_stages(struct session *s, struct err *err)
{
    struct compile_options options = {
        .model = s->model, .model_options = s->model_options, .plan = s->plan,
        .backend = s->backend, .device = s->device,
        .optimizer_states = optimizer_resident(s->settings.optimizer.kind,
                                               s->settings.recipe.ema > 0, s->plan->offload),
    };

    for (int stage = 0; s->placement.stage >= 0 && stage < s->plan->n_stages; stage++) {
        struct compiled *compiled;

        if (plan_list(s->plan, stage) != s->placement.list)
            continue;
        compiled = compile_stage(&options, stage, s->placement.replica, err);
        if (!compiled)
            return -1;
        *(struct compiled **)mem_push((void **)&s->compiled, &s->n_chunks,
                                      sizeof(struct compiled *)) = compiled;
    }
    return check_memory(s, err);
}

static int bind_chunks(struct session *s, struct source *source, struct err *err)
{
    source->tensors = mem_new((size_t)s->n_chunks, sizeof(*source->tensors));
    for (int c = 0; c < s->n_chunks; c++)
        if (executor_bind(runner_executor(s->runner, c), source->data, &source->tensors[c],
                          err) < 0)
            return -1;
    return 0;
}

static int prepare(struct session *s, struct err *err)
{
    for (int c = 0; c < s->n_chunks; c++)
        if (executor_prepare(runner_executor(s->runner, c), err) < 0)
            return -1;
    return 0;
}

int session_load(struct session *session, const struct checkpoint *checkpoint, int failed,
                 struct err *err)
{
    struct session *s = session;

    if (session_agreed(s, checkpoint_load(checkpoint, s->n_chunks, s->stores, s->comm, failed,
                                          err), err))
        return -1;
    return session_agree(s, prepare(s, err) < 0, err);
}

static int settle(struct session *s, struct err *err)
{
    for (int c = 0; c < s->n_chunks; c++)
        if (store_settle(s->stores[c], !s->resumed, err) < 0)
            return -1;
    return s->resumed ? 0 : prepare(s, err);
}

/* What making the stages left out: what other ranks have read. */
static int load_shared(struct session *s, struct err *err)
{
    if (s->size > 1 &&
        session_agreed(s, weights_forward(s->initial, s->n_chunks, s->stores, s->resumed != NULL,
                                          s->comm, 0, err), err))
        return -1;
    if (session_agree(s, settle(s, err) < 0, err))
        return -1;
    return s->resumed ? session_load(s, s->resumed, 0, err) : 0;
}

/* Ranks without a stage have a part in connecting the others, too. */
static int make_nccl(struct session *s, struct err *err)
{
    if (s->settings.nccl == NCCL_NOWHERE || s->size == 1)
        return 0;
    s->nccl = nccl_new(s->comm, s->backend, s->device, s->settings.nccl, err);
    return s->nccl ? 0 : -1;
}

static int make_runner(struct session *s, struct err *err)
{
    struct runner_options options = {
        .executor = {
            .plan = s->plan, .placement = &s->placement, .device = s->device, .comm = s->comm,
            .nccl = s->nccl,
            .optimizer = s->settings.optimizer, .ema = s->settings.recipe.ema,
            .seed = s->settings.seed, .initial = s->initial,
            .deterministic = s->settings.deterministic, .recorded = s->settings.cuda_graphs,
        },
        .n_chunks = s->n_chunks, .compiled = s->compiled, .clip = s->settings.recipe.clip,
        .guard = s->settings.guard, .scale = s->settings.scale,
        .delay_seed = s->settings.delay_seed, .delay_max = s->settings.delay_max,
    };

    if (s->placement.stage < 0)
        return 0;
    if (s->settings.trace) {
        trace_init(&s->trace, s->backend->event_new_timed ? 1 << 17 : 1 << 16);
        options.executor.trace = &s->trace;
    }
    s->runner = runner_new(&options, err);
    if (!s->runner)
        return -1;
    s->stores = mem_new((size_t)s->n_chunks, sizeof(struct store *));
    for (int c = 0; c < s->n_chunks; c++)
        s->stores[c] = executor_store(runner_executor(s->runner, c));
    return bind_chunks(s, &s->train, err) < 0 ||
                   (s->test.data && bind_chunks(s, &s->test, err) < 0) ? -1 : 0;
}

/* Replicas of a stage were compiled for shares of different sizes: do they sum alike? */
static int check_buckets(struct session *s, struct err *err)
{
    int bad = buckets_check(s->comm, s->n_chunks, s->compiled, &s->placement, err);

    if (bad)
        err_prefix(err, "%s", s->model_path);
    return session_agreed(s, bad, err);
}

int session_start(struct session *session, struct err *err)
{
    struct session *s = session;

    if (session_agree(s, make_stages(s, err) < 0, err) || check_buckets(s, err) ||
        session_agree(s, make_nccl(s, err) < 0 || make_runner(s, err) < 0, err) ||
        load_shared(s, err) < 0 ||
        (s->runner && runner_connect(s->runner, err) < 0))
        return -1;
    if (s->nccl && s->settings.trace &&
        session_agree(s, s->runner && nccl_trace(s->nccl, &s->trace, err) < 0, err))
        return -1;
    return s->nccl ? nccl_connect(s->nccl, err) : 0;
}

static void unbind(struct source *source, int n_chunks)
{
    for (int c = 0; source->tensors && c < n_chunks; c++)
        free(source->tensors[c]);
    free(source->tensors);
    source->tensors = NULL;
}

void session_stop(struct session *session)
{
    struct session *s = session;

    session_prefetch_free(s, s->prefetch);
    s->prefetch = NULL;
    nccl_free(s->nccl);
    s->nccl = NULL;
    runner_free(s->runner);
    s->runner = NULL;
    unbind(&s->train, s->n_chunks);
    unbind(&s->test, s->n_chunks);
    for (int c = 0; c < s->n_chunks; c++)
        compiled_free(s->compiled[c]);
    free(s->compiled);
    s->compiled = NULL;
    s->n_chunks = 0;
    free(s->stores);
    s->stores = NULL;
}
