/* SPDX-License-Identifier: MIT */
#include "planning.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
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
    return trials_record(key, 1, &plan, (double[]){ 1 }, seconds);
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
    char order[17];
    double doubt;

    (void)state;
    fill_plan(&one, stages, blocks);
    one.pipelines = 2;
    one.global_batch = 8;
    one.schedule = "zb-h1";
    one.micro_batches = 4;
    one.iteration_seconds = 1;
    stages[0].replicas = 3;
    stages[1].replicas = 1;
    two = one;
    two.pipelines = 1;
    two.n_stages = 1;
    none.directory = NULL;
    assert_int_equal(trials_shapes(&none, 8, &shapes, &doubt), 0);
    assert_int_equal(trials_shapes(&key, 8, &shapes, &doubt), 0);
    assert_true(doubt == 1);
    /* Of the first, nothing is known. */
    assert_true(trials_record(&key, 2, (const struct plan *[]){ &one, &two },
                              (double[]){ 2, 3 }, (double[]){ 0, 0 }));
    assert_true(forward_of(&key, 0) == 1);
    assert_int_equal(trials_shapes(&key, 9, &shapes, &doubt), 0);
    assert_int_equal(trials_shapes(&key, 8, &shapes, &doubt), 2);
    assert_true(doubt == 1.5);
    assert_true(shapes[0].pipelines == 2 && shapes[0].stages == 2 && shapes[0].devices == 4);
    assert_true(shapes[0].schedule == SCHEDULE_ZB_H1 && shapes[0].micro_batches == 4);
    assert_true(shapes[0].blocks[0] == 2 && shapes[0].blocks[1] == 2);
    assert_true(shapes[0].replicas[0] == 3 && shapes[0].replicas[1] == 1);
    plan_order(&one, order);
    assert_string_equal(shapes[0].order, order);
    assert_true(shapes[1].pipelines == 1 && shapes[1].stages == 1 && shapes[1].devices == 3);
    plan_shapes_free(shapes, 2);
    /* What took less than foreseen beside the first makes nothing of others likelier. */
    assert_true(trials_record(&key, 2, (const struct plan *[]){ &one, &two },
                              (double[]){ 2, 1 }, (double[]){ 0, 0 }));
    assert_int_equal(trials_shapes(&key, 8, &shapes, &doubt), 2);
    assert_true(doubt == 1);
    plan_shapes_free(shapes, 2);
}

/* The file of the only trial of this directory; to be freed. */
static char *only_file(const char *place)
{
    DIR *entries = opendir(place);
    const struct dirent *entry;
    char *path = NULL;

    while ((entry = readdir(entries)))
        if (strncmp(entry->d_name, "trial", 5) == 0)
            path = mem_printf("%s/%s", place, entry->d_name);
    closedir(entries);
    assert_non_null(path);
    return path;
}

/* Whatever a file says of how a plan was cut: it is that, or not known. */
static void cuts_that_cannot_be_are_not_known(void **state)
{
    static const char *const wrong[] = { "[2]", "[2, 2, 1]", "[2, 0]", "[2, -1]", "[2, 4294967297]",
                                         "[2, \"two\"]", "7", "null" };
    char *own = mem_printf("%s/own", directory), *path;
    struct trials_key key = key_of("a model with a file", 1);
    struct plan plan;
    struct plan_stage stages[2];
    struct plan_block blocks[4];
    struct plan_shape *shapes;
    json_t *top;
    double doubt;

    (void)state;
    key.directory = own;
    assert_int_equal(mkdir(own, 0700), 0);
    fill_plan(&plan, stages, blocks);
    plan.pipelines = 1;
    plan.global_batch = 8;
    stages[0].replicas = stages[1].replicas = 1;
    assert_true(record(&key, &plan, (double[]){ 3, 2 }));
    path = only_file(own);
    top = json_load_file(path, 0, NULL);
    assert_non_null(top);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        for (int replicas = 0; replicas < 2; replicas++) {
            json_t *other = json_deep_copy(top);

            json_object_set_new(json_array_get(json_object_get(other, "shapes"), 0),
                                replicas ? "replicas" : "blocks",
                                json_loads(wrong[i], JSON_DECODE_ANY, NULL));
            assert_int_equal(json_dump_file(other, path, 0), 0);
            json_decref(other);
            assert_int_equal(trials_shapes(&key, 8, &shapes, &doubt), 1);
            assert_true(shapes[0].stages == 2 && !shapes[0].blocks && !shapes[0].replicas);
            plan_shapes_free(shapes, 1);
        }
    json_decref(top);
    free(path);
    free(own);
}

