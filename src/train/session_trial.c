/* SPDX-License-Identifier: MIT */
/* --trial: the best plans are run for some steps, in turn, before the first one; the fastest is
 * taken, where it is shown to be faster than the planner's first (trials.h), and what its stages
 * computed is kept for the next plan. What they compute goes: each has its own copy of all that it
 * changes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/order.h"
#include "topology/fit.h"
#include "train/session.h"

#define STEPS 4     /* of a plan in a round, the first of which warms caches and connections */
#define ENOUGH 10.0 /* seconds of steps, after which what is not shown is left open */

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
    const struct plan_stage *stages = s->plan->stages;
    struct verdict *all = mem_new((size_t)s->size, sizeof(*all));
    int bad = comm_collect(s->comm, verdict, sizeof(*verdict), all, err);

    for (int r = 0; r < s->size && !bad; r++) {
        verdict->seconds = fmax(verdict->seconds, all[r].seconds);
        verdict->stop |= all[r].stop;
        if (all[r].list >= 0)
            computed[all[r].list] += all[r].compute / s->plan->pipelines /
                                     stages[plan_list_first(s->plan, all[r].list)].replicas;
    }
    free(all);
    return bad;
}

static int open_trial(struct session *s, struct err *err)
{
    s->device = s->backend->device_open(s->settings.threads, s->gpu[0] ? s->gpu : NULL, err);
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
    int index, rounds;
    double seconds[TRIALS_MOST];    /* of a step */
    double *computed;               /* [plan_lists()][TRIALS_MOST]: in a step */
    struct trials_ratio ratio;      /* to the first plan's */
};

/* The plan is the session's for as long as it is measured. */
static void lend(struct session *s, const struct trial *trial)
{
    s->plan = trial->plan;
    s->plan_json = trial->json;
}

static void take_back(struct session *s)
{
    s->plan = NULL;
    s->plan_json = NULL;
}

static void trials_free(struct trial *trials, int n)
{
    for (int i = 0; i < n; i++) {
        plan_free(trials[i].plan);
        json_decref(trials[i].json);
        free(trials[i].computed);
    }
    free(trials);
}

/* The session's plan and its others, which it has no longer. NULL on an error. */
static struct trial *take_plans(struct session *s, int n, struct err *err)
{
    struct trial *trials = mem_new((size_t)n, sizeof(*trials));

    for (int i = 0; i < n; i++) {
        if (i > 0 && session_next_plan(s, i - 1, err) < 0) {
            if (err->text[0])
                err_prefix(err, "--trial, plan %d of %d", i + 1, n);
            trials_free(trials, n);
            return NULL;
        }
        trials[i].plan = s->plan;
        trials[i].json = s->plan_json;
        trials[i].index = i;
        trials[i].ratio = trials_compare(0, NULL, NULL);
        trials[i].computed = mem_new((size_t)plan_lists(s->plan) * TRIALS_MOST,
                                     sizeof(*trials[i].computed));
        take_back(s);
    }
    return trials;
}

static int try_plan(struct session *s, struct trial *trial, struct verdict *verdict,
                    struct err *err)
{
    int lists = plan_lists(trial->plan);
    double *computed = mem_new((size_t)lists, sizeof(*computed));
    int bad;

    lend(s, trial);
    bad = measure(s, verdict, computed, err) < 0;
    take_back(s);
    for (int l = 0; l < lists; l++)
        trial->computed[l * TRIALS_MOST + trial->rounds] = computed[l];
    trial->seconds[trial->rounds++] = verdict->seconds;
    free(computed);
    return bad ? -1 : 0;
}

/* Has each but the first been shown to be faster or slower than it? */
static bool decided(const struct trial *trials, int n)
{
    int shown = 1;

    for (int i = 1; i < n; i++)
        shown += trials_shown(&trials[i].ratio) != 0;
    return shown == n;
}

/* Up to the one that a signal came in: the run is to end with its first step. What is shown to be
 * slower is out. All ranks go by the same verdicts.
 */
static int try_all(struct session *s, struct trial *trials, int n, struct err *err)
{
    bool stop = false;
    double spent = 0;

    for (int round = 0; round < TRIALS_MOST && (round < TRIALS_LEAST || spent < ENOUGH) &&
                        !decided(trials, n) && !stop; round++)
        for (int i = 0; i < n && !stop; i++) {
            struct verdict verdict = { 0 };

            if (trials_shown(&trials[i].ratio) > 0)
                continue;
            if (try_plan(s, &trials[i], &verdict, err) < 0) {
                if (err->text[0])
                    err_prefix(err, "--trial, plan %d of %d", i + 1, n);
                return -1;
            }
            trials[i].ratio = trials_compare(trials[i].rounds, trials[i].seconds,
                                             trials[0].seconds);
            spent += STEPS * verdict.seconds;
            stop = verdict.stop;
        }
    return 0;
}

