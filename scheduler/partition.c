/* SPDX-License-Identifier: MIT */
#include "scheduler/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"
#include "scheduler/simulate.h"

#define MAX_TIGHTENINGS 8
#define MAX_MOVES 32
#define MAX_STAGES_MOVED 4
/* So many candidates are all simulated. */
#define SMALL 1000
/* Differences below this are noise of the arithmetic. */
#define SAME 1e-9

/* Are some devices closer to each other than others? */
static bool has_neighbours(const struct cluster *cluster)
{
    struct cluster_link first = cluster_link(cluster, 0, 1);

    for (int d = 2; d < cluster->n_devices; d++) {
        struct cluster_link link = cluster_link(cluster, d - 1, d);

        if (link.latency < first.latency || link.latency > first.latency ||
            link.bandwidth < first.bandwidth || link.bandwidth > first.bandwidth)
            return true;
    }
    return false;
}

static void add_splits(struct search *s)
{
    struct plan_request each = *s->request;
    int most = s->cluster->n_devices;

    if (each.n_replicas || (each.micro_batch && each.micro_batches) || most < 3 ||
        !has_neighbours(s->cluster))
        most = 1;
    for (int p = 1; p <= most; p++) {
        int64_t *sizes;
        int n;

        if (s->request->global_batch % p)
            continue;
        each.global_batch = s->request->global_batch / p;
        sizes = micro_sizes(&each, &n);
        for (int i = 0; i < n; i++)
            *(struct split *)mem_push((void **)&s->splits, &s->n_splits, sizeof(*s->splits)) =
                (struct split){ p, sizes[i], each.global_batch / sizes[i] };
        free(sizes);
    }
}

int search_devices(const struct search *search, int pipelines)
{
    return search->cluster->n_devices / pipelines;
}

struct search *search_new(const struct cost *cost, const struct cluster *cluster,
                          const struct plan_request *request)
{
    struct search *s = mem_new(1, sizeof(*s));
    int *threads = mem_new((size_t)cluster->n_places, sizeof(*threads));
    double slow = 1;

    s->cost = cost;
    s->cluster = cluster;
    s->request = request;
    s->table = table_new(cost, MAX_CUTS);
    s->state_bytes = stage_state_bytes(cost, request->optimizer);
    s->factor_fixed = s->factor_moving = 1;
    s->best = INFINITY;
    s->uniform = true;
    for (int d = 1; d < cluster->n_devices; d++)
        s->uniform &= search_limit(s, d) >= search_limit(s, 0) &&
                      search_limit(s, d) <= search_limit(s, 0);
    s->reduce = mem_new((size_t)cluster->n_devices + 1, sizeof(*s->reduce));
    add_splits(s);
    for (int d = 0; d < cluster->n_devices; d++)
        threads[cluster_core_place(cluster, d)] += cluster->devices[d].cores;
    for (int p = 0; p < cluster->n_places; p++)
        if (cluster->places[p].cores && threads[p] > cluster->places[p].cores)
            slow = fmax(slow, (double)threads[p] / cluster->places[p].cores);
    free(threads);
    s->slow = slow;
    return s;
}

void search_reset(struct search *s)
{
    for (int i = 0; i < s->n_found; i++)
        candidate_free(s->found[i]);
    free(s->found);
    s->found = NULL;
    s->n_found = 0;
    s->best = INFINITY;
}

void search_free(struct search *s)
{
    if (!s)
        return;
    search_reset(s);
    table_free(s->table);
    for (int p = 0; p <= s->cluster->n_devices; p++) {
        free(s->reduce[p].latency);
        free(s->reduce[p].rate);
    }
    free(s->reduce);
    free(s->splits);
    free(s);
}

/* Is it pinned, or one of the two that are searched where none is? */
static bool is_searched(const struct plan_request *r, enum schedule_kind kind)
{
    return r->schedule ? schedule_allowed(r, kind)
                       : kind == SCHEDULE_1F1B || kind == SCHEDULE_GPIPE;
}

