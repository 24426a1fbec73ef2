/* SPDX-License-Identifier: MIT */
/* The search against brute force, and its closed forms against the simulator. */
#include "planning.h"

#include <math.h>

#include "base/mem.h"
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
    for (unsigned seed = 1; seed <= some_of(12); seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
            check_case(seed, specs[i], &(struct plan_request){ .global_batch = 4 });
}

static void no_sharded_plan_is_faster_than_the_plan(void **state)
{
    (void)state;
    for (unsigned seed = 31; seed < 31 + some_of(4); seed++)
        for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++)
            check_case(seed, specs[i], &(struct plan_request){ .global_batch = 4,
                                                               .zero = PLAN_ZERO });
}

static void nothing_that_is_pinned_is_faster_than_the_plan(void **state)
{
    (void)state;
    for (unsigned seed = 21; seed < 21 + some_of(6); seed++) {
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
    for (unsigned seed = 21; seed < 21 + some_of(6); seed++)
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
    for (unsigned seed = 45; seed < 45 + some_of(12); seed++)
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

/* Four replicas of 3 s, and a ring over both nodes: 1.5 times 1e6 bytes across. */
static void the_bound_has_the_slowest_wire_between_so_many_replicas(void **state)
{
    struct cost *cost = even_cost(1, 0, 1e6);
    struct cluster *cluster = open_cluster("tree:2x2,inside=1e12,across=1e6,latency=0");
    struct plan *plan = partition(cost, cluster,
                                  &(struct plan_request){ .global_batch = 4, .n_replicas = 1,
                                                          .replicas = (int[]){ 4 } },
                                  NULL, NULL);

    (void)state;
    assert_non_null(plan);
    assert_true(fabs(plan->iteration_seconds - 4.5) < 1e-3);
    assert_true(fabs(plan->lower_bound_seconds - 4.5) < 1e-3);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
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
        cmocka_unit_test(the_bound_has_the_slowest_wire_between_so_many_replicas),
        cmocka_unit_test(of_many_cuts_those_between_layers_and_the_thinnest_are_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
