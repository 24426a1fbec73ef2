/* SPDX-License-Identifier: MIT */
/* Which schedule a plan takes, and how many stages a device has under it. */
#include "planning.h"

#include <math.h>

#include "scheduler/memory.h"

#define CLOSE 1e-9

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

/* Under interleaved the first stages of four devices hold 8, 8, 7 and 5 of 8 micro-batches, the others
 * 4, 4, 3 and 1: with 16 blocks a stage, of 100 bytes, and 5000 bytes less than the second device
 * wants, that frees enough in a stage that holds 8, not in one that holds 4, and the last has room.
 * So it gets more of the blocks. Even with what is run again are first stages of 13, 13, 13 and 18
 * blocks, the third running again, and others of 18, 19, 18 and 16, with which a batch takes 944 s.
 */
static void of_the_stages_of_a_device_those_run_again_that_free_most(void **state)
{
    struct plan_request request = { .global_batch = 8, .micro_batches = 8, .stages = 8,
                                    .schedule = "interleaved" };
    struct cost *cost = even_cost(128, 1, 10);
    struct cluster *cluster = open_cluster(ROOMY);
    struct plan *kept = partition(cost, cluster, &request, NULL, NULL), *some, *all;

    (void)state;
    assert_non_null(kept);
    assert_int_equal(kept->stages[1].n_blocks, 16);
    assert_int_equal(kept->stages[5].n_blocks, 16);
    request.memory = kept->stages[1].memory + kept->stages[5].memory - 5000;
    some = partition(cost, cluster, &request, NULL, NULL);
    request.recompute = "full";
    all = partition(cost, cluster, &request, NULL, NULL);
    assert_non_null(some);
    assert_non_null(all);
    for (int d = 0; d < 4; d++) {
        const struct plan_stage *a = &some->stages[d], *b = &some->stages[d + 4];

        assert_true(a->memory + b->memory <= request.memory);
        if (d != 2)
            assert_int_equal(a->recompute, d < 2 ? PLAN_RECOMPUTE_FULL : PLAN_RECOMPUTE_NONE);
        assert_int_equal(b->recompute, PLAN_RECOMPUTE_NONE);
    }
    assert_true(some->iteration_seconds < 944.001);
    assert_true(some->stages[3].n_blocks + some->stages[7].n_blocks > 32);
    assert_true(kept->iteration_seconds < some->iteration_seconds);
    assert_true(some->iteration_seconds < all->iteration_seconds);
    plan_free(kept);
    plan_free(some);
    plan_free(all);
    cluster_free(cluster);
    cost_free(cost);
}

/* As estimated; the first stage takes more. */
static int more_in_front(void *user, const struct plan *plan, int stage, struct memory_use *use,
                         struct err *err)
{
    (void)user;
    (void)err;
    use->total = (size_t)(plan->stages[stage].memory + (stage ? 0 : 6000));
    return 0;
}

static void what_a_device_lacks_as_compiled_is_run_again_there_alone(void **state)
{
    struct plan_request request = { .global_batch = 8, .micro_batches = 8, .stages = 8,
                                    .schedule = "interleaved" };
    struct plan *kept = plan_for(128, ROOMY, &request, NULL), *plan;

    (void)state;
    assert_non_null(kept);
    request.memory = kept->stages[0].memory + kept->stages[4].memory + 100;
    request.memory_of = more_in_front;
    plan = plan_for(128, ROOMY, &request, NULL);
    assert_non_null(plan);
    assert_true(plan->stages[0].memory + plan->stages[4].memory <= request.memory);
    for (int k = 0; k < 8; k++)
        assert_int_equal(plan->stages[k].recompute,
                         k ? PLAN_RECOMPUTE_NONE : PLAN_RECOMPUTE_FULL);
    assert_true(plan->iteration_seconds > kept->iteration_seconds);
    plan_free(kept);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_asynchronous_schedule_is_taken_only_where_it_is_asked_for),
        cmocka_unit_test(the_schedule_follows_from_times_and_memory),
        cmocka_unit_test(devices_have_several_stages_where_that_waits_less),
        cmocka_unit_test(devices_have_one_stage_where_a_pin_wants_it),
        cmocka_unit_test(several_stages_of_a_device_honour_pins),
        cmocka_unit_test(of_the_stages_of_a_device_those_run_again_that_free_most),
        cmocka_unit_test(what_a_device_lacks_as_compiled_is_run_again_there_alone),
        cmocka_unit_test(a_schedule_that_does_not_fit_leaves_the_plan_that_it_was_to_improve),
        cmocka_unit_test(a_schedule_that_is_asked_for_is_cut_by_its_own_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