static void search_all(struct search *s)
{
    s->complete = partition_small(s, SMALL);
    if (s->complete)
        return;
    for (int even = 1; even >= 0; even--)
        for (int i = 0; i < s->n_splits; i++)
            for (int k = 0; k < SCHEDULE_KINDS; k++)
                if (is_searched(s->request, (enum schedule_kind)k))
                    partition_dp(s, &s->splits[i], (enum schedule_kind)k, even);
    for (int i = 0; i < s->n_found; i++)
        set_schedule(s, s->found[i], s->found[i]->schedule);
}

static int64_t short_run(int n_stages)
{
    return 2 * n_stages + 4;
}

/* An iteration of many micro-batches is a start, a steady state and an end: two short ones
 * give the length of a long one, the better the longer they are.
 */
static double forecast(const struct search *s, struct plan *plan, bool exact, struct err *err)
{
    int64_t all = plan->micro_batches, a = short_run(plan->n_stages), b = 2 * a;
    double short_one, long_one;

    if (exact || all <= a + b)
        return simulate_seconds(plan, s->cost, s->cluster, err);
    plan->micro_batches = a;
    short_one = simulate_seconds(plan, s->cost, s->cluster, err);
    plan->micro_batches = b;
    long_one = short_one < 0 ? -1 : simulate_seconds(plan, s->cost, s->cluster, err);
    plan->micro_batches = all;
    if (long_one < 0)
        return -1;
    return short_one + (double)(all - a) * (long_one - short_one) / (double)(b - a);
}

static int evaluate(struct search *s, struct candidate *c, bool exact, struct err *err)
{
    struct plan *plan;

    c->closed = partition_closed(s, c);
    c->seconds = INFINITY;
    c->exact = true;
    if (!search_fits(s, c))
        return 0;
    plan = place(s->cost, s->cluster, s->request, c);
    c->exact = exact || c->micro_batches <= 3 * short_run(c->n_stages);
    c->seconds = forecast(s, plan, exact, err);
    plan_free(plan);
    return c->seconds < 0 ? -1 : 0;
}

/* Ties, for one result: fewer stages, pipelines, micro-batches, 1f1b before others. */
static bool better(const struct candidate *a, const struct candidate *b)
{
    if (isinf(a->seconds) || isinf(b->seconds))
        return a->seconds < b->seconds;
    if (fabs(a->seconds - b->seconds) > SAME * b->seconds)
        return a->seconds < b->seconds;
    if (a->n_stages != b->n_stages)
        return a->n_stages < b->n_stages;
    if (a->pipelines != b->pipelines)
        return a->pipelines < b->pipelines;
    if (a->micro_batches != b->micro_batches)
        return a->micro_batches < b->micro_batches;
    return a->schedule < b->schedule;
}

/* Stages from the slowest to the fastest, by the work of a micro-batch. */
static void sort_stages(const struct search *s, const struct candidate *c, int *order)
{
    struct plan *plan = place(s->cost, s->cluster, s->request, c);

    for (int k = 0; k < plan->n_stages; k++) {
        const struct plan_stage *stage = &plan->stages[k];
        double seconds = stage->forward + stage->dgrad + stage->wgrad;
        int i = k;

        for (; i > 0; i--) {
            const struct plan_stage *other = &plan->stages[order[i - 1]];

            if (other->forward + other->dgrad + other->wgrad >= seconds)
                break;
            order[i] = order[i - 1];
        }
        order[i] = k;
    }
    plan_free(plan);
}

enum move { MOVE_FIRST, MOVE_LAST, MOVE_GROW_FIRST, MOVE_GROW_LAST, N_MOVES };

/* One change around a stage; false where there is none such. */
static bool change(struct candidate *c, int stage, enum move move)
{
    int *cuts = c->cuts;

    switch (move) {
    case MOVE_FIRST:
        return stage > 0 && ++cuts[stage] < cuts[stage + 1];
    case MOVE_GROW_FIRST:
        return stage > 0 && --cuts[stage] > cuts[stage - 1];
    case MOVE_LAST:
        return stage + 1 < c->n_stages && --cuts[stage + 1] > cuts[stage];
    default:
        return stage + 1 < c->n_stages && ++cuts[stage + 1] < cuts[stage + 2];
    }
}

