/* SPDX-License-Identifier: MIT */
#include "cost_text.h"

#include "scheduler/stage.h"

/* As it comes back from what is written of it. */
static struct cost *read_again(const struct cost *cost)
{
    struct cost *again;
    json_t *json;

    assert_non_null(cost);
    json = cost_to_json(cost);
    again = cost_from_json("again", json, NULL);
    assert_non_null(again);
    json_decref(json);
    return again;
}

#define HEAD "{\"schema\":\"tasuki-cost\",\"version\":1,"

/* Blocks in the wrong order; b has a list, the others scalars. */
static const char small[] = HEAD
    "\"micro_batch\":[2,4,8],\"blocks\":["
    "{\"name\":\"c\",\"forward\":[3],\"dgrad\":1},"
    "{\"name\":\"a\",\"forward\":2,\"dgrad\":1,\"batch_axis\":false,\"parameters\":400},"
    "{\"name\":\"b\",\"forward\":[1,3,4],\"dgrad\":1,\"wgrad\":0.5,\"variants\":"
    "[{\"recompute\":\"full\",\"tensor\":2,\"forward\":[1,2,3]}]}],"
    "\"edges\":[{\"from\":\"a\",\"to\":\"b\",\"bytes\":10},"
    "{\"from\":\"b\",\"to\":\"c\",\"value\":\"h\",\"bytes\":[20],\"gradient_bytes\":0}],"
    "\"inputs\":[{\"name\":\"x\",\"bytes\":8,\"to\":[\"c\",\"a\"]}],"
    "\"shared\":[{\"name\":\"w\",\"bytes\":64,\"blocks\":[\"c\",\"a\"]}]}";

/* Figures that it leaves out are the block's; other variants are not used. */
static void a_block_may_recompute_selectively(void **state)
{
    static const char text[] = HEAD
        "\"micro_batch\":[2,4],\"blocks\":["
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"activations\":[8,16],\"variants\":"
        "[{\"recompute\":\"full\",\"dgrad\":2},{\"dgrad\":[1,2]},"
        "{\"recompute\":\"selective\",\"tensor\":2,\"dgrad\":9,\"step\":3},"
        "{\"recompute\":\"selective\",\"dgrad\":[1.5,2.5]}]},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1,\"activations\":8,\"variants\":"
        "[{\"recompute\":\"selective\",\"activations\":4}]},"
        "{\"name\":\"c\",\"forward\":1,\"dgrad\":1}],\"edges\":[]}";
    struct cost *cost = cost_of_text(text, NULL), *again = read_again(cost);

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct cost_block *b = (i ? again : cost)->blocks;

        assert_true(b[0].selective_dgrad[0] == 1.5 && b[0].selective_dgrad[1] == 2.5);
        assert_true(b[0].selective_activations[1] == 16);
        assert_true(b[1].selective_dgrad[1] == 2 && b[1].selective_activations[1] == 8);
        assert_null(b[2].selective_dgrad);
    }
    cost_free(again);
    cost_free(cost);
}

static void blocks_are_sorted_and_everything_else_follows(void **state)
{
    struct cost *cost = cost_of_text(small, NULL);

    (void)state;
    assert_non_null(cost);
    assert_string_equal(cost->blocks[0].name, "a");
    assert_string_equal(cost->blocks[1].name, "b");
    assert_string_equal(cost->blocks[2].name, "c");
    assert_int_equal(cost->edges[1].from, 1);
    assert_int_equal(cost->edges[1].to, 2);
    assert_int_equal(cost->shared[0].blocks[0], 0);
    assert_int_equal(cost->shared[0].blocks[1], 2);
    cost_free(cost);
}

static void sizes_between_are_linear_and_outside_proportional(void **state)
{
    struct cost *cost = cost_of_text(small, NULL);
    const double *b = cost->blocks[1].forward, *c = cost->blocks[2].forward;

    (void)state;
    assert_true(cost_at(cost, b, true, 4) == 3);
    assert_true(cost_at(cost, b, true, 3) == 2);
    assert_true(cost_at(cost, b, true, 6) == 3.5);
    assert_true(cost_at(cost, b, true, 1) == 0.5);
    assert_true(cost_at(cost, b, true, 16) == 8);
    /* A scalar stands at the first size. */
    assert_true(cost_at(cost, c, true, 2) == 3);
    assert_true(cost_at(cost, c, true, 8) == 12);
    /* What has no batch axis does not scale, its edges neither. */
    assert_true(cost_at(cost, cost->blocks[0].forward, false, 8) == 2);
    assert_true(cost_at(cost, cost->edges[0].bytes, false, 8) == 10);
    cost_free(cost);
}

