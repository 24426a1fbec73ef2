/* SPDX-License-Identifier: MIT */
/* A search with more to choose from finds nothing slower: free ones beside such with pins, all
 * plans beside any search, and whatever the order of the blocks in the cost file.
 */
#include "planning.h"

#include <math.h>

#include "scheduler/schedule.h"

#define PROBLEMS 24
#define ORDERED 6
#define EXHAUSTED 36

static void add_block(json_t *top, const char *name, double seconds, double parameters,
                      double activations)
{
    json_array_append_new(json_object_get(top, "blocks"),
                          json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", name, "forward",
                                    seconds, "dgrad", seconds, "wgrad", seconds, "parameters",
                                    parameters, "activations", activations));
}

static void add_edge(json_t *top, const char *from, const char *to, double bytes)
{
    json_array_append_new(json_object_get(top, "edges"),
                          json_pack("{s:s, s:s, s:s, s:f}", "from", from, "to", to, "value", from,
                                    "bytes", bytes));
}

static json_t *new_cost(void)
{
    return json_pack("{s:s, s:i, s:[i], s:[], s:[]}", "schema", "tasuki-cost", "version", 1,
                     "micro_batch", 1, "blocks", "edges");
}

static struct cost *take_cost(json_t *top)
{
    struct err err = { 0 };
    struct cost *cost = cost_from_json("test", top, &err);

    json_decref(top);
    if (!cost)
        fail_msg("%s", err.text);
    return cost;
}

static double seconds_of(const struct cost *cost, const char *spec, struct plan_request request)
{
    struct err err = { 0 };
    struct cluster *cluster = open_cluster(spec);
    struct plan *plan = partition(cost, cluster, &request, NULL, &err);
    double seconds = plan ? plan->iteration_seconds : -1;

    assert_true(!plan || plan->lower_bound_seconds <= seconds * (1 + 1e-9));
    plan_free(plan);
    cluster_free(cluster);
    return seconds;
}

/* Six blocks of 10 ms and 100 MB for a sample, of which a device has room for two. */
static struct cost *heavy_cost(void)
{
    json_t *top = new_cost();

    for (int i = 0; i < 6; i++) {
        char name[16], before[16];

        snprintf(name, sizeof(name), "b%d", i);
        snprintf(before, sizeof(before), "b%d", i - 1);
        add_block(top, name, 0.01, 1e8, 100);
        if (i)
            add_edge(top, before, name, 1e7);
    }
    return take_cost(top);
}

/* By the closed form pipelines on several nodes take a fifth of what they do: their all-reduces share
 * one wire of 100 MB/s. Four stages on the eight devices of one node are best.
 */
static void sums_that_share_a_wire_hide_nothing_better(void **state)
{
    const struct plan_request request = { .global_batch = 128, .recompute = "none" };
    struct cost *cost = heavy_cost();

    (void)state;
    for (int nodes = 1; nodes <= 4; nodes++) {
        char spec[128];

        snprintf(spec, sizeof(spec), "tree:%dx8,inside=1e10,across=1e8,memory=4.2e8", nodes);
        assert_true(seconds_of(cost, spec, request) < 3.9991);
    }
    cost_free(cost);
}

/* A chain, and a machine of 16 to 32 devices whose nodes are slowly joined. */
static struct cost *random_chain(unsigned *seed, char *spec, size_t size)
{
    static const int shapes[][2] = { { 4, 4 }, { 2, 8 }, { 3, 8 }, { 4, 8 } };
    const int *shape = shapes[next_random(seed) % 4];
    int n = 6 + (int)(next_random(seed) % 7);
    double inside = random_in(seed, 3e9, 1e11), sum = 0, across;
    json_t *top = new_cost();

    for (int i = 0; i < n; i++) {
        double parameters = random_in(seed, 1e6, 2e8), seconds = random_in(seed, 5e-3, 15e-3);
        double activations = random_in(seed, 1e5, 1e7);
        char name[16], before[16];

        snprintf(name, sizeof(name), "b%d", i);
        snprintf(before, sizeof(before), "b%d", i - 1);
        add_block(top, name, seconds, parameters, activations);
        if (i)
            add_edge(top, before, name, random_in(seed, 1e5, 1e7));
        sum += parameters;
    }
    across = inside / random_in(seed, 3, 100);
    snprintf(spec, size, "tree:%dx%d,inside=%g,across=%g,memory=%g", shape[0], shape[1], inside,
             across, sum * random_in(seed, 0.6, 3) + 1e9);
    return take_cost(top);
}

