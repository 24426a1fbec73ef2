/* SPDX-License-Identifier: MIT */
/* Which devices a plan takes: pins, pipelines, unequal devices; who owns shared parameters. */
#include "planning.h"

#include "base/mem.h"
#include "scheduler/partition_private.h"

#define CLOSE 1e-9

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

static int stages_found(const struct cost *cost, const struct cluster *cluster,
                        const struct plan_request *request, char **why)
{
    struct plan *plan = partition(cost, cluster, request, why, NULL);
    int n = plan ? plan->n_stages : 0;

    plan_free(plan);
    return n;
}

/* As it was, though the search would not have kept it. */
static void what_was_tried_is_found_again(void **state)
{
    int blocks[] = { 8 }, replicas[] = { 2 };
    struct plan_shape tried = { .pipelines = 1, .stages = 1, .devices = 2, .micro_batches = 2,
                                .schedule = schedule_find("1f1b"), .blocks = blocks,
                                .replicas = replicas };
    struct plan_request request = { .global_batch = 8, .tried = &tried, .n_tried = 1, .doubt = 1e3 };
    struct cluster *cluster = open_cluster("flat:4,bandwidth=1e3,latency=0,memory=1e30");
    struct cost *cost = even_cost(8, 1, 1000);
    struct plan *plan;

    (void)state;
    plan_order_of(cost, tried.order);
    plan = partition(cost, cluster, &request, NULL, NULL);
    assert_non_null(plan);
    assert_true(plan->n_stages == 1 && plan_devices(plan) == 2 && plan->micro_batches == 2);
    plan_free(plan);
    /* Of a network of another time, or beyond what there is. */
    blocks[0] = 9;
    assert_true(stages_found(cost, cluster, &request, NULL) > 1);
    blocks[0] = 8;
    replicas[0] = tried.devices = 5;
    assert_true(stages_found(cost, cluster, &request, NULL) > 1);
    replicas[0] = tried.devices = 2;
    assert_int_equal(stages_found(cost, cluster, &request, NULL), 1);
    tried.order[0] ^= 1;
    assert_true(stages_found(cost, cluster, &request, NULL) > 1);
    cluster_free(cluster);
    cost_free(cost);
}

/* Whatever the forecast, unless what was not tried is faster by more than there is doubt. */
static void of_shapes_that_were_tried_the_fastest_is_taken(void **state)
{
    struct plan_shape tried[] = { { .pipelines = 1, .stages = 1, .devices = 4, .schedule = -1 },
                                  { .pipelines = 1, .schedule = -1 } }, again[3];
    struct plan_request request = { .global_batch = 8, .tried = tried, .doubt = 1 };
    struct cluster *cluster = open_cluster("flat:4,bandwidth=1e3,latency=0,memory=1e30");
    struct cost *cost = even_cost(16, 1, 1000);
    struct plan *plan = partition(cost, cluster, &request, NULL, NULL);
    char *why = NULL;

    (void)state;
    assert_non_null(plan);
    tried[1].stages = plan->n_stages;
    tried[1].devices = plan_devices(plan);
    assert_true(plan->n_stages > 1);
    for (request.n_tried = 1; request.n_tried <= 2; request.n_tried++) {
        struct plan *other = partition(cost, cluster, &request, &why, NULL);

        assert_non_null(other);
        assert_int_equal(other->n_stages, request.n_tried == 1 ? plan->n_stages : 1);
        assert_true((strstr(why, "a trial has not shown it to be faster") != NULL) ==
                    (request.n_tried == 2));
        plan_free(other);
        free(why);
    }
    /* The first by the forecast was not tried, and may take longer than that says. */
    request.n_tried = 1;
    request.doubt = 1e3;
    assert_int_equal(stages_found(cost, cluster, &request, &why), 1);
    assert_non_null(strstr(why, "not tried, and what was took longer than foreseen"));
    free(why);
    tried[0].devices = 5;
    assert_int_equal(stages_found(cost, cluster, &request, &why), plan->n_stages);
    free(why);
    again[0] = tried[1];
    again[1] = tried[0];
    request.tried = again;
    request.n_tried = 2;
    /* In the order that was fastest. */
    for (int less = 1; less <= 2; less++) {
        again[less - 1].schedule = schedule_find(plan->schedule);
        again[less - 1].micro_batches = plan->micro_batches * less;
        again[less - 1].stages = tried[1].stages;
        again[less - 1].devices = tried[1].devices;
    }
    for (int first = 1; first <= 2; first++) {
        struct plan *other = partition(cost, cluster, &request, NULL, NULL);

        assert_non_null(other);
        assert_int_equal(other->n_stages, tried[1].stages);
        assert_int_equal(other->micro_batches, plan->micro_batches * first);
        plan_free(other);
        again[2] = again[0];
        again[0] = again[1];
        again[1] = again[2];
    }
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
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
        cmocka_unit_test(pins_are_honoured),
        cmocka_unit_test(of_forecasts_within_the_spread_that_with_the_fewest_stages_is_taken),
        cmocka_unit_test(what_was_tried_is_found_again),
        cmocka_unit_test(of_shapes_that_were_tried_the_fastest_is_taken),
        cmocka_unit_test(pins_that_cannot_be_had_are_refused_with_the_reason),
        cmocka_unit_test(every_share_is_a_multiple_of_the_batchnorm_group),
        cmocka_unit_test(the_bound_counts_the_devices_of_all_pipelines),
        cmocka_unit_test(devices_that_are_too_small_are_left_idle),
        cmocka_unit_test(pipelines_stay_inside_the_nodes_where_messages_are_large),
        cmocka_unit_test(many_stages_are_soon_found_where_they_are_pinned),
        cmocka_unit_test(shared_parameters_have_the_lowest_stage_as_owner),
        cmocka_unit_test(stages_that_share_a_parameter_ascend_whatever_the_order_of_the_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
