/* SPDX-License-Identifier: MIT */
/* Plans where memory is short: cuts, recompute, ZeRO-1, estimates beside exact memory. */
#include "planning.h"

#include <math.h>

#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"

#define CLOSE 1e-9

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

/* One stage on one device, of four micro-batches at once. */
static struct plan_request one_stage(const char *recompute, double memory)
{
    static int one = 1;

    return (struct plan_request){ .global_batch = 4, .optimizer = "sgd", .n_replicas = 1,
                                  .replicas = &one, .micro_batch = 1, .schedule = "gpipe",
                                  .recompute = recompute, .memory = memory };
}

/* One micro-batch keeps 600 bytes of activations; four keep 2400, or 600 and what arrives. */
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
    assert_contains(err.text, "the network does not fit on 4 devices of 2500 bytes; of 4 stages "
                    "the one with the 2 blocks \"b0\" to \"b1\" lacks 1702 bytes; "
                    "--memory 4202 would do");
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

static int two_stages_fit(void *user, const struct plan *plan, int stage, struct memory_use *use,
                          struct err *err)
{
    (void)err;
    (void)user;
    use->parameters = use->gradients = (size_t)(1000 * plan->stages[stage].n_blocks);
    use->total = plan->n_stages <= 2 ? use->parameters + use->gradients : 50000;
    return 0;
}

/* Plans of 3, 4 and 6 stages would be faster. */
static void others_that_can_be_used_are_told_of(void **state)
{
    struct plan_request request = { .global_batch = 8, .micro_batch = 1, .pipelines = 1,
                                    .memory = 40000, .memory_of = two_stages_fit };
    struct cost *cost = even_cost(6, 1, 1000);
    struct cluster *cluster = open_cluster(ROOMY);
    char *why = NULL;
    struct plan *plan = partition(cost, cluster, &request, &why, NULL);

    (void)state;
    assert_non_null(plan);
    assert_int_equal(plan->n_stages, 2);
    assert_contains(why, "  4 stages, ");
    assert_contains(why, "the stages as compiled do not fit");
    assert_contains(why, "  1 stage on 1 of 4 devices, 8 micro-batches of 1: 144000 ms");
    free(why);
    plan_free(plan);
    cluster_free(cluster);
    cost_free(cost);
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

/* Of values of up to a million bytes, which are added and taken away again. */
static bool is_close(double a, double b)
{
    return fabs(a - b) <= CLOSE * 1e6;
}

static double *drawn(unsigned *draws)
{
    double *array = mem_new(2, sizeof(double));

    array[1] = random_in(draws, 0, 1e6);
    return array;
}

/* All that a cost file may say of memory. */
static void draw_memory(struct cost *cost, unsigned *draws)
{
    for (int i = 0; i < cost->n_blocks; i++) {
        struct cost_block *b = &cost->blocks[i];

        b->kept_for_wgrad = mem_new(2, sizeof(double));
        b->kept_for_wgrad[1] = random_in(draws, 0, b->activations[1]);
        b->gradients_for_wgrad = drawn(draws);
        b->workspace_forward = drawn(draws);
        b->workspace_delayed = drawn(draws);
        b->activations_delayed = drawn(draws);
        b->peak_delayed = drawn(draws);
        b->peak = drawn(draws);
        b->kernels = drawn(draws);
        b->made_again = drawn(draws);
        b->selective_peak = drawn(draws);
    }
    for (int e = 0; e < cost->n_edges; e++) {
        struct cost_edge *edge = &cost->edges[e];
        bool same = e && cost_same_value(edge, edge - 1);

        edge->passed_on = same ? edge[-1].passed_on : next_random(draws) % 2;
        if (edge->passed_on && !same)
            cost->blocks[edge->from].activations[1] += edge->bytes[1];
        edge->reordered = next_random(draws) % 2;
        edge->once = next_random(draws) % 2;
    }
    for (int i = 0; i < cost->n_inputs; i++) {
        cost->inputs[i].reordered = next_random(draws) % 2;
        cost->inputs[i].once = next_random(draws) % 2;
    }
}

static bool are_alike(const struct stage_cost *a, const struct interval_cost *b)
{
    return is_close(a->activations, b->activations) && is_close(a->dropped, b->dropped) &&
           is_close(a->turn, b->turn) && is_close(a->delayed, b->delayed) &&
           is_close(a->rest, b->rest) && is_close(a->workspace, b->workspace) &&
           is_close(a->sent, b->sent) && is_close(a->received, b->slot - b->activations) &&
           is_close(a->fed, b->fed) && is_close(a->left, b->left) &&
           is_close(a->ahead, b->ahead) && is_close(a->kernels, b->kernels) &&
           is_close(a->made_again, b->made_again) &&
           is_close(a->peak, b->peak) && is_close(a->peak_again, b->peak_again) &&
           is_close(a->behind, b->behind) && is_close(a->copies, b->copies) &&
           is_close(a->copied, b->copied) && is_close(a->border, b->border) &&
           is_close(a->border_peak, b->border_peak);
}

/* For each stage of a random network. */
static void the_table_has_what_the_blocks_of_a_stage_have(void **state)
{
    const int n = 9;

    (void)state;
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct cost *cost = random_cost(n, seed);
        struct table *table = table_new(cost, MAX_CUTS);
        const struct share_table *share;
        unsigned draws = seed;

        draw_memory(cost, &draws);
        share = table_share(table, 2);
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j <= n; j++) {
                struct interval_cost from;
                struct stage_cost of;
                int stage[9];

                for (int b = 0; b < n; b++)
                    stage[b] = b < i ? 0 : b < j ? 1 : 2;
                stage_cost_get(cost, stage, 1, 2, &of);
                table_interval(table, share, i, j, &from);
                if (!are_alike(&of, &from))
                    fail_msg("seed %u, blocks %d to %d: another stage", seed, i, j - 1);
            }
        table_free(table);
        cost_free(cost);
    }
}