/* Give the stage a replica of another one, or of the devices that are left (other < 0). */
static bool change_replicas(const struct search *s, struct candidate *c, int stage, int other)
{
    int left = search_devices(s, candidate_pipelines(c));

    for (int k = 0; k < c->n_stages; k++)
        left -= c->replicas[k];
    if (s->request->n_replicas || other == stage ||
        (other < 0 ? left < 1 : c->replicas[other] < 2))
        return false;
    c->replicas[stage]++;
    if (other >= 0)
        c->replicas[other]--;
    return shares_allowed(s->request, c->micro_batch, c->replicas[stage]) &&
           (other < 0 || shares_allowed(s->request, c->micro_batch, c->replicas[other]));
}

/* Is it better than the best, whose seconds are exact? 1, 0, or -1 on an error. What the stages
 * compute alone may say that it is not.
 */
static int beats(struct search *s, struct candidate *c, const struct candidate *best,
                 struct err *err)
{
    if (candidate_least(s, c) >= best->seconds)
        return 0;
    for (int exact = 0; exact < 2; exact++) {
        if (evaluate(s, c, exact, err))
            return -1;
        if (!better(c, best) || c->exact)
            return better(c, best);
    }
    return better(c, best);
}

/* Put the candidate before the best where it beats that, else free it; 1, 0, or -1. */
static int try_instead(struct search *s, struct candidate *c, struct err *err)
{
    int rc = beats(s, c, s->found[0], err);

    if (rc <= 0) {
        candidate_free(c);
        return rc;
    }
    s->found = mem_resize(s->found, (size_t)s->n_found + 1, sizeof(*s->found));
    memmove(s->found + 1, s->found, (size_t)s->n_found++ * sizeof(*s->found));
    s->found[0] = c;
    return rc;
}

/* Another schedule that makes the best faster; 1 where there is one. */
static int improve_schedule(struct search *s, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < SCHEDULE_KINDS && s->found[0]->n_stages > 1 && rc == 0; k++) {
        struct candidate *c = candidate_copy(s->found[0]);

        if (k != (int)s->found[0]->schedule && set_schedule(s, c, (enum schedule_kind)k))
            rc = try_instead(s, c, err);
        else
            candidate_free(c);
    }
    return rc;
}

/* The first change around a stage that makes the best faster; 1 where there is one. */
static int improve_stage(struct search *s, int stage, struct err *err)
{
    int n_moves = N_MOVES + 1 + s->found[0]->n_stages;

    for (int m = 0; m < n_moves; m++) {
        struct candidate *c = candidate_copy(s->found[0]);
        bool valid = m < N_MOVES ? change(c, stage, (enum move)m)
                                 : change_replicas(s, c, stage, m - N_MOVES - 1);
        int rc = 0;

        if (valid)
            rc = try_instead(s, c, err);
        else
            candidate_free(c);
        if (rc)
            return rc;
    }
    return 0;
}

/* Local moves while they help, around the slowest stages first. What they start from stays
 * behind the result, for where only the exact memory says that this does not fit.
 */
static int improve(struct search *s, struct err *err)
{
    int *order = mem_new((size_t)s->found[0]->n_stages, sizeof(*order)), rc = 1;

    for (int round = 0; round < MAX_MOVES && rc > 0; round++) {
        int n = s->found[0]->n_stages < MAX_STAGES_MOVED ? s->found[0]->n_stages
                                                         : MAX_STAGES_MOVED;

        rc = improve_schedule(s, err);
        sort_stages(s, s->found[0], order);
        for (int i = 0; i < n && rc == 0; i++)
            rc = improve_stage(s, order[i], err);
    }
    free(order);
    return rc < 0 ? -1 : 0;
}

static int by_seconds(const void *a, const void *b)
{
    const struct candidate *x = *(struct candidate *const *)a;
    const struct candidate *y = *(struct candidate *const *)b;

    return better(x, y) ? -1 : better(y, x);
}

/* Simulate what the closed form found; the fastest comes first. */
static int rank(struct search *s, struct err *err)
{
    for (int i = 0; i < s->n_found; i++)
        if (evaluate(s, s->found[i], false, err))
            return -1;
    qsort(s->found, (size_t)s->n_found, sizeof(*s->found), by_seconds);
    while (s->n_found && !s->found[0]->exact) {
        if (evaluate(s, s->found[0], true, err))
            return -1;
        qsort(s->found, (size_t)s->n_found, sizeof(*s->found), by_seconds);
    }
    return s->n_found ? improve(s, err) : 0;
}

