/* SPDX-License-Identifier: MIT */
/* Why this plan and no other, in words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"
#include "scheduler/partition_tried.h"
#include "scheduler/simulate.h"

#define N_OTHERS 3      /* that are named */
#define SAME 1e-6       /* relative */

static double limit_of(const struct search *s, const struct plan *plan, int stage)
{
    const struct plan_stage *of = &plan->stages[stage];
    double limit = INFINITY;

    for (int i = 0; i < plan->pipelines * of->replicas; i++)
        limit = dmin(limit, search_limit(s, cluster_find_device(s->cluster, of->devices[i])));
    return limit;
}

static void add_peak(const struct search *s, struct plan *plan)
{
    plan->peak_flops = 0;
    for (int k = 0; k < plan_lists(plan); k++)
        for (int i = 0; i < plan->pipelines * plan->stages[k].replicas; i++) {
            int device = cluster_find_device(s->cluster, plan->stages[k].devices[i]);

            double flops = cluster_product_flops(&s->cluster->devices[device], s->request->factors);

            if (flops <= 0 || s->request->unknown_peak) {
                plan->peak_flops = 0;
                return;
            }
            plan->peak_flops += flops;
        }
}

/* What a value's several readers are sent is counted once. */
static double sent_bytes(const struct cost *cost, const int *stage, int k, double samples)
{
    double bytes = 0;

    for (int i = 0; i < cost->n_edges;) {
        const struct cost_edge *e = &cost->edges[i];
        bool leaves = false;

        for (; i < cost->n_edges && cost_same_value(&cost->edges[i], e); i++)
            leaves |= stage[cost->edges[i].to] != k;
        if (leaves && stage[e->from] == k)
            bytes += cost_at(cost, e->bytes, cost->blocks[e->from].batch_axis, samples);
    }
    return bytes;
}

void describe(const struct search *s, struct plan *plan)
{
    int *stage = stage_of_blocks(plan, s->cost, NULL);

    add_peak(s, plan);
    for (int k = 0; k < plan->n_stages; k++) {
        struct stage_cost sums;

        stage_cost_get(s->cost, stage, k, 1, &sums);
        plan->stages[k].parameters = sums.parameters;
        plan->stages[k].sent = sent_bytes(s->cost, stage, k, (double)plan->micro_batch);
        plan->stages[k].memory_limit = limit_of(s, plan, k);
    }
    free(stage);
}

/* Others ------------------------------------------------------------------------------- */

struct pool {
    struct search *search;
    int n, n_made;
    const struct candidate **items;
    struct candidate **made;        /* of these, what is not in 'found' */
};

/* Takes the candidate. Where it cannot be simulated, it is none. */
static void add_other(struct pool *pool, struct candidate *c)
{
    if (search_evaluate(pool->search, c, false, NULL)) {
        candidate_free(c);
        return;
    }
    *(struct candidate **)mem_push((void **)&pool->made, &pool->n_made, sizeof(c)) = c;
    *(const struct candidate **)mem_push((void **)&pool->items, &pool->n, sizeof(c)) = c;
}

static void add_schedules(struct pool *pool, const struct candidate *taken)
{
    for (int k = 0; k < SCHEDULE_KINDS && taken->n_stages > 1 && taken->chunks < 2; k++) {
        struct candidate *c = candidate_copy(taken);

        if (k != (int)taken->schedule &&
            set_schedule(pool->search, c, (enum schedule_kind)k))
            add_other(pool, c);
        else
            candidate_free(c);
    }
}

/* So many replicas of the whole network, with the micro-batches that are the fastest by closed form; with
 * the smallest where none fit. NULL where no micro-batch can be shared out so.
 */
static struct candidate *whole(struct search *s, const struct candidate *taken, int replicas)
{
    enum schedule_kind kind = taken->chunks > 1 ? SCHEDULE_1F1B : taken->schedule;
    struct candidate *best = NULL;

    for (int i = 0; i < s->n_splits; i++) {
        const struct split *split = &s->splits[i];
        struct candidate *c;

        if (split->pipelines != 1 || !shares_allowed(s->request, split->micro_batch, replicas))
            continue;
        c = candidate_copy(taken);
        c->chunks = 0;
        free(c->devices);
        c->devices = NULL;
        c->pipelines = 1;
        c->n_stages = 1;
        c->cuts[1] = s->cost->n_blocks;
        c->replicas[0] = replicas;
        c->micro_batch = split->micro_batch;
        c->micro_batches = split->micro_batches;
        c->closed = set_schedule(s, c, kind) ? partition_closed(s, c) : INFINITY;
        if (best && isfinite(best->closed) && c->closed >= best->closed) {
            candidate_free(c);
            continue;
        }
        candidate_free(best);
        best = c;
    }
    return best;
}

