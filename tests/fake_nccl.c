/* SPDX-License-Identifier: MIT */
/* The stand-in for NCCL, on the streams of fake_cuda.c. */
#include "config.h"

#ifdef HAVE_NCCL

#include <fcntl.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fake_private.h"

struct world {
    atomic_int joined, left;
    struct {
        char host[64], gpu[32];
    } ranks[MOST];
    struct channel channels[MOST][MOST];    /* mostly holes */
};

struct ncclComm {
    struct world *world;
    int n, rank;
    bool leaving;
};

static int grouped;                     /* ncclGroupStart() less ncclGroupEnd() */

const char *ncclGetErrorString(ncclResult_t result)
{
    static char text[32];

    if (result == ncclInvalidUsage)
        return "invalid usage";
    snprintf(text, sizeof(text), "error %d", (int)result);
    return text;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

ncclResult_t ncclGetVersion(int *version)
{
    MAY_FAIL(ncclResult_t);
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    MAY_FAIL(ncclResult_t);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "%s.%d", getenv("TASUKI_FAKE_NVML"),
             (int)getpid());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int file = open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct world *world = MAP_FAILED;

    MAY_FAIL(ncclResult_t);
    if (config->blocking || n > MOST || fake.device < 0 || file < 0)
        return ncclInvalidArgument;
    if (ftruncate(file, sizeof(*world)) == 0)
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (world == MAP_FAILED)
        return ncclSystemError;
    gethostname(world->ranks[rank].host, sizeof(world->ranks[rank].host) - 1);
    memcpy(world->ranks[rank].gpu, fake.gpus[fake.device], sizeof(world->ranks[rank].gpu));
    atomic_fetch_add(&world->joined, 1);
    *comm = malloc(sizeof(**comm));
    **comm = (struct ncclComm){ .world = world, .n = n, .rank = rank };
    return ncclInProgress;
}

static bool is_duplicate(const struct ncclComm *comm)
{
    const struct world *w = comm->world;

    for (int r = 0; r < comm->n; r++)
        if (r != comm->rank && strcmp(w->ranks[r].gpu, w->ranks[comm->rank].gpu) == 0 &&
            strcmp(w->ranks[r].host, w->ranks[comm->rank].host) == 0)
            return true;
    return false;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    MAY_FAIL(ncclResult_t);
    *state = atomic_load(comm->leaving ? &comm->world->left : &comm->world->joined) < comm->n
                 ? ncclInProgress : is_duplicate(comm) ? ncclInvalidUsage : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    MAY_FAIL(ncclResult_t);
    comm->leaving = true;
    atomic_fetch_add(&comm->world->left, 1);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    munmap(comm->world, sizeof(*comm->world));
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    MAY_FAIL(ncclResult_t);
    grouped++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    MAY_FAIL(ncclResult_t);
    return grouped-- > 0 ? ncclInProgress : ncclInvalidUsage;
}

static ncclResult_t transfer(struct ncclComm *comm, int from, int to, const void *source,
                             void *target, size_t bytes, struct CUstream_st *stream)
{
    int peer = from == comm->rank ? to : from;
    bool far = peer >= comm->n ||
               strcmp(comm->world->ranks[peer].host, comm->world->ranks[comm->rank].host) != 0;
    struct step *step;

    if (peer < 0 || peer >= comm->n || bytes > CHANNEL || !grouped ||
        !fake_on_gpu(source ? source : target, bytes))
        return ncclInvalidArgument;
    step = fake_add_step(stream, source ? SEND : RECEIVE);
    step->channel = &comm->world->channels[from][to];
    step->from = source;
    step->to = target;
    step->bytes = bytes;
    step->seconds = far ? fake_seconds("network", "network", bytes)
                        : fake_seconds(comm->world->ranks[from].gpu, comm->world->ranks[to].gpu,
                                     bytes);
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return type == ncclInt8 ? transfer(comm, comm->rank, peer, data, NULL, n, stream)
                            : ncclInvalidArgument;
}

ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return type == ncclInt8 ? transfer(comm, peer, comm->rank, NULL, data, n, stream)
                            : ncclInvalidArgument;
}

#endif
