/* SPDX-License-Identifier: MIT */
#include "scheduler/partition.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"
#include "scheduler/partition_tried.h"
#include "scheduler/policy.h"
#include "scheduler/simulate.h"
#include "scheduler/stage_layout.h"

#define MAX_TIGHTENINGS 8
/* Exact over estimated bytes that move, at least, see etc/bench/memory/run. */
#define LEAST_EXACT 0.75
/* With SOME cuts times devices more candidates are simulated, and with so many a few more: what
 * zb-h1 and zb gain is not in the closed form.
 */
#define MODERATE 1024
/* So many plans are all simulated; and where that is asked for. */
#define SMALL 1000
/* Of the plans that were found so many are looked at with the optimizer's state in shards, too. */
#define MOST_SHARDED 6
/* Of an iteration. */
#define LONG_STEP 0.01
#define EXHAUSTIVE_PLANS 10000000
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
    int pinned = each.pipelines, most = s->cluster->n_devices;

    if (pinned)
        most = pinned;
    else if (each.n_replicas || (each.micro_batch && each.micro_batches) || most < 3 ||
        (!each.micro_batch && !has_neighbours(s->cluster)))
        most = 1;
    for (int p = pinned ? pinned : 1; p <= most; p++) {
        int64_t *sizes;
        int n;

        if (s->request->global_batch % p)
            continue;
        each.global_batch = s->request->global_batch / p;
        sizes = micro_sizes(&each, &n);
        for (int i = 0; i < n; i++)
            *(struct split *)mem_push((void **)&s->splits, &s->n_splits, sizeof(*s->splits)) =
                (struct split){ p, sizes[i], each.global_batch / sizes[i], 0 };
        free(sizes);
    }
}

int search_devices(const struct search *search, int pipelines)
{
    return search->cluster->n_devices / pipelines;
}

/* How much of what the closed form has as slower is kept. */
static void set_breadth(struct search *s)
{
    int size = s->table->n * s->cluster->n_devices;

    s->few = size <= FEW;
    s->some = size <= SOME;
    s->slack = s->some ? 1.5 : size <= MODERATE ? 1.2 : 1.02;
    s->most_found = s->some ? 200 : size <= MODERATE ? 60 : 24;
}

static void fill_kinds(struct search *s)
{
    const struct cost *cost = s->cost;

    s->n_kinds = cost->n_others + 1;
    s->kind = mem_new((size_t)s->cluster->n_devices, sizeof(*s->kind));
    for (int d = 0; d < s->cluster->n_devices && cost->n_others; d++) {
        const struct cost *own = cost_for(cost, s->cluster->devices[d].kind);

        for (int i = 0; i < cost->n_others; i++)
            if (cost->others[i] == own)
                s->kind[d] = i + 1;
        s->mixed |= s->kind[d] > 0;
    }
}

/* Takes the table. */
static struct search *search_with(struct table *table, const struct cluster *cluster,
                                  const struct plan_request *request)
{
    struct search *s = mem_new(1, sizeof(*s));
    int *threads = mem_new((size_t)cluster->n_places, sizeof(*threads));
    double slow = 1;

    s->cost = table->cost;
    s->cluster = cluster;
    s->request = request;
    s->table = table;
    s->state_bytes = stage_state_bytes(s->cost, request->optimizer, request->offload);
    s->factor_fixed = s->factor_moving = 1;
    s->versions = request_versions(request);
    s->zero = request->zero == PLAN_ZERO;
    s->best = INFINITY;
    set_breadth(s);
    s->flat = request_is_flat(cluster);
    s->uniform = true;
    for (int d = 1; d < cluster->n_devices; d++)
        s->uniform &= search_limit(s, d) >= search_limit(s, 0) &&
                      search_limit(s, d) <= search_limit(s, 0);
    fill_kinds(s);
    s->reduce = mem_new((size_t)cluster->n_devices + 1, sizeof(*s->reduce));
    search_fill_below(s);
    add_splits(s);
    for (int d = 0; d < cluster->n_devices; d++)
        threads[cluster_core_place(cluster, d)] += cluster->devices[d].cores;
    for (int p = 0; p < cluster->n_places; p++)
        if (cluster->places[p].cores && threads[p] > cluster->places[p].cores)
            slow = dmax(slow, (double)threads[p] / cluster->places[p].cores);
    free(threads);
    s->slow = slow;
    s->limit = INFINITY;
    return s;
}

