/* SPDX-License-Identifier: MIT */
/* How tasks are bound, on nodes with 2 sockets of 56 cores and 4 GPUs near each. */
#include "recorded.h"

#include "base/json.h"
#include "base/mem.h"
#include "topology/check.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/task.h"

struct bound {
    const char *cpus;
    const char *visible;    /* "[0,1]", "[0] MIG-1"; NULL: all GPUs */
    const char *shown;      /* NULL: all */
};

static struct topo_node *machine(const char *host)
{
    struct topo_node *node = recorded_machine("hgx-h100");

    topo_node_set_text(&node->host, host);
    return node;
}

/* Two of the GPUs, each into two partitions: MIG-0 to MIG-3. */
static void cut_gpus(struct topo_node *node)
{
    for (int i = 0; i < 4; i++) {
        topo_gpu_add_mig(&node->gpus[i / 2],
                         (const char[]){ 'M', 'I', 'G', '-', (char)('0' + i), 0 });
        node->gpus[i / 2].mig = 1;
    }
}

static const char *partition_of(const struct bound *bound)
{
    return bound->visible ? strstr(bound->visible, "MIG-") : NULL;
}

static struct topo_tasks *read_tasks(const struct bound *bound, int n, int per_host)
{
    json_t *list = json_array();
    struct topo_tasks *tasks;
    struct err err = { 0 };

    for (int r = 0; r < n; r++) {
        char host[16];
        json_t *task;

        snprintf(host, sizeof(host), "n%d", r / per_host);
        task = json_pack("{s:i, s:s}", "rank", r, "host", host);
        if (bound[r].cpus)
            json_object_set_new(task, "usable", json_string(bound[r].cpus));
        if (bound[r].visible)
            json_object_set_new(task, "visible",
                                json_loads(bound[r].visible, JSON_DISABLE_EOF_CHECK, NULL));
        if (bound[r].shown)
            json_object_set_new(task, "shown", json_string(bound[r].shown));
        if (partition_of(&bound[r]))
            json_object_set_new(task, "partitions", json_pack("[s]", partition_of(&bound[r])));
        json_array_append_new(list, task);
    }
    tasks = topo_tasks_from_json("test", list, &err);
    if (!tasks)
        fail_msg("%s", err.text);
    json_decref(list);
    return tasks;
}

static struct findings *check(const struct bound *bound, int n, int per_host)
{
    struct topo_record *record = topo_record_new();
    struct topo_tasks *tasks = read_tasks(bound, n, per_host);
    struct findings *findings;
    struct err err = { 0 };

    for (int h = 0; h * per_host < n; h++) {
        char host[16];
        struct topo_node *node;

        snprintf(host, sizeof(host), "n%d", h);
        node = machine(host);
        if (partition_of(&bound[0]))
            cut_gpus(node);
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        topo_node_free(node);
    }
    findings = topo_check(record, tasks, NULL, NULL, &err);
    if (!findings)
        fail_msg("%s", err.text);
    topo_tasks_free(tasks);
    topo_record_free(record);
    return findings;
}

static void expect_nothing(const struct bound *bound, int n)
{
    struct findings *findings = check(bound, n, n);

    if (findings->n)
        fail_msg("%s: %s", findings->list[0].what, findings->list[0].evidence);
    findings_free(findings);
}

/* Just one finding, which says this. */
static void expect(const struct bound *bound, int n, const char *ranks, const char *what,
                   const char *evidence)
{
    struct findings *findings = check(bound, n, n);

    if (findings->n != 1)
        fail_msg("%d findings, not one \"%s\"", findings->n, what);
    assert_string_equal(findings->list[0].host, "n0");
    assert_string_equal(findings->list[0].ranks, ranks);
    assert_string_equal(findings->list[0].what, what);
    assert_contains(findings->list[0].evidence, evidence);
    assert_true(findings->list[0].advice[0]);
    findings_free(findings);
}