static void a_search_is_no_slower_than_with_pipelines_pinned(void **state)
{
    (void)state;
    for (unsigned i = 0, n = some_of(PROBLEMS); i < n; i++) {
        unsigned seed = 31 * i + 7;
        struct plan_request request = { .global_batch = 32 };
        char spec[256];
        struct cost *cost = random_chain(&seed, spec, sizeof(spec));
        double free_seconds = seconds_of(cost, spec, request);

        for (request.pipelines = 1; request.pipelines <= 8; request.pipelines *= 2) {
            double pinned = seconds_of(cost, spec, request);

            if (pinned > 0 && !(free_seconds > 0 && free_seconds <= pinned * (1 + 1e-6)))
                fail_msg("%u, %s: %g s, %d pipelines %g s", i, spec, free_seconds,
                         request.pipelines, pinned);
        }
        cost_free(cost);
    }
}

/* Five to eight blocks of about the same time, with messages that are short beside it, or not; and
 * two to four devices, on one crossbar or in two nodes, with room for all or for about a third.
 */
static struct cost *short_chain(unsigned *seed, char *spec, size_t size)
{
    static const char *const shapes[] = { "flat:2", "flat:3", "flat:4", "tree:2x1", "tree:2x2" };
    int shape = (int)(next_random(seed) % 5), n = 5 + (int)(next_random(seed) % 4);
    double message = pow(10, random_in(seed, 3, 6.5)), bandwidth = random_in(seed, 5e8, 5e9);
    double sum = 0;
    json_t *top = new_cost();
    char links[64];

    for (int i = 0; i < n; i++) {
        double parameters = random_in(seed, 1e6, 2e7), kept = random_in(seed, 1e6, 1e7);
        char name[16], before[16];

        snprintf(name, sizeof(name), "b%d", i);
        snprintf(before, sizeof(before), "b%d", i - 1);
        add_block(top, name, random_in(seed, 8e-3, 12e-3), parameters, kept);
        if (i)
            add_edge(top, before, name, random_in(seed, 0.5, 2) * message);
        sum += 2 * parameters + 2 * kept;
    }
    if (shape < 3)
        snprintf(links, sizeof(links), "bandwidth=%g,latency=0", bandwidth);
    else
        snprintf(links, sizeof(links), "inside=%g,across=%g", bandwidth, bandwidth / 4);
    snprintf(spec, size, "%s,%s,memory=%g", shapes[shape], links,
             next_random(seed) % 2 ? 1e12 : sum * random_in(seed, 0.3, 1.2));
    return take_cost(top);
}

/* The plan, or NULL where none fits; in '*count' how many were simulated, where that is said. */
static struct plan *plan_of(const struct cost *cost, const char *spec,
                            const struct plan_request *request, long *count)
{
    struct cluster *cluster = open_cluster(spec);
    struct err err = { 0 };
    char *why = NULL, *all;
    struct plan *plan = partition(cost, cluster, request, &why, &err);

    all = why ? strstr(why, "All ") : NULL;
    *count = all ? strtol(all + 4, NULL, 10) : 0;
    free(why);
    cluster_free(cluster);
    return plan;
}

/* Devices with several stages are among these. */
static void no_search_is_faster_than_all_plans(void **state)
{
    int n = 0, won[SCHEDULE_KINDS] = { 0 };
    double worst = 0, sum = 0;

    (void)state;
    for (unsigned i = 0, most = some_of(EXHAUSTED); i < most; i++) {
        const int64_t batches[] = { 4, 6, 8 };
        unsigned seed = 31 * i + 7;
        struct plan_request request = { .global_batch = batches[i % 3] };
        char spec[256];
        struct cost *cost = short_chain(&seed, spec, sizeof(spec));
        long count;
        struct plan *plain = plan_of(cost, spec, &request, &count), *best;

        request.exhaustive = true;
        best = plan_of(cost, spec, &request, &count);
        assert_true(!plain == !best);
        if (best) {
            double off = plain->iteration_seconds / best->iteration_seconds - 1;

            if (off < -1e-9 || off > 0.1 ||
                best->lower_bound_seconds > best->iteration_seconds * (1 + 1e-9))
                fail_msg("%u, %s: %g s, of all %ld plans %g s, bound %g s", i, spec,
                         plain->iteration_seconds, count, best->iteration_seconds,
                         best->lower_bound_seconds);
            assert_true(count > 0);
            won[schedule_find(best->schedule)]++;
            worst = fmax(worst, off);
            sum += off;
            n++;
        }
        plan_free(plain);
        plan_free(best);
        cost_free(cost);
    }
    printf("# %d problems, zb-v is best in %d, interleaved in %d: plans are %.3g %% slower on "
           "average, %.3g %% at worst\n", n, won[SCHEDULE_ZB_V], won[SCHEDULE_INTERLEAVED],
           1e2 * sum / n, 1e2 * worst);
    fflush(stdout);
    assert_true(n < EXHAUSTED || won[SCHEDULE_ZB_V] > 0);
    assert_true(n < EXHAUSTED || won[SCHEDULE_INTERLEAVED] > 0);
}