static double bytes_of(const struct cost *cost, struct stage_cost stage, enum backward_form form,
                       enum plan_recompute recompute, int slots)
{
    stage_backward(&stage, form, recompute, slots);
    return stage_memory(cost, &stage, slots, 1, 0);
}

/* What the bound counts on, whatever a cost file says: W at once needs the least, and more slots
 * need more.
 */
static void w_at_once_and_fewer_slots_need_no_more(void **state)
{
    const int n = 9;

    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct cost *cost = random_cost(n, seed);
        unsigned draws = seed;
        int stage[9];

        draw_memory(cost, &draws);
        for (int b = 0; b < n; b++)
            stage[b] = b < (int)(seed % 5) ? 0 : b < 9 - (int)(seed % 4) ? 1 : 2;
        for (int slots = 1; slots <= 3; slots++) {
            struct stage_cost s;
            double merged;

            stage_cost_get(cost, stage, 1, 2, &s);
            merged = bytes_of(cost, s, BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, slots);
            for (enum backward_form form = BACKWARD_SPLIT; form <= BACKWARD_DELAYED; form++)
                assert_true(bytes_of(cost, s, form, PLAN_RECOMPUTE_NONE, slots) >=
                            merged * (1 - CLOSE));
            for (enum backward_form form = BACKWARD_MERGED; form <= BACKWARD_DELAYED; form++)
                assert_true(bytes_of(cost, s, form, PLAN_RECOMPUTE_NONE, slots + 1) >=
                            bytes_of(cost, s, form, PLAN_RECOMPUTE_NONE, slots) * (1 - CLOSE));
        }
        cost_free(cost);
    }
}

/* An input that only a forward reads is kept where that is run again, W put off or not. */
static void a_plan_that_recomputes_fits_where_w_is_put_off(void **state)
{
    static const char *const schedules[] = { "1f1b", "zb-h1", "zb" };
    struct cost *cost = even_cost(3, 1, 10);
    struct cluster *cluster = open_cluster(ROOMY);
    struct cost_input *input = mem_push((void **)&cost->inputs, &cost->n_inputs, sizeof(*input));

    (void)state;
    *input = (struct cost_input){ .name = mem_strdup("x"), .once = true, .n_to = 1,
                                  .bytes = mem_new(1, sizeof(double)),
                                  .to = mem_new(1, sizeof(int)) };
    input->bytes[0] = 1000;
    input->to[0] = 1;
    for (int i = 0; i < 3; i++)
        for (int memory = 1000; memory <= 16000; memory += 500) {
            struct plan_request request = { .global_batch = 8, .micro_batch = 1, .stages = 3,
                                            .recompute = "full", .schedule = schedules[i],
                                            .memory = memory };
            struct plan *plan = partition(cost, cluster, &request, NULL, NULL);

            for (int s = 0; plan && s < plan->n_stages; s++)
                assert_true(plan->stages[s].memory <= memory * (1 + CLOSE));
            plan_free(plan);
        }
    cluster_free(cluster);
    cost_free(cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_memory_limit_forces_a_cut),
        cmocka_unit_test(state_is_sharded_where_memory_demands_it),
        cmocka_unit_test(state_is_sharded_where_that_is_faster),
        cmocka_unit_test(a_stage_recomputes_where_memory_demands_it),
        cmocka_unit_test(less_is_run_again_where_that_is_enough),
        cmocka_unit_test(a_block_that_fits_nowhere_is_named_with_what_it_lacks),
        cmocka_unit_test(the_exact_memory_decides),
        cmocka_unit_test(others_that_can_be_used_are_told_of),
        cmocka_unit_test(what_fits_as_compiled_is_found_where_the_estimate_is_too_large),
        cmocka_unit_test(a_small_stage_that_was_underestimated_does_not_forbid_a_large_one),
        cmocka_unit_test(the_table_has_what_the_blocks_of_a_stage_have),
        cmocka_unit_test(w_at_once_and_fewer_slots_need_no_more),
        cmocka_unit_test(a_plan_that_recomputes_fits_where_w_is_put_off),
        cmocka_unit_test(small_micro_batches_are_searched_before_the_limit_is_reached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
