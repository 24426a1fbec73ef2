/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: messages from GPU to GPU by NCCL.
 *
 * The communicator does not block: what NCCL has only begun is asked after by
 * ncclCommGetAsyncError(), so that no wait for a peer that is gone is endless.
 */
#include "kernels/cuda/module_private.h"

#include <stdio.h>
#include <string.h>

int cuda_nccl_error(const char *address, ncclComm_t comm, ncclResult_t code, const char *call,
                    struct err *err)
{
    const char *more = ncclGetLastError(comm);

    return err_set(err, "%s%s%s%.*s: %s%s%.512s", *address ? "GPU " : "", address,
                   *address ? ": " : "", (int)strcspn(call, "("), call,
                   ncclGetErrorString(code), more && *more ? ": " : "", more ? more : "");
}

static int nccl_error(const struct cuda_gpu *gpu, ncclResult_t code, const char *call,
                      struct err *err)
{
    return cuda_nccl_error(gpu ? gpu->address : "", gpu ? cuda_state(gpu)->comm : NULL, code,
                           call, err);
}

/* What has only begun is no error. */
#define NCCL_CHECK(gpu, call, err)                                          \
    do {                                                                    \
        ncclResult_t nccl_check_code = (call);                              \
        if (nccl_check_code != ncclSuccess && nccl_check_code != ncclInProgress) \
            return nccl_error((gpu), nccl_check_code, #call, (err));        \
    } while (0)

int cuda_nccl(char text[32], struct err *err)
{
    int version;

    NCCL_CHECK(NULL, ncclGetVersion(&version), err);
    snprintf(text, 32, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return 0;
}

int cuda_id(char id[CUDA_ID_SIZE], struct err *err)
{
    ncclUniqueId unique;

    _Static_assert(sizeof(unique) == CUDA_ID_SIZE, "CUDA_ID_SIZE is NCCL's");
    NCCL_CHECK(NULL, ncclGetUniqueId(&unique), err);
    memcpy(id, &unique, sizeof(unique));
    return 0;
}

int cuda_connect(struct cuda_gpu *gpu, int n, int rank, const char id[CUDA_ID_SIZE],
                 struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;

    memcpy(&unique, id, sizeof(unique));
    config.blocking = 0;
    NCCL_CHECK(gpu, ncclCommInitRankConfig(&cuda_state(gpu)->comm, n, unique, rank, &config),
               err);
    return 0;
}

int cuda_ready(struct cuda_gpu *gpu, bool *ready, struct err *err)
{
    ncclResult_t state;

    NCCL_CHECK(gpu, ncclCommGetAsyncError(cuda_state(gpu)->comm, &state), err);
    *ready = state == ncclSuccess;
    if (state == ncclSuccess || state == ncclInProgress)
        return 0;
    return nccl_error(gpu, state, "ncclCommGetAsyncError", err);
}

int cuda_post(struct cuda_gpu *gpu, bool send, void *data, size_t bytes, int peer,
              struct err *err)
{
    struct cuda_state *s = cuda_state(gpu);
    ncclResult_t code, end;

    NCCL_CHECK(gpu, ncclGroupStart(), err);
    code = send ? ncclSend(data, bytes, ncclInt8, peer, s->comm, s->stream)
                : ncclRecv(data, bytes, ncclInt8, peer, s->comm, s->stream);
    end = ncclGroupEnd();       /* no group is left open */
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_error(gpu, code, send ? "ncclSend" : "ncclRecv", err);
    if (end != ncclSuccess && end != ncclInProgress)
        return nccl_error(gpu, end, "ncclGroupEnd", err);
    return 0;
}

int cuda_launched(struct cuda_gpu *gpu, int slot, bool *launched, struct err *err)
{
    if (cuda_ready(gpu, launched, err))
        return -1;
    return *launched ? cuda_mark(gpu, slot, err) : 0;
}

int cuda_leave(struct cuda_gpu *gpu, struct err *err)
{
    NCCL_CHECK(gpu, ncclCommFinalize(cuda_state(gpu)->comm), err);
    return 0;
}

void cuda_disconnect(struct cuda_gpu *gpu)
{
    if (cuda_state(gpu)->comm)
        (void)ncclCommDestroy(cuda_state(gpu)->comm);
}