static long count_plans(bool exhaustive, const char *schedule)
{
    const struct plan_request request = { .global_batch = 2, .exhaustive = exhaustive,
                                          .schedule = schedule };
    struct cost *cost = even_cost(4, 1, 1000);
    struct plan *plan;
    long count;

    plan = plan_of(cost, "flat:2,bandwidth=1e9,latency=0", &request, &count);
    assert_non_null(plan);
    plan_free(plan);
    cost_free(cost);
    return count;
}

/* Four blocks on two devices. One micro-batch of two samples: on one or both, or in three ways cut
 * in two. Two of one: on one, or cut under 1f1b, gpipe or zb-h1. As four stages: zb-v with either,
 * interleaved with two. Where these are asked for one device may have two stages, and both the same
 * ones.
 */
static void all_plans_are_counted(void **state)
{
    const long single = 2 + 3 + 1 + 3 * 3;

    (void)state;
    assert_int_equal(count_plans(false, NULL), single);
    assert_int_equal(count_plans(true, NULL), single + 2 + 1);
    assert_int_equal(count_plans(true, "1f1b"), 2 + 3 + 1 + 3);
    assert_int_equal(count_plans(true, "zb-v"), 3 * 2 + 3 + 2);
    assert_int_equal(count_plans(true, "interleaved"), 3 * 2 + 3 + 1);
}

/* Four blocks that keep 100 bytes each, on two devices with so many. */
static struct plan *plan_in(double memory, const char *schedule, int stages, bool exhaustive,
                            long *count)
{
    const struct plan_request request = { .global_batch = stages == 4 ? 2 : 4, .micro_batch = 1,
                                          .stages = stages, .schedule = schedule,
                                          .memory = memory, .exhaustive = exhaustive };
    struct cost *cost = even_cost(4, 1, 1);
    struct plan *plan = plan_of(cost, "flat:2,bandwidth=1e9,latency=0,memory=1e9", &request, count);

    cost_free(cost);
    return plan;
}

/* Two micro-batches of the first device's stages are 400 bytes, so that one of these runs again, or
 * the other, or both; of the second device's 300, which run again or do not.
 */
static void every_choice_of_what_runs_again_is_counted(void **state)
{
    struct plan *plan;
    long count;

    (void)state;
    plan_free(plan_in(0, "interleaved", 4, true, &count));
    assert_int_equal(count, 1);
    plan = plan_in(320, "interleaved", 4, true, &count);
    assert_non_null(plan);
    assert_int_equal(count, 3 * 4);
    assert_true(plan->stages[0].recompute || plan->stages[2].recompute);
    assert_false(plan->stages[1].recompute || plan->stages[3].recompute);
    plan_free(plan);
}

/* The second stage has one block, and two micro-batches of that, since W waits there. */
static void the_first_stage_of_zero_bubble_may_run_again(void **state)
{
    (void)state;
    for (int exhaustive = 0; exhaustive < 2; exhaustive++) {
        long count;
        struct plan *plan = plan_in(350, "zb-h1", 2, exhaustive, &count);

        assert_non_null(plan);
        assert_int_equal(plan->stages[0].n_blocks, 3);
        assert_int_equal(plan->stages[0].recompute, PLAN_RECOMPUTE_FULL);
        assert_int_equal(plan->stages[1].recompute, PLAN_RECOMPUTE_NONE);
        plan_free(plan);
    }
}

/* More than partition_small() goes through: 40 blocks that keep 10 bytes each. */
static void a_search_lets_it_run_again_too(void **state)
{
    const struct plan_request request = { .global_batch = 8, .micro_batch = 1, .stages = 4,
                                          .schedule = "zb-h1", .memory = 4000 };
    struct cost *cost = even_cost(40, 1, 1);
    struct plan *plan;
    long count;

    (void)state;
    plan = plan_of(cost, "flat:4,bandwidth=1e9,latency=0,memory=1e9", &request, &count);
    assert_non_null(plan);
    assert_int_equal(plan->stages[0].recompute, PLAN_RECOMPUTE_FULL);
    for (int s = 1; s < plan->n_stages; s++)
        assert_int_equal(plan->stages[s].recompute, PLAN_RECOMPUTE_NONE);
    plan_free(plan);
    cost_free(cost);
}

