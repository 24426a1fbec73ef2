/* SPDX-License-Identifier: MIT */
/* --trial: the best plans are run for some steps before the first one; the fastest is taken, and
 * what its stages computed is kept for the next plan (trials.h). What they compute goes: each has
 * its own copy of all that it changes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/order.h"
#include "train/session.h"

#define STEPS 4     /* of each plan, the first of which warms caches and connections */

/* What a rank has to say of a plan: seconds of a step, and of computing in it. */
struct verdict {
    double seconds, compute;
    int list;           /* of the plan, which it runs; -1: none */
    bool stop;          /* a signal came */
};

/* Of computing the median: who is held up takes longer, and nobody less. */
static int run_steps(struct session *s, struct stepper *stepper, struct verdict *verdict,
                     struct err *err)
{
    bool flows = plan_versions(s->plan) > 1;
    double start = 0, compute[STEPS];
    struct batch_result result;

    for (int i = 0; i < STEPS; i++) {
        if (i == 1 && comm_fence(s->comm, err) < 0)
            return -1;
        if (i == 1)
            start = trace_clock();
        if (session_step(s, stepper, s->first_step + i, flows && i < STEPS - 1, &result,
                         err) < 0)
            return -1;
        compute[i] = result.compute;
    }
    verdict->seconds = (trace_clock() - start) / (STEPS - 1);
    qsort(compute + 1, STEPS - 1, sizeof(*compute), order_doubles);
    verdict->compute = compute[STEPS / 2];
    return s->runner ? runner_drain(s->runner, err) : 0;
}

/* Of the slowest rank, and of any; for each list what a replica computes. */
static int slowest(struct session *s, struct verdict *verdict, double *computed, struct err *err)
{
    const void **parts = mem_new((size_t)s->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)s->size, sizeof(*sizes));
    void *block = NULL;
    struct verdict mine = *verdict;
    int bad = comm_exchange(s->comm, &mine, sizeof(mine), &block, parts, sizes, err);

    for (int r = 0; r < s->size && !bad; r++) {
        const struct plan_stage *stages = s->plan->stages;
        struct verdict theirs;

        memcpy(&theirs, parts[r], sizeof(theirs));
        verdict->seconds = fmax(verdict->seconds, theirs.seconds);
        verdict->stop |= theirs.stop;
        if (theirs.list >= 0)
            computed[theirs.list] += theirs.compute / s->plan->pipelines /
                                     stages[plan_list_first(s->plan, theirs.list)].replicas;
    }
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

static int open_trial(struct session *s, struct err *err)
{
    s->device = s->backend->device_open(s->settings.threads, err);
    if (session_agree(s, !s->device, err) || session_place(s, err) < 0 ||
        session_start(s, err) < 0)
        return -1;
    return session_agree(s, session_prefetch(s, &s->train, &s->sampler, s->first_step,
                                             s->first_step + STEPS, &s->prefetch, err) < 0,
                         err);
}

/* On a device of its own, so that the run's peak of memory stays the run's. */
static int measure(struct session *s, struct verdict *verdict, double *computed,
                   struct err *err)
{
    struct device *device = s->device;
    const char *trace = s->settings.trace;
    struct stepper stepper;
    int bad;

    s->settings.trace = NULL;
    stepper_init(&stepper, s);
    bad = open_trial(s, err) < 0 || run_steps(s, &stepper, verdict, err) < 0;
    verdict->list = s->placement.stage < 0 ? -1 : s->placement.list;
    verdict->stop = session_stop_asked();
    bad = bad || slowest(s, verdict, computed, err) < 0;
    stepper_clear(&stepper);
    /* Not agreed upon: messages are under way, and the process is about to end. */
    if (bad && !s->agreed && s->size > 1)
        return -1;
    session_stop(s);
    placement_clear(&s->placement);
    s->placement = (struct placement){ .stage = -1 };
    if (s->device)
        s->backend->device_close(s->device);
    s->device = device;
    s->settings.trace = trace;
    return bad ? -1 : 0;
}

