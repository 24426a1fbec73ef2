/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "comm/comm.h"
#include "comm/launch.h"

/* Slurm numbers its own steps (batch script, interactive shell, extern) from here on. */
#define SLURM_SPECIAL_STEPS 0xfffffff0u

static const char *look_up(char *const *environment, const char *name)
{
    size_t length = strlen(name);

    for (; *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* A number of ranks; 0 where it is not there or makes no sense. */
static int count_of(char *const *environment, const char *name)
{
    const char *text = look_up(environment, name);
    char *end;
    long value;

    if (!text || !*text)
        return 0;
    errno = 0;
    value = strtol(text, &end, 10);
    return errno || *end || value < 0 || value > INT_MAX ? 0 : (int)value;
}

static int first_count(char *const *environment, const char *const names[], int n)
{
    for (int i = 0; i < n; i++) {
        int count = count_of(environment, names[i]);

        if (count > 0)
            return count;
    }
    return 0;
}

/* Was this process itself started by srun as a task of a step? */
static bool in_step(char *const *environment)
{
    const char *step = look_up(environment, "SLURM_STEP_ID");
    char *end;
    unsigned long id;

    if (!step || !*step || !look_up(environment, "SLURM_PROCID"))
        return false;
    id = strtoul(step, &end, 10);
    return !*end && id < SLURM_SPECIAL_STEPS;
}

/* "2(x3),1" at node 3 → 1; 0 where it cannot be told. '*even': is it the same on all? */
static int tasks_on_node(const char *list, int node, bool *even)
{
    *even = list && !strchr(list, ',');
    while (list && *list) {
        char *end;
        long tasks = strtol(list, &end, 10), repeat = 1;

        if (end == list || tasks < 0 || tasks > INT_MAX)
            return 0;
        if (strncmp(end, "(x", 2) == 0) {
            repeat = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < repeat)
            return (int)tasks;
        node -= (int)repeat;
        if (*end != ',')
            return 0;
        list = end + 1;
    }
    return 0;
}

/* The srun line that would have been right, for messages. */
static void write_line(char *const *environment, struct launch *launch)
{
    int nodes = count_of(environment, "SLURM_STEP_NUM_NODES");
    const char *list = look_up(environment, "SLURM_STEP_TASKS_PER_NODE");
    bool even;
    int here = tasks_on_node(list, 0, &even);

    if (!launch->slurm_step)
        snprintf(launch->line, sizeof(launch->line), "mpirun -n %d tasuki ...",
                 launch->size > 0 ? launch->size : 1);
    else if (nodes > 0 && here > 0 && even)
        snprintf(launch->line, sizeof(launch->line),
                 "srun --mpi=pmix -N%d --ntasks-per-node=%d tasuki ...", nodes, here);
    else
        snprintf(launch->line, sizeof(launch->line), "srun --mpi=pmix -N%d -n%d tasuki ...",
                 nodes > 0 ? nodes : 1, launch->slurm_tasks);
}

static void read_step(char *const *environment, struct launch *launch)
{
    static const char *const names[] = { "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
                                         "SLURM_NPROCS" };
    bool even;

    launch->slurm_step = in_step(environment);
    if (!launch->slurm_step)
        return;
    launch->slurm_tasks = first_count(environment, names, 3);
    launch->size = launch->slurm_tasks;
    launch->local_size = tasks_on_node(look_up(environment, "SLURM_STEP_TASKS_PER_NODE"),
                                       count_of(environment, "SLURM_NODEID"), &even);
}

static bool is_first(char *const *environment)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK",
                                         "PMI_RANK" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *rank = look_up(environment, names[i]);

        if (rank && *rank)
            return strcmp(rank, "0") == 0;
    }
    return true;
}

static void read_environment(char *const *environment, struct launch *launch)
{
    static const char *const local[] = { "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS" };
    const char *yield = look_up(environment, "OMPI_MCA_mpi_yield_when_idle");
    const char *rendezvous = look_up(environment, "TASUKI_RENDEZVOUS");
    const char *watch = look_up(environment, "TASUKI_WATCH");

    *launch = (struct launch){ .kind = LAUNCH_ALONE, .first = is_first(environment),
                               .deadline = COMM_DEADLINE };
    launch->pmix = look_up(environment, "PMIX_NAMESPACE") && look_up(environment, "PMIX_RANK");
    launch->pmi = look_up(environment, "PMI_RANK") || look_up(environment, "PMI_FD") ||
                  look_up(environment, "PALS_RANKID");
    launch->yield = yield && strcmp(yield, "0") != 0;
    launch->rendezvous = rendezvous && strcmp(rendezvous, "1") == 0;
    launch->blind = watch && strcmp(watch, "no") == 0;
    /* mpirun starts its daemons by srun: what it says of itself comes before the step's. */
    launch->local_size = first_count(environment, local, 2);
    if (look_up(environment, "PMIX_HOSTNAME"))
        snprintf(launch->host, sizeof(launch->host), "%s", look_up(environment, "PMIX_HOSTNAME"));
    else
        (void)gethostname(launch->host, sizeof(launch->host) - 1);
    launch->size = count_of(environment, "OMPI_COMM_WORLD_SIZE");
    if (launch->size == 0 && look_up(environment, "MPI_LOCALNRANKS"))
        launch->size = count_of(environment, "PMI_SIZE");
    if (launch->size == 0)
        read_step(environment, launch);
    if (launch->size == 0)
        launch->size = count_of(environment, "PMI_SIZE");
    write_line(environment, launch);
}

void launch_linger(void)
{
    struct timespec grace = { .tv_sec = 0, .tv_nsec = 300000000 };

    signal(SIGTERM, SIG_IGN);
    nanosleep(&grace, NULL);
}

bool launch_first(void)
{
    return is_first(environ);
}

static void wake(int number)
{
    (void)number;
}

void launch_step_back(void)
{
    struct sigaction action = { .sa_handler = wake };
    struct timespec patience = { .tv_sec = 3 };

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    nanosleep(&patience, NULL);
}

int launch_follow(struct err *err)
{
    launch_step_back();
    return err_set_code(err, EXIT_USAGE, "%s", "");
}

int launch_detect_from(char *const *environment, struct launch *launch, struct err *err)
{
    struct launch found;

    read_environment(environment, &found);
    if (found.slurm_step && found.slurm_tasks > 1 && !found.pmix && !found.pmi) {
        if (!found.first)
            return launch_follow(err);
        return err_set_code(err, EXIT_USAGE,
                            "srun started %d tasks without PMIx, so each would run alone; "
                            "use: %s ('srun --mpi=list' shows what this Slurm offers)",
                            found.slurm_tasks, found.line);
    }
    if (found.size != 1 && (found.pmix || found.pmi || found.size > 1))
        found.kind = LAUNCH_MPI;
    *launch = found;
    return 0;
}

int launch_detect(struct launch *launch, struct err *err)
{
    return launch_detect_from(environ, launch, err);
}
