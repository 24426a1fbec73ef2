/* SPDX-License-Identifier: MIT */
#include "planning.h"

#include <math.h>

#include "scheduler/layers.h"
#include "scheduler/partition.h"
#include "scheduler/policy.h"

#define CASES 24
#define SAME 1e-9
#define AMPLE "flat:4,bandwidth=1e9,latency=1e-6,memory=1e12"

static const char *const names[] = { "rannc", "gpipe", "megatron", "equal" };

/* 'before', then layers of two blocks, then 'after'; each block of another time. */
static struct cost *layered(int before, int layers, int after)
{
    json_t *top = json_pack("{s:s, s:i, s:[i], s:[], s:[]}", "schema", "tasuki-cost", "version",
                            1, "micro_batch", 1, "blocks", "edges");
    int n = before + 2 * layers + after;
    struct err err = { 0 };
    struct cost *cost;

    for (int i = 0; i < n; i++) {
        bool layer = i >= before && i < before + 2 * layers;
        double parameters = layer ? 1e3 * (1 + (i - before) % 2) : 5e3 + i;
        char name[16], last[16];

        snprintf(name, sizeof(name), "b%d", i);
        json_array_append_new(json_object_get(top, "blocks"),
                              json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", name,
                                        "forward", 1e-3 * (1 + i % 3), "dgrad", 1e-3, "wgrad",
                                        1e-3, "parameters", parameters, "activations", 100.0));
        if (i == 0)
            continue;
        snprintf(last, sizeof(last), "b%d", i - 1);
        json_array_append_new(json_object_get(top, "edges"),
                              json_pack("{s:s, s:s, s:f}", "from", last, "to", name, "bytes",
                                        100.0));
    }
    cost = cost_from_json("layered", top, &err);
    json_decref(top);
    if (!cost)
        fail_msg("%s", err.text);
    return cost;
}

static struct plan *plan_by(const char *policy, const struct cost *cost, const char *spec,
                            struct plan_request request, struct err *err)
{
    struct cluster *cluster = open_cluster(spec);
    struct plan *plan;

    request.policy = policy;
    plan = partition(cost, cluster, &request, NULL, err);
    cluster_free(cluster);
    return plan;
}

static double seconds_of(const struct plan_stage *stage)
{
    return stage->forward + stage->dgrad + stage->wgrad;
}

static void layers_are_found_between_what_is_before_and_behind(void **state)
{
    struct cost *cost = layered(2, 6, 1);
    struct layers layers = layers_find(cost);

    (void)state;
    assert_int_equal(layers.first, 2);
    assert_int_equal(layers.blocks, 2);
    assert_int_equal(layers.n, 6);
    cost_free(cost);
    cost = random_cost(5, 1);
    assert_int_equal(layers_find(cost).n, 0);
    cost_free(cost);
}

static void the_last_layer_may_have_a_normalization_that_is_behind_it(void **state)
{
    struct cost *cost = layered(1, 3, 1);
    struct cost_block *last = &cost->blocks[6];
    struct plan *plan;

    (void)state;
    last->parameters *= 1.06;
    last->activations[0] *= 3.2;
    assert_int_equal(layers_find(cost).first, 1);
    assert_int_equal(layers_find(cost).n, 3);
    plan = plan_by("megatron", cost, AMPLE, (struct plan_request){ .global_batch = 12 }, NULL);
    assert_non_null(plan);
    plan_free(plan);
    last->parameters *= 2;
    assert_int_equal(layers_find(cost).n, 2);
    cost_free(cost);
}

static void equal_and_megatron_cut_between_layers(void **state)
{
    struct cost *cost = layered(2, 6, 1);

    (void)state;
    for (int i = 2; i < 4; i++) {
        struct plan *plan = plan_by(names[i], cost, AMPLE,
                                    (struct plan_request){ .global_batch = 8, .stages = 2 },
                                    NULL);

        assert_non_null(plan);
        assert_int_equal(plan->stages[0].n_blocks, 2 + 3 * 2);
        assert_int_equal(plan->stages[1].n_blocks, 3 * 2 + 1);
        assert_int_equal(plan->stages[0].replicas, 2);
        assert_int_equal(plan->stages[1].replicas, 2);
        assert_string_equal(plan->schedule, "1f1b");
        plan_free(plan);
    }
    cost_free(cost);
}

/* The least possible slowest of 'left' stages from block 'first' on, one sample each. */
static double least_bottleneck(const struct cost *cost, int first, int left)
{
    double sum = 0, best = INFINITY;

    for (int end = first + 1; end <= cost->n_blocks; end++) {
        const struct cost_block *b = &cost->blocks[end - 1];
        double rest = 0;

        sum += b->forward[0] + b->dgrad[0] + (b->wgrad ? b->wgrad[0] : 0);
        if (left == 1 ? end < cost->n_blocks : end == cost->n_blocks)
            continue;
        if (left > 1)
            rest = least_bottleneck(cost, end, left - 1);
        best = fmin(best, fmax(sum, rest));
    }
    return best;
}