static void what_is_left_out_has_its_default(void **state)
{
    struct cost *cost = cost_of_text(small, NULL);

    (void)state;
    assert_null(cost->blocks[0].wgrad);
    assert_non_null(cost->blocks[1].wgrad);
    assert_true(cost->blocks[2].batch_axis);
    assert_true(cost->blocks[2].parameters == 0);
    assert_true(cost->gradient_bytes_per_parameter == 4);
    assert_true(cost->edges[0].gradient_bytes[0] == 10);
    assert_true(cost->edges[1].gradient_bytes[0] == 0);
    cost_free(cost);
}

static void what_is_written_can_be_read_back(void **state)
{
    struct cost *cost = cost_of_text(small, NULL), *copy;
    json_t *json = cost_to_json(cost), *again;

    (void)state;
    assert_true(cost->spread == 0 && !json_object_get(json, "spread"));
    json_object_set_new(json, "spread", json_real(0.02));
    copy = cost_from_json("copy", json, NULL);
    assert_non_null(copy);
    assert_true(copy->spread == 0.02);
    again = cost_to_json(copy);
    assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
    cost_free(cost);
    cost_free(copy);
}

static void what_is_made_is_sorted_and_checked_as_what_is_read(void **state)
{
    static const char text[] =
        "{\"schema\": \"tasuki-cost\", \"version\": 1, \"micro_batch\": [1], \"blocks\": ["
        "{\"name\": \"a\", \"forward\": 1, \"dgrad\": 1, \"wgrad\": 1},"
        "{\"name\": \"b\", \"forward\": 1, \"dgrad\": 1, \"wgrad\": 1}],"
        "\"edges\": [{\"from\": \"a\", \"to\": \"b\", \"bytes\": 8}]}";
    struct cost *cost = cost_of_text(text, NULL);
    struct err err = { 0 };

    (void)state;
    cost->edges[0].from = 1;
    cost->edges[0].to = 0;
    assert_int_equal(cost_settle(cost, "cost", &err), 0);
    assert_string_equal(cost->blocks[0].name, "b");
    assert_true(cost->edges[0].from == 0 && cost->edges[0].to == 1);
    cost->blocks[1].forward[0] = INFINITY;
    assert_int_equal(cost_settle(cost, "cost", &err), -1);
    assert_non_null(strstr(err.text, "\"a\""));
    cost_free(cost);
}

/* Blocks a and b of one stage, which reads 8 bytes from x and sends 4 to y. */
static struct stage_cost middle(const char *text, double *buffers)
{
    static const int stage[] = { 0, 1, 1, 2 };
    struct cost *cost = cost_of_text(text, NULL);
    struct stage_cost result;

    assert_non_null(cost);
    stage_cost_get(cost, stage, 1, 2, &result);
    *buffers = cost->message_buffers;
    cost_free(cost);
    return result;
}

