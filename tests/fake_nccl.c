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
    /* Sums: the k-th begins when all have finished the one before. */
    atomic_long arrived, finished;
    char areas[MOST][CHANNEL];              /* mostly holes, as are */
    struct channel channels[MOST][MOST];
};

struct ncclComm {
    struct world *world;
    int n, rank;
    long sums;                              /* that were called */
    int blocks;                             /* at most; NCCL_CONFIG_UNDEF_INT */
    bool leaving;
};

static __thread int grouped;            /* ncclGroupStart() less ncclGroupEnd() */

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
    static atomic_int ids;
    char host[16] = "";

    MAY_FAIL(ncclResult_t);
    /* Virtual nodes have process numbers of their own. */
    gethostname(host, sizeof(host) - 1);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "%s.%s.%d.%d", getenv("TASUKI_FAKE_NVML"), host,
             (int)getpid(), atomic_fetch_add(&ids, 1));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int file = open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct world *world = MAP_FAILED;

    MAY_FAIL(ncclResult_t);
    if (config->blocking || n > MOST || fake_device < 0 || file < 0)
        return ncclInvalidArgument;
    if (ftruncate(file, sizeof(*world)) == 0)
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (world == MAP_FAILED)
        return ncclSystemError;
    gethostname(world->ranks[rank].host, sizeof(world->ranks[rank].host) - 1);
    memcpy(world->ranks[rank].gpu, fake.gpus[fake_device], sizeof(world->ranks[rank].gpu));
    atomic_fetch_add(&world->joined, 1);
    *comm = malloc(sizeof(**comm));
    **comm = (struct ncclComm){ .world = world, .n = n, .rank = rank, .blocks = config->maxCTAs };
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
    /* "error asynchronous RESULT N": what the others did, say. */
    *state = (ncclResult_t)fake_planted("asynchronous");
    if (*state != ncclSuccess)
        return ncclSuccess;
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

/* What is under way stays in its stream, and may still look at the file. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
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

    if (peer < 0 || peer >= comm->n || bytes > CHANNEL ||
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
    if (fake.message_blocks && (comm->blocks < 1 || comm->blocks > fake.message_blocks))
        return ncclInvalidUsage;
    return type == ncclInt8 ? transfer(comm, peer, comm->rank, NULL, data, n, stream)
                            : ncclInvalidArgument;
}

/* Sums ---------------------------------------------------------------------------------- */

enum form { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST };

/* Of 'n' elements from 'in', and as many to 'out', but for the rest of what is scattered and
 * gathered.
 */
struct sum {
    struct world *world;
    enum form form;
    int ranks, rank, root;
    long index;
    const float *in;
    float *out;
    size_t n;
    bool put;
};

static void add(const struct sum *s, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;

        for (int r = 0; r < s->ranks; r++)
            sum += ((const float *)s->world->areas[r])[first + i];
        s->out[i] = sum;
    }
}

static void take(const struct sum *s)
{
    size_t bytes = s->n * sizeof(float);

    if (s->form != REDUCE || s->rank == s->root)
        fake_watch_touch(s->out, s->form == ALL_GATHER ? bytes * (size_t)s->ranks : bytes, true);
    switch (s->form) {
    case ALL_REDUCE: add(s, 0, s->n); break;
    case REDUCE_SCATTER: add(s, (size_t)s->rank * s->n, s->n); break;
    case ALL_GATHER:
        for (int r = 0; r < s->ranks; r++)
            memcpy(s->out + (size_t)r * s->n, s->world->areas[r], bytes);
        break;
    case REDUCE:
        if (s->rank == s->root)
            add(s, 0, s->n);
        break;
    default: memcpy(s->out, s->world->areas[s->root], bytes);
    }
}

static bool ask_sum(void *own)
{
    struct sum *s = own;
    size_t n = s->form == REDUCE_SCATTER ? s->n * (size_t)s->ranks : s->n;

    if (!s->put) {
        if (atomic_load(&s->world->finished) < s->index * s->ranks)
            return false;
        fake_watch_touch(s->in, n * sizeof(float), false);
        memcpy(s->world->areas[s->rank], s->in, n * sizeof(float));
        s->put = true;
        atomic_fetch_add(&s->world->arrived, 1);
    }
    if (atomic_load(&s->world->arrived) < (s->index + 1) * s->ranks)
        return false;
    take(s);
    atomic_fetch_add(&s->world->finished, 1);
    return true;
}

static ncclResult_t begin_sum(enum form form, const void *in, void *out, size_t n,
                              ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    size_t all = n * (form == REDUCE_SCATTER || form == ALL_GATHER ? (size_t)comm->n : 1);
    struct step *step;
    struct sum *s;

    if (type != ncclFloat32 || n == 0 || root >= comm->n || all * sizeof(float) > CHANNEL ||
        !fake_on_gpu(in, (form == ALL_GATHER ? n : all) * sizeof(float)) ||
        !fake_on_gpu(out, (form == REDUCE_SCATTER ? n : all) * sizeof(float)))
        return ncclInvalidArgument;
    s = malloc(sizeof(*s));
    *s = (struct sum){ comm->world, form, comm->n, comm->rank, root, comm->sums++, in, out, n,
                       false };
    step = fake_add_step(stream, ASK);
    step->ask = ask_sum;
    step->own = s;
    return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return op == ncclSum ? begin_sum(ALL_REDUCE, in, out, n, type, 0, comm, stream)
                         : ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return op == ncclSum ? begin_sum(REDUCE_SCATTER, in, out, n, type, 0, comm, stream)
                         : ncclInvalidArgument;
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return begin_sum(ALL_GATHER, in, out, n, type, 0, comm, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return op == ncclSum ? begin_sum(REDUCE, in, out, n, type, root, comm, stream)
                         : ncclInvalidArgument;
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    MAY_FAIL(ncclResult_t);
    return begin_sum(BROADCAST, in, out, n, type, root, comm, stream);
}

#endif
