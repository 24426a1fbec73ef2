/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/json.h"
#include "scheduler/plan.h"

static const char good[] =
    "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":24,\"micro_batches\":3,"
    "\"micro_batch\":8,\"schedule\":\"1f1b\",\"stages\":["
    "{\"blocks\":[\"a\",{\"name\":\"b\",\"first\":\"n1\",\"last\":\"n2\"}],\"replicas\":3,"
    "\"devices\":[[\"0\",\"1\",\"2\"]],\"samples\":[2,3,3]},"
    "{\"blocks\":[\"c\"],\"replicas\":1,\"devices\":[[\"3\"]]}],"
    "\"shared\":[{\"name\":\"w\",\"owner\":0,\"stages\":[0,1]}]}";

/* Two devices in a V. */
static const char vee[] =
    "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":8,\"micro_batches\":4,"
    "\"micro_batch\":2,\"schedule\":\"zb-v\",\"stages\":["
    "{\"blocks\":[\"a\"],\"replicas\":1,\"devices\":[[\"5\"]]},"
    "{\"blocks\":[\"b\"],\"replicas\":1,\"devices\":[[\"7\"]]},"
    "{\"blocks\":[\"c\"],\"replicas\":1,\"devices\":[[\"7\"]]},"
    "{\"blocks\":[\"d\"],\"replicas\":1,\"devices\":[[\"5\"]]}]}";

/* 'good' with 'key' of the object at 'index' of "stages" (-1: the top) set to 'value'. */
static struct plan *with(int index, const char *key, const char *value, struct err *err)
{
    json_t *json = json_loads(good, 0, NULL), *item = json_loads(value, JSON_DECODE_ANY, NULL);
    json_t *at = index < 0 ? json
                           : json_array_get(json_object_get(json, "stages"), (size_t)index);
    struct plan *plan;

    assert_non_null(item);
    json_object_set_new(at, key, item);
    plan = plan_from_json("plan.json", json, err);
    json_decref(json);
    return plan;
}

static void shares_cover_the_micro_batch(void **state)
{
    (void)state;
    for (int64_t b = 1; b <= 20; b++) {
        for (int r = 1; r <= b; r++) {
            assert_int_equal(plan_share_start(b, r, 0), 0);
            assert_int_equal(plan_share_start(b, r, r), b);
            for (int i = 0; i < r; i++)
                assert_true(plan_share_start(b, r, i + 1) > plan_share_start(b, r, i));
        }
    }
}

static void a_plan_is_read_and_written_back(void **state)
{
    json_t *json = json_loads(good, 0, NULL), *first, *second;
    struct err err = { 0 };
    struct plan *plan = plan_from_json("plan.json", json, &err), *copy;

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->stages[0].samples[0], 2);
    assert_int_equal(plan->stages[1].samples[0], 8);
    assert_string_equal(plan->stages[0].blocks[1].last_node, "n2");
    assert_null(plan->stages[0].blocks[0].first_node);
    assert_null(plan->model_path);
    first = plan_to_json(plan);
    copy = plan_from_json("copy", first, &err);
    assert_non_null(copy);
    second = plan_to_json(copy);
    assert_true(json_equal(first, second));
    json_decref(json);
    json_decref(first);
    json_decref(second);
    plan_free(plan);
    plan_free(copy);
}

static void a_device_has_the_stages_that_the_schedule_gives_it(void **state)
{
    json_t *json = json_loads(vee, 0, NULL);
    struct err err = { 0 }, interleaved = { 0 }, chain = { 0 }, odd = { 0 };
    struct plan *plan = plan_from_json("plan.json", json, &err);

    (void)state;
    if (!plan)
        fail_msg("%s", err.text);
    assert_int_equal(plan->chunks, 2);
    assert_int_equal(plan_lists(plan), 2);
    assert_int_equal(plan_list(plan, 2), 1);
    assert_int_equal(plan_worker(plan, 0, 3, 0), 0);
    plan_free(plan);
    json_object_set_new(json, "schedule", json_string("interleaved"));
    assert_null(plan_from_json("plan.json", json, &interleaved));
    assert_contains(interleaved.text, "stages: \"interleaved\" runs stages 0 and 2 on the same");
    json_object_set_new(json, "schedule", json_string("1f1b"));
    assert_null(plan_from_json("plan.json", json, &chain));
    assert_contains(chain.text, "device \"5\" stands there twice");
    json_object_set_new(json, "schedule", json_string("zb-v"));
    json_array_remove(json_object_get(json, "stages"), 3);
    assert_null(plan_from_json("plan.json", json, &odd));
    assert_contains(odd.text, "3 stages are not 2 for each device");
    json_decref(json);
}

static void mistakes_are_named_by_key(void **state)
{
    static const struct {
        int index;
        const char *key, *value, *message;
    } cases[] = {
        { -1, "global_batch", "23", "global_batch" },
        { -1, "schedule", "\"zigzag\"",
          "schedule: expected gpipe, 1f1b, interleaved, zb-h1, zb, zb-v or 2bw" },
        { -1, "schedule_options", "{\"chunks\":2}", "schedule_options.chunks" },
        { -1, "speed", "1", "speed" },
        { -1, "zero", "1", "zero" },
        { -1, "batchnorm_samples", "2", "stages[0].samples: replica 1's share of 3" },
        { -1, "shared", "[{\"name\":\"w\",\"owner\":1,\"stages\":[0,1]}]", "shared[0].owner" },
        { -1, "stages", "[]", "stages" },
        { 0, "replicas", "9", "stages[0].replicas" },
        { 0, "samples", "[3,3,2]", "stages[0].samples: replica 0 of 3 owns 2 of 8" },
        { 0, "devices", "[[\"0\",\"1\"]]", "stages[0].devices" },
        { 1, "devices", "[[\"0\"]]", "device \"0\" stands there twice" },
        { 1, "blocks", "[\"a\"]", "block \"a\" stands there twice" },
        { 1, "recompute", "\"half\"", "stages[1].recompute: expected none, selective or full" },
        { 1, "forward", "-1", "stages[1].forward" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(with(cases[i].index, cases[i].key, cases[i].value, &err));
        assert_contains(err.text, "plan.json: ");
        assert_contains(err.text, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_the_micro_batch),
        cmocka_unit_test(a_plan_is_read_and_written_back),
        cmocka_unit_test(a_device_has_the_stages_that_the_schedule_gives_it),
        cmocka_unit_test(mistakes_are_named_by_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
