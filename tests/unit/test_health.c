/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "topology/node.h"
#include "topology/node_read.h"
#include "train/health.h"

#define N 4
#define GIB (1024.0 * 1024 * 1024)

struct nodes {
    struct health said[N];
    struct health_record slurm[N];
    char *why[N];
};

static char nothing[] = "", gres[] = "gpu:4";

static struct nodes alike(void)
{
    struct nodes nodes = { 0 };

    for (int i = 0; i < N; i++) {
        nodes.said[i] = (struct health){ nothing, 64, 256 * GIB, 4, nothing, nothing, nothing,
                                          { .grouped = 0 } };
        nodes.slurm[i] = (struct health_record){ 64, 250 * GIB, 4, 4, gres };
    }
    return nodes;
}

static void judge(struct nodes *nodes)
{
    health_judge(N, nodes->said, nodes->slurm, nodes->why);
}

/* None but 'node', and that one for such a reason. */
static void only(struct nodes *nodes, int node, const char *reason)
{
    judge(nodes);
    for (int i = 0; i < N; i++) {
        if (i == node)
            assert_non_null(nodes->why[i]);
        else
            assert_null(nodes->why[i]);
    }
    if (node >= 0)
        assert_contains(nodes->why[node], reason);
    for (int i = 0; i < N; i++)
        free(nodes->why[i]);
}

static void nodes_that_are_alike_are_well(void **state)
{
    struct nodes nodes = alike();

    (void)state;
    only(&nodes, -1, "");
}

static void a_node_with_less_than_most_and_than_slurm_says_is_not(void **state)
{
    struct nodes nodes = alike();

    (void)state;
    nodes.said[2].cpus = 32;
    only(&nodes, 2, "it has 32 CPUs, other nodes of its kind 64");
    nodes = alike();
    nodes.said[1].memory = 192 * GIB;
    only(&nodes, 1, "it has 192.0 GiB of memory, other nodes of its kind 256.0");
}

/* The site promises no more; or has other nodes beside them; or overrides what is there. */
static void less_than_others_is_no_fault_where_slurm_promises_no_more(void **state)
{
    struct nodes nodes = alike();

    (void)state;
    for (int i = 0; i < N; i++)
        nodes.slurm[i].memory = 128 * GIB;
    nodes.said[1].memory = 192 * GIB;
    only(&nodes, -1, "");
    nodes = alike();
    nodes.said[0].cpus = nodes.slurm[0].cpus = 8;
    only(&nodes, -1, "");
    nodes = alike();
    for (int i = 0; i < N; i++)
        nodes.said[i].cpus = 2;
    only(&nodes, -1, "");
}

static void gpus_that_the_driver_does_not_show_are_missed(void **state)
{
    struct nodes nodes = alike();

    (void)state;
    nodes.said[3].gpus = 3;
    only(&nodes, 3, "the driver shows 3 of the 4 GPUs that the job has there");
    nodes.said[3].gpus = 0;
    nodes.said[3].driver = (char[]){ "nvmlInit_v2: Driver/library version mismatch" };
    only(&nodes, 3, "0 of the 4 GPUs that the job has there: nvmlInit_v2: Driver/library");
    /* Of no node: then no driver is there, or the run is not for GPUs. */
    for (int i = 0; i < N; i++)
        nodes.said[i].gpus = 0;
    only(&nodes, -1, "");
    for (int i = 0; i < N; i++)
        nodes.said[i].gpus = -1;
    only(&nodes, -1, "");
}

/* Devices are not confined: CUDA's numbers go wrong behind the one that is lost. */
static void one_that_is_lost_counts_where_the_job_has_others(void **state)
{
    struct nodes nodes = alike();

    (void)state;
    for (int i = 0; i < N; i++)
        nodes.slurm[i].given = 2;
    nodes.said[0].gpus = 3;
    only(&nodes, 0, "the driver shows 3 of its 4 GPUs");
    for (int i = 0; i < N; i++)
        nodes.slurm[i].given = 0;
    only(&nodes, -1, "");
}

static void a_folder_or_file_that_fails_on_all_is_no_fault_of_a_node(void **state)
{
    struct nodes nodes = alike();
    char trouble[] = "/tmp: No space left on device", missing[] = "d: No such file";

    (void)state;
    nodes.said[1].trouble = trouble;
    only(&nodes, 1, "/tmp: No space left on device; other nodes can write there");
    nodes = alike();
    nodes.said[0].missing = missing;
    only(&nodes, 0, "d: No such file; other nodes have it");
    for (int i = 0; i < N; i++) {
        nodes.said[i].missing = missing;
        nodes.said[i].trouble = trouble;
    }
    only(&nodes, -1, "");
}

static void a_look_at_this_node_survives_its_line(void **state)
{
    struct topo_node *node = topo_node_new();
    char *directory = unit_directory();
    struct health_needs needs = { .gpus = node, .temporary = directory,
                                  .shared = "/nowhere/at/all", .file = "/nowhere/data" };
    struct health said, read;
    char *line;

    (void)state;
    topo_node_add_gpu(node, "0000:1b:00.0")->seen = true;
    topo_node_add_gpu(node, "0000:2b:00.0");
    said = health_look(&needs);
    line = health_line(&said);
    assert_true(health_read(line, &read));
    assert_true(read.cpus > 0);
    assert_true(read.memory > 0);
    assert_int_equal(read.cpus, said.cpus);
    assert_int_equal(read.gpus, 1);
    assert_string_equal(read.trouble, "/nowhere/at/all: No such file or directory");
    assert_string_equal(read.missing, "/nowhere/data: No such file or directory");
    assert_true(read.oom.limit > 0);
    assert_int_equal(read.oom.group, said.oom.group);
    assert_int_equal(read.oom.machine, said.oom.machine);
    assert_int_equal(read.oom.grouped, said.oom.grouped);
    assert_false(health_read("srun: error: {", &read));
    assert_false(health_read("{\"schema\":\"tasuki-health\"}", &read));
    assert_false(health_read("{\"schema\":", &read));
    free(line);
    health_clear(&said);
    health_clear(&read);
    topo_node_free(node);
    assert_int_equal(rmdir(directory), 0);      /* nothing is left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_are_alike_are_well),
        cmocka_unit_test(a_node_with_less_than_most_and_than_slurm_says_is_not),
        cmocka_unit_test(less_than_others_is_no_fault_where_slurm_promises_no_more),
        cmocka_unit_test(gpus_that_the_driver_does_not_show_are_missed),
        cmocka_unit_test(one_that_is_lost_counts_where_the_job_has_others),
        cmocka_unit_test(a_folder_or_file_that_fails_on_all_is_no_fault_of_a_node),
        cmocka_unit_test(a_look_at_this_node_survives_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