/* On all devices that can share a micro-batch, half of them, a quarter and so on; on fewer only where the
 * network fits.
 */
static void add_whole(struct pool *pool, const struct candidate *taken)
{
    struct search *s = pool->search;
    int most = s->cluster->n_devices;

    if (s->request->pipelines || request_chunks(s->request) > 1 || s->n_splits == 0)
        return;
    while (most > 1 && !shares_allowed(s->request, s->splits[0].micro_batch, most))
        most--;
    for (int n = most; n > 0; n /= 2) {
        struct candidate *c = whole(s, taken, n);

        if (c && (n == most || isfinite(c->closed)))
            add_other(pool, c);
        else
            candidate_free(c);
    }
}

static double seconds_of(const struct plan_stage *stage)
{
    return stage->forward + stage->dgrad + stage->wgrad;
}

/* One stage less: the two neighbours that have least to do become one. */
static void add_merged(struct pool *pool, const struct candidate *taken, const struct plan *plan)
{
    struct candidate *c = candidate_copy(taken);
    int best = 0;

    for (int k = 1; k + 1 < c->n_stages; k++)
        if (seconds_of(&plan->stages[k]) + seconds_of(&plan->stages[k + 1]) <
            seconds_of(&plan->stages[best]) + seconds_of(&plan->stages[best + 1]))
            best = k;
    c->replicas[best] += c->replicas[best + 1];
    c->n_stages--;
    for (int k = best + 1; k <= c->n_stages; k++)
        c->cuts[k] = c->cuts[k + 1];
    for (int k = best + 1; k < c->n_stages; k++)
        c->replicas[k] = c->replicas[k + 1];
    if (shares_allowed(pool->search->request, c->micro_batch, c->replicas[best]) &&
        set_schedule(pool->search, c, taken->schedule))
        add_other(pool, c);
    else
        candidate_free(c);
}

/* What the search found, the plan under other schedules, with a stage less, and with one on some of the
 * devices; by a rule of others what that leaves open.
 */
static void pool_fill(struct pool *pool, const struct plan *plan)
{
    const struct search *s = pool->search;
    const struct candidate *taken = s->taken;

    for (int i = 0; i < s->n_found; i++)
        if (s->found[i] != taken)
            *(const struct candidate **)mem_push((void **)&pool->items, &pool->n,
                                                 sizeof(*pool->items)) = s->found[i];
    if (s->request->policy)
        return;
    add_schedules(pool, taken);
    if (s->request->stages)
        return;
    add_whole(pool, taken);
    if (taken->n_stages > 2 && taken->chunks < 2)
        add_merged(pool, taken, plan);
}

static void pool_clear(struct pool *pool)
{
    for (int i = 0; i < pool->n_made; i++)
        candidate_free(pool->made[i]);
    free(pool->made);
    free(pool->items);
}

static int by_time(const void *a, const void *b)
{
    const struct candidate *x = *(const struct candidate *const *)a;
    const struct candidate *y = *(const struct candidate *const *)b;

    return candidate_better(x, y) ? -1 : candidate_better(y, x);
}

/* Other cuts or replica counts alone make no other kind of plan. What tells kinds apart: */
enum kind { KIND_STAGES, KIND_DEVICES, KIND_SCHEDULE, KIND_MICRO_BATCHES, N_KINDS };

static bool alike(const struct candidate *a, const struct candidate *b, enum kind by)
{
    return candidate_pipelines(a) == candidate_pipelines(b) && a->n_stages == b->n_stages &&
           (by < KIND_DEVICES || candidate_devices(a) == candidate_devices(b)) &&
           (by < KIND_SCHEDULE || a->n_stages == 1 || a->schedule == b->schedule) &&
           (by < KIND_MICRO_BATCHES || a->micro_batches == b->micro_batches);
}