static void what_a_stage_has_depends_on_its_backward(void **state)
{
    static const char text[] = HEAD
        "\"micro_batch\":[2],\"message_buffers\":2,\"blocks\":["
        "{\"name\":\"x\",\"forward\":1,\"dgrad\":1},"
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"wgrad\":1,\"parameters\":100,"
        "\"prepared\":50,\"activations\":20,\"kept_for_wgrad\":12,"
        "\"gradients_for_wgrad\":14,\"workspace\":15},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1,\"wgrad\":1,\"activations\":10,"
        "\"kept_for_wgrad\":10,\"gradients_for_wgrad\":6,\"workspace\":11},"
        "{\"name\":\"y\",\"forward\":1,\"dgrad\":1}],\"edges\":["
        "{\"from\":\"x\",\"to\":\"a\",\"bytes\":8},"
        "{\"from\":\"a\",\"to\":\"b\",\"bytes\":16},"
        "{\"from\":\"b\",\"to\":\"y\",\"bytes\":4}]}";
    static const struct {
        enum backward_form form;
        enum plan_recompute recompute;
        int slots;
        double kept, workspace;
    } cases[] = {
        { BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, 3, 30, 15 },
        /* Both gradients, and what b has besides its own. */
        { BACKWARD_SPLIT, PLAN_RECOMPUTE_NONE, 3, 30, 14 + 6 + 5 },
        /* While a runs, beside its 20, 10 and 6 of b are there for W. */
        { BACKWARD_SPLIT, PLAN_RECOMPUTE_NONE, 1, 30, 15 + 6 },
        /* While b runs what a keeps is there; while a does, b has nothing any more. */
        { BACKWARD_MERGED, PLAN_RECOMPUTE_NONE, 1, 20, 10 + 11 },
        /* Most is there when a has made its gradients: its activations, and what b has for W. */
        { BACKWARD_DELAYED, PLAN_RECOMPUTE_NONE, 3, 20 + 10 + 6 + 14, 5 },
        { BACKWARD_MERGED, PLAN_RECOMPUTE_FULL, 3, 0, 20 + 10 + 11 },
        { BACKWARD_SPLIT, PLAN_RECOMPUTE_FULL, 3, 0, 30 + 15 + 6 },
        { BACKWARD_DELAYED, PLAN_RECOMPUTE_FULL, 3, 20 + 10 + 6 + 14, 5 },
    };
    const struct cost plain = { .gradient_bytes_per_parameter = 4 };
    double buffers;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stage_cost s = middle(text, &buffers);

        stage_backward(&s, cases[i].form, cases[i].recompute, cases[i].slots);
        /* Two versions of parameters and of what is prepared, gradients, two states. */
        assert_true(stage_memory(&plain, &s, cases[i].slots, 2, 8) ==
                    2 * 100 + 2 * 50 + 100 + 2 * 100 + cases[i].slots * (cases[i].kept + 8) +
                        cases[i].workspace);
        /* Two of what comes, of its gradients and of those that come; sends by the slots. */
        assert_true(buffers == 2);
        assert_true(stage_message_bytes(&s, buffers, 4, cases[i].slots) ==
                    2 * (8 + 8 + 4) + (cases[i].slots < 2 ? 1 : 2) * 4);
        assert_true(stage_message_bytes(&s, buffers, 1, 1) == 8 + 8 + 4 + 4);
        assert_true(stage_message_bytes(&s, 0, 4, 4) == 0);
    }
}

/* Block a between x, whose value it reads in another layout, and y, which gets what its backward
 * does not read.
 */
static void what_crosses_is_there_as_it_is_read(void **state)
{
    static const char text[] = HEAD
        "\"micro_batch\":[2],\"blocks\":["
        "{\"name\":\"x\",\"forward\":1,\"dgrad\":1},"
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"activations\":10,\"workspace\":6,"
        "\"workspace_forward\":5,\"peak\":12,\"kernels\":5},"
        "{\"name\":\"y\",\"forward\":1,\"dgrad\":1}],\"edges\":["
        "{\"from\":\"x\",\"to\":\"a\",\"bytes\":8,\"reordered\":true},"
        "{\"from\":\"a\",\"to\":\"y\",\"bytes\":4,\"kept\":false}],"
        "\"inputs\":[{\"name\":\"t\",\"bytes\":3,\"to\":[\"a\"],\"kept\":false}]}";
    static const struct {
        enum plan_recompute recompute;
        int slots;
        double kept, once;
    } cases[] = {
        /* The value, and while a runs a copy of it; while it runs forward the input, too. */
        { PLAN_RECOMPUTE_NONE, 3, 10 + 8, 5 + 8 + 3 },
        { PLAN_RECOMPUTE_NONE, 1, 8, 12 + 8 },
        /* What it is run again from is kept; the copy is made again, too. */
        { PLAN_RECOMPUTE_FULL, 3, 8 + 3, 12 + 8 + 8 },
    };
    const struct cost plain = { .gradient_bytes_per_parameter = 4 };
    struct cost *cost = cost_of_text(text, NULL), *again = read_again(cost);

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stage_cost s;

        stage_cost_get(again, (int[]){ 0, 1, 2 }, 1, 2, &s);
        assert_true(s.left == 4);
        stage_backward(&s, BACKWARD_MERGED, cases[i].recompute, cases[i].slots);
        assert_true(stage_memory(&plain, &s, cases[i].slots, 1, 0) ==
                    cases[i].slots * cases[i].kept + cases[i].once + 5);
    }
    cost_free(again);
    cost_free(cost);
}