static void tell(struct session *s, int index, double seconds)
{
    const struct plan *plan = s->plan;
    json_t *replicas = json_array();
    char *words = session_describe(s);

    for (int i = 0; i < plan->n_stages; i++)
        json_array_append_new(replicas, json_integer(plan->stages[i].replicas));
    log_info("trial %d: %s: predicted %.3f ms, measured %.3f ms", index + 1, words,
             1e3 * plan->iteration_seconds, 1e3 * seconds);
    session_log(s, json_pack("{s:s, s:i, s:i, s:o, s:I, s:s, s:f, s:f}", "event", "trial",
                             "trial", index + 1, "pipelines", plan->pipelines, "replicas",
                             replicas, "micro_batches", (json_int_t)plan->micro_batches,
                             "schedule", plan->schedule, "predicted_seconds",
                             plan->iteration_seconds, "measured_seconds", seconds));
    free(words);
}

/* The planner's others, which rank 0 has: none where it was not asked. */
static int count_others(struct session *s, int *n, struct err *err)
{
    void *data = n;
    size_t size = sizeof(*n);

    *n = 0;
    while (s->others && *n < s->settings.trial - 1 && s->others[*n])
        (*n)++;
    if (s->rank != 0)
        data = NULL;
    if (comm_broadcast(s->comm, 0, &data, &size, err) < 0)
        return -1;
    if (s->rank != 0) {
        memcpy(n, data, sizeof(*n));
        free(data);
    }
    return 0;
}

struct trial {
    struct plan *plan;
    json_t *json;
    double seconds;
    double *computed;       /* [plan_lists()]: seconds of a step */
    int index;
};

/* The plan is the session's no longer. */
static void keep(struct session *s, struct trial *trial, double *computed)
{
    plan_free(trial->plan);
    json_decref(trial->json);
    free(trial->computed);
    trial->computed = computed;
    trial->plan = s->plan;
    trial->json = s->plan_json;
    s->plan = NULL;
    s->plan_json = NULL;
}

static int try_plan(struct session *s, int index, struct trial *best, bool *stop,
                    struct err *err)
{
    double *computed = mem_new((size_t)plan_lists(s->plan), sizeof(*computed));
    struct verdict verdict = { 0 };

    if (measure(s, &verdict, computed, err) < 0) {
        free(computed);
        return -1;
    }
    *stop = verdict.stop;
    if (s->rank == 0)
        tell(s, index, verdict.seconds);
    if (verdict.seconds >= best->seconds) {
        free(computed);
        return 0;
    }
    keep(s, best, computed);
    best->seconds = verdict.seconds;
    best->index = index;
    return 0;
}

/* Up to the one that a signal came in: the run is to end with its first step. */
static int try_all(struct session *s, int n, struct trial *best, struct err *err)
{
    bool stop = false;

    for (int i = 0; i < n && !stop; i++)
        if ((i > 0 && session_next_plan(s, i - 1, err) < 0) ||
            try_plan(s, i, best, &stop, err) < 0) {
            if (err->text[0])
                err_prefix(err, "--trial, plan %d of %d", i + 1, n);
            return -1;
        }
    return 0;
}

/* Costs that were given are whoever's who wrote them. */
static void write_back(const struct session *s, const struct trial *best)
{
    struct planning planning = session_planning(s);
    struct trials_key key = planning_trials(&planning);

    if (s->settings.n_costs == 0 && trials_record(&key, best->plan, best->computed))
        log_info("what it took is kept for the next plan");
}

/* Where a plan cannot be run, the run fails: what does not fit was left out before. */
int session_trial(struct session *session, struct err *err)
{
    struct session *s = session;
    struct trial best = { .seconds = INFINITY };
    int n, bad;

    if (count_others(s, &n, err) < 0)
        return -1;
    if (n == 0) {
        if (s->rank == 0)
            log_info("--trial: there is no other plan to try");
        return 0;
    }
    bad = try_all(s, n + 1, &best, err);
    plan_free(s->plan);
    json_decref(s->plan_json);
    s->plan = best.plan;
    s->plan_json = best.json;
    if (!bad && s->rank == 0) {
        log_info("trial %d of %d was the fastest", best.index + 1, n + 1);
        write_back(s, &best);
    }
    free(best.computed);
    return bad;
}
