/* SPDX-License-Identifier: MIT */
#include "train/planning.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/partition.h"
#include "train/optimizer.h"
#include "train/profile.h"
#include "train/session.h"

#define MAX_SIZES 4

/* What one replica may get of a micro-batch: sizes to measure, multiples of 'group'. */
static int choose_sizes(const struct session *s, int64_t sizes[MAX_SIZES])
{
    const struct train_settings *t = &s->settings;
    int64_t group = t->batchnorm_samples ? t->batchnorm_samples : 1;
    int64_t most = t->micro_batch     ? t->micro_batch
                   : t->micro_batches ? t->global_batch / t->micro_batches
                                      : t->global_batch;
    int n = 0;

    for (int64_t size = group; n < MAX_SIZES && size <= most; size *= 4)
        sizes[n++] = size;
    if (n == 0)
        sizes[n++] = group;
    return n;
}

/* Measured on a device of its own, so that the run's peak of memory stays the run's. */
static struct cost *measure_cost(struct session *s, struct err *err)
{
    const struct train_settings *t = &s->settings;
    int64_t sizes[MAX_SIZES];
    struct profile_options options = {
        .model = s->model, .model_options = s->model_options, .backend = s->backend,
        .optimizer = t->optimizer, .sizes = sizes,
    };
    struct cost *cost = NULL;

    options.n_sizes = choose_sizes(s, sizes);
    options.model_options.batchnorm_samples = t->batchnorm_samples;
    options.optimizer.dtype = s->model_options.real;
    options.device = s->backend->device_open(t->threads, err);
    if (!options.device)
        return NULL;
    options.timings = timings_open(s->backend, options.device, t->cache_directory);
    cost = profile_cost(&options, err);
    timings_close(options.timings);
    s->backend->device_close(options.device);
    return cost;
}

/* The largest replica of a stage, as the runtime will compile it. */
static int memory_of(void *user, const struct plan *plan, int stage, double *bytes,
                     struct err *err)
{
    struct session *s = user;
    struct compile_options options = {
        .model = s->model, .model_options = s->model_options, .plan = plan,
        .backend = s->backend, .device = s->device,
        .optimizer_states = optimizer_states(s->settings.optimizer.kind),
    };
    const struct plan_stage *of = &plan->stages[stage];
    struct compiled *compiled;
    int largest = 0;

    for (int r = 1; r < of->replicas; r++)
        if (of->samples[r] > of->samples[largest])
            largest = r;
    compiled = compile_stage(&options, stage, largest, err);
    if (!compiled)
        return -1;
    *bytes = (double)compiled->memory.total;
    compiled_free(compiled);
    return 0;
}

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = mem_strdup(value);
}

static void complete_plan(struct plan *plan, const struct session *s)
{
    set_text(&plan->model_path, s->model_path);
    set_text(&plan->model_hash, model_hash(s->model));
    set_text(&plan->cluster, s->cluster->name);
    set_text(&plan->precision, s->settings.float64 ? "float64" : "float32");
    set_text(&plan->optimizer, optimizer_name(s->settings.optimizer.kind));
    set_text(&plan->command, s->settings.command);
    plan->batchnorm_samples = s->settings.batchnorm_samples;
}

static struct cost *get_cost(struct session *s, struct err *err)
{
    if (s->settings.n_costs > 0)
        return cost_load(s->settings.costs[0], err);
    return measure_cost(s, err);
}

struct plan *planning_make(struct session *session, struct err *err)
{
    struct session *s = session;
    const struct train_settings *t = &s->settings;
    struct plan_request request = {
        .global_batch = t->global_batch, .stages = t->stages, .n_replicas = t->n_replicas,
        .replicas = t->replicas, .micro_batches = t->micro_batches,
        .micro_batch = t->micro_batch, .schedule = t->schedule, .memory = t->memory,
        .batchnorm_samples = t->batchnorm_samples,
        .optimizer = optimizer_name(t->optimizer.kind), .memory_of = memory_of, .user = s,
    };
    struct cost *cost = get_cost(s, err);
    struct plan *plan;
    char *why = NULL;

    if (!cost)
        return NULL;
    plan = partition(cost, s->cluster, &request, &why, err);
    if (plan) {
        complete_plan(plan, s);
        log_debug("%s", why ? why : "");
    }
    free(why);
    cost_free(cost);
    return plan;
}
