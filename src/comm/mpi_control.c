/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: the control plane, by PMIx where it can be relied upon, else by MPI. */
#include "comm/mpi_private.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

int mpi_gather_all(struct comm *comm, const void *data, void *all, size_t size,
                   struct err *err)
{
    struct mpi_list list = { 0 };
    int status = -1, code;

    if (size > INT_MAX)
        return err_set(err, "%zu bytes are too many to exchange", size);
    code = MPI_Iallgather(data, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE,
                          mpi_state(comm)->control, mpi_list_add(&list));
    if (code != MPI_SUCCESS)
        mpi_error(code, "MPI_Iallgather", err);
    else
        status = mpi_finish(comm, &list, "exchange with all ranks", err);
    mpi_list_free(&list);
    return status;
}

/* Everybody's sizes, then everybody's bytes padded to the longest. */
static int exchange_by_mpi(struct comm *comm, const void *data, size_t size, void **block,
                           const void **parts, size_t *sizes, struct err *err)
{
    size_t n = (size_t)comm->size, longest = 0;
    uint64_t mine = size, *all = mem_new(n, sizeof(*all));
    unsigned char *own = NULL, *bytes = NULL;
    int status = mpi_gather_all(comm, &mine, all, sizeof(mine), err);

    for (size_t i = 0; i < n && !status; i++) {
        sizes[i] = all[i];
        longest = sizes[i] > longest ? sizes[i] : longest;
    }
    if (!status) {
        own = mem_new(longest, 1);
        bytes = mem_try(n, longest ? longest : 1, err);
        for (size_t i = 0; i < size; i++)
            own[i] = ((const unsigned char *)data)[i];
        status = bytes ? mpi_gather_all(comm, own, bytes, longest, err) : -1;
    }
    for (size_t i = 0; i < n && !status; i++)
        parts[i] = bytes + i * longest;
    free(own);
    free(all);
    if (status)
        free(bytes);
    else
        *block = bytes;
    return status;
}

/* Where Slurm 22.05 is told to fence by its tree (SLURM_PMIX_FENCE, mpi.conf), even a fence
 * that collects brings nothing from other nodes. So all ranks tell each other whether they
 * got everything, and go on without PMIx if one did not.
 */
int mpi_exchange(struct comm *comm, const void *data, size_t size, void **block,
                 const void **parts, size_t *sizes, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    struct err ignored;
    int complete, all;
    void *gathered;

    if (state->pmix && !state->pmix_fails) {
        complete = pmix_session_exchange(state->pmix, comm, data, size, &gathered, parts,
                                         sizes, &ignored) == 0;
        if (mpi_least(comm, complete, &all, err))
            return -1;
        if (all) {
            *block = gathered;
            return 0;
        }
        if (complete)
            free(gathered);
        state->pmix_fails = true;
    }
    return exchange_by_mpi(comm, data, size, block, parts, sizes, err);
}

static int broadcast_bytes(struct comm *comm, int root, void *data, size_t size,
                           struct err *err)
{
    struct mpi_list list = { 0 };
    char *at = data;
    int status = 0;

    while (size > 0 && !status) {
        int n = (int)(size < MPI_PIECE ? size : MPI_PIECE);
        int code = MPI_Ibcast(at, n, MPI_BYTE, root, mpi_state(comm)->control,
                              mpi_list_add(&list));

        if (code != MPI_SUCCESS)
            status = mpi_error(code, "MPI_Ibcast", err);
        else
            status = mpi_finish(comm, &list, "broadcast to all ranks", err);
        at += n;
        size -= (size_t)n;
    }
    mpi_list_free(&list);
    return status;
}

int mpi_broadcast(struct comm *comm, int root, void **data, size_t *size, struct err *err)
{
    uint64_t length = comm->rank == root ? *size : 0;
    void *bytes;

    if (broadcast_bytes(comm, root, &length, sizeof(length), err))
        return -1;
    if (comm->rank == root)
        return broadcast_bytes(comm, root, *data, *size, err);
    bytes = mem_try((size_t)length, 1, err);
    if (!bytes)
        return -1;
    if (broadcast_bytes(comm, root, bytes, (size_t)length, err)) {
        free(bytes);
        return -1;
    }
    *data = bytes;
    *size = (size_t)length;
    return 0;
}

int mpi_fence(struct comm *comm, struct err *err)
{
    int least;

    return mpi_least(comm, 0, &least, err);
}

int mpi_least(struct comm *comm, int value, int *least, struct err *err)
{
    struct mpi_list list = { 0 };
    int status = -1, result = 0;
    int code = MPI_Iallreduce(&value, &result, 1, MPI_INT, MPI_MIN, mpi_state(comm)->control,
                              mpi_list_add(&list));

    if (code != MPI_SUCCESS)
        mpi_error(code, "MPI_Iallreduce", err);
    else
        status = mpi_finish(comm, &list, "agreement of all ranks", err);
    mpi_list_free(&list);
    if (!status)
        *least = result;
    return status;
}