/* Rounds of two plans, each of which is slowed as a whole now and then. */
static struct trials_ratio compare(int n, double factor, int disturbed)
{
    double seconds[TRIALS_MOST], others[TRIALS_MOST];

    for (int i = 0; i < n; i++) {
        others[i] = 1 + i % 3;
        seconds[i] = (i < disturbed ? 9 : factor) * others[i];
    }
    return trials_compare(n, seconds, others);
}

static void five_rounds_show_nothing_and_six_do(void **state)
{
    struct trials_ratio none = trials_compare(0, NULL, NULL), five = compare(5, 0.5, 0);
    struct trials_ratio six = compare(6, 0.5, 0), slower = compare(6, 1.5, 0);

    (void)state;
    assert_int_equal(trials_shown(&none), 0);
    assert_true(five.median == 0.5 && five.low == 0 && isinf(five.high));
    assert_int_equal(trials_shown(&five), 0);
    assert_true(six.median == 0.5 && six.low == 0.5 && six.high == 0.5);
    assert_int_equal(trials_shown(&six), -1);
    assert_int_equal(trials_shown(&slower), 1);
}

/* Of n ratios the k least and greatest are outside: tables of the sign test, 5 % on two sides. */
static void as_many_rounds_may_be_disturbed_as_the_sign_test_allows(void **state)
{
    static const struct { int n, k; } table[] = { { 6, 0 }, { 8, 0 }, { 9, 1 }, { 12, 2 },
                                                  { 15, 3 }, { 20, 5 }, { 25, 7 }, { 30, 9 } };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct trials_ratio just = compare(table[i].n, 0.5, table[i].k);
        struct trials_ratio more = compare(table[i].n, 0.5, table[i].k + 1);

        assert_int_equal(trials_shown(&just), -1);
        assert_int_equal(trials_shown(&more), 0);
    }
}

/* The first plan itself, which is neither, stays before what is not shown to be faster. */
static void a_lower_median_alone_goes_before_nothing(void **state)
{
    const struct trials_ratio first = { 1, 1, 1 }, unsure = { 0.8, 0.7, 1.01 };
    const struct trials_ratio faster = { 0.9, 0.8, 0.95 }, fastest = { 0.7, 0.6, 0.99 };
    const struct trials_ratio slower = { 1.1, 1.05, 1.2 }, slowest = { 1.5, 1.01, 3 };

    (void)state;
    assert_int_equal(trials_order(&first, &unsure), 0);
    assert_true(trials_order(&faster, &unsure) < 0 && trials_order(&unsure, &faster) > 0);
    assert_true(trials_order(&fastest, &faster) < 0);
    assert_true(trials_order(&first, &slower) < 0 && trials_order(&unsure, &slower) < 0);
    assert_true(trials_order(&slower, &slowest) < 0 && trials_order(&slowest, &faster) > 0);
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
        cmocka_unit_test(five_rounds_show_nothing_and_six_do),
        cmocka_unit_test(as_many_rounds_may_be_disturbed_as_the_sign_test_allows),
        cmocka_unit_test(a_lower_median_alone_goes_before_nothing),
        cmocka_unit_test(the_order_of_what_was_tried_is_kept_for_its_batch),
        cmocka_unit_test(cuts_that_cannot_be_are_not_known),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
