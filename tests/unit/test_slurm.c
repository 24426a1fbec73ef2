/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "topology/node.h"
#include "topology/record.h"

static void expect_id(const char *text, int64_t job, int64_t task, int64_t component)
{
    struct slurm_job_id id;
    struct err err = { 0 };

    if (slurm_parse_job(text, &id, &err)) {
        if (job >= 0)
            fail_msg("%s", err.text);
        assert_int_equal(err.code, EXIT_USAGE);
        assert_contains(err.text, text);
        return;
    }
    assert_int_equal(id.job, job);
    assert_int_equal(id.task, task);
    assert_int_equal(id.component, component);
}

static void jobs_tasks_and_components_are_told_apart(void **state)
{
    (void)state;
    expect_id("123", 123, -1, -1);
    expect_id("123_4", 123, 4, -1);
    expect_id("123+0", 123, -1, 0);
    expect_id("4294967295", 4294967295, -1, -1);
}

static void what_is_no_job_is_a_usage_error(void **state)
{
    static const char *const wrong[] = { "", "x", "0", "-1", "12x", "12_", "12+x", "1_2_3",
                                         "99999999999", " 5" };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_id(wrong[i], -1, 0, 0);
}

/* "p100*4" and "p100*2@0,1". */
static void expect_gpus(const char *gres, const char *expected)
{
    struct slurm_gpus *gpus;
    int n = slurm_gpus_of(gres, &gpus);
    char text[256] = "";

    for (int i = 0; i < n; i++) {
        sprintf(text + strlen(text), "%s%s*%d", i ? " " : "", gpus[i].type, gpus[i].n);
        for (int j = 0; gpus[i].index && j < gpus[i].n; j++)
            sprintf(text + strlen(text), "%s%d", j ? "," : "@", gpus[i].index[j]);
    }
    assert_string_equal(text, expected);
    slurm_gpus_free(n, gpus);
}

static void gpus_are_found_among_generic_resources(void **state)
{
    (void)state;
    expect_gpus("gpu:p100:4(S:0-1)", "p100*4");
    expect_gpus("gpu:4", "gpu*4");
    expect_gpus("gpu", "gpu*1");
    expect_gpus("gpu:a100", "a100*1");
    expect_gpus("nic:2,gpu:a:2(S:0,1),gpu:b:1,shard:8", "a*2 b*1");
    expect_gpus("", "");
    expect_gpus("(null)", "");
}

static void a_job_s_gpus_have_their_numbers_on_the_node(void **state)
{
    (void)state;
    expect_gpus("gpu:p100:2(IDX:0-1)", "p100*2@0,1");
    expect_gpus("gpu:p100:3(IDX:0,2-3),nic:1(IDX:0)", "p100*3@0,2,3");
    expect_gpus("gpu:p100:0(IDX:)", "");
    expect_gpus("gpu:p100:2(IDX:N/A)", "p100*2");
    expect_gpus("gpu:p100:2(IDX:0-5)", "p100*2");
}

static void resources_that_make_no_sense_are_left_out(void **state)
{
    (void)state;
    expect_gpus("gpu:p100:x", "");
    expect_gpus("gpu:p100:4:5", "");
    expect_gpus("gpu:p100:99999999", "");
    expect_gpus("gpu:p100:4(((", "p100*4");
    expect_gpus(",,gpu:2,,", "gpu*2");
}

static void shares_of_gpus_are_told_from_other_resources(void **state)
{
    (void)state;
    assert_true(slurm_has_gpu_parts("shard:1"));
    assert_true(slurm_has_gpu_parts("nic:1(IDX:0,2),shard:gpu:4(0/4,4/4)"));
    assert_true(slurm_has_gpu_parts("mps"));
    assert_false(slurm_has_gpu_parts("gpu:mps:2(S:0,1),nic:shard,mpsx:1"));
    assert_false(slurm_has_gpu_parts("nic:1(shard,mps)"));
    assert_false(slurm_has_gpu_parts(""));
}

static const char recorded[] =
    "{\"version\": \"22.05.8\", \"cluster\": \"lab\", \"topology\": \"topology/tree\","
    " \"job\": \"7\", \"name\": \"mine\", \"user\": \"ann\", \"state\": \"running\","
    " \"partition\": \"main\", \"time_left\": 3554, \"time_limit\": 90000,"
    " \"nodes\": ["
    "  {\"name\": \"n1\", \"state\": \"mixed\", \"gres\": \"gpu:p100:4\","
    "   \"given\": \"gpu:p100:2(IDX:1-2)\", \"sockets\": 2, \"cores\": 8, \"threads\": 2,"
    "   \"memory\": 1073741824},"
    "  {\"name\": \"n2\", \"state\": \"mixed\", \"gres\": \"gpu:p100:4\","
    "   \"given\": \"gpu:p100:2(IDX:1-2)\", \"sockets\": 2, \"cores\": 8, \"threads\": 2,"
    "   \"memory\": 1073741824},"
    "  {\"name\": \"n9\", \"state\": \"down\", \"reason\": \"fan\", \"features\": \"big\"}],"
    " \"switches\": ["
    "  {\"name\": \"leaf1\", \"link_speed\": 100, \"nodes\": [\"n1\", \"n2\"]},"
    "  {\"name\": \"spine\", \"level\": 1, \"link_speed\": 400,"
    "   \"switches\": [\"leaf1\", \"spine\"]}]}";