static void gpipe_has_a_stage_for_each_device_as_even_as_can_be(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < CASES; seed++) {
        struct cost *cost = random_cost(7, seed);
        struct plan *plan = plan_by("gpipe", cost, AMPLE,
                                    (struct plan_request){ .global_batch = 8,
                                                           .micro_batch = 1 }, NULL);
        double slowest = 0, least = least_bottleneck(cost, 0, 4);

        assert_non_null(plan);
        assert_int_equal(plan->n_stages, 4);
        assert_string_equal(plan->schedule, "gpipe");
        for (int s = 0; s < 4; s++) {
            assert_int_equal(plan->stages[s].replicas, 1);
            slowest = fmax(slowest, seconds_of(&plan->stages[s]));
        }
        if (fabs(slowest - least) > SAME * least)
            fail_msg("seed %u: %.9g, brute force %.9g", seed, slowest, least);
        plan_free(plan);
        cost_free(cost);
    }
}

static bool is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

static void rannc_takes_the_fewest_stages_that_fit_and_powers_of_two(void **state)
{
    struct cost *cost = layered(1, 6, 1);
    int more_than_one = 0;

    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct plan_request request = { .global_batch = 16, .memory = 2e4 + 4e3 * i };
        struct plan *plan = plan_by("rannc", cost, AMPLE, request, NULL);
        int used = 0;

        if (!plan)
            continue;
        more_than_one += plan->n_stages > 1;
        assert_true(is_power_of_two(plan->micro_batches));
        for (int s = 0; s < plan->n_stages; s++) {
            assert_true(is_power_of_two(plan->stages[s].replicas));
            used += plan->stages[s].replicas;
        }
        assert_int_equal(used, 4);
        for (request.stages = 1; request.stages < plan->n_stages; request.stages++)
            assert_null(plan_by("rannc", cost, AMPLE, request, NULL));
        plan_free(plan);
    }
    assert_true(more_than_one > CASES / 4);
    cost_free(cost);
}

static void rannc_uses_as_few_nodes_for_a_pipeline_as_it_can(void **state)
{
    static const char *const spec = "tree:4x2,inside=1e9,across=1e8,memory=1e12";
    struct cost *cost = layered(1, 4, 1);
    struct plan *plan = plan_by("rannc", cost, spec, (struct plan_request){ .global_batch = 32 },
                                NULL);

    (void)state;
    assert_non_null(plan);
    assert_int_equal(plan->pipelines, 4);
    assert_int_equal(plan->n_stages, 1);
    assert_int_equal(plan->stages[0].replicas, 2);
    plan_free(plan);
    cost_free(cost);
}

static void no_policy_beats_the_search(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < CASES; seed++) {
        struct cost *cost = seed % 2 ? random_cost(6, seed) : layered(1, 1 + (int)seed % 4, 1);
        struct plan_request request = { .global_batch = 8 };
        struct plan *best = plan_by(NULL, cost, AMPLE, request, NULL);

        assert_non_null(best);
        for (int i = 0; i < 4; i++) {
            struct err err = { 0 };
            struct plan *plan = plan_by(names[i], cost, AMPLE, request, &err);

            if (!plan) {
                assert_string_equal(names[i], "megatron");
                continue;
            }
            if (plan->iteration_seconds < best->iteration_seconds * (1 - SAME))
                fail_msg("seed %u: %s takes %.9g, the search's plan %.9g", seed, names[i],
                         plan->iteration_seconds, best->iteration_seconds);
            plan_free(plan);
        }
        plan_free(best);
        cost_free(cost);
    }
}

static void refuse(const char *policy, const struct cost *cost, struct plan_request request,
                   const char *part)
{
    struct err err = { 0 };

    request.global_batch = 12;
    assert_null(plan_by(policy, cost, AMPLE, request, &err));
    assert_contains(err.text, part);
    assert_int_equal(err.code, EXIT_USAGE);
}