/* What is run again selectively takes longer than all of it. */
static void no_choice_of_what_runs_again_is_below_the_bound(void **state)
{
    json_t *top = new_cost();
    struct cost *cost;

    (void)state;
    for (int i = 0; i < 4; i++) {
        char name[2] = { (char)('a' + i), 0 }, before[2] = { (char)('a' + i - 1), 0 };

        add_block(top, name, 1, 0, 100);
        json_object_set_new(json_array_get(json_object_get(top, "blocks"), (size_t)i), "variants",
                            json_pack("[{s:s, s:f, s:f}]", "recompute", "selective", "dgrad", 2.9,
                                      "activations", 20.0));
        if (i > 0)
            add_edge(top, before, name, 1);
    }
    cost = take_cost(top);
    for (int64_t batch = 2; batch <= 8; batch *= 2) {
        struct plan_request request = { .global_batch = batch, .micro_batch = 1, .stages = 2,
                                        .schedule = "1f1b", .memory = 320 };
        const char *spec = "flat:2,bandwidth=1e9,latency=0,memory=1e9";
        long count;
        struct plan *plain = plan_of(cost, spec, &request, &count), *best;

        request.exhaustive = true;
        best = plan_of(cost, spec, &request, &count);
        assert_true(plain && best);
        assert_true(plain->lower_bound_seconds <= best->iteration_seconds * (1 + 1e-9));
        assert_true(best->iteration_seconds <= plain->iteration_seconds * (1 + 1e-9));
        plan_free(plain);
        plan_free(best);
    }
    cost_free(cost);
}

/* Branches of so many blocks each, side by side in the file, or one behind the other. */
static struct cost *branched_cost(int branches, int n, bool aside, unsigned seed)
{
    json_t *top = new_cost();
    double *seconds = mem_new((size_t)(branches * n), sizeof(*seconds));

    for (int i = 0; i < branches * n; i++)
        seconds[i] = random_in(&seed, 8e-3, 12e-3);
    add_block(top, "in", 1e-3, 1e6, 1e6);
    for (int i = 0; i < branches * n; i++) {
        int branch = aside ? i % branches : i / n, at = aside ? i / branches : i % n;
        char name[32];

        snprintf(name, sizeof(name), "b%d_%d", branch, at);
        add_block(top, name, seconds[branch * n + at], 3e9, 1e6);
    }
    add_block(top, "out", 1e-3, 1e6, 1e6);
    for (int branch = 0; branch < branches; branch++)
        for (int at = 0; at <= n; at++) {
            char from[32], to[32];

            snprintf(from, sizeof(from), "b%d_%d", branch, at - 1);
            snprintf(to, sizeof(to), "b%d_%d", branch, at);
            add_edge(top, at ? from : "in", at < n ? to : "out", at && at < n ? 1e8 : 1e6);
        }
    free(seconds);
    return take_cost(top);
}

static void the_order_of_the_file_does_not_matter(void **state)
{
    const struct plan_request request = { .global_batch = 32 };

    (void)state;
    for (unsigned i = 0, n = some_of(ORDERED); i < n; i++) {
        int branches = i % 2 ? 4 : 2, length = (i % 2 ? 9 : 17) + (int)i, devices = 4 << i / 2 % 3;
        struct cost *aside = branched_cost(branches, length, true, i);
        struct cost *behind = branched_cost(branches, length, false, i);
        char spec[128];
        double a, b;

        snprintf(spec, sizeof(spec), "flat:%d,bandwidth=1e9,latency=0,memory=1e15", devices);
        a = seconds_of(aside, spec, request);
        b = seconds_of(behind, spec, request);
        if (!(a > 0 && a <= 1.02 * b && b <= 1.02 * a))
            fail_msg("%d branches of %d, %s: %g s, %g s", branches, length, spec, a, b);
        cost_free(aside);
        cost_free(behind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_that_share_a_wire_hide_nothing_better),
        cmocka_unit_test(a_search_is_no_slower_than_with_pipelines_pinned),
        cmocka_unit_test(all_plans_are_counted),
        cmocka_unit_test(every_choice_of_what_runs_again_is_counted),
        cmocka_unit_test(the_first_stage_of_zero_bubble_may_run_again),
        cmocka_unit_test(a_search_lets_it_run_again_too),
        cmocka_unit_test(no_choice_of_what_runs_again_is_below_the_bound),
        cmocka_unit_test(no_search_is_faster_than_all_plans),
        cmocka_unit_test(the_order_of_the_file_does_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