struct search *search_new(const struct cost *cost, const struct cluster *cluster,
                          const struct plan_request *request)
{
    return search_with(table_new(cost, MAX_CUTS), cluster, request);
}

void search_reset(struct search *s)
{
    for (int i = 0; i < s->n_found; i++)
        candidate_free(s->found[i]);
    free(s->found);
    s->found = NULL;
    s->n_found = 0;
    s->best = INFINITY;
    s->effort = 0;
    s->looked = 0;
    s->refined = false;
    for (int i = 0; i < s->n_splits; i++)
        s->splits[i].closed = 0;
}

void search_free(struct search *s)
{
    if (!s)
        return;
    search_reset(s);
    search_forget(s);
    partition_dp_forget(s);
    table_free(s->table);
    search_forget_reduces(s);
    free(s->below);
    free(s->kind);
    free(s->order);
    free(s->splits);
    free(s);
}

/* Is it pinned, or one of the two that are searched where none is? */
static bool is_searched(const struct plan_request *r, enum schedule_kind kind)
{
    return r->schedule || r->list ? schedule_allowed(r, kind)
                                  : kind == SCHEDULE_1F1B || kind == SCHEDULE_GPIPE;
}

static int by_micro_batch(const void *a, const void *b)
{
    const struct split *x = *(const struct split *const *)a;
    const struct split *y = *(const struct split *const *)b;

    if (x->micro_batch != y->micro_batch)
        return x->micro_batch < y->micro_batch ? -1 : 1;
    return x->pipelines < y->pipelines ? -1 : x->pipelines > y->pipelines;
}

static bool cut_split(struct search *s, const struct split *split, enum schedule_kind kind,
                      bool even)
{
    bool found = false;

    for (int order = 0; order < DEVICE_ORDERS; order++)
        if (search_order_devices(s, split->pipelines, (enum device_order)order))
            found |= partition_dp(s, split, kind, even);
    return found;
}

/* Where nothing fits under 1f1b, nothing does under gpipe: no stage of it keeps less, and by the closed
 * form it is no faster.
 */
static void cut_for_all(struct search *s, const struct split *split, bool even)
{
    bool fits = true;       /* 1f1b, which comes before gpipe */

    for (int k = 0; k < SCHEDULE_KINDS; k++) {
        bool found;

        if (!is_searched(s->request, (enum schedule_kind)k) || (k == SCHEDULE_GPIPE && !fits))
            continue;
        found = cut_split(s, split, (enum schedule_kind)k, even);
        if (k == SCHEDULE_1F1B)
            fits = found;
    }
}

/* Small micro-batches leave few replica counts to choose from, and take little memory: they come
 * first, as there is a limit to what partition_dp() looks at.
 */
void search_cuts(struct search *s, int pipelines)
{
    const struct split **order = mem_new((size_t)s->n_splits, sizeof(*order));
    int n = 0;

    for (int i = 0; i < s->n_splits; i++)
        if (!pipelines || s->splits[i].pipelines == pipelines)
            order[n++] = &s->splits[i];
    if (n)
        qsort(order, (size_t)n, sizeof(*order), by_micro_batch);
    for (int even = 1; even >= 0; even--)
        for (int i = 0; i < n; i++)
            cut_for_all(s, order[i], even);
    free(order);
}

/* What the rules of others find, and what was tried, is a bound for the search, and ranked beside what
 * that finds.
 */
static void search_beside_seeds(struct search *s)
{
    struct candidate **seeds;
    int n;

    policy_seed(s);
    search_add_tried(s);
    seeds = s->found;
    n = s->n_found;
    s->found = NULL;
    s->n_found = 0;
    for (int i = 0; i < n && !s->request->block_stage; i++)
        s->best = dmin(s->best, seeds[i]->closed);
    search_cuts(s, 0);
    search_orders(s);
    for (int i = 0; i < s->n_found; i++)
        set_schedule(s, s->found[i], s->found[i]->schedule);
    s->found = mem_resize(s->found, (size_t)(s->n_found + n), sizeof(*s->found));
    for (int i = 0; i < n; i++)
        s->found[s->n_found++] = seeds[i];
    free(seeds);
}

/* So many plans are gone through at most. */
static long most_plans(const struct search *s)
{
    if (!s->request->exhaustive)
        return SMALL;
    return s->cost->n_blocks <= EXHAUSTIVE_BLOCKS && s->cluster->n_devices <= EXHAUSTIVE_DEVICES
               ? LONG_MAX - 1 : EXHAUSTIVE_PLANS;
}