static void pins_that_contradict_a_policy_are_refused(void **state)
{
    struct cost *cost = layered(1, 6, 1), *other = random_cost(5, 3);
    struct plan_request uneven = { .n_replicas = 2, .replicas = (int[]){ 3, 1 } };

    (void)state;
    refuse("best", cost, (struct plan_request){ 0 }, "expected rannc, gpipe, megatron or equal");
    refuse("gpipe", cost, uneven, "a stage has one device");
    refuse("rannc", cost, uneven, "--replicas 3: only powers of two");
    refuse("rannc", cost, (struct plan_request){ .micro_batches = 3 }, "--micro-batches 3");
    refuse("megatron", cost, uneven, "--replicas says 3 and 1");
    refuse("megatron", cost, (struct plan_request){ .stages = 4 },
           "6 layers do not divide into 4 stages");
    refuse("gpipe", cost, (struct plan_request){ .schedule = "1f1b" }, "not 1f1b");
    refuse("equal", cost, (struct plan_request){ .exhaustive = true }, "--exhaustive");
    refuse("equal", cost, (struct plan_request){ .pipelines = 2 }, "--pipelines");
    refuse("rannc", cost,
           (struct plan_request){ .n_pins = 1, .pins = (const char *[]){ "b1=0" } }, "--pin");
    refuse("megatron", other, (struct plan_request){ 0 }, "no layer of it is repeated");
    cost_free(other);
    other = layered(5, 6, 0);
    refuse("megatron", other, (struct plan_request){ 0 },
           "5 blocks, \"b0\" to \"b4\", are before the first of 6 equal layers");
    cost_free(other);
    other = layered(0, 6, 3);
    refuse("megatron", other, (struct plan_request){ 0 }, "are behind the last of 6");
    cost_free(other);
    cost_free(cost);
}

static void what_does_not_fit_is_said_to_be_too_large(void **state)
{
    struct cost *cost = layered(1, 6, 1);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct plan_request request = { .global_batch = 8, .memory = 10 };
        struct err err = { 0 };

        assert_null(plan_by(names[i], cost, AMPLE, request, &err));
        assert_contains(err.text, names[i]);
        assert_contains(err.text, "fits into the memory of 4 devices");
    }
    cost_free(cost);
}

static void more_stages_than_cuts_are_refused(void **state)
{
    struct cost *cost = layered(0, 150, 0);
    struct cluster *cluster = open_cluster("flat:300,bandwidth=1e9,latency=1e-6,memory=1e12");
    struct plan_request request = { .global_batch = 2, .stages = 300 };
    struct err err = { 0 };

    (void)state;
    assert_null(partition(cost, cluster, &request, NULL, &err));
    assert_int_not_equal(err.code, 0);
    assert_contains(err.text, "planned as 256 pieces, of which a stage has one at least; at most "
                    "--stages 256 would do");
    cluster_free(cluster);
    cost_free(cost);
}

static double most_memory(const struct plan *plan)
{
    double most = 0;

    for (int k = 0; k < plan->n_stages; k++)
        most = fmax(most, plan->stages[k].memory);
    return most;
}

static void stages_that_fit_in_no_other_way_recompute(void **state)
{
    static const int stages[] = { 0, 4, 2, 2 };     /* by name */
    struct cost *cost = layered(1, 6, 1);

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct plan_request request = { .global_batch = 4096, .stages = stages[i],
                                        .micro_batches = 16, .recompute = "full" };
        struct plan *full, *none, *plan;
        struct err err = { 0 };
        int again = 0;

        full = plan_by(names[i], cost, AMPLE, request, NULL);
        request.recompute = "none";
        none = plan_by(names[i], cost, AMPLE, request, NULL);
        assert_non_null(full);
        assert_non_null(none);
        assert_true(most_memory(full) < most_memory(none));
        request.memory = (most_memory(full) + most_memory(none)) / 2;
        plan_free(full);
        assert_null(plan_by(names[i], cost, AMPLE, request, &err));
        request.recompute = NULL;
        plan = plan_by(names[i], cost, AMPLE, request, NULL);
        assert_non_null(plan);
        for (int k = 0; k < plan->n_stages; k++)
            again += plan->stages[k].recompute == PLAN_RECOMPUTE_FULL;
        assert_in_range(again, 1, plan->n_stages);
        assert_true(most_memory(plan) <= request.memory);
        assert_true(plan->iteration_seconds > none->iteration_seconds);
        plan_free(none);
        plan_free(plan);
    }
    cost_free(cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_found_between_what_is_before_and_behind),
        cmocka_unit_test(the_last_layer_may_have_a_normalization_that_is_behind_it),
        cmocka_unit_test(equal_and_megatron_cut_between_layers),
        cmocka_unit_test(gpipe_has_a_stage_for_each_device_as_even_as_can_be),
        cmocka_unit_test(rannc_takes_the_fewest_stages_that_fit_and_powers_of_two),
        cmocka_unit_test(rannc_uses_as_few_nodes_for_a_pipeline_as_it_can),
        cmocka_unit_test(no_policy_beats_the_search),
        cmocka_unit_test(pins_that_contradict_a_policy_are_refused),
        cmocka_unit_test(what_does_not_fit_is_said_to_be_too_large),
        cmocka_unit_test(more_stages_than_cuts_are_refused),
        cmocka_unit_test(stages_that_fit_in_no_other_way_recompute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