/* More of those that are of another kind, of which so many would be faster, could they be used. */
static int add_chosen(const struct pool *pool, int most_faster, const struct candidate **chosen, int n)
{
    const struct candidate *taken = pool->search->taken;
    int faster = 0;

    for (int k = 0; k < n; k++)
        faster += candidate_better(chosen[k], taken);
    for (int by = 0; by < N_KINDS; by++)
        for (int i = 0; i < pool->n && n < N_OTHERS; i++) {
            const struct candidate *c = pool->items[i];
            bool known = alike(c, taken, (enum kind)by) ||
                         (candidate_better(c, taken) && faster == most_faster);

            for (int k = 0; k < n; k++)
                known |= alike(c, chosen[k], (enum kind)by);
            if (known)
                continue;
            chosen[n++] = c;
            faster += candidate_better(c, taken);
        }
    return n;
}

/* What can be used says more than a second one that cannot. */
static int choose_others(const struct pool *pool, const struct candidate *chosen[N_OTHERS])
{
    int n = add_chosen(pool, 1, chosen, 0);

    n = add_chosen(pool, N_OTHERS, chosen, n);
    qsort(chosen, (size_t)n, sizeof(*chosen), by_time);
    return n;
}

/* The candidate as a plan; NULL where its exact memory does not fit, or with 'err'. */
static struct plan *other_plan(struct search *s, struct candidate *c, const struct plan *best,
                               struct err *err)
{
    struct plan *plan;
    int fits;

    if (!c->exact && search_evaluate(s, c, true, err))
        return NULL;
    if (!isfinite(c->seconds))
        return NULL;
    plan = place(s->cost, s->cluster, s->request, c);
    fits = search_fits_exactly(s, c, plan, err);
    if (fits < 1 || simulate_forecast(plan, s->cost, s->cluster, err)) {
        plan_free(plan);
        return NULL;
    }
    plan->iteration_seconds = c->seconds;
    plan->lower_bound_seconds = best->lower_bound_seconds;
    describe(s, plan);
    return plan;
}

static int by_seconds(const void *a, const void *b)
{
    double x = (*(struct plan *const *)a)->iteration_seconds;
    double y = (*(struct plan *const *)b)->iteration_seconds;

    return x < y ? -1 : x > y;
}

/* What is of a kind that is not among the 'n' that were chosen; how many those are then. Nothing is
 * looked at twice.
 */
static int add_others(struct pool *pool, const struct plan *plan, enum kind by,
                      const struct candidate **chosen, int n, struct err *err)
{
    const struct plan_request *q = pool->search->request;

    for (int i = 0; i < pool->n && n <= q->n_others && !err->code; i++) {
        bool known = !pool->items[i];
        struct candidate *c;

        for (int k = 0; k < n && !known; k++)
            known = alike(pool->items[i], chosen[k], by);
        if (known)
            continue;
        c = candidate_copy(pool->items[i]);
        q->others[n - 1] = other_plan(pool->search, c, plan, err);
        if (q->others[n - 1])
            chosen[n++] = pool->items[i];
        pool->items[i] = NULL;
        candidate_free(c);
    }
    return n;
}

int plan_others(struct search *s, const struct plan *plan, struct err *err)
{
    const struct plan_request *q = s->request;
    struct pool pool = { .search = s };
    const struct candidate **chosen = mem_new((size_t)q->n_others + 1, sizeof(*chosen));
    struct err local = { 0 };
    int n = 0;

    if (plan->list || q->policy || request_chunks(q) > 1) {
        free(chosen);
        return 0;
    }
    chosen[n++] = s->taken;
    pool_fill(&pool, plan);
    if (pool.n)
        qsort(pool.items, (size_t)pool.n, sizeof(*pool.items), by_time);
    for (int by = 0; by < N_KINDS && !local.code; by++)
        n = add_others(&pool, plan, (enum kind)by, chosen, n, &local);
    pool_clear(&pool);
    free(chosen);
    if (n > 2)
        qsort(q->others, (size_t)n - 1, sizeof(*q->others), by_seconds);
    for (int i = 0; local.code && i < n - 1; i++) {
        plan_free(q->others[i]);
        q->others[i] = NULL;
    }
    if (!local.code)
        return 0;
    *err = local;
    return -1;
}

/* Of all stages that the devices of a list have. */
static double device_seconds(const struct plan *plan, int list)
{
    double seconds = 0;

    for (int k = 0; k < plan->n_stages; k++)
        seconds += plan_list(plan, k) == list ? seconds_of(&plan->stages[k]) : 0;
    return seconds;
}