static double median(const double *values, int n)
{
    double sorted[TRIALS_MOST];

    memcpy(sorted, values, (size_t)n * sizeof(*values));
    return fit_quantile(sorted, n, 0.5);
}

static int by_preference(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;
    int order = trials_order(&x->ratio, &y->ratio);

    return order ? order : x->index - y->index;
}

static void tell(struct session *s, const struct trial *trial)
{
    const struct plan *plan = trial->plan;
    double seconds = median(trial->seconds, trial->rounds);
    const struct trials_ratio *ratio = &trial->ratio;
    json_t *replicas = json_array();
    char *words;

    lend(s, trial);
    words = session_describe(s);
    take_back(s);

    for (int i = 0; i < plan->n_stages; i++)
        json_array_append_new(replicas, json_integer(plan->stages[i].replicas));
    log_info("trial %d: %s: predicted %.3f ms, measured %.3f ms, %.3f (%.3f to %.3f) times the "
             "first's", trial->index + 1, words, 1e3 * plan->iteration_seconds, 1e3 * seconds,
             ratio->median, ratio->low, ratio->high);
    session_log(s, json_pack("{s:s, s:i, s:i, s:o, s:I, s:s, s:f, s:f, s:i, s:f, s:f, s:o}",
                             "event", "trial",
                             "trial", trial->index + 1, "pipelines", plan->pipelines, "replicas",
                             replicas, "micro_batches", (json_int_t)plan->micro_batches,
                             "schedule", plan->schedule, "predicted_seconds",
                             plan->iteration_seconds, "measured_seconds", seconds, "rounds",
                             trial->rounds, "ratio", ratio->median, "ratio_low", ratio->low,
                             "ratio_high", session_number(ratio->high)));
    free(words);
}

/* Costs that were given are whoever's who wrote them. */
static void write_back(const struct session *s, const struct trial *trials, int n)
{
    struct planning planning = session_planning(s);
    struct trials_key key = planning_trials(&planning);
    int lists = plan_lists(trials[0].plan);
    double *computed = mem_new((size_t)lists, sizeof(*computed));
    double *steps = mem_new((size_t)n, sizeof(*steps));
    const struct plan **plans = mem_new((size_t)n, sizeof(const struct plan *));

    for (int i = 0; i < n; i++) {
        plans[i] = trials[i].plan;
        steps[i] = median(trials[i].seconds, trials[i].rounds);
    }
    for (int l = 0; l < lists; l++)
        computed[l] = median(trials[0].computed + l * TRIALS_MOST, trials[0].rounds);
    if (s->settings.n_costs == 0 && trials_record(&key, n, plans, steps, computed))
        log_info("what it took is kept for the next plan");
    free(plans);
    free(steps);
    free(computed);
}

/* Rank 0's, the one that is taken first; 'complete': all were run. */
static void report(struct session *s, const struct trial *trials, int n, bool complete)
{
    log_info("trial %d of %d is taken: %s", trials[0].index + 1, n,
             trials[0].index ? "it was the fastest" : "no other was shown to be faster");
    if (complete)
        write_back(s, trials, n);
}

/* Where a plan cannot be run, the run fails: what does not fit was left out before. */
int session_trial(struct session *session, struct err *err)
{
    struct session *s = session;
    struct trial *trials;
    bool complete;
    int n, bad;

    if (count_others(s, &n, err) < 0)
        return -1;
    if (n == 0) {
        if (s->rank == 0)
            log_info("--trial: there is no other plan to try");
        return 0;
    }
    trials = take_plans(s, ++n, err);
    if (!trials)
        return -1;
    bad = try_all(s, trials, n, err);
    for (int i = 0; i < n && !bad && s->rank == 0; i++)
        if (trials[i].rounds)
            tell(s, &trials[i]);
    complete = trials[n - 1].rounds > 0;    /* a signal may have left it without a step */
    qsort(trials, (size_t)n, sizeof(*trials), by_preference);
    if (!bad && s->rank == 0)
        report(s, trials, n, complete);
    lend(s, &trials[0]);
    trials[0].plan = NULL;
    trials[0].json = NULL;
    trials_free(trials, n);
    return bad;
}