/* What a sends to both, two apart: by a value's readers, and by how far these are. */
static void messages_are_counted_for_each_stage_that_they_go_to(void **state)
{
    static const char text[] = HEAD
        "\"micro_batch\":[2],\"message_buffers\":2,\"blocks\":["
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1},"
        "{\"name\":\"c\",\"forward\":1,\"dgrad\":1}],\"edges\":["
        "{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":4},"
        "{\"from\":\"a\",\"to\":\"c\",\"value\":\"h\",\"bytes\":4,\"kept\":false}]}";
    const int stage[] = { 0, 1, 2 }, slots[] = { 3, 2, 1 };
    struct cost *cost = cost_of_text(text, NULL), *again = read_again(cost);
    struct traffic_list *traffic = traffic_new(again, stage);
    struct stage_cost b, c;

    (void)state;
    /* Two to b, three, its slots, to c; two that come back from each. */
    assert_true(traffic_buffer_bytes(again, traffic, 0, 2, 8, slots) == 4 * (2 + 3 + 2 + 2));
    assert_true(traffic_buffer_bytes(again, traffic, 1, 2, 8, slots) == 4 * (2 + 2));
    assert_true(traffic_buffer_bytes(again, traffic, 2, 2, 8, slots) == 4 * (2 + 3));
    assert_true(traffic_buffer_bytes(again, traffic, 1, 2, 1, (int[]){ 1, 1, 1 }) == 4 * (1 + 1));
    stage_cost_get(again, stage, 1, 2, &b);
    stage_cost_get(again, stage, 2, 2, &c);
    assert_true(b.received == 4 && b.fed == 0 && c.received == 0 && c.fed == 4);
    traffic_free(traffic);
    cost_free(again);
    cost_free(cost);
}

/* Blocks a and b, then c; b makes 4 bytes of its 10 for c alone, a 16 of its 20 for both. */
static void what_is_only_passed_on_is_not_kept(void **state)
{
    static const char text[] = HEAD
        "\"micro_batch\":[2],\"blocks\":["
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"activations\":20},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1,\"activations\":10},"
        "{\"name\":\"c\",\"forward\":1,\"dgrad\":1,\"activations\":5}],\"edges\":["
        "{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":16,\"passed_on\":true},"
        "{\"from\":\"a\",\"to\":\"c\",\"value\":\"h\",\"bytes\":16,\"passed_on\":true},"
        "{\"from\":\"b\",\"to\":\"c\",\"bytes\":4,\"passed_on\":true}]}";
    static const struct {
        int stage[3];
        double kept;        /* by the first stage */
    } cases[] = {
        { { 0, 1, 1 }, 20 - 16 },
        { { 0, 0, 1 }, 20 + 10 - 4 },
        { { 0, 0, 0 }, 20 + 10 + 5 },
    };
    struct cost *cost = cost_of_text(text, NULL);

    (void)state;
    assert_non_null(cost);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stage_cost s;

        stage_cost_get(cost, cases[i].stage, 0, 2, &s);
        assert_true(s.activations == cases[i].kept);
    }
    assert_true(block_kept(cost, &cost->blocks[0], 2) == 4);
    cost_free(cost);
}

#define EDGES HEAD "\"micro_batch\":[1],\"blocks\":[" \
    "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"activations\":3}," \
    "{\"name\":\"b\",\"forward\":1,\"dgrad\":1},{\"name\":\"c\",\"forward\":1,\"dgrad\":1}]," \
    "\"edges\":["

#define VARIANT(keys) HEAD "\"micro_batch\":[1],\"blocks\":" \
    "[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"variants\":[{" keys "}]}]}"