/* The first of the slowest. */
static int slowest_device(const struct plan *plan)
{
    int slowest = 0;

    for (int l = 1; l < plan_lists(plan); l++)
        if (device_seconds(plan, l) > device_seconds(plan, slowest))
            slowest = l;
    return slowest;
}

/* Where the time goes: what the slowest device computes, the longest all-reduce on idle wires,
 * and the rest.
 */
enum share { SHARE_COMPUTE, SHARE_REDUCE, SHARE_WAIT, N_SHARES };

static void shares_of(const struct search *s, const struct plan *plan, double seconds,
                      double shares[N_SHARES])
{
    double reduce = 0;

    for (int k = 0; k < plan->n_stages; k++)
        reduce = dmax(reduce, plan->stages[k].allreduce);
    shares[SHARE_COMPUTE] = device_seconds(plan, slowest_device(plan)) * s->slow *
                            (double)plan->micro_batches;
    shares[SHARE_REDUCE] = reduce;
    shares[SHARE_WAIT] = seconds - shares[SHARE_COMPUTE] - shares[SHARE_REDUCE];
}

static void print_slower(const struct search *s, const struct plan *plan,
                         const struct plan *other, double seconds, FILE *out)
{
    static const char *const words[] = {
        [SHARE_COMPUTE] = "its slowest stage computes",
        [SHARE_REDUCE] = "its all-reduce takes",
        [SHARE_WAIT] = "bubble, messages and waiting are",
    };
    double ours[N_SHARES], theirs[N_SHARES];
    int most = 0;

    shares_of(s, plan, plan->iteration_seconds, ours);
    shares_of(s, other, seconds, theirs);
    for (int i = 1; i < N_SHARES; i++)
        if (theirs[i] - ours[i] > theirs[most] - ours[most])
            most = i;
    if (seconds <= plan->iteration_seconds * (1 + SAME)) {
        fprintf(out, "as fast\n");
        return;
    }
    fprintf(out, "%.6g ms", 1e3 * seconds);
    if (isfinite(seconds / plan->iteration_seconds))
        fprintf(out, ", %.3g %% more", 1e2 * (seconds / plan->iteration_seconds - 1));
    fprintf(out, ": %s %.4g ms longer\n", words[most], 1e3 * (theirs[most] - ours[most]));
}

static void print_too_large(struct search *s, const struct candidate *c, FILE *out)
{
    double most = -INFINITY, bytes = 0, room = 0;
    int stage = 0;

    for (int k = 0; k < c->n_stages; k++) {
        struct stage_bytes want = search_stage(s, c, k);
        double own = want.fixed * s->factor_fixed + want.moving * s->factor_moving;
        double limit = candidate_room(s, c, k);

        if (own - limit > most) {
            most = own - limit;
            bytes = own;
            room = limit;
            stage = k;
        }
    }
    fprintf(out, "does not fit: stage %d wants %.0f bytes of %.0f\n", stage, bytes, room);
}

/* Of what is faster by the forecast, and 'better': was so before it was simulated in full. */
static const char *why_not(const struct search *s, const struct candidate *c, bool better)
{
    int tried = search_tried(s, c);

    if (s->request->n_tried && search_tried(s, s->taken) < tried)
        return tried < 2 * s->request->n_tried
                   ? "a trial has not shown it to be faster"
                   : "not tried, and what was took longer than foreseen";
    if (c->n_stages > s->taken->n_stages && search_same(s, c->seconds, s->taken->seconds))
        return "more stages for less than twice what measured costs spread by";
    return better ? "the stages as compiled do not fit" : "foreseen to be slower";
}

static void print_other(struct search *s, const struct plan *plan, struct candidate *c,
                        FILE *out)
{
    bool better = candidate_better(c, s->taken);
    struct plan *other;

    /* What was foreseen, from some of its micro-batches or not simulated at all, may be off. */
    if (!c->exact && search_evaluate(s, c, true, NULL))
        return;
    fputs("  ", out);
    if (candidate_pipelines(c) > 1)
        fprintf(out, "%d pipelines of ", candidate_pipelines(c));
    fprintf(out, "%d stage%s", c->n_stages, c->n_stages == 1 ? "" : "s");
    if (c->n_stages > 1 && !plan->list)
        fprintf(out, ", %s", schedule_name(c->schedule));
    if (candidate_pipelines(c) * candidate_devices(c) < s->cluster->n_devices)
        fprintf(out, " on %d of %d devices", candidate_pipelines(c) * candidate_devices(c),
                s->cluster->n_devices);
    fprintf(out, ", %lld micro-batch%s of %lld: ", (long long)c->micro_batches,
            c->micro_batches == 1 ? "" : "es", (long long)c->micro_batch);
    if (!isfinite(c->seconds)) {
        print_too_large(s, c, out);
    } else if (candidate_better(c, s->taken)) {
        fprintf(out, "%.6g ms, but %s\n", 1e3 * c->seconds, why_not(s, c, better));
    } else {
        other = place(s->cost, s->cluster, s->request, c);
        print_slower(s, plan, other, c->seconds, out);
        plan_free(other);
    }
}

