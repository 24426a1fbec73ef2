/* SPDX-License-Identifier: MIT */
/* Nodes of jobs from files as the schedulers write them. */
#include "unit.h"

#include "train/job_nodes.h"

static char *folder, path[600];

static int clear(void **state)
{
    static const char *const names[] = { "SLURM_JOB_ID", "PJM_JOBID", "PJM_O_NODEINF",
                                         "PBS_JOBID", "PBS_NODEFILE", "SGE_TASK_ID",
                                         "PE_HOSTFILE" };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

static int start(void **state)
{
    (void)state;
    folder = unit_directory();
    snprintf(path, sizeof(path), "%s/nodes", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void record(const char *mark, const char *variable, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    clear(NULL);
    setenv(mark, "7", 1);
    setenv(variable, path, 1);
}

/* "n1*4 n2*4" */
static void expect(const char *variable, const char *expected)
{
    struct job_nodes nodes;
    struct err err = { 0 };
    char text[256] = "";
    int64_t sum = 0;

    if (job_nodes_read(&nodes, &err))
        fail_msg("%s", err.text);
    assert_string_equal(nodes.variable, variable);
    for (int i = 0; i < nodes.n; i++) {
        sprintf(text + strlen(text), "%s%s*%d", i ? " " : "", nodes.list[i].name,
                (int)nodes.list[i].slots);
        sum += nodes.list[i].slots;
    }
    assert_string_equal(text, expected);
    assert_int_equal(nodes.slots, sum);
    job_nodes_clear(&nodes);
}

static void refuse(const char *why)
{
    struct job_nodes nodes;
    struct err err = { 0 };

    assert_int_equal(job_nodes_read(&nodes, &err), -1);
    assert_contains(err.text, why);
    assert_int_equal(nodes.n, 0);
}

static void outside_of_such_a_job_there_are_none(void **state)
{
    struct job_nodes nodes;
    struct err err = { 0 };

    (void)state;
    setenv("PE_HOSTFILE", "/nonexistent", 1);   /* of something else */
    assert_int_equal(job_nodes_read(&nodes, &err), 0);
    assert_null(nodes.variable);
    setenv("SGE_TASK_ID", "undefined", 1);
    setenv("SLURM_JOB_ID", "3", 1);
    assert_int_equal(job_nodes_read(&nodes, &err), 0);
    assert_null(nodes.variable);
}

static void a_line_for_each_slot_is_pbs_and_pjm(void **state)
{
    (void)state;
    record("PBS_JOBID", "PBS_NODEFILE", "r1n1.site\nr1n1.site\nr1n2.site\nr1n2.site\n");
    expect("PBS_NODEFILE", "r1n1.site*2 r1n2.site*2");
    record("PJM_JOBID", "PJM_O_NODEINF", "fx001\nfx002\n\nfx003");
    expect("PJM_O_NODEINF", "fx001*1 fx002*1 fx003*1");
}

static void grid_engine_counts_slots_and_names_queues(void **state)
{
    (void)state;
    record("SGE_TASK_ID", "PE_HOSTFILE", "n1 4 all.q@n1 UNDEFINED\nn2 4 all.q@n2 UNDEFINED\n"
           "n1 2 long.q@n1 0,0:0,1\n");
    expect("PE_HOSTFILE", "n1*6 n2*4");
}

static void what_is_no_such_file_is_an_error_that_names_it(void **state)
{
    (void)state;
    record("SGE_TASK_ID", "PE_HOSTFILE", "n1 4\nn2\n");
    refuse("line 2 is no node with its slots");
    record("SGE_TASK_ID", "PE_HOSTFILE", "n1 -4\n");
    refuse("line 1 is no node");
    record("PBS_JOBID", "PBS_NODEFILE", "\n\n");
    refuse("it lists no node");
    record("PBS_JOBID", "PBS_NODEFILE", "n\x01\n");
    refuse("line 1 is no node");
    setenv("PBS_NODEFILE", "/nonexistent", 1);
    refuse("PBS_NODEFILE=/nonexistent: No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(outside_of_such_a_job_there_are_none, clear),
        cmocka_unit_test_setup(a_line_for_each_slot_is_pbs_and_pjm, clear),
        cmocka_unit_test_setup(grid_engine_counts_slots_and_names_queues, clear),
        cmocka_unit_test_setup(what_is_no_such_file_is_an_error_that_names_it, clear),
    };

    return cmocka_run_group_tests(tests, start, end);
}