static int search_all(struct search *s, struct err *err)
{
    long most = most_plans(s);

    if (s->request->policy) {
        policy_search(s);
        return 0;
    }
    if (request_chunks(s->request) > 1 && !s->request->exhaustive) {
        search_chunks(s);
        return 0;
    }
    if (partition_small(s, most, &s->count, err))
        return -1;
    s->complete = s->count <= most;
    if (s->complete)
        return 0;
    if (s->request->exhaustive)
        return err_set_code(err, EXIT_USAGE, "--exhaustive: there are more than %ld plans; pin "
                            "some of it, or leave it out", most);
    search_beside_seeds(s);
    return 0;
}

int search_rank(struct search *s, struct err *err)
{
    if (!s->some && request_chunks(s->request) == 1)
        search_drop_doubles(s);
    for (int i = 0; i < s->n_found && !s->request->policy; i++) {
        struct split *split = &s->splits[search_split(s, s->found[i])];

        if (split->closed <= 0 || s->found[i]->closed < split->closed)
            split->closed = s->found[i]->closed;
    }
    search_sort_closed(s);
    return search_simulate(s, err) || search_settle(s, err) ? -1 : 0;
}

/* Simulate what is near the best. */
static int improve(struct search *s, struct err *err)
{
    if (s->complete || !s->n_found || s->request->policy || request_chunks(s->request) > 1)
        return 0;
    return search_recut(s, err) || search_improve(s, err) ? -1 : 0;
}

/* Two normal measurements, of which the middle half spreads so much, differ by more than twice that
 * once in 20 times: 1.96 sqrt(2) / 1.35. Which of the ranks that share cores has one is the
 * kernel's affair, which no simulation sees: it costs those more who wait for messages.
 */
bool search_same(const struct search *s, double faster, double slower)
{
    return s->slow > 1 && slower < faster * (1 + 2 * s->cost->spread);
}

/* The first, or of those that are not told apart from it the fastest of those with the fewest
 * stages: it sends least.
 */
static int simplest(struct search *s, int *chosen, struct err *err)
{
    const double fastest = s->n_found ? s->found[0]->seconds : INFINITY;

    *chosen = 0;
    for (int i = 1; i < s->n_found && search_same(s, fastest, s->found[i]->seconds); i++) {
        if (s->found[i]->n_stages >= s->found[*chosen]->n_stages)
            continue;
        if (!s->found[i]->exact && search_evaluate(s, s->found[i], true, err))
            return -1;
        if (search_same(s, fastest, s->found[i]->seconds))
            *chosen = i;
    }
    return 0;
}

void search_put_first(struct search *s, int chosen)
{
    struct candidate *first = s->found[chosen];

    for (int i = chosen; i > 0; i--)
        s->found[i] = s->found[i - 1];
    s->found[0] = first;
}

static int simplest_first(struct search *s, struct err *err)
{
    int chosen;

    if (s->complete || s->request->policy || s->n_found == 0)
        return 0;
    if (simplest(s, &chosen, err))
        return -1;
    search_put_first(s, chosen);
    return 0;
}

/* What fits by the estimates, the fastest first. */
static int survey(struct search *s, struct err *err)
{
    search_reset(s);
    s->refused = (struct err){ 0 };
    return search_all(s, err) || (!s->complete && (search_rank(s, err) || search_again(s, err)))
               ? -1 : 0;
}

/* And what is near that; the fastest comes first, or what is as good and simpler, or was faster when
 * it was tried.
 */
static int refine(struct search *s, struct err *err)
{
    if (s->refined)
        return 0;
    s->refined = true;
    if (improve(s, err))
        return -1;
    if (!s->complete && !s->request->policy)
        search_cut_few(s);
    return search_beside_chunks(s, err) || simplest_first(s, err) ||
                   search_tried_first(s, err)
               ? -1 : 0;
}

/* Than another, where there is one: 'seconds' > 0. */
static bool is_faster(const struct plan *plan, double seconds)
{
    return plan && (seconds <= 0 || plan->iteration_seconds < seconds * (1 - SAME));
}

