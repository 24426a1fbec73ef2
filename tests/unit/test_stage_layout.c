/* SPDX-License-Identifier: MIT */
/* What a cost file says of steps, and stages that are laid out by it. */
#include "cost_text.h"

#include <stdio.h>

#include "base/err.h"
#include "scheduler/cost_steps.h"
#include "scheduler/stage_arrays.h"
#include "scheduler/stage_layout.h"

#define HEAD "{\"schema\":\"tasuki-cost\",\"version\":1,\"micro_batch\":[1,4],\"blocks\":["        \
             "{\"name\":\"a\",\"forward\":1,\"dgrad\":1},{\"name\":\"b\",\"forward\":1,"           \
             "\"dgrad\":1},{\"name\":\"c\",\"forward\":1,\"dgrad\":1}],"                           \
             "\"edges\":[{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":128},"             \
             "{\"from\":\"a\",\"to\":\"c\",\"value\":\"h\",\"bytes\":128},"                        \
             "{\"from\":\"b\",\"to\":\"c\",\"bytes\":256}],"
#define VALUE(bytes) "{\"bytes\":" #bytes "}"
#define OTHER(bytes) "{\"bytes\":" #bytes ",\"reordered\":true}"
#define STEP(op, part, block, reads, makes)                                                        \
    "{\"op\":\"" op "\",\"part\":\"" part "\",\"block\":\"" block "\",\"reads\":[" reads           \
    "],\"makes\":[" makes "]}"
#define RETURN(value, received, from, to)                                                          \
    "{\"value\":" #value ",\"received\":" #received ",\"from\":\"" from "\",\"to\":\"" to "\"}"

/* a makes h (1) of x (0), b k (2) of h, c the loss (3) of both; the gradient of h is the sum of what
 * c (5) and b (6) contribute.
 */
#define VALUES "\"values\":[" VALUE(64) "," VALUE(128) "," VALUE(256)                              \
               ",{\"bytes\":64,\"result\":true}," VALUE(256) "," VALUE(128) "," VALUE(128) ","     \
               VALUE(128) "," VALUE(256) "," VALUE(128) "," VALUE(128) "],"
#define FORWARD STEP("Linear", "forward", "a", "0", "1") ","                                       \
                STEP("Relu", "forward", "b", "1", "2") "," STEP("Mul", "forward", "c", "1,2", "3")
#define BACKWARD STEP("Mul", "dgrad", "c", "1,2", "4,5") ","                                       \
                 STEP("ReluGrad", "dgrad", "b", "8,2", "6") ","                                    \
                 STEP("AddN", "dgrad", "a", "9,10", "7")
#define WGRAD STEP("LinearWgrad", "wgrad", "a", "7,0", "")
#define RETURNS "\"returns\":[" RETURN(4, 8, "c", "b") "," RETURN(5, 9, "c", "a") ","              \
                RETURN(6, 10, "b", "a") "]}"

static double bytes(const struct cost *cost, const int *stage, int s, int slots)
{
    return stage_layout_bytes(cost, stage, s, 1, 1, BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, slots);
}

static struct cost *with_skip(void)
{
    struct cost *cost = cost_of_text(HEAD VALUES "\"steps\":[" FORWARD "," BACKWARD "," WGRAD "],"
                                  RETURNS, NULL);

    assert_non_null(cost);
    return cost;
}

/* While the backward of c runs: x, h, k and the gradients of k and h. */
static void a_whole_network_has_what_lives_at_once(void **state)
{
    struct cost *cost = with_skip();

    (void)state;
    assert_true(bytes(cost, (int[]){ 0, 0, 0 }, 0, 1) == 64 + 128 + 256 + 256 + 128);
    assert_true(stage_layout_bytes(cost, (int[]){ 0, 0, 0 }, 0, 4, 1, BACKWARD_MERGED,
                                   PLAN_RECOMPUTE_NONE, 1) == 4 * 832);
    cost_free(cost);
}

/* Stage 0 has x for each micro-batch, and h or the one gradient that comes back; stage 1 sums that
 * at its end.
 */
static void a_stage_sends_one_sum_back(void **state)
{
    struct cost *cost = with_skip();
    const int stage[] = { 0, 1, 1 };

    (void)state;
    assert_true(bytes(cost, stage, 0, 2) == 2 * 64 + 128);
    assert_true(bytes(cost, stage, 1, 1) == 128 + 256 + 256 + 128);
    cost_free(cost);
}

/* Two gradients come to stage 0, which adds them; stage 1 does not keep h, and stage 2 has all that
 * it reads and sends.
 */
static void a_skip_has_its_gradient_from_each_stage(void **state)
{
    struct cost *cost = with_skip();
    const int stage[] = { 0, 1, 2 };

    (void)state;
    assert_true(bytes(cost, stage, 0, 3) == 3 * 64 + 3 * 128);
    assert_true(bytes(cost, stage, 1, 2) == 2 * 256 + 256 + 128);
    assert_true(bytes(cost, stage, 2, 1) == 128 + 256 + 256 + 128);
    cost_free(cost);
}

/* Kept is h alone; k is made again where it was. */
static void what_is_run_again_is_not_kept(void **state)
{
    struct cost *cost = with_skip();

    (void)state;
    assert_true(stage_layout_bytes(cost, (int[]){ 0, 1, 1 }, 1, 1, 1, BACKWARD_MERGED,
                                   PLAN_RECOMPUTE_FULL, 2) == 2 * 128 + 256 + 256 + 128 + 128);
    cost_free(cost);
}

/* Convolutions of which the first is sent: a copy of it in the layout of messages beside it, and
 * one of the gradient that comes back.
 */
static void what_crosses_in_another_layout_is_copied(void **state)
{
    struct cost *cost = cost_of_text(
        HEAD "\"values\":[" VALUE(64) "," OTHER(128) "," OTHER(128) "," VALUE(64) "," OTHER(128) ","
        OTHER(128) "],\"steps\":[" STEP("Conv", "forward", "a", "0", "1") ","
        STEP("Conv", "forward", "b", "1", "2") "," STEP("Relu", "forward", "c", "2", "3") ","
        STEP("ConvDgrad", "dgrad", "b", "2", "4") "," STEP("ConvWgrad", "wgrad", "a", "5,0", "")
        "],\"returns\":[" RETURN(4, 5, "b", "a") "]}", NULL);

    (void)state;
    assert_non_null(cost);
    assert_true(bytes(cost, (int[]){ 0, 1, 1 }, 0, 1) == 64 + 2 * 128);
    cost_free(cost);
}

/* a's mean of each group, which its W reads: one row for each. */
static void what_is_kept_of_groups_is_there_for_each(void **state)
{
    struct cost *cost = cost_of_text(
        HEAD "\"values\":[" VALUE(64) ",{\"bytes\":128,\"grouped\":2}],\"steps\":["
        STEP("BatchNormalization", "forward", "a", "0", "1") ","
        STEP("BatchNormGrad", "wgrad", "a", "0,1", "") "],\"returns\":[]}", NULL);
    const int stage[] = { 0, 0, 0 };

    (void)state;
    assert_non_null(cost);
    assert_true(bytes(cost, stage, 0, 1) == 64 + 128);
    assert_true(stage_layout_bytes(cost, stage, 0, 4, 1, BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, 1) ==
                4 * (64 + 128));
    assert_true(stage_layout_bytes(cost, stage, 0, 4, 0, BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, 1) ==
                4 * 64 + 2 * 128);
    cost_free(cost);
}

/* Blocks a, b and c contribute (1, 2, 3) to the gradient of one parameter. */
static void contributions_are_added_where_there_are_several(void **state)
{
    struct cost *cost = cost_of_text(
        HEAD "\"values\":[" VALUE(64) "," VALUE(128) "," VALUE(128) "," VALUE(128) "],\"steps\":["
        STEP("BiasGrad", "wgrad", "c", "0", "3") "," STEP("BiasGrad", "wgrad", "b", "0", "2") ","
        STEP("BiasGrad", "wgrad", "a", "0", "1") "," STEP("AddN", "wgrad", "a", "1,2,3", "")
        "],\"returns\":[]}", NULL);

    (void)state;
    assert_non_null(cost);
    assert_true(bytes(cost, (int[]){ 0, 0, 0 }, 0, 1) == 64 + 3 * 128);
    assert_true(bytes(cost, (int[]){ 0, 1, 1 }, 1, 1) == 64 + 2 * 128);
    /* It alone is the gradient. */
    assert_true(bytes(cost, (int[]){ 0, 1, 1 }, 0, 1) == 64);
    cost_free(cost);
}

/* Two tensors and statistics of a, a parameter of a and b: each aligned, and under ZeRO-1 in slices
 * of what lies together.
 */
static void arrays_are_aligned_and_cut_as_a_run_has_them(void **state)
{
    struct cost *cost = cost_of_text(
        "{\"schema\":\"tasuki-cost\",\"version\":1,\"micro_batch\":1,\"message_buffers\":2,"
        "\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"parameters\":312,"
        "\"statistics\":12,\"tensors\":[200,100,12],\"prepared\":1000},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1}],\"shared\":[{\"name\":\"t\",\"bytes\":300,"
        "\"blocks\":[\"a\",\"b\"]}]}", NULL);
    struct plan_stage stages[] = { { .replicas = 2 }, { .replicas = 1 } };
    struct plan plan = { .schedule = "1f1b", .chunks = 1, .pipelines = 1, .n_stages = 2,
                         .stages = stages };
    const int stage[] = { 0, 1 };
    struct stage_arrays of;

    (void)state;
    assert_non_null(cost);
    stage_arrays_get(cost, &plan, stage, 0, &of);
    assert_true(of.parameters == 256 + 128 + 64 + 320 && of.statistics == 64);
    assert_true(of.aligning == 4 * (56 + 28 + 52 + 20) && of.state == of.parameters);
    /* Buckets of 16 KiB in two parts, two at once, and the shared one's 300 bytes in three. */
    assert_true(of.sums == 2 * 8192 + 2 * 128);
    stage_arrays_get(cost, &plan, stage, 1, &of);
    assert_true(of.parameters == 320 && of.statistics == 0 && of.sums == 2 * 128);
    plan.zero = true;
    stage_arrays_get(cost, &plan, stage, 0, &of);
    /* Half of 256 + 100 bytes, a third of 300, half of 12, and one more cut. */
    assert_true(of.state == 192 + 128 + 64 + 64);
    cost_free(cost);
}

static void a_file_of_its_own_says_the_same(void **state)
{
    struct cost *cost = with_skip(), *again;
    json_t *json = cost_to_json(cost);

    (void)state;
    again = cost_from_json("again", json, NULL);
    json_decref(json);
    assert_non_null(again);
    assert_int_equal(again->steps->n, cost->steps->n);
    assert_true(bytes(again, (int[]){ 0, 1, 2 }, 0, 3) == 3 * 64 + 3 * 128);
    cost_free(again);
    cost_free(cost);
}

static void refused(const char *steps, const char *returns, const char *why)
{
    char text[8192];
    struct err err = { 0 };

    snprintf(text, sizeof(text), HEAD VALUES "\"steps\":[%s],\"returns\":[%s]}", steps, returns);
    assert_null(cost_of_text(text, &err));
    assert_non_null(strstr(err.text, why));
}

static void what_contradicts_itself_is_refused(void **state)
{
    struct err err = { 0 };

    (void)state;
    assert_null(cost_of_text(HEAD "\"steps\":[]}", &err));
    assert_non_null(strstr(err.text, "values"));
    refused(STEP("Lienar", "forward", "a", "0", "1"), "", "steps[0].op: there is no operator");
    refused(STEP("Linear", "prepare", "a", "0", "1"), "", "expected forward, dgrad or wgrad");
    refused(STEP("Linear", "forward", "d", "0", "1"), "", "steps[0].block: no block \"d\"");
    refused(STEP("Linear", "forward", "a", "11", "1"), "", "steps[0].reads: expected numbers");
    refused(STEP("Linear", "forward", "a", "0", "-1"), "", "steps[0].makes: expected numbers");
    refused(STEP("Linear", "forward", "a", "0", "1,1"), "", "1 is made twice");
    refused(STEP("Linear", "forward", "a", "1", "1"), "", "1 was read before");
    refused(STEP("Reorder", "forward", "a", "0,1", "2"), "", "a Reorder reads one value");
    refused(STEP("Reshape", "forward", "a", "", "1,2"), "", "a view, reads one value at most");
    refused(STEP("Relu", "dgrad", "a", "0", "1") "," STEP("Relu", "forward", "a", "0", "2"), "",
            "steps[1].part: forward comes before dgrad");
    refused(FORWARD, RETURN(4, 8, "c", "b"), "returns[0].value: nothing makes 4");
    refused(FORWARD "," BACKWARD, RETURN(4, 2, "c", "b"), "2 is made, or received, twice");
    refused(FORWARD "," BACKWARD, RETURN(4, 8, "c", "b") "," RETURN(5, 8, "c", "b"), "twice");
    /* What is received would be made of itself. */
    refused(STEP("Reorder", "dgrad", "a", "1", "2"), RETURN(2, 1, "b", "a"),
            "1 is read before 2 is made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_network_has_what_lives_at_once),
        cmocka_unit_test(a_stage_sends_one_sum_back),
        cmocka_unit_test(a_skip_has_its_gradient_from_each_stage),
        cmocka_unit_test(what_is_run_again_is_not_kept),
        cmocka_unit_test(what_crosses_in_another_layout_is_copied),
        cmocka_unit_test(what_is_kept_of_groups_is_there_for_each),
        cmocka_unit_test(contributions_are_added_where_there_are_several),
        cmocka_unit_test(arrays_are_aligned_and_cut_as_a_run_has_them),
        cmocka_unit_test(a_file_of_its_own_says_the_same),
        cmocka_unit_test(what_contradicts_itself_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
