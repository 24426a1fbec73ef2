/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "scheduler/schedule.h"
#include "train/discover.h"
#include "train/optimizer.h"
#include "train/session.h"

struct plan_request session_request(const struct session *session)
{
    const struct train_settings *t = &session->settings;

    return (struct plan_request){
        .global_batch = t->global_batch, .pipelines = t->pipelines, .stages = t->stages,
        .n_pins = t->n_pins, .pins = t->pins, .n_replicas = t->n_replicas,
        .replicas = t->replicas, .micro_batches = t->micro_batches,
        .micro_batch = t->micro_batch, .schedule = t->schedule, .list = t->list,
        .chunks = t->chunks, .schedule_memory = t->schedule_memory, .zero = t->zero,
        .offload = t->offload, .recompute = t->recompute, .memory = t->memory,
        .batchnorm_samples = t->batchnorm_samples,
    };
}

struct planning session_planning(const struct session *s)
{
    const struct train_settings *t = &s->settings;

    return (struct planning){
        .model = s->model, .model_path = s->model_path, .model_options = s->model_options,
        .backend = s->backend, .device = s->device, .gpu = s->gpu[0] ? s->gpu : NULL,
        .threads = t->threads,
        .cache_directory = t->cache_directory, .optimizer = t->optimizer,
        .averaged = t->recipe.ema > 0,
        .cluster = s->cluster, .request = session_request(s), .command = t->command,
    };
}

/* The planner at work for this run. */
static struct plan *make_plan(struct session *s, struct err *err)
{
    const struct train_settings *t = &s->settings;
    struct planning planning = session_planning(s);
    struct plan *plan;
    char *why = NULL;

    if (t->n_costs > 0) {
        planning.cost = planning_choose(s->cluster, t->n_costs, t->costs, err);
        if (!planning.cost)
            return NULL;
    }
    planning_warn(s->cluster, planning.cost);
    planning_warn_precision(planning_precision(s->backend, t->float64), planning.cost);
    if (t->trace)
        planning.kept = &s->cost;
    if (t->trial) {
        s->others = mem_new((size_t)t->trial - 1, sizeof(*s->others));
        planning.request.n_others = t->trial - 1;
        planning.request.others = s->others;
    }
    plan = planning_run(&planning, &why, err);
    if (plan && why)
        log_debug("%s", why);
    free(why);
    if (s->cost != planning.cost)
        cost_free(planning.cost);
    return plan;
}

/* A cluster that was described: its devices are the ranks in order. */
static int open_cluster(struct session *s, struct err *err)
{
    s->cluster = cluster_open(s->settings.cluster, err);
    if (s->cluster && s->cluster->n_devices > s->size)
        err_set(err, "--cluster %s has %d devices, this run has %d rank%s",
                s->settings.cluster, s->cluster->n_devices, s->size, s->size == 1 ? "" : "s");
    if (session_agree(s, !s->cluster || s->cluster->n_devices > s->size, err))
        return -1;
    for (int d = 0; d < s->cluster->n_devices; d++)
        s->cluster->devices[d].rank = d;
    return 0;
}

static bool fits(const struct session *s, const struct plan *plan, struct err *err)
{
    struct placement placement;

    if (placement_make(&placement, plan, s->cluster, s->rank, s->size, err) < 0)
        return false;
    placement_clear(&placement);
    return true;
}

static bool honours_pins(const struct session *s, const struct plan *plan)
{
    const struct train_settings *t = &s->settings;

    /* Which nodes a plan has in a stage only the planner can tell. */
    if (t->n_pins || (t->pipelines && t->pipelines != plan->pipelines) ||
        (t->stages && t->stages != plan->n_stages) ||
        (t->n_replicas && t->n_replicas != plan->n_stages) ||
        (t->micro_batches && t->micro_batches != plan->micro_batches) ||
        (t->micro_batch && t->micro_batch != plan->micro_batch) ||
        (t->schedule && (plan->list || strcmp(t->schedule, plan->schedule) != 0)) ||
        (t->list && (!plan->list || !schedule_same(t->list, plan->list))) ||
        (t->zero && (t->zero == PLAN_ZERO) != plan->zero) ||
        (t->offload_given && t->offload != plan->offload) ||
        (t->chunks && t->chunks != plan->chunks) ||
        (t->schedule_memory > 0 && fabs(t->schedule_memory - plan->schedule_memory) > 1e-6))
        return false;
    for (int i = 0; i < plan->n_stages; i++)
        if (t->recompute &&
            strcmp(t->recompute, plan_recompute_name(plan->stages[i].recompute)) != 0)
            return false;
    for (int i = 0; i < t->n_replicas; i++)
        if (t->replicas[i] !=
            plan->stages[i].replicas * (t->pipelines ? 1 : plan->pipelines))
            return false;
    return true;
}