/* Of what was surveyed, or is where none of that fits exactly. */
static struct plan *find(struct search *s, struct err *err)
{
    for (int round = 0; round < MAX_TIGHTENINGS; round++) {
        struct err local = { 0 };
        struct plan *plan;
        struct factors factors = { 0, 0 };

        if ((round > 0 && survey(s, &local)) || refine(s, &local)) {
            *err = local;
            return NULL;
        }
        plan = search_first_that_fits(s, &factors, &local);
        if (plan) {
            bool missed = s->found[0]->seconds < plan->iteration_seconds * (1 - SAME);

            s->short_fixed = missed ? factors.fixed : 0;
            s->short_moving = missed ? factors.moving : 0;
            return plan;
        }
        if (local.code || s->n_found == 0 || isinf(s->found[0]->seconds)) {
            *err = local.code ? local : s->refused;
            s->unfit = true;
            return NULL;
        }
        /* Nothing found fits exactly: believe the estimates that much less. */
        s->factor_fixed = dmax(s->factor_fixed, factors.fixed);
        s->factor_moving = dmax(s->factor_moving * 1.02, factors.moving);
    }
    s->unfit = true;
    return NULL;
}

bool search_has_state(const struct search *s)
{
    return s->state_bytes > 0 || s->request->offload;
}

/* May the plan have the optimizer's state in shards, though nobody asks for it? */
static bool may_shard(const struct search *s)
{
    return s->request->zero == PLAN_ZERO_ANY && !s->request->policy && search_has_state(s);
}

/* Does the step take so much of the fastest that others may be faster, once it is shared out? */
static bool steps_long(struct search *s)
{
    const struct candidate *c = s->n_found && isfinite(s->found[0]->seconds) ? s->found[0] : NULL;
    double most = 0;

    for (int i = 0; c && i < c->n_stages; i++) {
        struct interval_cost own;

        candidate_slowest(s, c, i, &own);
        most = dmax(most, s->slow * own.step);
    }
    return c && most > LONG_STEP * c->seconds;
}

/* Are plans that do looked for on their own? Where memory was short, steps are long, or there are few. */
static bool searches_shards(struct search *s)
{
    return may_shard(s) && (s->tight || s->complete || steps_long(s));
}

static struct search *search_beside(const struct search *all)
{
    struct search *s = search_with(table_use(all->table), all->cluster, all->request);

    s->zero = true;
    s->factor_moving = dmin(1, all->factor_moving);
    return s;
}

/* Of the fastest that fits by the estimates; 0: none does. */
static double found_seconds(const struct search *s)
{
    return s->n_found && isfinite(s->found[0]->seconds) ? s->found[0]->seconds : 0;
}

/* The best of what was found, where that has copies, with its state in shards: the updates are
 * shorter, and of the sums half can be hidden. NULL with err->code 0 where that is not faster.
 */
static struct plan *shard_found(const struct search *all, double unsharded,
                                struct search **search, struct err *err)
{
    struct search *s = *search = search_beside(all);
    struct factors ignored = { 0, 0 };

    s->factor_fixed = all->factor_fixed;
    s->factor_moving = all->factor_moving;
    for (int i = 0; i < all->n_found; i++) {
        struct candidate *c;

        if (!isfinite(all->found[i]->seconds) || candidate_copies(all->found[i]) == 1)
            continue;
        c = candidate_copy(all->found[i]);
        c->zero = true;
        c->closed = partition_closed(s, c);
        search_add(s, c);
    }
    search_drop_doubles(s);
    search_sort_closed(s);
    while (s->n_found > MOST_SHARDED && !s->some)
        candidate_free(s->found[--s->n_found]);
    if (search_simulate(s, err) || search_settle(s, err))
        return NULL;
    return found_seconds(s) < unsharded * (1 - SAME)
               ? search_first_that_fits(s, &ignored, err) : NULL;
}

/* Of what was surveyed, where that takes less than the plan of another search, if there is one, or
 * as long and has no shards. What fits by the estimates must already, or nothing is compiled.
 */
static struct plan *find_beside(struct search *s, const struct search *other,
                                const struct plan *plan, struct err *err)
{
    if (plan) {
        double most = plan->iteration_seconds * (s->zero ? 1 - SAME : 1 + SAME);

        search_share_effort(s, other);
        if (refine(s, err) || found_seconds(s) <= 0 ||
            (found_seconds(s) > most && search_tried(s, s->found[0]) >= 2 * s->request->n_tried))
            return NULL;
    }
    return find(s, err);
}

/* Is its plan the one to take, where both have one: what was tried before what was not, as in a search of
 * its own, then the faster?
 */
