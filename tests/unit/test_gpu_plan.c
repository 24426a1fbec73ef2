/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "scheduler/plan.h"
#include "train/gpu_plan.h"

/* A plan whose only stage is on these devices, a list of JSON; 'names' are those of a GPU of "n1". */
static int count(const char *devices, int replicas, const struct gpu_names *names)
{
    char *text = mem_printf("{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":8,"
                            "\"micro_batches\":1,\"micro_batch\":8,\"schedule\":\"1f1b\",\"stages\":"
                            "[{\"blocks\":[\"a\"],\"replicas\":%d,\"devices\":[%s]}]}", replicas,
                            devices);
    json_t *json = json_loads(text, 0, NULL);
    struct err err = { 0 };
    struct plan *plan = plan_from_json("plan.json", json, &err);
    struct gpu_plan gpus = gpu_plan_new(plan, NULL);
    int n;

    if (!plan)
        fail_msg("%s", err.text);
    n = gpu_plan_count(&gpus, "n1", names);
    gpu_plan_clear(&gpus);
    plan_free(plan);
    json_decref(json);
    free(text);
    return n;
}

static const struct gpu_names second = { "0000:3d:00.0", 1, "GPU-5a7b" };

static void a_gpu_is_named_by_number_address_or_uuid(void **state)
{
    (void)state;
    assert_int_equal(count("[\"n1/gpu1\"]", 1, &second), 1);
    assert_int_equal(count("[\"n1/0000:3d:00.0\"]", 1, &second), 1);
    assert_int_equal(count("[\"n1/0000:3D:00.0\"]", 1, &second), 1);
    assert_int_equal(count("[\"n1/GPU-5a7b\"]", 1, &second), 1);
}

static void others_are_other_gpus(void **state)
{
    const struct gpu_names unknown = { "0000:3d:00.0", -1, "-" };

    (void)state;
    assert_int_equal(count("[\"n1/gpu0\",\"n2/gpu1\",\"n1/gpu11\",\"n1/0000:3d:00.1\",\"n11/gpu1\"]",
                           5, &second), 0);
    assert_int_equal(count("[\"n1/gpu1\",\"n1/-\",\"n1/gpu-1\"]", 3, &unknown), 0);
    assert_int_equal(count("[\"n1/1\",\"1\",\"n1\"]", 3, &second), 0);
}

static void ranks_that_share_one_are_as_many_devices(void **state)
{
    (void)state;
    assert_int_equal(count("[\"n1/gpu1.0\",\"n1/gpu0\",\"n1/gpu1.1\"]", 3, &second), 2);
    assert_int_equal(count("[\"n1/0000:3d:00.0.0\",\"n1/gpu1.\",\"n1/gpu1.x\"]", 3, &second), 1);
}

static void without_a_plan_there_is_none(void **state)
{
    struct gpu_plan none = gpu_plan_new(NULL, NULL);

    (void)state;
    assert_int_equal(gpu_plan_count(&none, "n1", &second), 0);
    gpu_plan_clear(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_is_named_by_number_address_or_uuid),
        cmocka_unit_test(others_are_other_gpus),
        cmocka_unit_test(ranks_that_share_one_are_as_many_devices),
        cmocka_unit_test(without_a_plan_there_is_none),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