static void tasks_that_are_bound_well_have_no_findings(void **state)
{
    static const struct bound each_its_own[] = {
        { "0-13", "[0]", "0-3" }, { "14-27", "[1]", "0-3" },
        { "56-69", "[4]", "0-3" }, { "70-83", "[5]", "0-3" },
    };
    static const struct bound by_socket[] = {       /* Open MPI's way */
        { "0-55", NULL, NULL }, { "56-111", NULL, NULL },
        { "0-55", NULL, NULL }, { "56-111", NULL, NULL },
    };
    static const struct bound alone[] = { { "0-111", NULL, NULL } };
    static const struct bound most_of_it[] = { { "0-99", "[0,7]", NULL } };
    static const struct bound unknown[] = { { NULL, NULL, NULL }, { NULL, NULL, NULL } };
    static const struct bound in_turn[] = {         /* all see all, each starts elsewhere */
        { "0-27", "[0,1,4,5]", NULL }, { "28-55", "[1,4,5,0]", NULL },
        { "56-83", "[4,5,0,1]", NULL }, { "84-111", "[5,0,1,4]", NULL },
    };

    (void)state;
    expect_nothing(each_its_own, 4);
    expect_nothing(by_socket, 4);
    expect_nothing(alone, 1);
    expect_nothing(most_of_it, 1);
    expect_nothing(unknown, 2);
    expect_nothing(in_turn, 4);
}

static void a_task_across_sockets_is_named_by_its_rank(void **state)
{
    static const struct bound bound[] = {
        { "0-3", NULL, NULL }, { "4-7", NULL, NULL }, { "54-57", NULL, NULL },
        { "60-63", NULL, NULL },
    };

    (void)state;
    expect(bound, 4, "2", "bound across sockets", "CPUs 54-57, of 2 packages");
}

static void tasks_that_nobody_bound_are_one_finding(void **state)
{
    static const struct bound bound[] = {
        { "0-111", NULL, NULL }, { "0-111", NULL, NULL }, { "0-111", NULL, NULL },
    };

    (void)state;
    expect(bound, 3, "0-2", "not bound to a socket", "CPUs 0-111, of 2 packages");
}

static void tasks_crowded_on_few_cpus_are_found(void **state)
{
    static const struct bound bound[] = {
        { "3", NULL, NULL }, { "8-9", NULL, NULL }, { "3", NULL, NULL }, { "3", NULL, NULL },
        { "8-9", NULL, NULL },
    };

    (void)state;
    expect(bound, 5, "0,2-3", "more tasks than CPUs", "all 3 may run on CPUs 3 only, of 112");
}

static void masks_that_overlap_in_part_are_found(void **state)
{
    static const struct bound bound[] = {
        { "0-7", NULL, NULL }, { "6-13", NULL, NULL }, { "14-21", NULL, NULL },
    };

    (void)state;
    expect(bound, 3, "0-1", "CPUs overlap", "ranks 0 and 1 may both run on CPU 6");
}

static void more_tasks_than_the_node_has_cpus_are_what_somebody_asked_for(void **state)
{
    struct bound bound[120];

    (void)state;
    for (int i = 0; i < 120; i++)
        bound[i] = (struct bound){ "0-111", NULL, NULL };
    expect_nothing(bound, 120);
}

static void tasks_that_share_a_gpu_are_found_while_others_idle(void **state)
{
    static const struct bound bound[] = {
        { "0-7", "[0]", NULL }, { "8-15", "[0]", NULL }, { "16-23", "[1]", NULL },
        { "24-31", "[0]", NULL },
    };

    (void)state;
    expect(bound, 4, "0-1,3", "tasks share a GPU", "GPU0 only; no task has GPU 2-7");
}

static void tasks_that_share_a_partition_are_found(void **state)
{
    static const struct bound bound[] = {
        { "0-7", "[0] MIG-1", NULL }, { "8-15", "[1] MIG-2", NULL },
        { "16-23", "[0] MIG-1", NULL }, { "24-31", "[0] MIG-0", NULL },
    };
    static const struct bound each_its_own[] = {
        { "0-7", "[0] MIG-1", NULL }, { "8-15", "[1] MIG-2", NULL },
        { "16-23", "[1] MIG-3", NULL }, { "24-31", "[0] MIG-0", NULL },
    };

    (void)state;
    expect(bound, 4, "0,2", "tasks share a partition of a GPU",
           "each has MIG-1 of GPU0 only, of 10 partitions and GPUs");
    expect_nothing(each_its_own, 4);
}

