/* SPDX-License-Identifier: MIT */
/* Nodes of jobs from files as the schedulers write them. */
#include "unit.h"

#include "base/mem.h"
#include "train/job_nodes.h"

static char *folder, path[600];

static int clear(void **state)
{
    static const char *const names[] = { "SLURM_JOB_ID", "PJM_JOBID", "PJM_O_NODEINF",
                                         "PJM_PROC_BY_NODE", "PBS_JOBID", "PBS_NODEFILE",
                                         "SGE_TASK_ID", "JOB_ID", "PE_HOSTFILE" };

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
static void expect_list(const struct job_nodes *nodes, const char *expected)
{
    char text[256] = "";
    int64_t sum = 0;

    for (int i = 0; i < nodes->n; i++) {
        sprintf(text + strlen(text), "%s%s*%d", i ? " " : "", nodes->list[i].name,
                (int)nodes->list[i].slots);
        sum += nodes->list[i].slots;
    }
    assert_string_equal(text, expected);
    assert_int_equal(nodes->slots, sum);
}

static void expect(const char *variable, const char *expected)
{
    struct job_nodes nodes;
    struct err err = { 0 };

    if (job_nodes_read(&nodes, &err))
        fail_msg("%s", err.text);
    assert_string_equal(nodes.variable, variable);
    expect_list(&nodes, expected);
    job_nodes_clear(&nodes);
}

/* Recorded jobs: what their scheduler puts into the environment, its file, and what is to be made of
 * it: a title, the nodes, and verdicts on where ranks are. Lines with '#' say how it was asked for.
 */
static char *file_of(const char *job, const char *name)
{
    const char *source = getenv("srcdir");

    return mem_printf("%s/tests/data/%s/%s", source ? source : ".", job, name);
}

static void take_environment(const char *job)
{
    char *name = file_of(job, "environment"), *nodes = file_of(job, "nodes"), line[512];
    FILE *file = fopen(name, "r");

    assert_non_null(file);
    clear(NULL);
    while (fgets(line, sizeof(line), file)) {
        char *value = strchr(line, '=');

        assert_non_null(value);
        *value++ = '\0';
        value[strcspn(value, "\n")] = '\0';
        if (strncmp(line, "PJM_", 4) != 0 && strncmp(line, "PBS_", 4) != 0 &&
            strncmp(line, "SGE_", 4) != 0 && strncmp(line, "PE", 2) != 0 &&
            strcmp(line, "JOB_ID") != 0)
            continue;
        setenv(line, strstr(line, "_NODE") && strchr(value, '/') ? nodes
                     : strcmp(line, "PE_HOSTFILE") == 0          ? nodes : value, 1);
    }
    fclose(file);
    free(name);
    free(nodes);
}

/* "fits: n1*4", "crowded at 4: n1*8", "crowded in all: …", "elsewhere at 0: …" */
static void expect_verdict(const struct job_nodes *nodes, char *line)
{
    char *hosts = strstr(line, ": "), names[64][32], found[32], *rest, *word;
    const char *list[64];
    enum job_misfit misfit;
    int n = 0, rank;

    assert_non_null(hosts);
    *hosts = '\0';
    for (word = strtok_r(hosts + 2, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *star = strchr(word, '*');

        assert_non_null(star);
        *star = '\0';
        for (int i = 0; i < atoi(star + 1); i++, n++) {
            assert_true(n < 64);
            snprintf(names[n], sizeof(names[n]), "%s", word);
            list[n] = names[n];
        }
    }
    misfit = job_nodes_fit(nodes, n, list, &rank);
    if (misfit == JOB_FITS)
        snprintf(found, sizeof(found), "fits");
    else if (rank < 0)
        snprintf(found, sizeof(found), "crowded in all");
    else
        snprintf(found, sizeof(found), "%s at %d",
                 misfit == JOB_CROWDED ? "crowded" : "elsewhere", rank);
    assert_string_equal(found, line);
}

static void expect_recorded(const char *job)
{
    char *name = file_of(job, "expected"), *title, line[512];
    FILE *file = fopen(name, "r");
    struct job_nodes nodes;
    struct err err = { 0 };
    int at = 0;

    assert_non_null(file);
    take_environment(job);
    if (job_nodes_read(&nodes, &err))
        fail_msg("%s: %s", job, err.text);
    title = job_nodes_title(&nodes);
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        if (at == 0)
            assert_string_equal(title, line);
        else if (at == 1)
            expect_list(&nodes, line);
        else
            expect_verdict(&nodes, line);
        at++;
    }
    assert_true(at > 2);
    fclose(file);
    free(title);
    free(name);
    job_nodes_clear(&nodes);
}

static void recorded_jobs_are_what_is_said_of_them(void **state)
{
    static const char *const jobs[] = { "pbs/mpiprocs", "pbs/chunks", "pbs/torque", "pjm/names",
                                        "pjm/addresses", "sge/mpi", "sge/array" };

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
        expect_recorded(jobs[i]);
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
        cmocka_unit_test_setup(recorded_jobs_are_what_is_said_of_them, clear),
        cmocka_unit_test_setup(what_is_no_such_file_is_an_error_that_names_it, clear),
    };

    return cmocka_run_group_tests(tests, start, end);
}
