/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: joining and leaving. */
#include "comm/mpi_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "base/mem.h"
#include "comm/launch.h"

#define HOST_SIZE 256

int mpi_error(int code, const char *call, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length, name = (int)strcspn(call, "(");

    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof(text), "error %d", code);
    return err_set(err, "%.*s: %s", name, call, text);
}

/* "Open MPI v4.1.4, package: …" → "Open MPI 4.1.4"; "MPICH Version:      4.0.2\n…" likewise. */
static void name_library(char *text, size_t size)
{
    char full[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int length;
    char *at;

    MPI_Get_library_version(full, &length);
    full[strcspn(full, ",\n")] = '\0';
    at = strstr(full, " v");
    if (at)
        memmove(at + 1, at + 2, strlen(at + 2) + 1);
    at = strstr(full, " Version:");
    if (at) {
        char *number = at + strlen(" Version:");

        number += strspn(number, " \t");
        memmove(at + 1, number, strlen(number) + 1);
    }
    snprintf(text, size, "%s", full);
}

/* Open MPI 5 does not find its own rank where PMIx was opened before it. Up to Open MPI 4 a
 * session that is opened after MPI's ends with it.
 */
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
#define MPI_BEFORE_PMIX true
#else
#define MPI_BEFORE_PMIX false
#endif

/* Open MPI asks PMIx and nothing else who its peers are: without it it would end the process
 * or come up alone.
 */
static int check_launcher(const struct launch *launch, struct err *err)
{
#ifdef OPEN_MPI
    if (!launch->pmix) {
        char library[128];

        name_library(library, sizeof(library));
        if (!launch->first)
            return launch_follow(err);
        return err_set_code(err, EXIT_USAGE,
                            "%d ranks were started by PMI, but %s needs PMIx; use: %s",
                            launch->size, library, launch->line);
    }
#else
    (void)launch;
    (void)err;
#endif
    return 0;
}

/* The first rank says it. */
static int refuse_threads(const struct launch *launch, struct err *err)
{
    char library[128];

    if (!launch->first)
        return launch_follow(err);
    name_library(library, sizeof(library));
    return err_set_code(err, EXIT_USAGE, "%s lets no more than one thread of a process call it "
                        "(MPI_THREAD_SERIALIZED), as --ranks-in-process needs where several tasks "
                        "were started: leave it out, and start a task for each rank", library);
}

static int start_mpi(const struct launch *launch, bool crowded, struct err *err)
{
    int required = launch->several ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED, provided;

    /* Open MPI writes to sockets of ranks that died: an error, not this rank's end. */
    signal(SIGPIPE, SIG_IGN);
    /* Ranks that share a core must not spin: read by Open MPI when it starts. */
    if (crowded)
        setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    MPI_CHECK(MPI_Init_thread(NULL, NULL, required, &provided), err);
    if (launch->several && provided < required)
        return refuse_threads(launch, err);
    MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), err);
    return 0;
}

/* All ranks that the launcher started must have met. */
static int check_world(const struct comm *comm, const struct launch *launch, struct err *err)
{
    int expected = launch->size;

    if (expected == 0 || expected == comm->size)
        return 0;
    if (!launch->first)
        return launch_follow(err);
    return err_set_code(err, EXIT_USAGE,
                        "the launcher started %d ranks, but %s sees %d: it is not the MPI of "
                        "that launcher; use: %s", expected, comm->library, comm->size,
                        launch->line);
}

static int make_communicators(struct comm *comm, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    int *limit, found;

    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank), err);
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &comm->size), err);
    /* Copies inherit the error handler. */
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &state->messages), err);
    MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &state->control), err);
    MPI_CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found), err);
    comm->max_tag = found ? *limit : 32767;     /* the least that MPI guarantees */
    return 0;
}

/* What each tells the others first. */
struct present {
    char host[HOST_SIZE];
    int several;        /* it is to be several ranks */
};

static int check_alike(const struct comm *comm, const struct launch *launch,
                       const struct present *all, struct err *err)
{
    int p = 1;

    while (p < comm->size && all[p].several == all[0].several)
        p++;
    if (p == comm->size)
        return 0;
    if (!launch->first)
        return launch_follow(err);
    return err_set_code(err, EXIT_USAGE, "task %d (%s) has --ranks-in-process, task %d (%s) has "
                        "not: say it for all, 1 where it is to be one rank",
                        all[0].several ? 0 : p, all[all[0].several ? 0 : p].host,
                        all[0].several ? p : 0, all[all[0].several ? p : 0].host);
}

