/* SPDX-License-Identifier: MIT */
#include "planning.h"

#include <math.h>

#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition.h"
#include "scheduler/partition_private.h"
#include "scheduler/simulate.h"

#define CLOSE 1e-9

/* Every cut, replica count, micro-batch and schedule of a small problem, by brute force. */
struct brute {
    struct search *search;
    struct candidate c;
    int cuts[8], replicas[8];
    double closed, seconds;
    long count;
};

static void try_budget(struct brute *b)
{
    double closed = partition_closed(b->search, &b->c);
    struct plan *plan;

    b->count++;
    if (isinf(closed) || !search_fits(b->search, &b->c))
        return;
    b->closed = fmin(b->closed, closed);
    plan = place(b->search->cost, b->search->cluster, b->search->request, &b->c);
    b->seconds = fmin(b->seconds,
                      simulate_seconds(plan, b->search->cost, b->search->cluster, NULL));
    plan_free(plan);
}

/* zb with each number of slots that the request allows, too. */
static void try_one(struct brute *b)
{
    double pinned = b->search->request->schedule_memory;
    int n = b->c.n_stages;

    b->c.budget = pinned;
    if (b->c.schedule != SCHEDULE_ZB || pinned > 0) {
        try_budget(b);
        return;
    }
    for (int more = 0; more < n; more++) {
        b->c.budget = 1 + (double)more / n;
        try_budget(b);
    }
}

static void extend(struct brute *b, int first, int left)
{
    const struct plan_request *r = b->search->request;
    int n = b->search->cost->n_blocks, s = b->c.n_stages;

    if (first == n) {
        if (!r->stages || r->stages == s)
            try_one(b);
        return;
    }
    b->c.n_stages = s + 1;
    for (int end = first + 1; end <= n; end++)
        for (int k = 1; k <= left; k++) {
            if (!shares_allowed(r, b->c.micro_batch, k) ||
                (r->n_replicas && (s >= r->n_replicas || r->replicas[s] != k)))
                continue;
            b->cuts[s] = first;
            b->cuts[s + 1] = end;
            b->replicas[s] = k;
            extend(b, end, left - k);
        }
    b->c.n_stages = s;
}

static void brute_force(struct brute *b, struct search *search)
{
    *b = (struct brute){ .search = search, .closed = INFINITY, .seconds = INFINITY };
    b->c.zero = search->zero;
    b->c.cuts = b->cuts;
    b->c.replicas = b->replicas;
    for (int i = 0; i < search->n_splits; i++)
        for (int k = 0; k < SCHEDULE_KINDS; k++) {
            if (!schedule_allowed(search->request, (enum schedule_kind)k))
                continue;
            b->c.n_stages = 0;
            b->c.pipelines = search->splits[i].pipelines;
            b->c.micro_batch = search->splits[i].micro_batch;
            b->c.micro_batches = search->splits[i].micro_batches;
            b->c.schedule = (enum schedule_kind)k;
            extend(b, 0, search_devices(search, b->c.pipelines));
        }
    free(b->c.again);
    b->c.again = NULL;
}

static const char *const specs[] = {
    "flat:4,bandwidth=1e9,latency=1e-5,memory=1e12",
    "flat:4,bandwidth=1e8,latency=0,memory=1e12",
    "flat:4,bandwidth=1e15,latency=0,memory=1e12",
    "flat:3,bandwidth=1e9,latency=0,memory=8e6",
    "tree:2x2,inside=1e9,across=5e7,memory=1e12",
};

static void check_cost(const struct cost *cost, unsigned seed, const char *spec,
                       const struct plan_request *request)
{
    struct cluster *cluster = open_cluster(spec);
    struct err err = { 0 };
    struct search *search = search_new(cost, cluster, request);
    struct plan *plan = partition(cost, cluster, request, NULL, &err);
    struct brute brute;

    brute_force(&brute, search);
    if (!plan) {
        if (!isinf(brute.closed))
            fail_msg("seed %u, %s: %s", seed, spec, err.text);
    } else {
        for (int i = 0; i < search->n_splits; i++)
            for (int k = 0; k < SCHEDULE_KINDS; k++)
                if (request->schedule ? schedule_allowed(request, (enum schedule_kind)k)
                                      : k == SCHEDULE_1F1B || k == SCHEDULE_GPIPE)
                    partition_dp(search, &search->splits[i], (enum schedule_kind)k, false);
        if (fabs(search->best - brute.closed) > CLOSE * brute.closed)
            fail_msg("seed %u, %s: closed form %.9g, brute force %.9g", seed, spec,
                     search->best, brute.closed);
        if (plan->iteration_seconds > brute.seconds * (1 + CLOSE))
            fail_msg("seed %u, %s: simulated %.9g, brute force %.9g of %ld", seed, spec,
                     plan->iteration_seconds, brute.seconds, brute.count);
        assert_true(plan->lower_bound_seconds <= brute.seconds * (1 + CLOSE));
    }
    plan_free(plan);
    search_free(search);
    cluster_free(cluster);
}

static void check_case(unsigned seed, const char *spec, const struct plan_request *request)
{
    struct cost *cost = random_cost(5, seed);

    check_cost(cost, seed, spec, request);
    cost_free(cost);
}

static void nothing_is_faster_than_the_plan(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 12; seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
            check_case(seed, specs[i], &(struct plan_request){ .global_batch = 4 });
}

