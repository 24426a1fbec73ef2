/* SPDX-License-Identifier: MIT */
#include "planning.h"

#include "train/trials.h"

static char *directory;

static struct trials_key key_of(const char *model, int devices)
{
    return (struct trials_key){ .directory = directory, .model = model, .backend = "cpu",
                                .device = "a processor", .precision = "float32", .fuse = true,
                                .nodes = 1, .devices = devices };
}

/* Two stages of two of the four blocks, which were to compute for 2 and 4 seconds. */
static void fill_plan(struct plan *plan, struct plan_stage stages[2], struct plan_block blocks[4])
{
    static char *names[] = { "b0", "b1", "b2", "b3" };

    for (int i = 0; i < 4; i++)
        blocks[i] = (struct plan_block){ .name = names[i] };
    stages[0] = (struct plan_stage){ .n_blocks = 2, .blocks = blocks, .busy = 2 };
    stages[1] = (struct plan_stage){ .n_blocks = 2, .blocks = blocks + 2, .busy = 4 };
    *plan = (struct plan){ .n_stages = 2, .stages = stages, .chunks = 1, .schedule = "1f1b" };
}

static double forward_of(const struct trials_key *key, int block)
{
    struct cost *cost = even_cost(4, 0, 0);
    double seconds;

    trials_apply(key, cost);
    seconds = cost->blocks[block].forward[0];
    assert_true(cost->blocks[block].dgrad[0] == seconds);
    assert_true(cost->blocks[block].wgrad[0] == seconds);
    cost_free(cost);
    return seconds;
}

static bool record(const struct trials_key *key, const struct plan *plan, const double *seconds)
{
    return trials_record(key, 1, &plan, seconds);
}

static void later_trials_correct_what_earlier_ones_kept(void **state)
{
    struct trials_key key = key_of("a model", 2), other = key_of("another", 2);
    struct trials_key more = key_of("a model", 4), none = key;
    struct plan plan;
    struct plan_stage stages[2];
    struct plan_block blocks[4];

    (void)state;
    fill_plan(&plan, stages, blocks);
    none.directory = NULL;
    assert_false(record(&none, &plan, (double[]){ 3, 2 }));
    assert_true(forward_of(&key, 0) == 1);
    assert_true(record(&key, &plan, (double[]){ 3, 2 }));
    assert_true(forward_of(&key, 0) == 1.5 && forward_of(&key, 1) == 1.5);
    assert_true(forward_of(&key, 2) == 0.5 && forward_of(&key, 3) == 0.5);
    assert_true(forward_of(&none, 0) == 1 && forward_of(&other, 0) == 1 &&
                forward_of(&more, 0) == 1);
    /* That plan was made with these; nothing is known of the second stage now. */
    assert_true(record(&key, &plan, (double[]){ 4, 0 }));
    assert_true(forward_of(&key, 1) == 3 && forward_of(&key, 3) == 0.5);
    stages[0].busy = stages[1].busy = 0;
    assert_false(record(&key, &plan, (double[]){ 4, 4 }));
    assert_true(forward_of(&key, 1) == 3);
}

static void what_cannot_be_is_not_kept(void **state)
{
    struct trials_key key = key_of("a model of another time", 2);
    struct plan plan;
    struct plan_stage stages[2];
    struct plan_block blocks[4];

    (void)state;
    fill_plan(&plan, stages, blocks);
    assert_true(record(&key, &plan, (double[]){ 1e300, 1e-300 }));
    assert_true(forward_of(&key, 0) == 1e6 && forward_of(&key, 2) == 1 / 1e6);
}

/* The two are chunks of one list, which was to compute for 6 seconds. */
static void the_stages_of_a_list_are_one_measurement(void **state)
{
    struct trials_key key = key_of("a model of chunks", 1);
    struct plan plan;
    struct plan_stage stages[2];
    struct plan_block blocks[4];

    (void)state;
    fill_plan(&plan, stages, blocks);
    plan.schedule = "interleaved";
    plan.chunks = 2;
    assert_true(record(&key, &plan, (double[]){ 9, 0 }));
    for (int b = 0; b < 4; b++)
        assert_true(forward_of(&key, b) == 1.5);
}

static void the_order_of_what_was_tried_is_kept_for_its_batch(void **state)
{
    struct trials_key key = key_of("a model that was tried", 2), none = key;
    struct plan one, two;
    struct plan_stage stages[2];
    struct plan_block blocks[4];
    struct plan_shape *shapes;

    (void)state;
    fill_plan(&one, stages, blocks);
    one.pipelines = 2;
    one.global_batch = 8;
    one.schedule = "zb-h1";
    one.micro_batches = 4;
    two = one;
    two.pipelines = 1;
    two.n_stages = 1;
    none.directory = NULL;
    assert_int_equal(trials_shapes(&none, 8, &shapes), 0);
    assert_int_equal(trials_shapes(&key, 8, &shapes), 0);
    /* Of the first, nothing is known. */
    assert_true(trials_record(&key, 2, (const struct plan *[]){ &one, &two },
                              (double[]){ 0, 0 }));
    assert_true(forward_of(&key, 0) == 1);
    assert_int_equal(trials_shapes(&key, 9, &shapes), 0);
    assert_int_equal(trials_shapes(&key, 8, &shapes), 2);
    assert_true(shapes[0].pipelines == 2 && shapes[0].stages == 2);
    assert_true(shapes[0].schedule == SCHEDULE_ZB_H1 && shapes[0].micro_batches == 4);
    assert_true(shapes[1].pipelines == 1 && shapes[1].stages == 1);
    free(shapes);
}

static int setup(void **state)
{
    (void)state;
    directory = unit_directory();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unit_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_trials_correct_what_earlier_ones_kept),
        cmocka_unit_test(what_cannot_be_is_not_kept),
        cmocka_unit_test(the_stages_of_a_list_are_one_measurement),
        cmocka_unit_test(the_order_of_what_was_tried_is_kept_for_its_batch),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