static void explain_others(struct search *s, const struct plan *plan, FILE *out)
{
    struct pool pool = { .search = s };
    const struct candidate *chosen[N_OTHERS];
    int n;

    pool_fill(&pool, plan);
    if (pool.n)
        qsort(pool.items, (size_t)pool.n, sizeof(*pool.items), by_time);
    n = choose_others(&pool, chosen);
    if (n)
        fprintf(out, "Others, and why they lost:\n");
    for (int i = 0; i < n; i++) {
        struct candidate *c = candidate_copy(chosen[i]);

        print_other(s, plan, c, out);
        candidate_free(c);
    }
    pool_clear(&pool);
}

/* The plan itself ---------------------------------------------------------------------- */

static void explain_slowest(const struct plan *plan, FILE *out)
{
    double bound = 0, seconds;
    int slowest = slowest_device(plan);

    for (int k = 0; k < plan->n_stages; k++)
        bound = dmax(bound, plan->stages[k].allreduce);
    seconds = device_seconds(plan, slowest);
    fprintf(out, "Stage %d%s the slowest: %.4g ms for each of %lld micro-batch%s, %.3g %% of "
            "the iteration.\n", slowest,
            plan_lists(plan) < plan->n_stages ? " and those beside it are" : " is",
            1e3 * seconds, (long long)plan->micro_batches, plan->micro_batches == 1 ? "" : "es",
            plan->iteration_seconds > 0 ? 1e2 * seconds * (double)plan->micro_batches /
                                              plan->iteration_seconds : 0);
    if (bound > 0)
        fprintf(out, "The longest all-reduce takes %.4g ms alone.\n", 1e3 * bound);
}

static void explain_unsharded(const struct search *s, FILE *out)
{
    if (s->unsharded > 0)
        fprintf(out, "Without ZeRO-1 the best found would take %.4g ms.\n",
                1e3 * s->unsharded);
    else
        fprintf(out, "Without ZeRO-1 nothing fits.\n");
}

char *explain(struct search *s, const struct plan *plan)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int again = 0, whole = 0;

    if (!out)
        return NULL;
    for (int k = 0; k < plan->n_stages; k++) {
        again += plan->stages[k].recompute != PLAN_RECOMPUTE_NONE;
        whole += plan->stages[k].recompute == PLAN_RECOMPUTE_FULL;
    }
    explain_slowest(plan, out);
    explain_kinds(s, plan, out);
    if (s->request->policy)
        fprintf(out, "The plan follows --policy %s, not the search.\n", s->request->policy);
    if (again && !s->request->recompute)
        fprintf(out, "%d of %d stages run their forward again, %d all of it: with all that it "
                "makes they do not fit.\n", again, plan->n_stages, whole);
    if (plan->zero && s->request->zero == PLAN_ZERO_ANY)
        explain_unsharded(s, out);
    if (s->complete && s->count)
        fprintf(out, "All %ld plans%s were simulated: none is faster.\n", s->count,
                s->request->exhaustive ? "" : " with one stage on each device");
    if (s->factor_fixed > 1 || s->factor_moving > 1)
        fprintf(out, "Exact memory is up to %.3g times the estimate of parameters and %.3g "
                "times that of the rest.\n", s->factor_fixed, s->factor_moving);
    if (s->slow > 1)
        fprintf(out, "With all devices busy a node has %.3g threads for each core.\n", s->slow);
    if (request_chunks(s->request) > 1)
        fprintf(out, "Below the bound the devices do not suffice for all blocks, or one sample for "
                "the way there\nand back.\n");
    else
        fprintf(out, "Below the bound the devices do not suffice for stages that each wait for the "
                "first sample,\ncompute all of theirs in the memory that they have, and "
                "reduce.\n");
    explain_others(s, plan, out);
    fclose(out);
    return text;
}