static void no_sharded_plan_is_faster_than_the_plan(void **state)
{
    (void)state;
    for (unsigned seed = 31; seed <= 34; seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
            check_case(seed, specs[i], &(struct plan_request){ .global_batch = 4,
                                                               .zero = PLAN_ZERO });
}

static void nothing_that_is_pinned_is_faster_than_the_plan(void **state)
{
    (void)state;
    for (unsigned seed = 21; seed <= 26; seed++) {
        check_case(seed, specs[0], &(struct plan_request){ .global_batch = 8, .stages = 3,
                                                           .micro_batches = 4 });
        check_case(seed, specs[1], &(struct plan_request){ .global_batch = 12, .stages = 2,
                                                           .n_replicas = 2,
                                                           .replicas = (int[]){ 2, 1 } });
        check_case(seed, specs[4], &(struct plan_request){ .global_batch = 8,
                                                           .batchnorm_samples = 2 });
    }
}

/* Also where two blocks share a parameter. */
static void nothing_is_faster_than_the_plan_without_a_flush(void **state)
{
    struct plan_request request = { .global_batch = 8, .schedule = "2bw" };

    (void)state;
    for (unsigned seed = 21; seed <= 26; seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
            struct cost *cost = random_cost(5, seed);
            int readers[] = { (int)seed % 3, 3 + (int)seed % 2 };
            struct cost_shared shared = { .name = "w", .bytes = 1e3, .n_blocks = 2,
                                          .blocks = readers };

            check_cost(cost, seed, specs[i], &request);
            free(cost->shared);
            cost->shared = &shared;
            cost->n_shared = 1;
            check_cost(cost, seed, specs[i], &request);
            cost->shared = NULL;
            cost->n_shared = 0;
            cost_free(cost);
        }
}

static void drop_edge(struct cost *cost, int i)
{
    free(cost->edges[i].value);
    free(cost->edges[i].bytes);
    free(cost->edges[i].gradient_bytes);
    cost->n_edges--;
    memmove(cost->edges + i, cost->edges + i + 1,
            (size_t)(cost->n_edges - i) * sizeof(*cost->edges));
}

/* Blocks that do not all wait for each other: some edges are missing. */
static struct cost *branched_cost(int n, unsigned seed)
{
    struct cost *cost = random_cost(n, seed);

    for (int i = 0; i < cost->n_edges;) {
        if (next_random(&seed) % 3)
            i++;
        else
            drop_edge(cost, i);
    }
    return cost;
}

static struct cost *chain_cost(int n, unsigned seed)
{
    struct cost *cost = random_cost(n, seed);

    for (int i = cost->n_edges - 1; i >= 0; i--)
        if (cost->edges[i].to != cost->edges[i].from + 1)
            drop_edge(cost, i);
    return cost;
}

static void no_plan_is_below_the_bound_and_most_are_near_it(void **state)
{
    const struct plan_request requests[] = {
        { .global_batch = 8 }, { .global_batch = 12, .stages = 2 },
        { .global_batch = 6, .stages = 3, .n_replicas = 3,
          .replicas = (int[]){ 1, 2, 1 } },
        { .global_batch = 8, .schedule = "gpipe", .memory = 6e6 },
        { .global_batch = 8, .schedule = "zb-h1" },
        { .global_batch = 8, .schedule = "2bw" },
        { .global_batch = 12, .schedule = "2bw", .stages = 3 },
        { .global_batch = 12, .schedule = "zb", .stages = 3 },
        { .global_batch = 8, .schedule = "zb", .schedule_memory = 1.5 },
        { .global_batch = 8, .n_replicas = 3, .replicas = (int[]){ 1, 1, 1 }, .stages = 3,
          .micro_batches = 8 },
    };
    int near = 0, plans = 0;

    (void)state;
    for (unsigned seed = 45; seed <= 56; seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
            for (size_t k = 0; k < sizeof(requests) / sizeof(requests[0]); k++) {
                struct cost *cost = branched_cost(5, seed);
                struct cluster *cluster = open_cluster(specs[i]);
                struct plan *plan = partition(cost, cluster, &requests[k], NULL, NULL);
                struct search *search = search_new(cost, cluster, &requests[k]);
                struct brute brute;
                double bound;

                brute_force(&brute, search);
                /* The plan's own time is none for this: it may be the least that there is. */
                bound = plan ? partition_relaxed(search, 2 * brute.seconds) : 0;
                if (bound > brute.seconds * (1 + CLOSE))
                    fail_msg("seed %u, %s, request %zu: bound %.9g, brute force %.9g", seed,
                             specs[i], k, bound, brute.seconds);
                near += plan && brute.seconds <= 1.1 * plan->lower_bound_seconds;
                plans += plan != NULL;
                plan_free(plan);
                search_free(search);
                cluster_free(cluster);
                cost_free(cost);
            }
    assert_true(near > plans / 2);
}

static struct plan *plan_for(int blocks, const char *spec, const struct plan_request *request,
                             struct err *err)
{
    struct cost *cost = even_cost(blocks, 1, 1000);
    struct cluster *cluster = open_cluster(spec);
    struct plan *plan = partition(cost, cluster, request, NULL, err);

    cluster_free(cluster);
    cost_free(cost);
    return plan;
}

#define ROOMY "flat:4,bandwidth=1e9,latency=0,memory=1e30"

static void pins_are_honoured(void **state)
{
    struct plan_request request = { .global_batch = 24, .n_replicas = 2,
                                    .replicas = (int[]){ 2, 1 }, .micro_batches = 3,
                                    .schedule = "gpipe" };
    struct err err = { 0 };
    struct plan *plan = plan_for(6, ROOMY, &request, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_stages, 2);
    assert_int_equal(plan->stages[0].replicas, 2);
    assert_int_equal(plan->stages[1].replicas, 1);
    assert_int_equal(plan->micro_batches, 3);
    assert_int_equal(plan->micro_batch, 8);
    assert_string_equal(plan->schedule, "gpipe");
    assert_int_equal(plan->stages[0].n_blocks, 4);
    plan_free(plan);
}

/* Four stages of F = B = W = 1: 8 micro-batches take 24, and 3 more for the way of the first one
 * there; under 1f1b 3 more for the way back. That is the choice where later stages, which receive,
 * have no room for as many micro-batches as the first.
 */
static void the_schedule_follows_from_times_and_memory(void **state)
{
    const struct {
        const char *spec, *schedule;
        double seconds;
    } cases[] = {
        { "flat:4,bandwidth=1e30,latency=0,memory=1e30", "zb-h1", 27 },
        { "flat:4,bandwidth=1e30,latency=0,memory=2402", "1f1b", 30 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_request request = { .global_batch = 8, .n_replicas = 4,
                                        .replicas = (int[]){ 1, 1, 1, 1 },
                                        .micro_batches = 8 };
        struct err err = { 0 };
        struct cost *cost = even_cost(4, 1, 1000);
        struct cluster *cluster = open_cluster(cases[i].spec);
        struct plan *plan = partition(cost, cluster, &request, NULL, &err);

        if (!plan)
            fail_msg("%s: %s", cases[i].spec, err.text);
        assert_string_equal(plan->schedule, cases[i].schedule);
        assert_true(fabs(plan->iteration_seconds - cases[i].seconds) < 1e-6);
        assert_true(plan->lower_bound_seconds < cases[i].seconds);
        plan_free(plan);
        cluster_free(cluster);
        cost_free(cost);
    }
}

/* Sixteen blocks of F = B = W = 1 of which a device has room for four and a little more: eight
 * micro-batches take 96 on four devices. The last of them waits for three stages, of four blocks
 * where it has one stage, of two where these are a V.
 */
#define NARROW "flat:4,bandwidth=1e12,latency=0,memory=11000"

static void devices_have_several_stages_where_that_waits_less(void **state)
{
    static const char *const others[] = { "1f1b", "gpipe", "zb-h1", "zb", "interleaved" };
    struct plan_request request = { .global_batch = 8 };
    struct plan *plan = plan_for(16, NARROW, &request, NULL);

    (void)state;
    assert_non_null(plan);
    assert_string_equal(plan->schedule, "zb-v");
    assert_int_equal(plan->n_stages, 8);
    assert_true(fabs(plan->iteration_seconds - 102) < 1e-6);
    assert_true(plan->lower_bound_seconds <= 102);
    for (int k = 0; k < 4; k++)
        assert_true(plan->stages[k].memory + plan->stages[7 - k].memory <= 11000);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct plan *other;

        request.schedule = others[i];
        other = plan_for(16, NARROW, &request, NULL);
        assert_non_null(other);
        assert_string_equal(other->schedule, others[i]);
        assert_true(other->iteration_seconds > plan->iteration_seconds);
        plan_free(other);
    }
    plan_free(plan);
}

/* Sixteen blocks of F = B = W = 1 on four devices that share two cores: eight samples take 192 in
 * all, and sums over replicas more than messages of stages.
 */
static void of_forecasts_within_the_spread_that_with_the_fewest_stages_is_taken(void **state)
{
    static const double spreads[] = { 0, 1e-6, 0.2 };
    struct plan_request request = { .global_batch = 8 };
    struct cluster *cluster = open_cluster("flat:4,bandwidth=1e3,latency=0,memory=1e30");
    struct cost *cost = even_cost(16, 1, 1000);
    struct plan *plans[3];

    (void)state;
    cluster->places[0].cores = 2;
    for (int d = 0; d < 4; d++)
        cluster->devices[d].cores = 1;
    for (int i = 0; i < 3; i++) {
        struct err err = { 0 };

        cost->spread = spreads[i];
        plans[i] = partition(cost, cluster, &request, NULL, &err);
        if (!plans[i])
            fail_msg("%s", err.text);
    }
    assert_int_equal(plans[0]->n_stages, plans[1]->n_stages);
    assert_true(plans[2]->n_stages < plans[0]->n_stages);
    assert_true(plans[2]->iteration_seconds > plans[0]->iteration_seconds);
    assert_true(plans[2]->iteration_seconds < 1.4 * plans[0]->iteration_seconds);
    for (int i = 0; i < 3; i++)
        plan_free(plans[i]);
    cluster_free(cluster);
    cost_free(cost);
}

static void devices_have_one_stage_where_a_pin_wants_it(void **state)
{
    struct plan_request requests[] = {
        { .global_batch = 8, .stages = 4 },
        { .global_batch = 8, .n_replicas = 4, .replicas = (int[]){ 1, 1, 1, 1 } },
        { .global_batch = 8, .policy = "gpipe" },
        { .global_batch = 8, .n_pins = 1, .pins = (const char *const[]){ "b7=1" } },
        { .global_batch = 8, .schedule = "zb" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct err err = { 0 };
        struct plan *plan = plan_for(16, NARROW, &requests[i], &err);

        if (!plan)
            fail_msg("%zu: %s", i, err.text);
        assert_int_equal(plan->chunks, 1);
        assert_int_equal(plan->n_stages, 4);
        plan_free(plan);
    }
}

static void several_stages_of_a_device_honour_pins(void **state)
{
    const struct plan_request requests[] = {
        { .global_batch = 8, .micro_batches = 4 }, { .global_batch = 16, .micro_batch = 2 },
        { .global_batch = 8, .recompute = "full" }, { .global_batch = 8, .zero = PLAN_ZERO },
        { .global_batch = 8, .pipelines = 1 }, { .global_batch = 8, .memory = 10800 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        const struct plan_request *q = &requests[i];
        struct plan *plan = plan_for(16, NARROW, q, NULL);

        assert_non_null(plan);
        assert_true(plan->chunks > 1);
        assert_true(!q->micro_batches || plan->micro_batches == q->micro_batches);
        assert_true(!q->micro_batch || plan->micro_batch == q->micro_batch);
        assert_true(plan->zero == (q->zero == PLAN_ZERO));
        assert_true(plan->lower_bound_seconds <= plan->iteration_seconds);
        for (int k = 0; k < plan->n_stages && q->recompute; k++)
            assert_string_equal(plan_recompute_name(plan->stages[k].recompute), q->recompute);
        plan_free(plan);
    }
}

static void pins_that_cannot_be_had_are_refused_with_the_reason(void **state)
{
    const struct {
        struct plan_request request;
        const char *message;
    } cases[] = {
        { { .global_batch = 8, .stages = 5 }, "has 4 devices" },
        { { .global_batch = 8, .stages = 4, .n_replicas = 1, .replicas = (int[]){ 1 } },
          "leave one of them out" },
        { { .global_batch = 8, .n_replicas = 2, .replicas = (int[]){ 3, 2 } }, "5 in all" },
        { { .global_batch = 8, .micro_batches = 3 }, "does not divide" },
        { { .global_batch = 8, .micro_batch = 3 }, "does not divide" },
        { { .global_batch = 8, .micro_batch = 4, .micro_batches = 4 }, "leave one of them" },
        { { .global_batch = 8, .schedule = "zigzag" },
          "expected gpipe, 1f1b, interleaved, zb-h1, zb, zb-v or 2bw" },
        { { .global_batch = 8, .n_replicas = 1, .replicas = (int[]){ 4 }, .micro_batch = 2 },
          "--micro-batch-size 4 would do" },
        { { .global_batch = 12, .batchnorm_samples = 4, .n_replicas = 1,
            .replicas = (int[]){ 3 }, .micro_batch = 6 }, "--micro-batch-size 12 would do" },
        { { .global_batch = 0 }, "at least 1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(plan_for(6, ROOMY, &cases[i].request, &err));
        assert_contains(err.text, cases[i].message);
        assert_int_equal(err.code, EXIT_USAGE);
    }
}

static void every_share_is_a_multiple_of_the_batchnorm_group(void **state)
{
    struct plan_request request = { .global_batch = 24, .batchnorm_samples = 4 };
    struct plan *plan = plan_for(6, ROOMY, &request, NULL);

    (void)state;
    assert_non_null(plan);
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].replicas; i++)
            assert_int_equal(plan->stages[s].samples[i] % 4, 0);
    plan_free(plan);
}

/* 6 blocks of 1000 bytes of parameters, as many of gradients, and activations. */
static void a_memory_limit_forces_a_cut(void **state)
{
    struct plan_request request = { .global_batch = 4, .memory = 7000 };
    struct err err = { 0 };
    struct plan *plan = plan_for(6, ROOMY, &request, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_true(plan->n_stages > 1);
    for (int s = 0; s < plan->n_stages; s++)
        assert_true(plan->stages[s].memory <= 7000);
    plan_free(plan);
}

/* 6000 bytes of parameters, as many of gradients and twice as many of Adam's state, of which a
 * quarter is 3000.
 */
static void state_is_sharded_where_memory_demands_it(void **state)
{
    static const struct {
        enum plan_zero zero;
        double memory;
        bool fits, sharded;
    } cases[] = {
        { PLAN_ZERO_ANY, 18000, true, true },     { PLAN_ZERO_ANY, 30000, true, false },
        { PLAN_ZERO_NEVER, 18000, false, false }, { PLAN_ZERO_NEVER, 30000, true, false },
        { PLAN_ZERO, 30000, true, true },         { PLAN_ZERO, 15000, false, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_request request = { .global_batch = 8, .n_replicas = 1,
                                        .replicas = (int[]){ 4 }, .optimizer = "adam",
                                        .zero = cases[i].zero, .memory = cases[i].memory };
        struct plan *plan = plan_for(6, ROOMY, &request, NULL);

        assert_int_equal(plan != NULL, cases[i].fits);
        if (plan) {
            assert_int_equal(plan->zero, cases[i].sharded);
            assert_true(plan->stages[0].memory <= cases[i].memory);
            assert_true(plan->iteration_seconds >= plan->lower_bound_seconds);
        }
        plan_free(plan);
    }
}

/* Updates of half a second for each block are worth more than sums that cannot be hidden, unless
 * these take as long; with few plans, and with many.
 */
static void state_is_sharded_where_that_is_faster(void **state)
{
    static const struct {
        int blocks;
        const char *spec;
        bool sharded;
    } cases[] = {
        { 3, "flat:4,bandwidth=1e9,latency=0,memory=1e30", true },
        { 3, "flat:4,bandwidth=2e4,latency=0,memory=1e30", false },
        { 24, "tree:4x4,inside=1e9,across=1e8,latency=0,memory=1e30", true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cluster *cluster = open_cluster(cases[i].spec);
        struct cost *cost = even_cost(cases[i].blocks, 100, 1e5);
        struct plan *plans[3];

        for (int b = 0; b < cost->n_blocks; b++)
            cost->blocks[b].step = 0.5;
        for (enum plan_zero zero = PLAN_ZERO_ANY; zero <= PLAN_ZERO_NEVER; zero++) {
            struct plan_request request = { .global_batch = 64, .optimizer = "adam",
                                            .zero = zero };

            plans[zero] = partition(cost, cluster, &request, NULL, NULL);
            assert_non_null(plans[zero]);
        }
        assert_int_equal(plans[PLAN_ZERO_ANY]->zero, cases[i].sharded);
        for (int p = 0; p < 3; p++) {
            double seconds = plans[p]->iteration_seconds * (1 + CLOSE);

            assert_true(plans[PLAN_ZERO_ANY]->iteration_seconds <= seconds);
            assert_true(plans[PLAN_ZERO_ANY]->lower_bound_seconds <= seconds);
        }
        for (int p = 0; p < 3; p++)
            plan_free(plans[p]);
        cluster_free(cluster);
        cost_free(cost);
    }
}

/* Pinned replicas are those of one pipeline. */
static void the_bound_counts_the_devices_of_all_pipelines(void **state)
{
    (void)state;
    for (int pipelines = 0; pipelines <= 4; pipelines += 2) {
        struct plan_request request = { .global_batch = 8, .n_replicas = 1,
                                        .replicas = (int[]){ 1 }, .pipelines = pipelines };
        struct plan *plan = plan_for(6, ROOMY, &request, NULL);

        assert_non_null(plan);
        assert_true(plan->iteration_seconds >= plan->lower_bound_seconds);
        plan_free(plan);
    }
}

/* One stage on one device, of four micro-batches at once. */
static struct plan_request one_stage(const char *recompute, double memory)
{
    static int one = 1;

    return (struct plan_request){ .global_batch = 4, .optimizer = "sgd", .n_replicas = 1,
                                  .replicas = &one, .micro_batch = 1, .schedule = "gpipe",
                                  .recompute = recompute, .memory = memory };
}

/* One micro-batch keeps 600 bytes of activations; four keep 2400, or 600 and what arrives. */
/* Devices that have no room for a block are as none, wherever they are; and who has only these is
 * told what would do. Six blocks want 2000 bytes each, and 200 for each micro-batch at most.
 */
static void devices_that_are_too_small_are_left_idle(void **state)
{
    struct plan_request request = { .global_batch = 12 };
    struct cluster *cluster = open_cluster("flat:6,bandwidth=1e9,latency=1e-3,memory=1000");
    struct cluster *large = open_cluster("flat:3,bandwidth=1e9,latency=1e-3,memory=9000");
    struct cost *cost = even_cost(6, 100, 1000);
    struct plan *best = partition(cost, large, &request, NULL, NULL);
    struct err err = { 0 };

    (void)state;
    assert_non_null(best);
    for (int way = 0; way < 3; way++) {
        for (int stages = 0; stages <= 3; stages += 3)
            for (int pipelines = 0; pipelines < 2; pipelines++) {
                struct plan *plan;

                for (int d = 0; d < 6; d++)
                    cluster->devices[d].memory =
                        (way == 0 ? d < 3 : way == 1 ? d > 2 : d % 2) ? 9000 : 1000;
                request.stages = stages;
                request.pipelines = pipelines;
                plan = partition(cost, cluster, &request, NULL, &err);
                if (!plan)
                    fail_msg("%d, %d: %s", way, stages, err.text);
                assert_true(stages || plan->iteration_seconds <=
                                          best->iteration_seconds * (1 + CLOSE));
                assert_true(plan->lower_bound_seconds <= plan->iteration_seconds);
                plan_free(plan);
            }
    }
    request = (struct plan_request){ .global_batch = 12, .stages = 4,
                                       .schedule = "1f1b" };
    assert_null(partition(cost, cluster, &request, NULL, &err));
    assert_contains(err.text, "nothing was found that fits the 6 devices, of 1000 to 9000 bytes");
    plan_free(best);
    cluster_free(cluster);
    cluster_free(large);
    cost_free(cost);
}

static void a_stage_recomputes_where_memory_demands_it(void **state)
{
    static const struct {
        const char *recompute;
        double memory;
        bool fits, again;
    } cases[] = {
        { NULL, 15000, true, false },  { NULL, 13000, true, true },
        { "none", 13000, false, false }, { "full", 15000, true, true },
        { "full", 12000, false, true },
    };
    double seconds[2] = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_request request = one_stage(cases[i].recompute, cases[i].memory);
        struct plan *plan = plan_for(6, ROOMY, &request, NULL);

        assert_int_equal(plan != NULL, cases[i].fits);
        if (plan) {
            assert_int_equal(plan->stages[0].recompute == PLAN_RECOMPUTE_FULL, cases[i].again);
            assert_true(plan->stages[0].memory <= cases[i].memory);
            seconds[cases[i].again] = plan->iteration_seconds;
            assert_true(plan->iteration_seconds >= plan->lower_bound_seconds);
        }
        plan_free(plan);
    }
    /* 18 seconds for each of four, and another 6. */
    assert_true(fabs(seconds[0] - 72) < 1e-6 && fabs(seconds[1] - 96) < 1e-6);
}

/* Blocks that keep 40 of their 100 bytes for half a second: six keep 240 for each of four, and
 * once the 360 that they do not keep; beside 12000, and what arrives, in all cases.
 */
static void less_is_run_again_where_that_is_enough(void **state)
{
    static const struct {
        const char *recompute;
        double memory, seconds;
        enum plan_recompute again;
    } cases[] = {
        { NULL, 15000, 72, PLAN_RECOMPUTE_NONE },   { NULL, 13500, 84, PLAN_RECOMPUTE_SELECTIVE },
        { NULL, 13000, 96, PLAN_RECOMPUTE_FULL },   { "full", 15000, 96, PLAN_RECOMPUTE_FULL },
        { "selective", 15000, 84, PLAN_RECOMPUTE_SELECTIVE },
    };
    struct cost *cost = even_cost(6, 1, 1000);
    struct cluster *cluster = open_cluster(ROOMY);

    (void)state;
    for (int b = 0; b < cost->n_blocks; b++) {
        cost->blocks[b].selective_dgrad = mem_new(1, sizeof(double));
        cost->blocks[b].selective_activations = mem_new(1, sizeof(double));
        cost->blocks[b].selective_dgrad[0] = 1.5;
        cost->blocks[b].selective_activations[0] = 40;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plan_request request = one_stage(cases[i].recompute, cases[i].memory);
        struct plan *plan = partition(cost, cluster, &request, NULL, NULL);

        assert_non_null(plan);
        assert_int_equal(plan->stages[0].recompute, cases[i].again);
        assert_true(plan->stages[0].memory <= cases[i].memory);
        assert_true(fabs(plan->iteration_seconds - cases[i].seconds) < 1e-6);
        assert_true(plan->iteration_seconds >= plan->lower_bound_seconds);
        plan_free(plan);
    }
    cluster_free(cluster);
    cost_free(cost);
}

static void a_block_that_fits_nowhere_is_named_with_what_it_lacks(void **state)
{
    struct plan_request request = { .global_batch = 4, .memory = 2000 };
    struct err err = { 0 };

    (void)state;
    /* 2000 bytes for parameters and gradients, and 100 of activations of one sample. */
    assert_null(plan_for(6, ROOMY, &request, &err));
    assert_contains(err.text, "block \"b");
    assert_contains(err.text, "does not fit on one device, by 10");
    assert_int_equal(err.code, EXIT_FAILED);
    request.memory = 2500;
    memset(&err, 0, sizeof(err));
    assert_null(plan_for(6, ROOMY, &request, &err));
    assert_contains(err.text, "does not fit on 4 devices of 2500 bytes: block \"b");
}

static int half_as_much_again(void *user, const struct plan *plan, int stage,
                              struct memory_use *use, struct err *err)
{
    (void)err;
    ++*(int *)user;
    use->parameters = use->gradients = (size_t)(1500 * plan->stages[stage].n_blocks);
    use->total = use->parameters + use->gradients;
    return 0;
}

static void the_exact_memory_decides(void **state)
{
    int calls = 0;
    struct plan_request request = { .global_batch = 4, .memory = 7000,
                                    .memory_of = half_as_much_again, .user = &calls };
    struct err err = { 0 };
    struct plan *plan = plan_for(6, ROOMY, &request, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_true(calls > 0);
    for (int s = 0; s < plan->n_stages; s++)
        assert_true(plan->stages[s].n_blocks <= 2 && plan->stages[s].memory <= 7000);
    plan_free(plan);
}

/* Of what is not parameters and gradients four fifths of the estimate. */
static int less_than_estimated(void *user, const struct plan *plan, int stage,
                               struct memory_use *use, struct err *err)
{
    double fixed = 2000.0 * plan->stages[stage].n_blocks;

    (void)err;
    (void)user;
    use->parameters = use->gradients = (size_t)fixed / 2;
    use->total = (size_t)(fixed + 0.8 * (plan->stages[stage].memory - fixed));
    return 0;
}

static void what_fits_as_compiled_is_found_where_the_estimate_is_too_large(void **state)
{
    struct plan_request request = { .global_batch = 4, .micro_batches = 1, .recompute = "none" };
    const char *one = "flat:1,bandwidth=1e9,latency=0,memory=1e30";
    struct err err = { 0 };
    struct plan *plan = plan_for(6, one, &request, &err);

    (void)state;
    assert_non_null(plan);
    assert_true(plan->stages[0].memory > 6 * 2000);
    request.memory = 6 * 2000 + 0.9 * (plan->stages[0].memory - 6 * 2000);
    plan_free(plan);
    assert_null(plan_for(6, one, &request, &err));
    err = (struct err){ 0 };
    request.memory_of = less_than_estimated;
    plan = plan_for(6, one, &request, &err);
    if (!plan)
        fail_msg("%s", err.text);
    assert_true(plan->stages[0].memory <= request.memory);
    plan_free(plan);
}

/* As estimated, but for the first stage, which has 3000 bytes of buffers more. */
static int first_stage_has_more(void *user, const struct plan *plan, int stage,
                                struct memory_use *use, struct err *err)
{
    (void)err;
    (void)user;
    use->parameters = use->gradients = (size_t)(1000 * plan->stages[stage].n_blocks);
    use->buffers = stage == 0 && plan->n_stages > 1 ? 3000 : 0;
    use->total = use->parameters + use->gradients + use->buffers;
    return 0;
}

/* 6 blocks of 2000 bytes: 2 and 4 of them fit, once the first stage has buffers. */
static void a_small_stage_that_was_underestimated_does_not_forbid_a_large_one(void **state)
{
    struct plan_request request = { .global_batch = 4, .memory = 8600, .stages = 2,
                                    .micro_batches = 4, .memory_of = first_stage_has_more };
    struct err err = { 0 };
    struct plan *plan = plan_for(6, "flat:2,bandwidth=1e9,latency=0,memory=1e30", &request, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->stages[0].n_blocks, 2);
    assert_int_equal(plan->stages[1].n_blocks, 4);
    plan_free(plan);
}

/* As estimated under 1f1b; what W needs of B, which no cost file says, is as much again. */
static int more_where_w_waits(void *user, const struct plan *plan, int stage,
                              struct memory_use *use, struct err *err)
{
    double fixed = 2000.0 * plan->stages[stage].n_blocks;
    bool waits = strcmp(plan->schedule, "1f1b") != 0 && strcmp(plan->schedule, "gpipe") != 0;

    (void)user;
    (void)err;
    use->parameters = use->gradients = (size_t)fixed / 2;
    use->total = (size_t)(fixed + (plan->stages[stage].memory - fixed) * (waits ? 3 : 1));
    return 0;
}

/* 100 layers of four blocks, 200, 100 and 500 bytes between these and 100 between layers, where 256
 * cuts are looked at: two of each layer's, and of some layers a third.
 */
static void of_many_cuts_those_between_layers_and_the_thinnest_are_looked_at(void **state)
{
    const double bytes[] = { 200, 100, 500, 100 };
    struct cost *cost = even_cost(400, 100, 0);
    struct table *table;
    int seen[4] = { 0 };

    (void)state;
    for (int i = 0; i < 400; i++)
        cost->blocks[i].parameters = 1000 * (1 + i % 4);
    for (int i = 0; i < 399; i++)
        cost->edges[i].bytes[0] = bytes[cost->edges[i].from % 4];
    table = table_new(cost, 256);
    assert_int_equal(table->n, 256);
    assert_int_equal(table->cuts[256], 400);
    for (int i = 0; i < 256; i++) {
        assert_true(table->cuts[i] < table->cuts[i + 1]);
        seen[table->cuts[i] % 4]++;
    }
    assert_int_equal(seen[0], 100);
    assert_int_equal(seen[1], 56);
    assert_int_equal(seen[2], 100);
    assert_int_equal(seen[3], 0);
    table_free(table);
    cost_free(cost);
}

/* A stage has room for 30 samples in flight and for one of 200 blocks: 24 of 48 samples come to
 * each of two replicas. As many stages as have but one replica, so that 388 devices do, keep no
 * more than that only where micro-batches are of two samples.
 */
static void small_micro_batches_are_searched_before_the_limit_is_reached(void **state)
{
    struct cost *cost = even_cost(200, 100, 10000);
    struct cluster *cluster = open_cluster("flat:388,bandwidth=1e9,latency=0,memory=1e9");
    struct plan_request request = { .global_batch = 48, .recompute = "full", .memory = 23500 };
    struct err err = { 0 };
    struct plan *plan = partition(cost, cluster, &request, NULL, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->micro_batch, 2);
    assert_int_equal(plan->n_stages, 200);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* So many blocks that not all cuts are tried. */
static void a_schedule_that_does_not_fit_leaves_the_plan_that_it_was_to_improve(void **state)
{
    struct plan_request request = { .global_batch = 64, .micro_batch = 1, .memory = 26000,
                                    .stages = 4, .memory_of = more_where_w_waits };
    struct plan_request pinned = request;
    struct err err = { 0 };
    struct plan *plan = plan_for(40, ROOMY, &request, &err), *other;

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    pinned.schedule = "1f1b";
    other = plan_for(40, ROOMY, &pinned, &err);
    assert_non_null(other);
    assert_string_equal(plan->schedule, "1f1b");
    assert_true(plan->iteration_seconds <= other->iteration_seconds * (1 + CLOSE));
    plan_free(plan);
    plan_free(other);
}

/* It would be faster than the others: 24 seconds for 8 micro-batches of F = B = W = 1. */
static void an_asynchronous_schedule_is_taken_only_where_it_is_asked_for(void **state)
{
    struct plan_request request = { .global_batch = 8, .n_replicas = 4,
                                    .replicas = (int[]){ 1, 1, 1, 1 }, .micro_batches = 8 };
    struct plan *own = plan_for(4, ROOMY, &request, NULL), *late, *plain;

    (void)state;
    request.schedule = "2bw";
    late = plan_for(4, ROOMY, &request, NULL);
    request.schedule = "1f1b";
    plain = plan_for(4, ROOMY, &request, NULL);
    assert_non_null(own);
    assert_non_null(late);
    assert_int_equal(plan_versions(own), 1);
    assert_int_equal(plan_versions(late), 2);
    assert_true(own->iteration_seconds > 24 + 1);
    assert_true(fabs(late->iteration_seconds - 24) < 1e-3);
    assert_true(late->lower_bound_seconds <= late->iteration_seconds);
    /* The same micro-batches in flight, and the weights twice. */
    for (int s = 0; s < 4; s++)
        assert_true(fabs(late->stages[s].memory - plain->stages[s].memory -
                         plain->stages[s].parameters) < 1e-6);
    plan_free(own);
    plan_free(late);
    plan_free(plain);
}

/* By the closed form, and by simulation, of 'n' stages of one device each. */
static void time_both(const struct cost *cost, int n, int64_t count, double *closed,
                      double *simulated)
{
    struct plan_request request = { .global_batch = count, .schedule = "2bw" };
    struct cluster *cluster = open_cluster("flat:8,bandwidth=1e30,latency=0,memory=1e30");
    struct search *search = search_new(cost, cluster, &request);
    struct candidate c = { .n_stages = n, .cuts = mem_new((size_t)n + 1, sizeof(int)),
                           .replicas = mem_new((size_t)n, sizeof(int)), .micro_batch = 1,
                           .micro_batches = count, .schedule = SCHEDULE_2BW };
    struct plan *plan;

    for (int s = 0; s < n; s++) {
        c.cuts[s + 1] = (s + 1) * cost->n_blocks / n;
        c.replicas[s] = 1;
    }
    *closed = partition_closed(search, &c);
    plan = place(cost, cluster, &request, &c);
    *simulated = simulate_seconds(plan, cost, cluster, NULL);
    plan_free(plan);
    free(c.again);
    free(c.cuts);
    free(c.replicas);
    search_free(search);
    cluster_free(cluster);
}

/* Of chains. Where stages outnumber the micro-batches their first ones run in step, and W, which
 * others need not wait for, is taken as if they did.
 */
static void the_closed_form_without_a_flush_is_the_steady_state(void **state)
{
    struct cost *even = even_cost(8, 0, 0);
    double closed, simulated;

    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int m = 1; m <= 16; m++) {
            time_both(even, n, m, &closed, &simulated);
            assert_true(simulated <= closed * (1 + CLOSE));
            assert_true(m < n || closed <= simulated * (1 + CLOSE));
        }
    cost_free(even);
    for (unsigned seed = 1; seed <= 100; seed++) {
        struct cost *cost = chain_cost(8, seed);
        int n = 1 + (int)(seed % 8);
        double step = 0;

        /* The longest update need not be that of the slowest stage. */
        for (int i = 0; i < cost->n_blocks; i++)
            step += cost->blocks[i].step;
        for (int m = 1; m <= 2 * n; m++) {
            time_both(cost, n, m, &closed, &simulated);
            if (simulated > closed * (1 + CLOSE) || (m >= n && closed > simulated + step))
                fail_msg("seed %u, %d micro-batches: closed form %.9g, simulated %.9g", seed, m,
                         closed, simulated);
        }
        cost_free(cost);
    }
}

/* Of even stages. Else a part of the wait may be while slower ones compute. */
static void the_closed_form_has_the_wait_for_gradients_of_others(void **state)
{
    struct cost *cost = even_cost(8, 0, 0);
    int readers[2];
    struct cost_shared shared = { .name = "w", .n_blocks = 2, .blocks = readers };
    double closed, simulated;

    (void)state;
    free(cost->shared);
    cost->shared = &shared;
    cost->n_shared = 1;
    for (readers[0] = 0; readers[0] < 7; readers[0]++)
        for (readers[1] = readers[0] + 1; readers[1] < 8; readers[1]++)
            for (int n = 2; n <= 8; n++)
                for (int m = n; m <= 12; m++) {
                    time_both(cost, n, m, &closed, &simulated);
                    assert_true(simulated <= closed * (1 + CLOSE));
                    assert_true(8 % n > 0 || closed <= simulated * (1 + CLOSE));
                }
    cost->shared = NULL;
    cost->n_shared = 0;
    cost_free(cost);
}

/* zb-h1 keeps four micro-batches in each of four stages: 10 blocks and so 20000 bytes of
 * parameters and 4000 of activations. zb has as many slots more as fit, none and then one.
 */
static void a_schedule_that_is_asked_for_is_cut_by_its_own_slots(void **state)
{
    struct plan_request request = { .global_batch = 64, .micro_batch = 1, .memory = 24100,
                                    .stages = 4, .schedule = "zb-h1" };
    struct err err = { 0 };
    struct plan *plan;

    (void)state;
    for (int k = 0; k < 3; k++) {
        request.schedule = k ? "zb" : "zb-h1";
        request.memory = k < 2 ? 24100 : 25100;
        plan = plan_for(40, ROOMY, &request, &err);
        if (!plan)
            fail_msg("%s", err.text);
        for (int s = 0; s < 4; s++)
            assert_true(plan->stages[s].memory <= request.memory);
        assert_int_equal((int)(4 * plan->schedule_memory + 0.5), k == 0 ? 0 : k + 3);
        plan_free(plan);
    }
    request.memory = 23000;
    assert_null(plan_for(40, ROOMY, &request, &err));
    assert_contains(err.text, "lacks 10");
    /* 1f1b would fit. */
    request.stages = 0;
    request.memory = 23800;
    memset(&err, 0, sizeof(err));
    assert_null(plan_for(40, ROOMY, &request, &err));
    assert_contains(err.text, "--schedule zb: nothing was found that fits 23800 bytes");
}

/* Two blocks that do not fit one device, slow wires between the nodes: each node has a pipeline. */
static void pipelines_stay_inside_the_nodes_where_messages_are_large(void **state)
{
    struct plan_request request = { .global_batch = 64, .memory = 3.2e6 };
    const char *spec = "tree:4x2,inside=1e9,across=4e4,memory=1e9";
    struct cost *cost = even_cost(2, 4e5, 1e6);
    struct cluster *cluster = open_cluster(spec);
    struct plan *plan = partition(cost, cluster, &request, NULL, NULL);

    (void)state;
    assert_non_null(plan);
    assert_int_equal(plan->pipelines, 4);
    assert_int_equal(plan->n_stages, 2);
    assert_int_equal(plan->micro_batches * plan->micro_batch, 16);
    for (int p = 0; p < 4; p++)
        for (int s = 0; s < 2; s++)
            assert_int_equal(cluster_find_device(cluster, plan->stages[s].devices[p]),
                             2 * p + s);
    plan_free(plan);
    /* Replicas that are pinned are those of one pipeline. */
    request.n_replicas = 2;
    request.replicas = (int[]){ 4, 4 };
    plan = partition(cost, cluster, &request, NULL, NULL);
    assert_non_null(plan);
    assert_int_equal(plan->pipelines, 1);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

static void shared_parameters_have_the_lowest_stage_as_owner(void **state)
{
    struct cost *cost = even_cost(4, 1, 1000);
    struct cluster *cluster = open_cluster(ROOMY);
    struct plan_request request = { .global_batch = 8, .stages = 4 };
    struct plan *plan;

    (void)state;
    cost->n_shared = 1;
    free(cost->shared);
    cost->shared = mem_new(1, sizeof(*cost->shared));
    cost->shared[0] = (struct cost_shared){ mem_strdup("wte"), 500, 2,
                                            mem_new(2, sizeof(int)) };
    cost->shared[0].blocks[1] = 3;
    plan = partition(cost, cluster, &request, NULL, NULL);
    assert_non_null(plan);
    assert_int_equal(plan->n_shared, 1);
    assert_int_equal(plan->shared[0].owner, 0);
    assert_int_equal(plan->shared[0].stages[1], 3);
    assert_true(plan->stages[3].memory > plan->stages[2].memory);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

/* Whatever walks through them must not get lost where it cannot end with as many. */
static void many_stages_are_soon_found_where_they_are_pinned(void **state)
{
    struct plan_request request = { .global_batch = 64, .stages = 24 };
    struct err err = { 0 };
    struct plan *plan =
        plan_for(64, "flat:32,bandwidth=1e9,latency=0,memory=1e30", &request, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_stages, 24);
    plan_free(plan);
}

static void stages_that_share_a_parameter_ascend_whatever_the_order_of_the_blocks(void **state)
{
    struct cost *cost = even_cost(3, 1, 1000);
    struct cluster *cluster = open_cluster(ROOMY);
    struct plan_request request = { .global_batch = 1 };
    struct candidate c = { .n_stages = 2, .cuts = (int[]){ 0, 1, 3 }, .order = (int[]){ 1, 0, 2 },
                           .replicas = (int[]){ 1, 1 }, .micro_batch = 1, .micro_batches = 1 };
    struct plan *plan;

    (void)state;
    cost->n_shared = 1;
    free(cost->shared);
    cost->shared = mem_new(1, sizeof(*cost->shared));
    cost->shared[0] = (struct cost_shared){ mem_strdup("wte"), 500, 3,
                                            mem_new(3, sizeof(int)) };
    for (int k = 0; k < 3; k++)
        cost->shared[0].blocks[k] = k;
    plan = place(cost, cluster, &request, &c);
    assert_int_equal(plan->shared[0].n_stages, 2);
    assert_int_equal(plan->shared[0].stages[0], 0);
    assert_int_equal(plan->shared[0].stages[1], 1);
    assert_int_equal(plan->shared[0].owner, 0);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_faster_than_the_plan),
        cmocka_unit_test(no_sharded_plan_is_faster_than_the_plan),
        cmocka_unit_test(nothing_that_is_pinned_is_faster_than_the_plan),
        cmocka_unit_test(nothing_is_faster_than_the_plan_without_a_flush),
        cmocka_unit_test(no_plan_is_below_the_bound_and_most_are_near_it),
        cmocka_unit_test(the_closed_form_without_a_flush_is_the_steady_state),
        cmocka_unit_test(the_closed_form_has_the_wait_for_gradients_of_others),
        cmocka_unit_test(an_asynchronous_schedule_is_taken_only_where_it_is_asked_for),
        cmocka_unit_test(pins_are_honoured),
        cmocka_unit_test(the_schedule_follows_from_times_and_memory),
        cmocka_unit_test(devices_have_several_stages_where_that_waits_less),
        cmocka_unit_test(
            of_forecasts_within_the_spread_that_with_the_fewest_stages_is_taken),
        cmocka_unit_test(devices_have_one_stage_where_a_pin_wants_it),
        cmocka_unit_test(several_stages_of_a_device_honour_pins),
        cmocka_unit_test(pins_that_cannot_be_had_are_refused_with_the_reason),
        cmocka_unit_test(every_share_is_a_multiple_of_the_batchnorm_group),
        cmocka_unit_test(a_memory_limit_forces_a_cut),
        cmocka_unit_test(state_is_sharded_where_memory_demands_it),
        cmocka_unit_test(state_is_sharded_where_that_is_faster),
        cmocka_unit_test(the_bound_counts_the_devices_of_all_pipelines),
        cmocka_unit_test(devices_that_are_too_small_are_left_idle),
        cmocka_unit_test(a_stage_recomputes_where_memory_demands_it),
        cmocka_unit_test(less_is_run_again_where_that_is_enough),
        cmocka_unit_test(a_block_that_fits_nowhere_is_named_with_what_it_lacks),
        cmocka_unit_test(the_exact_memory_decides),
        cmocka_unit_test(what_fits_as_compiled_is_found_where_the_estimate_is_too_large),
        cmocka_unit_test(a_small_stage_that_was_underestimated_does_not_forbid_a_large_one),
        cmocka_unit_test(a_schedule_that_does_not_fit_leaves_the_plan_that_it_was_to_improve),
        cmocka_unit_test(a_schedule_that_is_asked_for_is_cut_by_its_own_slots),
        cmocka_unit_test(of_many_cuts_those_between_layers_and_the_thinnest_are_looked_at),
        cmocka_unit_test(small_micro_batches_are_searched_before_the_limit_is_reached),
        cmocka_unit_test(pipelines_stay_inside_the_nodes_where_messages_are_large),
        cmocka_unit_test(many_stages_are_soon_found_where_they_are_pinned),
        cmocka_unit_test(shared_parameters_have_the_lowest_stage_as_owner),
        cmocka_unit_test(
            stages_that_share_a_parameter_ascend_whatever_the_order_of_the_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
