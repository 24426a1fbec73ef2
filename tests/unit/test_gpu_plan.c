/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "scheduler/plan.h"
#include "topology/node_read.h"
#include "train/gpu_plan.h"

/* A plan whose only stage is on these devices, a list of JSON. */
static struct plan *plan_on(const char *devices, int replicas)
{
    char *text = mem_printf("{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":8,"
                            "\"micro_batches\":1,\"micro_batch\":8,\"schedule\":\"1f1b\",\"stages\":"
                            "[{\"blocks\":[\"a\"],\"replicas\":%d,\"devices\":[%s]}]}", replicas,
                            devices);
    json_t *json = json_loads(text, 0, NULL);
    struct err err = { 0 };
    struct plan *plan = plan_from_json("plan.json", json, &err);

    if (!plan)
        fail_msg("%s", err.text);
    json_decref(json);
    free(text);
    return plan;
}

/* 'names' are those of a GPU of "n1". */
static int count(const char *devices, int replicas, const struct gpu_names *names)
{
    struct plan *plan = plan_on(devices, replicas);
    struct gpu_plan gpus = gpu_plan_new(plan, NULL);
    int n = gpu_plan_count(&gpus, "n1", names);

    gpu_plan_clear(&gpus);
    plan_free(plan);
    return n;
}

/* The GPUs of so many tasks of the node, "0 2 "; "-": not known. */
static void expect_taken(const struct topo_node *node, const char *devices, int replicas, int tasks,
                         const char *expected)
{
    char *list = mem_printf("[%s]", devices);
    struct plan *plan = plan_on(list, replicas);
    struct gpu_plan own = gpu_plan_new(plan, node);
    int *gpus = gpu_plan_take(&own, "n1", tasks);
    char text[64] = "";

    for (int i = 0; gpus && i < tasks; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%d ", gpus[i]);
    assert_string_equal(gpus ? text : "-", expected);
    free(gpus);
    free(list);
    gpu_plan_clear(&own);
    plan_free(plan);
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

static void tasks_will_take_what_the_plan_names_and_then_the_rest(void **state)
{
    static const char *const addresses[] = { "0000:1b:00.0", "0000:3d:00.0", "0000:4e:00.0" };
    struct topo_node *node = topo_node_new();

    (void)state;
    node->n_gpus = 3;
    node->gpus = mem_new(3, sizeof(*node->gpus));
    for (int i = 0; i < 3; i++) {
        topo_node_set_text(&node->gpus[i].address, addresses[i]);
        topo_node_set_text(&node->gpus[i].uuid, "");
        node->gpus[i].seen = true;
    }
    node->n_visible = -1;
    expect_taken(node, "\"n1/gpu2\",\"n1/gpu1\"", 2, 2, "1 2 ");
    expect_taken(node, "\"n1/gpu2\",\"n2/gpu1\"", 2, 2, "2 0 ");
    expect_taken(node, "\"n1/gpu1.0\",\"n1/gpu1.1\",\"n1/gpu2\"", 3, 3, "1 1 2 ");
    expect_taken(node, "\"n1/gpu1.0\",\"n1/gpu1.1\",\"n1/gpu2.0\",\"n1/gpu2.1\"", 4, 4, "1 1 2 2 ");
    expect_taken(node, "\"n2/gpu2\",\"n2/gpu1\"", 2, 2, "-");
    /* As many may be shown others. */
    expect_taken(node, "\"n1/gpu2\",\"n1/gpu1\"", 2, 4, "-");
    expect_taken(node, "\"n1/gpu2\",\"n1/gpu1\"", 2, 0, "-");
    node->visible = mem_new(2, sizeof(int));
    node->n_visible = 2;
    node->visible[0] = 2;
    expect_taken(node, "\"n1/gpu0\",\"n1/gpu1\",\"n1/gpu2\"", 3, 2, "2 0 ");
    topo_node_free(node);
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
        cmocka_unit_test(tasks_will_take_what_the_plan_names_and_then_the_rest),
        cmocka_unit_test(without_a_plan_there_is_none),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