/* How far the estimates were off. */
struct factors {
    double fixed, moving;
};

static void note_factors(const struct stage_bytes *estimate, const struct memory_use *use,
                         struct factors *factors)
{
    double fixed = (double)(use->parameters + use->gradients + use->optimizer + use->prepared);

    if (estimate->fixed > 0)
        factors->fixed = fmax(factors->fixed, fixed / estimate->fixed);
    if (estimate->moving > 0)
        factors->moving = fmax(factors->moving,
                               ((double)use->total - fixed) / estimate->moving);
}

/* The exact memory of every stage, from the compiled programs. 1 where it is too much: then the
 * stages that it is too much for tell how far the estimate was off.
 */
static int check_memory(struct search *s, const struct candidate *c, struct plan *plan,
                        struct factors *factors, struct err *err)
{
    int device = 0, over = 0;

    for (int k = 0; k < plan->n_stages && s->request->memory_of; k++) {
        struct plan_stage *stage = &plan->stages[k];
        struct memory_use use = { 0 };

        if (s->request->memory_of(s->request->user, plan, k, &use, err))
            return -1;
        stage->memory = (double)use.total;
        if (stage->memory > search_room(s, plan->pipelines, device, stage->replicas)) {
            struct stage_bytes estimate = search_stage(s, c, k);

            note_factors(&estimate, &use, factors);
            over = 1;
        }
        device += stage->replicas;
    }
    return over;
}

/* The fastest candidate whose exact memory fits, as a plan; NULL with err->code 0 if none. */
static struct plan *first_that_fits(struct search *s, struct factors *factors, struct err *err)
{
    for (int i = 0; i < s->n_found && isfinite(s->found[i]->seconds); i++) {
        struct plan *plan = place(s->cost, s->cluster, s->request, s->found[i]);
        int over = check_memory(s, s->found[i], plan, factors, err);

        if (over == 0) {
            plan->iteration_seconds = s->found[i]->seconds;
            return plan;
        }
        plan_free(plan);
        if (over < 0)
            return NULL;
    }
    return NULL;
}

static struct plan *find(struct search *s, struct err *err)
{
    for (int round = 0; round < MAX_TIGHTENINGS; round++) {
        struct err local = { 0 };
        struct plan *plan;
        struct factors factors = { 0, 0 };

        search_reset(s);
        search_all(s);
        if (s->n_found == 0)
            return NULL;
        if (rank(s, &local)) {
            *err = local;
            return NULL;
        }
        plan = first_that_fits(s, &factors, &local);
        if (plan)
            return plan;
        if (local.code) {
            *err = local;
            return NULL;
        }
        /* Nothing found fits exactly: believe the estimates that much less. */
        s->factor_fixed = fmax(s->factor_fixed, factors.fixed);
        s->factor_moving = fmax(s->factor_moving * 1.02, factors.moving);
    }
    return NULL;
}

struct plan *partition(const struct cost *cost, const struct cluster *cluster,
                       const struct plan_request *request, char **why, struct err *err)
{
    struct plan_request pinned = *request;
    struct err local = { 0 };
    struct search *s;
    struct plan *plan;

    if (pinned.n_replicas && !pinned.stages)
        pinned.stages = pinned.n_replicas;
    request = &pinned;
    if (check_request(cost, cluster, request, &local)) {
        if (err)
            *err = local;
        return NULL;
    }
    s = search_new(cost, cluster, request);
    plan = find(s, &local);
    if (!plan && !local.code)
        explain_failure(s, &local);
    if (plan) {
        simulate_forecast(plan, cost, cluster, &local);
        plan->lower_bound_seconds =
            fmax(partition_lower_bound(cost, cluster, request),
                 partition_relaxed(s, plan->iteration_seconds));
        if (why)
            *why = explain(s, plan);
    }
    if (!plan && err)
        *err = local;
    search_free(s);
    return plan;
}
