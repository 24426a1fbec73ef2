/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "train/checkpoint_lock.h"
#include "train/job.h"

static int clear(void **state)
{
    static const char *const names[] = {
        "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID",
        "SLURM_RESTART_COUNT", "PJM_JOBID", "PJM_BULKNUM", "PBS_JOBID", "PBS_ARRAY_ID",
        "PBS_ARRAY_INDEX", "JOB_ID", "SGE_TASK_ID", "SGE_CLUSTER_NAME",
        "TASUKI_STARTED_BY",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    return 0;
}

static void expect(const char *text, const char *path)
{
    const struct job_names job = job_names();
    struct err err = { 0 };
    char *made;

    assert_int_equal(job_path("log", text, &job, &made, &err), 0);
    assert_string_equal(made, path);
    free(made);
}

static void refuse(const char *text, const char *why)
{
    const struct job_names job = job_names();
    struct err err = { 0 };
    char *made;

    assert_int_equal(job_path("log", text, &job, &made, &err), -1);
    assert_int_equal(err.code, EXIT_USAGE);
    assert_contains(err.text, why);
}

static void outside_a_job_there_are_no_names(void **state)
{
    (void)state;
    setenv("JOB_ID", "7", 1);       /* of something else */
    setenv("PBS_JOBID", "", 1);
    assert_null(job_names().job);
    refuse("%j", "--log %j: %j: this is no job of Slurm, PJM, PBS or Grid Engine");
    expect("%%", "%");
}

static void slurm_comes_first(void **state)
{
    (void)state;
    setenv("SLURM_JOB_ID", "12", 1);
    setenv("PBS_JOBID", "7.server", 1);
    expect("%j-%A", "12-12");
    refuse("%a", "--log %a: %a: this is no task of an array");
    setenv("SLURM_ARRAY_JOB_ID", "10", 1);
    setenv("SLURM_ARRAY_TASK_ID", "2", 1);
    setenv("SLURM_RESTART_COUNT", "3", 1);
    expect("%j-%A_%a", "12-10_2");
    assert_string_equal(job_names().restart, "3");
}

static void other_schedulers_name_their_jobs_too(void **state)
{
    (void)state;
    setenv("PBS_JOBID", "7[3].server", 1);
    setenv("PBS_ARRAY_ID", "7[].server", 1);
    setenv("PBS_ARRAY_INDEX", "3", 1);
    expect("%j-%A_%a", "7[3].server-7[].server_3");
    clear(NULL);
    setenv("PJM_JOBID", "8", 1);
    expect("%j-%A", "8-8");
    setenv("PJM_BULKNUM", "0", 1);
    expect("%j-%A_%a", "8-8_0");
    clear(NULL);
    setenv("JOB_ID", "9", 1);
    setenv("SGE_TASK_ID", "undefined", 1);
    expect("%j-%A", "9-9");
    refuse("%a", "this is no task of an array");
    setenv("SGE_TASK_ID", "4", 1);
    expect("%j-%A_%a", "9-9_4");
}

static struct lock_owner owner(const char *host)
{
    const struct job_names job = job_names();
    struct lock_owner o = lock_owner_self(&job);

    snprintf(o.host, sizeof(o.host), "%s", host);
    return o;
}

static void tasks_of_an_array_that_have_one_job_are_not_one_run(void **state)
{
    struct lock_owner first, again, other;

    (void)state;
    setenv("JOB_ID", "9", 1);
    setenv("SGE_TASK_ID", "4", 1);
    first = owner("n1");
    again = owner("n2");
    setenv("SGE_TASK_ID", "5", 1);
    other = owner("n2");
    assert_non_null(lock_stale(&first, &again, LOCK_GONE, 100));
    assert_null(lock_stale(&first, &other, LOCK_GONE, 100));
}

static void steps_of_one_job_side_by_side_are_not_one_run(void **state)
{
    struct lock_owner first, beside;

    (void)state;
    setenv("SLURM_JOB_ID", "12", 1);
    first = owner("n1");
    beside = owner("n2");
    assert_null(lock_stale(&first, &beside, LOCK_GONE, 31));
    assert_non_null(lock_stale(&first, &beside, LOCK_GONE, 100));
    setenv("TASUKI_STARTED_BY", "n1 77 1800000000", 1);
    first = owner("n1");
    beside = owner("n2");
    assert_non_null(lock_stale(&first, &beside, LOCK_GONE, 1));
    setenv("TASUKI_STARTED_BY", "n1 78 1800000000", 1);
    beside = owner("n2");
    assert_null(lock_stale(&first, &beside, LOCK_GONE, 1));
}

static void on_one_host_a_process_that_is_hidden_is_judged_by_age(void **state)
{
    const struct lock_owner one = owner("n1");

    (void)state;
    assert_null(lock_stale(&one, &one, LOCK_LIVES, 1e6));
    assert_non_null(lock_stale(&one, &one, LOCK_GONE, 1));
    assert_null(lock_stale(&one, &one, LOCK_HIDDEN, 1));
    assert_non_null(lock_stale(&one, &one, LOCK_HIDDEN, 1e6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(outside_a_job_there_are_no_names, clear),
        cmocka_unit_test_setup(slurm_comes_first, clear),
        cmocka_unit_test_setup(other_schedulers_name_their_jobs_too, clear),
        cmocka_unit_test_setup(tasks_of_an_array_that_have_one_job_are_not_one_run, clear),
        cmocka_unit_test_setup(steps_of_one_job_side_by_side_are_not_one_run, clear),
        cmocka_unit_test_setup(on_one_host_a_process_that_is_hidden_is_judged_by_age, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