static int learn_hosts(struct comm *comm, const struct launch *launch, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    struct present mine = { .several = launch->several };
    struct present *all = mem_new((size_t)comm->size, sizeof(*all));

    if (state->pmix)
        snprintf(mine.host, sizeof(mine.host), "%s", pmix_session_host(state->pmix));
    if (!mine.host[0])
        gethostname(mine.host, sizeof(mine.host) - 1);
    if (mpi_gather_all(comm, &mine, all, sizeof(mine), err) ||
        check_alike(comm, launch, all, err)) {
        free(all);
        return -1;
    }
    comm->hosts = mem_new((size_t)comm->size, sizeof(*comm->hosts));
    for (int i = 0; i < comm->size; i++)
        comm->hosts[i] = mem_strdup(all[i].host);
    free(all);
    return 0;
}

/* Could it read a GPU's memory by itself? Messages go through the host's all the same. */
static bool is_cuda_aware(void)
{
#ifdef MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

static void describe_library(struct comm *comm)
{
    char mpi[96];
    const char *pmix = mpi_state(comm)->pmix ? pmix_session_version() : "";

    name_library(mpi, sizeof(mpi));
    snprintf(comm->library, sizeof(comm->library), "%s%s%.24s%s", mpi, *pmix ? ", " : "", pmix,
             is_cuda_aware() ? ", CUDA-aware" : "");
}

static int open_pmix(struct comm *comm, const struct launch *launch, struct err *err)
{
    if (pmix_session_open(&mpi_state(comm)->pmix, err))
        return err_prefix(err, "%s", launch->line);
    return 0;
}

static int join(struct comm *comm, const struct launch *launch, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int local = launch->local_size;

    if (check_launcher(launch, err))
        return -1;
    if (launch->pmix && !MPI_BEFORE_PMIX && open_pmix(comm, launch, err))
        return -1;
    if (state->pmix && pmix_session_local_size(state->pmix) > 0)
        local = pmix_session_local_size(state->pmix);
    comm->patience.crowded = launch->yield || local > cores;
    if (start_mpi(launch, comm->patience.crowded, err) ||
        (launch->pmix && MPI_BEFORE_PMIX && open_pmix(comm, launch, err)))
        return -1;
    /* The fence at the end of Open MPI's MPI_Init() collects nothing, so it is none in Slurm
     * 22.05, and a message to a rank that is still in there crashes it.
     */
    if ((state->pmix && pmix_session_fence(state->pmix, comm, err)) ||
        make_communicators(comm, err))
        return -1;
    describe_library(comm);
    if (check_world(comm, launch, err))
        return -1;
    return learn_hosts(comm, launch, err);
}

static int mpi_open(struct comm *comm, const struct launch *launch, struct err *err)
{
    struct mpi_state *state = mem_new(1, sizeof(*state));

    *state = (struct mpi_state){ .messages = MPI_COMM_NULL, .control = MPI_COMM_NULL };
    state->rendezvous = launch->rendezvous;
    comm->state = state;
    /* No way back from here: a failed MPI is never finalized, the process ends instead. */
    return join(comm, launch, err);
}

static void mpi_close(struct comm *comm, bool met)
{
    struct mpi_state *state = mpi_state(comm);

    if (met) {
        MPI_Comm_free(&state->messages);
        MPI_Comm_free(&state->control);
        MPI_Finalize();
        pmix_session_close(state->pmix);
    }
    for (int i = 0; i < comm->size; i++)
        free(comm->hosts[i]);
    free(comm->hosts);
    free(state);
}

__attribute__((visibility("default"))) extern const struct comm_driver tasuki_comm_driver;

const struct comm_driver tasuki_comm_driver = {
    .version = COMM_DRIVER_VERSION,
    .comm_size = sizeof(struct comm),
    .request_size = sizeof(struct comm_request),
    .err_size = sizeof(struct err),
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .exchange = mpi_exchange,
    .share = mpi_share,
    .introduce = mpi_introduce,
    .broadcast = mpi_broadcast,
    .fence = mpi_fence,
    .least = mpi_least,
    .request_new = mpi_request_new,
    .request_free = mpi_request_free,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .group_open = mpi_group_open,
    .group_close = mpi_group_close,
    .collective = mpi_collective,
};