static int check_given(const struct session *s, struct err *err)
{
    const struct train_settings *t = &s->settings;
    const struct plan *plan = s->given;

    if (plan->global_batch != t->global_batch)
        return err_set(err, "%s: made for --global-batch %lld, not %lld", t->input,
                       (long long)plan->global_batch, (long long)t->global_batch);
    if (plan->batchnorm_samples != t->batchnorm_samples)
        return err_set(err, "%s: made for --batchnorm-samples %lld, not %lld", t->input,
                       (long long)plan->batchnorm_samples, (long long)t->batchnorm_samples);
    if (plan->optimizer[0] && strcmp(plan->optimizer, optimizer_name(t->optimizer.kind)) != 0)
        return err_set(err, "%s: made for --optimizer %s, not %s: plan again", t->input,
                       plan->optimizer, optimizer_name(t->optimizer.kind));
    if (!model_freezes_alike(s->model, plan->n_freeze, (const char *const *)plan->freeze,
                             s->model_options.n_freeze, s->model_options.freeze))
        return err_set(err, "%s: made for other --freeze patterns: plan again", t->input);
    if (!honours_pins(s, plan))
        return err_set_code(err, EXIT_USAGE, "%s: a plan with other stages, replicas, "
                            "micro-batches, another schedule, --zero, --offload or --recompute "
                            "than the options say: leave them out, or plan again", t->input);
    return 0;
}

static int ranks_of(const struct plan *plan)
{
    int ranks = 0;

    for (int i = 0; i < plan->n_stages; i++)
        if (plan_first(plan, i))
            ranks += plan->stages[i].replicas * plan->pipelines;
    return ranks;
}

/* The plan that the checkpoint was made under, where this run is like that one; else NULL. */
static struct plan *plan_of_checkpoint(struct session *s)
{
    struct plan *plan = s->resumed_plan;
    struct err ignored = { 0 };

    if (!plan || s->settings.memory > 0 || ranks_of(plan) != s->size ||
        !honours_pins(s, plan) || !fits(s, plan, &ignored) ||
        (plan->offload && !s->backend->separate))
        return NULL;
    s->resumed_plan = NULL;
    return plan;
}

/* A run that was asynchronous stays so under a new plan: what it learns depends on it. State stays
 * where it was, if on GPUs.
 */
static struct plan *plan_anew(struct session *s, const struct plan *before, struct err *err)
{
    struct train_settings *t = &s->settings;

    if (before && plan_versions(before) > 1 && !t->schedule && !t->list)
        t->schedule = schedule_name(SCHEDULE_2BW);
    if (before && !t->offload_given)
        t->offload = before->offload && s->backend->separate;
    return make_plan(s, err);
}

/* Rank 0: the plan that was given where it fits this allocation, else a new one. */
static struct plan *choose_plan(struct session *s, struct err *err)
{
    struct err why = { 0 };
    struct plan *old = s->given ? NULL : plan_of_checkpoint(s);

    if (old)
        return old;
    if (!s->given)
        return plan_anew(s, s->resumed_plan, err);
    if (check_given(s, err) < 0)
        return NULL;
    if (fits(s, s->given, &why)) {
        struct plan *plan = s->given;

        s->given = NULL;
        return plan;
    }
    if (s->settings.keep_plan) {
        err_set(err, "%s: %s; it is a plan for %d ranks", s->settings.input, why.text,
                ranks_of(s->given));
        return NULL;
    }
    log_info("%s: %s; planning anew (--keep-plan refuses that)", s->settings.input, why.text);
    return plan_anew(s, s->given, err);
}

/* Rank 0's. */
static int share_plan(struct session *s, struct err *err)
{
    void *text = NULL;
    size_t size = 0;
    int bad;

    if (s->rank == 0) {
        json_t *json = plan_to_json(s->plan);

        text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
        size = strlen(text);
        json_decref(json);
    }
    bad = comm_broadcast(s->comm, 0, &text, &size, err);
    if (!bad) {
        s->plan_json = json_loadb(text, size, 0, NULL);
        if (s->plan_json && !s->plan)
            s->plan = plan_from_json("plan", s->plan_json, err);
        bad = session_agree(s, !s->plan_json || !s->plan, err);
    }
    free(text);
    return bad;
}

int session_next_plan(struct session *session, int index, struct err *err)
{
    struct session *s = session;

    plan_free(s->plan);
    json_decref(s->plan_json);
    s->plan = NULL;
    s->plan_json = NULL;
    if (s->rank == 0) {
        s->plan = s->others[index];
        s->others[index] = NULL;
    }
    return share_plan(s, err);
}