static void more_tasks_than_gpus_may_share_them(void **state)
{
    struct bound bound[9];

    (void)state;
    for (int i = 0; i < 9; i++) {
        static const char *const cpus[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8" };

        bound[i] = (struct bound){ cpus[i], "[0]", NULL };
    }
    expect_nothing(bound, 9);
}

static void a_task_without_gpu_is_found_where_others_have_one(void **state)
{
    static const struct bound bound[] = {
        { "0-7", "[0]", NULL }, { "8-15", "[]", NULL }, { "16-23", "[1]", NULL },
    };
    static const struct bound none[] = { { "0-7", "[]", NULL }, { "8-15", "[]", NULL } };

    (void)state;
    expect(bound, 3, "1", "no GPU", "none of the node's 8");
    expect_nothing(none, 2);
}

static void cpus_on_another_numa_node_than_the_gpu_are_found(void **state)
{
    static const struct bound bound[] = {
        { "0-7", "[5]", NULL }, { "8-15", "[1,6]", NULL }, { "60-63", "[7]", NULL },
    };

    (void)state;
    expect(bound, 3, "0", "CPUs are far from the GPU",
           "runs on CPUs 0-7, but GPU5 is near NUMA node 1, CPUs 56-111");
}

static void gpus_that_a_control_group_hides_from_the_others_are_isolated(void **state)
{
    static const struct bound bound[] = {
        { "0-7", "[0]", "0" }, { "8-15", "[1]", "1" }, { "16-23", "[2]", "2" },
    };
    static const struct bound alone[] = { { "0-7", "[0]", "0" } };

    (void)state;
    expect(bound, 3, "0-2", "GPUs are isolated", "shows each task its own GPUs only");
    expect_nothing(alone, 1);
}

static void what_all_nodes_share_is_told_once_and_excludes_none(void **state)
{
    struct bound bound[24];
    struct findings *findings;
    char *text;

    (void)state;
    for (int i = 0; i < 24; i++)
        bound[i] = (struct bound){ i == 5 ? "0-111" : i % 3 ? "0-1" : "2", NULL, NULL };
    for (int i = 0; i < 24; i += 3)
        bound[i + 1].cpus = "2";
    findings = check(bound, 24, 3);
    text = findings_text(findings);
    assert_int_equal(findings->n, 10);      /* a crowd on each of 8, and rank 5 twice */
    assert_contains(text, "10 problems on 8 of 8 nodes\n\nn1\n");
    assert_contains(text, "\n  rank 5: not bound to a socket: may run on CPUs 0-111");
    assert_contains(text, "\nn0 ... n7 (8 nodes); on the first of them:\n  ranks 0-1: more ");
    assert_null(strstr(text, "\nn2\n"));
    assert_null(strstr(text, "--exclude"));
    free(text);
    findings_free(findings);
}

static void tasks_come_back_from_json(void **state)
{
    static const struct bound bound[] = {
        { "0-7,9", "[3,1]", "1-3" }, { "8", "[]", NULL }, { NULL, NULL, NULL },
    };
    struct topo_tasks *tasks = read_tasks(bound, 3, 3), *again;
    json_t *json = topo_tasks_to_json(tasks), *other;
    struct err err = { 0 };
    char *text = topo_tasks_text(tasks);

    (void)state;
    again = topo_tasks_from_json("test", json, &err);
    other = topo_tasks_to_json(again);
    assert_true(json_equal(json, other));
    assert_contains(text, "  rank 0     n0               CPUs 0-7,9            GPUs 3,1\n");
    assert_contains(text, "CPUs 8                GPUs none\n");
    assert_contains(text, "CPUs ?                GPUs all\n");
    free(text);
    json_decref(json);
    json_decref(other);
    topo_tasks_free(tasks);
    topo_tasks_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_that_are_bound_well_have_no_findings),
        cmocka_unit_test(a_task_across_sockets_is_named_by_its_rank),
        cmocka_unit_test(tasks_that_nobody_bound_are_one_finding),
        cmocka_unit_test(tasks_crowded_on_few_cpus_are_found),
        cmocka_unit_test(masks_that_overlap_in_part_are_found),
        cmocka_unit_test(more_tasks_than_the_node_has_cpus_are_what_somebody_asked_for),
        cmocka_unit_test(tasks_that_share_a_gpu_are_found_while_others_idle),
        cmocka_unit_test(tasks_that_share_a_partition_are_found),
        cmocka_unit_test(more_tasks_than_gpus_may_share_them),
        cmocka_unit_test(a_task_without_gpu_is_found_where_others_have_one),
        cmocka_unit_test(cpus_on_another_numa_node_than_the_gpu_are_found),
        cmocka_unit_test(gpus_that_a_control_group_hides_from_the_others_are_isolated),
        cmocka_unit_test(what_all_nodes_share_is_told_once_and_excludes_none),
        cmocka_unit_test(tasks_come_back_from_json),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