static void mistakes_are_named_by_key(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { HEAD "\"micro_batch\":[1],\"blocks\":[]}", "blocks" },
        { HEAD "\"micro_batch\":[2,1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1}]}",
          "micro_batch: expected positive integers in ascending order" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":-1,\"dgrad\":1}]}",
          "blocks[0].forward" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"dgrad\":1}]}",
          "blocks[0].forward" },
        { HEAD "\"micro_batch\":[1,2],\"blocks\":"
          "[{\"name\":\"a\",\"forward\":[1,2,3],\"dgrad\":1}]}", "blocks[0].forward" },
        { HEAD "\"micro_batch\":[1],\"blocks\":"
          "[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"speed\":1}]}", "speed" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1},"
          "{\"name\":\"a\",\"forward\":1,\"dgrad\":1}]}", "called \"a\"" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1}],"
          "\"edges\":[{\"from\":\"a\",\"to\":\"z\",\"bytes\":1}]}", "no block \"z\"" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1},"
          "{\"name\":\"b\",\"forward\":1,\"dgrad\":1}],\"edges\":["
          "{\"from\":\"a\",\"to\":\"b\",\"bytes\":1},{\"from\":\"b\",\"to\":\"a\",\"bytes\":1}]}",
          "cycle" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,"
          "\"variants\":[{\"recompute\":\"half\"}]}]}", "recompute" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,"
          "\"variants\":[{\"recompute\":\"selective\",\"dgrad\":0.5}]}]}",
          "blocks[0].variants[0].dgrad: expected no less" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,"
          "\"parameters\":12,\"tensors\":[4,4]}]}",
          "blocks[0].tensors: are 8 bytes, \"parameters\" are 12" },
        { HEAD "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,"
          "\"parameters\":12,\"statistics\":4,\"tensors\":[4,8]}]}",
          "blocks[0].tensors: the last of them are not the 4 bytes" },
        { VARIANT("\"recompute\":\"full\",\"tensor\":1,\"group_bytes\":0,\"dgrad\":2.5"),
          "blocks[0].variants[0].dgrad: \"full\" goes by block \"a\"'s own, with its forward once "
          "more: leave it out" },
        { VARIANT("\"recompute\":\"full\",\"activations\":1"),
          "blocks[0].variants[0].activations: \"full\" goes by block \"a\"'s own, with" },
        { VARIANT("\"dgrad\":2"),
          "blocks[0].variants[0].dgrad: \"none\" goes by block \"a\"'s own: leave" },
        { VARIANT("\"recompute\":\"selective\",\"wgrad\":[2]"),
          "blocks[0].variants[0].wgrad: \"selective\" goes by block \"a\"'s own: leave" },
        { VARIANT("\"recompute\":\"selective\",\"step\":2"),
          "blocks[0].variants[0].step: \"selective\" goes by" },
        { HEAD "\"micro_batch\":[1,1048576],\"blocks\":"
          "[{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"activations\":1e13}]}",
          "blocks[0].activations: 1e+13 grows beyond 1e+18" },
        { EDGES "{\"from\":\"a\",\"to\":\"b\",\"bytes\":4,\"passed_on\":1}]}",
          "edges[0].passed_on" },
        { EDGES "{\"from\":\"a\",\"to\":\"b\",\"bytes\":4,\"passed_on\":true}]}",
          "edges: what \"a\" has passed_on is more than its activations" },
        { EDGES "{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":2,\"passed_on\":true},"
          "{\"from\":\"a\",\"to\":\"c\",\"value\":\"h\",\"bytes\":2}]}",
          "edges: \"h\" of \"a\" is passed_on towards \"b\", but not towards \"c\"" },
        { EDGES "{\"from\":\"a\",\"to\":\"b\",\"bytes\":4,\"reordered\":1}]}",
          "edges[0].reordered" },
        { EDGES "],\"inputs\":[{\"name\":\"x\",\"bytes\":4,\"to\":[\"a\"],\"kept\":0}]}",
          "inputs[0].kept" },
        { "{\"schema\":\"tasuki-plan\",\"version\":1}", "schema" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(cost_of_text(cases[i].text, &err));
        assert_contains(err.text, "cost.json");
        assert_contains(err.text, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_sorted_and_everything_else_follows),
        cmocka_unit_test(a_block_may_recompute_selectively),
        cmocka_unit_test(sizes_between_are_linear_and_outside_proportional),
        cmocka_unit_test(what_is_left_out_has_its_default),
        cmocka_unit_test(what_is_written_can_be_read_back),
        cmocka_unit_test(what_is_made_is_sorted_and_checked_as_what_is_read),
        cmocka_unit_test(what_a_stage_has_depends_on_its_backward),
        cmocka_unit_test(what_crosses_is_there_as_it_is_read),
        cmocka_unit_test(messages_are_counted_for_each_stage_that_they_go_to),
        cmocka_unit_test(what_is_only_passed_on_is_not_kept),
        cmocka_unit_test(mistakes_are_named_by_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