char *session_describe(const struct session *session)
{
    const struct plan *plan = session->plan;
    int ranks = ranks_of(plan);
    char side_by_side[64] = "";

    if (plan->pipelines > 1)
        snprintf(side_by_side, sizeof(side_by_side), "%d pipelines of ", plan->pipelines);
    return mem_printf("%s%d stage%s, %d rank%s of %d, %lld micro-batch%s of %lld, %s%s%s",
                      side_by_side, plan->n_stages, plan->n_stages == 1 ? "" : "s", ranks,
                      ranks == 1 ? "" : "s", session->size, (long long)plan->micro_batches,
                      plan->micro_batches == 1 ? "" : "es", (long long)plan->micro_batch,
                      plan->schedule, plan->zero ? ", ZeRO-1" : "",
                      plan->offload ? ", offload" : "");
}

/* A task of an array has a number of its own, too. */
static json_t *name_job(json_t *line, const struct job_names *job)
{
    if (job->job)
        json_object_set_new(line, "job", json_string(job->job));
    if (job->job && job->cluster)
        json_object_set_new(line, "cluster", json_string(job->cluster));
    if (job->array_task && job->array_job)
        json_object_set_new(line, "array_task",
                            json_pack("s++", job->array_job, "_", job->array_task));
    return line;
}

/* The device that each rank drives, as the cluster calls it. */
static json_t *driven(const struct session *s)
{
    json_t *devices = json_array();

    for (int r = 0; r < s->size; r++)
        json_array_append_new(devices, json_string(""));
    for (int d = 0; d < s->cluster->n_devices; d++) {
        const struct cluster_device *device = &s->cluster->devices[d];

        if (device->rank >= 0 && device->rank < s->size)
            json_array_set_new(devices, (size_t)device->rank, json_string(device->id));
    }
    return devices;
}

static void tell_plan(struct session *s)
{
    const struct plan *plan = s->plan;
    json_t *stages = json_array(), *optimizer = optimizer_to_json(&s->settings.optimizer);
    json_t *hosts = json_array(), *line;
    char *words = session_describe(s);

    for (int i = 0; i < plan->n_stages; i++)
        json_array_append_new(stages, json_integer(plan->stages[i].replicas));
    for (int i = 0; i < s->size; i++)
        json_array_append_new(hosts, json_string(comm_host(s->comm, i)));
    log_info("plan: %s, predicted %.3f ms per iteration", words, 1e3 * plan->iteration_seconds);
    free(words);
    if (plan_versions(plan) > 1)
        log_info("schedule %s is " SCHEDULE_STALE, plan->schedule);
    if (s->placement.n_ranks < s->size)
        log_info("%d rank%s of %d %s no work in this plan", s->size - s->placement.n_ranks,
                 s->size - s->placement.n_ranks == 1 ? "" : "s", s->size,
                 s->size - s->placement.n_ranks == 1 ? "has" : "have");
    if (s->resumed)
        log_info("resuming from %s", checkpoint_path(s->resumed));
    line = json_pack("{s:s, s:I, s:I, s:s, s:i, s:o, s:s, s:s, s:s, s:s, s:o, s:o, s:O, s:s, s:i,"
                     " s:I, s:o, s:o}",
                     "event", "start", "first_step", (json_int_t)s->first_step + 1, "steps",
                     (json_int_t)s->total_steps, "model", s->model_path, "ranks", s->size,
                     "replicas", stages, "loss", s->loss_text, "backend", s->backend->name,
                     "device", s->backend->device_name(s->device), "library",
                     comm_library(s->comm), "optimizer", optimizer, "recipe",
                     recipe_to_json(&s->settings.recipe), "plan", s->plan_json, "schema",
                     JOURNAL_SCHEMA, "version", JOURNAL_VERSION, "time", (json_int_t)time(NULL),
                     "hosts", hosts, "drives", driven(s));
    session_log(s, name_job(line, &s->settings.job));
}

int session_cluster(struct session *session, struct err *err)
{
    if (session->settings.cluster)
        return open_cluster(session, err);
    session->cluster = discover_cluster(session->comm, session->node, session->settings.measure,
                                        NULL, err);
    return session_agreed(session, session->cluster ? 0 : -1, err);
}

int session_cores(const struct session *session)
{
    for (int d = 0; d < session->cluster->n_devices; d++)
        if (session->cluster->devices[d].rank == session->rank)
            return session->cluster->devices[d].cores;
    return 0;
}

int session_place(struct session *session, struct err *err)
{
    struct session *s = session;
    int bad = placement_make(&s->placement, s->plan, s->cluster, s->rank, s->size, err);

    return session_agree(s, bad < 0, err);
}

int session_plan(struct session *session, struct err *err)
{
    struct session *s = session;

    if (s->rank == 0)
        s->plan = choose_plan(s, err);
    if (session_agree(s, s->rank == 0 && !s->plan, err) || share_plan(s, err) < 0)
        return -1;
    if (s->settings.trial && !s->settings.dry_run && s->first_step < s->total_steps &&
        session_trial(s, err) < 0)
        return -1;
    if (session_place(s, err) < 0)
        return -1;
    if (s->rank == 0)
        tell_plan(s);
    return 0;
}