static bool goes_before(const struct search *s, const struct plan *plan, const struct search *than,
                        const struct plan *other)
{
    int untried = 2 * s->request->n_tried;
    int own = search_tried(s, s->taken), others = search_tried(than, than->taken);

    if (own == others)
        return is_faster(plan, other->iteration_seconds);
    if (own < untried && others < untried)
        return own < others;
    return own < others ? other->iteration_seconds * s->request->doubt >= plan->iteration_seconds
                        : plan->iteration_seconds * s->request->doubt < other->iteration_seconds;
}

/* The best plan, with the optimizer's state in shards where nothing else fits, or what does is
 * slower. What seems faster is looked at first. '*search' is the one that found the plan, or did
 * not.
 */
static struct plan *find_once(struct search **search, struct err *err)
{
    struct search *all = *search, *s = NULL;
    struct plan *plan = NULL, *sharded = NULL;
    struct err without = { 0 }, with = { 0 };
    bool first = false;

    if (survey(all, err))
        return NULL;
    if (searches_shards(all)) {
        s = search_beside(all);
        first = !survey(s, &with) && found_seconds(s) > 0 &&
                (found_seconds(all) <= 0 || found_seconds(s) < found_seconds(all) * (1 - SAME));
    }
    if (first)
        sharded = find(s, &with);
    plan = find_beside(all, s, sharded, &without);
    if (!s && searches_shards(all)) {
        /* Memory turned out to be short, or steps to be long. */
        s = search_beside(all);
        survey(s, &with);
    }
    if (s && !first && !with.code)
        sharded = find_beside(s, all, plan, &with);
    else if (!s && plan && may_shard(all))
        sharded = shard_found(all, plan->iteration_seconds, &s, &with);
    if (!s || (plan && (!sharded || !goes_before(s, sharded, all, plan))) ||
        (!sharded && without.code)) {
        plan_free(sharded);
        search_free(s);
        if (!plan)
            *err = without;
        return plan;
    }
    s->unsharded = plan ? plan->iteration_seconds : all->unfit ? 0 : found_seconds(all);
    plan_free(plan);
    search_free(all);
    *search = s;
    if (!sharded)
        *err = with;
    return sharded;
}

/* Where faster ones do not fit as compiled: is there one that does, if the estimates are believed as
 * much less, with the optimizer's state in shards, or without? 'plan' else.
 */
static struct plan *find_tighter(struct search **search, struct plan *plan)
{
    struct search *was = *search;
    double fixed = dmax(was->factor_fixed, was->short_fixed);
    double moving = dmax(was->factor_moving, was->short_moving);
    bool zero = was->zero;

    if (!plan || was->short_fixed + was->short_moving <= 0 || was->request->policy || was->complete)
        return plan;
    for (int k = 0; k < (may_shard(was) ? 2 : 1); k++) {
        struct search *s = search_with(table_use(was->table), was->cluster, was->request);
        struct err ignored = { 0 };
        struct plan *other = NULL;

        s->zero = zero != (k == 1);
        s->factor_fixed = fixed;
        s->factor_moving = moving;
        if (s->zero)
            s->unsharded = was->zero ? was->unsharded : plan->iteration_seconds;
        if (!survey(s, &ignored))
            other = find(s, &ignored);
        if (other && goes_before(s, other, *search, plan)) {
            plan_free(plan);
            search_free(*search);
            *search = was = s;
            plan = other;
        } else {
            plan_free(other);
            search_free(s);
        }
    }
    return plan;
}

static struct plan *find_best(struct search **search, struct err *err)
{
    return find_tighter(search, find_once(search, err));
}

/* Estimates may be too large, too: what is compiled decides. '*search' is kept where none fits. */
static struct plan *find_loosely(struct search **search, struct err *err)
{
    struct search *loose = search_with(table_use((*search)->table), (*search)->cluster,
                                       (*search)->request), *kept = *search;
    struct plan *plan;

    loose->factor_moving = LEAST_EXACT;
    plan = find_best(&loose, err);
    *search = plan ? loose : kept;
    search_free(plan ? kept : loose);
    return plan;
}

struct plan *search_plan(const struct cost *cost, const struct cluster *cluster,
                         const struct plan_request *request, struct search **search,
                         struct err *err)
{
    struct plan *plan;

    *search = NULL;
    if (check_request(cost, cluster, request, err) ||
        (request->policy && policy_check(cost, request, err)))
        return NULL;
    *search = search_new(cost, cluster, request);
    plan = find_best(search, err);
    if (!plan && !err->code && request->memory_of)
        plan = find_loosely(search, err);
    return plan;
}
