/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: NCCL in training. Communicators do not block, as in module_nccl.c. */
#include "kernels/cuda/module_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/collectives.h"
#include "kernels/cuda/module.h"

__attribute__((visibility("default"))) extern const struct cuda_collectives
    tasuki_cuda_collectives;

#ifdef HAVE_NCCL

struct cuda_team {
    struct cuda_device *device;
    ncclComm_t comm;
    int n, me;
};

#define TEAM_CHECK(team, call, err)                                                        \
    do {                                                                                    \
        ncclResult_t nccl_check_code = (call);                                              \
        if (nccl_check_code != ncclSuccess && nccl_check_code != ncclInProgress)            \
            return cuda_nccl_error((team)->device->address, (team)->comm, nccl_check_code,  \
                                   #call, (err));                                           \
    } while (0)

static int open_comm(struct cuda_team *team, int blocks, const char id[CUDA_ID_SIZE],
                     struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;

    memcpy(&unique, id, sizeof(unique));
    config.blocking = 0;
#if NCCL_VERSION_CODE >= 21700
    if (blocks > 0)
        config.maxCTAs = blocks;
#else
    (void)blocks;
#endif
    TEAM_CHECK(team, ncclCommInitRankConfig(&team->comm, team->n, unique, team->me, &config),
               err);
    return 0;
}

static struct cuda_team *open_team(struct cuda_device *device, int n, int me, int blocks,
                                   const char id[CUDA_ID_SIZE], struct err *err)
{
    struct cuda_team *team = mem_new(1, sizeof(*team));

    *team = (struct cuda_team){ .device = device, .n = n, .me = me };
    if (open_comm(team, blocks, id, err) == 0)
        return team;
    /* What it has begun, if anything. */
    if (team->comm)
        (void)ncclCommAbort(team->comm);
    free(team);
    return NULL;
}

static int is_ready(struct cuda_team *team, bool *ready, struct err *err)
{
    ncclResult_t state;

    TEAM_CHECK(team, ncclCommGetAsyncError(team->comm, &state), err);
    *ready = state == ncclSuccess;
    if (state == ncclSuccess || state == ncclInProgress)
        return 0;
    return cuda_nccl_error(team->device->address, team->comm, state, "ncclCommGetAsyncError",
                           err);
}

static int sum(struct cuda_team *team, struct cuda_stream *stream, float *data, size_t n,
               struct err *err)
{
    TEAM_CHECK(team, ncclAllReduce(data, data, n, ncclFloat32, ncclSum, team->comm,
                                   stream->stream), err);
    return 0;
}

/* Are all slices as long, as NCCL's own calls want them? */
static bool is_even(const struct cuda_team *team, const size_t *starts)
{
    for (int i = 0; i < team->n; i++)
        if (starts[i + 1] - starts[i] != starts[1])
            return false;
    return true;
}

/* A group of calls, one for each slice; closed on errors, too. */
static int each_slice(struct cuda_team *team, struct cuda_stream *stream, float *data,
                      const size_t *starts, bool sums, struct err *err)
{
    ncclResult_t code = ncclSuccess, end;

    TEAM_CHECK(team, ncclGroupStart(), err);
    for (int i = 0; i < team->n && (code == ncclSuccess || code == ncclInProgress); i++) {
        float *slice = data + starts[i];
        size_t n = starts[i + 1] - starts[i];

        if (n > 0 && sums)
            code = ncclReduce(slice, slice, n, ncclFloat32, ncclSum, i, team->comm,
                              stream->stream);
        else if (n > 0)
            code = ncclBroadcast(slice, slice, n, ncclFloat32, i, team->comm, stream->stream);
    }
    end = ncclGroupEnd();
    if (code == ncclSuccess || code == ncclInProgress)
        code = end;
    if (code == ncclSuccess || code == ncclInProgress)
        return 0;
    return cuda_nccl_error(team->device->address, team->comm, code,
                           sums ? "ncclReduce" : "ncclBroadcast", err);
}

static int scatter(struct cuda_team *team, struct cuda_stream *stream, float *data,
                   const size_t *starts, struct err *err)
{
    if (!is_even(team, starts))
        return each_slice(team, stream, data, starts, true, err);
    TEAM_CHECK(team, ncclReduceScatter(data, data + starts[team->me], starts[1], ncclFloat32,
                                       ncclSum, team->comm, stream->stream), err);
    return 0;
}

static int gather(struct cuda_team *team, struct cuda_stream *stream, float *data,
                  const size_t *starts, struct err *err)
{
    if (!is_even(team, starts))
        return each_slice(team, stream, data, starts, false, err);
    TEAM_CHECK(team, ncclAllGather(data + starts[team->me], data, starts[1], ncclFloat32,
                                   team->comm, stream->stream), err);
    return 0;
}

static int send_bytes(struct cuda_team *team, struct cuda_stream *stream, const void *data,
                      size_t bytes, int to, struct err *err)
{
    TEAM_CHECK(team, ncclSend(data, bytes, ncclInt8, to, team->comm, stream->stream), err);
    return 0;
}

static int receive_bytes(struct cuda_team *team, struct cuda_stream *stream, void *data,
                         size_t bytes, int from, struct err *err)
{
    TEAM_CHECK(team, ncclRecv(data, bytes, ncclInt8, from, team->comm, stream->stream), err);
    return 0;
}

static int leave(struct cuda_team *team, struct err *err)
{
    TEAM_CHECK(team, ncclCommFinalize(team->comm), err);
    return 0;
}

/* What it was used for has ended: that a call fails now helps nobody. */
static void close_team(struct cuda_team *team, bool abort)
{
    (void)(abort ? ncclCommAbort(team->comm) : ncclCommDestroy(team->comm));
    free(team);
}

const struct cuda_collectives tasuki_cuda_collectives = {
    .version = CUDA_COLLECTIVES_VERSION,
    .err_size = sizeof(struct err),
    .there = true,
    .id = cuda_id,
    .open = open_team,
    .ready = is_ready,
    .sum = sum,
    .scatter = scatter,
    .gather = gather,
    .send = send_bytes,
    .receive = receive_bytes,
    .leave = leave,
    .close = close_team,
};

#else

const struct cuda_collectives tasuki_cuda_collectives = {
    .version = CUDA_COLLECTIVES_VERSION,
    .err_size = sizeof(struct err),
};

#endif
