/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "comm/comm.h"

#define MOST 16

/* Recorded environments of one process, what is not about launching left out. */
static const struct {
    const char *name;
    const char *environment[MOST];
    bool fails;
    struct launch expected;
} cases[] = {
    { "a shell", { "HOME=/root", "PATH=/bin" }, false, { .kind = LAUNCH_ALONE } },
    { "mpirun of Open MPI 4",
      { "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_RANK=3",
        "PMIX_NAMESPACE=1234", "PMIX_RANK=3" }, false,
      { .kind = LAUNCH_MPI, .pmix = true, .size = 4, .local_size = 2,
        .line = "mpirun -n 4 tasuki ..." } },
    { "mpirun -n 1", { "OMPI_COMM_WORLD_SIZE=1", "PMIX_NAMESPACE=1", "PMIX_RANK=0" }, false,
      { .kind = LAUNCH_ALONE, .pmix = true, .size = 1 } },
    { "mpirun of Open MPI inside a Slurm job: its daemon is a task of a step",
      { "OMPI_COMM_WORLD_SIZE=8", "PMIX_NAMESPACE=1", "PMIX_RANK=5", "SLURM_STEP_ID=0",
        "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NTASKS=2" }, false,
      { .kind = LAUNCH_MPI, .pmix = true, .size = 8 } },
    { "mpirun of MPICH", { "PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=6", "MPI_LOCALNRANKS=4" }, false,
      { .kind = LAUNCH_MPI, .pmi = true, .size = 4, .local_size = 4 } },
    { "srun --mpi=pmix -N4 --ntasks-per-node=2",
      { "SLURM_STEP_ID=3", "SLURM_PROCID=7", "SLURM_NODEID=3", "SLURM_STEP_NUM_TASKS=8",
        "SLURM_STEP_NUM_NODES=4", "SLURM_STEP_TASKS_PER_NODE=2(x4)", "SLURM_NTASKS=8",
        "PMIX_NAMESPACE=slurm.pmix.1.3", "PMIX_RANK=7",
        "OMPI_MCA_mpi_yield_when_idle=1" }, false,
      { .kind = LAUNCH_MPI, .slurm_step = true, .slurm_tasks = 8, .pmix = true, .size = 8,
        .local_size = 2, .yield = true,
        .line = "srun --mpi=pmix -N4 --ntasks-per-node=2 tasuki ..." } },
    { "srun -n 1", { "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1" }, false,
      { .kind = LAUNCH_ALONE, .slurm_step = true, .slurm_tasks = 1, .size = 1 } },
    { "a batch script of several tasks",
      { "SLURM_JOB_ID=5", "SLURM_PROCID=0", "SLURM_NTASKS=8" }, false,
      { .kind = LAUNCH_ALONE } },
    { "the interactive step of salloc",
      { "SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_NTASKS=8",
        "SLURM_STEP_NUM_TASKS=1" }, false, { .kind = LAUNCH_ALONE } },
    { "srun --mpi=pmi2",
      { "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "PMI_FD=11",
        "PMI_RANK=1", "PMI_SIZE=4" }, false,
      { .kind = LAUNCH_MPI, .slurm_step = true, .slurm_tasks = 4, .pmi = true, .size = 4 } },
    { "srun --mpi=none",
      { "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=4",
        "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=2(x2)" }, true,
      { .line = "srun --mpi=pmix -N2 --ntasks-per-node=2 tasuki ..." } },
    { "srun --mpi=none, unequal nodes",
      { "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=8",
        "SLURM_STEP_NUM_NODES=4", "SLURM_STEP_TASKS_PER_NODE=5,1(x3)" }, true,
      { .line = "srun --mpi=pmix -N4 -n8 tasuki ..." } },
    { "an environment of nonsense",
      { "OMPI_COMM_WORLD_SIZE=many", "PMI_SIZE=-3", "SLURM_STEP_ID=x", "SLURM_PROCID=",
        "SLURM_STEP_TASKS_PER_NODE=2(x", "SLURM_NTASKS=99999999999999999999" }, false,
      { .kind = LAUNCH_ALONE } },
};