static struct slurm_facts *read_facts(const char *text, const char *error)
{
    json_t *json = json_loads(text, 0, NULL);
    struct slurm_facts *facts;
    struct err err = { 0 };

    assert_non_null(json);
    facts = slurm_facts_from_json("rec.json", json, &err);
    json_decref(json);
    if (!facts && !error)
        fail_msg("%s", err.text);
    if (error) {
        assert_null(facts);
        assert_contains(err.text, error);
    }
    return facts;
}

static void what_is_written_is_read_back_the_same(void **state)
{
    struct slurm_facts *facts = read_facts(recorded, NULL);
    json_t *json = slurm_facts_to_json(facts), *expected = json_loads(recorded, 0, NULL);

    (void)state;
    json_object_set_new(json_array_get(json_object_get(expected, "nodes"), 0), "memory",
                        json_real(1073741824));
    json_object_set_new(json_array_get(json_object_get(expected, "nodes"), 1), "memory",
                        json_real(1073741824));
    assert_true(json_equal(json, expected));
    json_decref(json);
    json_decref(expected);
    slurm_facts_free(facts);
}

static void recordings_that_are_none_are_refused_by_key(void **state)
{
    (void)state;
    read_facts("{\"jobs\": 7}", "jobs");
    read_facts("{\"nodes\": [{\"sockets\": -1}]}", "sockets");
    read_facts("{\"switches\": [{\"nodes\": [1]}]}", "nodes");
    read_facts("[]", "rec.json");
}

static void nodes_have_the_job_s_gpus_and_hang_below_their_switches(void **state)
{
    struct slurm_facts *facts = read_facts(recorded, NULL);
    struct err err = { 0 };
    struct topo_record *record = slurm_record(facts, &err);
    struct topo_node *node;

    (void)state;
    assert_non_null(record);
    assert_int_equal(topo_record_hosts(record), 3);
    assert_int_equal(topo_record_kinds(record), 2);
    /* A switch above itself is no way up: the path ends. */
    assert_contains(topo_record_switches(record, 0), "/leaf1");
    assert_string_equal(topo_record_switches(record, 2), "/");
    node = topo_record_node(record, 1, &err);
    assert_non_null(node);
    assert_int_equal(node->n_gpus, 2);
    assert_string_equal(node->gpus[0].name, "p100");
    assert_int_equal(node->cores, 16);
    assert_int_equal(node->pus, 32);
    topo_node_free(node);
    topo_record_free(record);
    slurm_facts_free(facts);
}

static void the_report_has_what_slurm_said(void **state)
{
    struct slurm_facts *facts = read_facts(recorded, NULL);
    char *text = slurm_text(facts);

    (void)state;
    assert_contains(text, "job 7 \"mine\" of ann: running, partition main\n");
    assert_contains(text, "59 min 14 s left of 1 d 1 h\n");
    assert_contains(text, "n[1-2]       2 nodes, mixed\n");
    assert_contains(text, "2 sockets, 16 cores, 32 threads, 1 GiB\n");
    assert_contains(text, "GPUs 4 x p100, of which the job has 1-2\n");
    assert_contains(text, "n9           1 node, down: fan\n");
    assert_contains(text, "features big\n");
    assert_contains(text, "leaf1 100, spine 400\n");
    free(text);
    slurm_facts_free(facts);
}

static void a_module_that_is_missing_is_named(void **state)
{
    char *folder = unit_directory();
    struct err err = { 0 };

    (void)state;
    setenv("TASUKI_PKGLIBDIR", folder, 1);
    assert_null(slurm_ask_job("7", &err));
    assert_contains(err.text, "job 7: tasuki-slurm.so is not installed");
    assert_int_equal(err.code, EXIT_FAILED);
    assert_null(slurm_ask_partition("gpu", &err));
    assert_contains(err.text, "partition gpu: tasuki-slurm.so is not installed");
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_tasks_and_components_are_told_apart),
        cmocka_unit_test(what_is_no_job_is_a_usage_error),
        cmocka_unit_test(gpus_are_found_among_generic_resources),
        cmocka_unit_test(a_job_s_gpus_have_their_numbers_on_the_node),
        cmocka_unit_test(resources_that_make_no_sense_are_left_out),
        cmocka_unit_test(shares_of_gpus_are_told_from_other_resources),
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(recordings_that_are_none_are_refused_by_key),
        cmocka_unit_test(nodes_have_the_job_s_gpus_and_hang_below_their_switches),
        cmocka_unit_test(the_report_has_what_slurm_said),
        cmocka_unit_test(a_module_that_is_missing_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