static void every_recorded_environment_is_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct launch *want = &cases[i].expected;
        struct launch got = { 0 };
        struct err err = { 0 };
        int status = launch_detect_from((char *const *)(uintptr_t)cases[i].environment, &got,
                                        &err);

        if (cases[i].fails) {
            if (status != -1 || !strstr(err.text, want->line) || err.code != EXIT_USAGE)
                fail_msg("%s: %s", cases[i].name, err.text);
            continue;
        }
        if (status || got.kind != want->kind || got.slurm_step != want->slurm_step ||
            got.slurm_tasks != want->slurm_tasks || got.pmix != want->pmix ||
            got.pmi != want->pmi || got.size != want->size ||
            got.local_size != want->local_size || got.yield != want->yield ||
            (want->line[0] && strcmp(got.line, want->line)))
            fail_msg("%s: kind %d, size %d, local %d, line %s", cases[i].name, got.kind,
                     got.size, got.local_size, got.line);
    }
}

static void only_the_first_task_of_a_step_says_what_is_wrong(void **state)
{
    const char *const environment[] = { "SLURM_STEP_ID=0", "SLURM_PROCID=3",
                                        "SLURM_STEP_NUM_TASKS=4", NULL };
    struct launch launch = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(launch_detect_from((char *const *)(uintptr_t)environment, &launch, &err),
                     -1);
    assert_int_equal(err.code, EXIT_USAGE);
    assert_string_equal(err.text, "");
}

static void a_lone_process_talks_to_itself(void **state)
{
    const struct launch launch = { .kind = LAUNCH_ALONE };
    struct err err = { 0 };
    struct comm *comm = comm_open(&launch, &err);
    struct comm_request *send = comm_request_new(comm), *receive = comm_request_new(comm);
    const char out[] = "activations";
    char in[sizeof(out)] = "";
    bool done;

    (void)state;
    assert_int_equal(comm_size(comm), 1);
    assert_int_equal(comm_receive(comm, in, sizeof(in), 0, 7, receive, &err), 0);
    assert_int_equal(comm_test(receive, &done, &err), 0);
    assert_false(done);
    assert_int_equal(comm_send(comm, out, sizeof(out), 0, 7, send, &err), 0);
    assert_int_equal(comm_wait(receive, &err), 0);
    assert_int_equal(comm_wait(send, &err), 0);
    assert_string_equal(in, out);
    comm_request_free(send);
    comm_request_free(receive);
    comm_close(comm);
}

static void waiting_has_a_deadline_that_names_operation_and_peer(void **state)
{
    const struct launch launch = { .kind = LAUNCH_ALONE };
    struct err err = { 0 };
    struct comm *comm = comm_open(&launch, &err);
    struct comm_request *receive = comm_request_new(comm);
    char byte;

    (void)state;
    comm_set_deadline(comm, 0.05);
    assert_int_equal(comm_receive(comm, &byte, 1, 0, 3, receive, &err), 0);
    assert_int_equal(comm_wait(receive, &err), -1);
    assert_non_null(strstr(err.text, "receive of 1 bytes (tag 3) from rank 0"));
    assert_non_null(strstr(err.text, "nothing moved"));
    comm_request_free(receive);
    comm_close(comm);
}

static void ranks_and_tags_that_are_not_there_are_refused(void **state)
{
    const struct launch launch = { .kind = LAUNCH_ALONE };
    const int two[] = { 0, 1 };
    struct err err = { 0 };
    struct comm *comm = comm_open(&launch, &err);
    struct comm_request *request = comm_request_new(comm);
    char byte = 0;

    (void)state;
    assert_int_equal(comm_send(comm, &byte, 1, 1, 0, request, &err), -1);
    assert_non_null(strstr(err.text, "no rank 1"));
    assert_int_equal(comm_receive(comm, &byte, 1, 0, -1, request, &err), -1);
    assert_non_null(strstr(err.text, "tag -1"));
    assert_null(comm_group_new(comm, 2, two, &err));
    comm_request_free(request);
    comm_close(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recorded_environment_is_understood),
        cmocka_unit_test(only_the_first_task_of_a_step_says_what_is_wrong),
        cmocka_unit_test(a_lone_process_talks_to_itself),
        cmocka_unit_test(waiting_has_a_deadline_that_names_operation_and_peer),
        cmocka_unit_test(ranks_and_tags_that_are_not_there_are_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
