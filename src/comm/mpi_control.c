/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: the control plane, by MPI but for the first exchange and introductions, which are
 * PMIx's.
 */
#include "comm/mpi_private.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
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

/* Everybody's bytes, of which each one's number is known, one behind the other. */
static int gather_parts(struct comm *comm, const void *data, const int *sizes, const int *starts,
                        void *all, struct err *err)
{
    struct mpi_list list = { 0 };
    int status = -1, code;

    code = MPI_Iallgatherv(data, sizes[comm->rank], MPI_BYTE, all, sizes, starts, MPI_BYTE,
                           mpi_state(comm)->control, mpi_list_add(&list));
    if (code != MPI_SUCCESS)
        mpi_error(code, "MPI_Iallgatherv", err);
    else
        status = mpi_finish(comm, &list, "exchange with all ranks", err);
    mpi_list_free(&list);
    return status;
}

/* Where everybody's part begins, and the bytes of all. */
static int start_parts(int n, const uint64_t *all, int *sizes, int *starts, size_t *bytes,
                       struct err *err)
{
    uint64_t sum = 0;

    for (int i = 0; i < n; i++) {
        if (all[i] > INT_MAX - sum)
            return err_set(err, "what all ranks exchange is more than %d bytes", INT_MAX);
        sizes[i] = (int)all[i];
        starts[i] = (int)sum;
        sum += all[i];
    }
    *bytes = (size_t)sum;
    return 0;
}

int mpi_share(struct comm *comm, const void *data, size_t size, void **block, const void **parts,
              size_t *sizes, struct err *err)
{
    size_t n = (size_t)comm->size, bytes = 0;
    uint64_t mine = size, *all = mem_new(n, sizeof(*all));
    int *counts = mem_new(2 * n, sizeof(*counts)), *starts = counts + n;
    int status = mpi_gather_all(comm, &mine, all, sizeof(mine), err) ||
                 start_parts(comm->size, all, counts, starts, &bytes, err);

    *block = status ? NULL : mem_try(bytes, 1, err);
    status = !*block || gather_parts(comm, data, counts, starts, *block, err) ? -1 : 0;
    for (size_t i = 0; i < n && !status; i++) {
        sizes[i] = all[i];
        parts[i] = (const unsigned char *)*block + starts[i];
    }
    free(all);
    free(counts);
    if (status) {
        free(*block);
        *block = NULL;
    }
    return status;
}

/* Where Slurm 22.05 is told to fence by its tree (SLURM_PMIX_FENCE, mpi.conf), even a fence that
 * collects brings nothing from other nodes. So all ranks tell each other whether they got everything:
 * 1; or do without PMIx if one did not: 0; -1: they cannot.
 */
static int exchange_by_pmix(struct comm *comm, const void *data, size_t size, void **block,
                            const void **parts, size_t *sizes, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    struct err why = { 0 };
    void *gathered = NULL;
    int all = 0, bad, complete = pmix_session_exchange(state->pmix, comm, data, size, &gathered,
                                                       parts, sizes, &why) == 0;

    bad = mpi_least(comm, complete, &all, err);
    if (!bad && all) {
        *block = gathered;
        return 1;
    }
    free(gathered);
    snprintf(state->lacks, sizeof(state->lacks), "%.150s",
             complete ? "another rank does not get everything" : why.text);
    return bad ? -1 : 0;
}

/* The first time by PMIx, before any rank has a connection to another; a fence of its server is
 * slower than what MPI does later.
 */
int mpi_exchange(struct comm *comm, const void *data, size_t size, void **block,
                 const void **parts, size_t *sizes, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    int all = 0;

    if (state->pmix && !state->exchanged && !state->lacks[0]) {
        state->exchanged = true;
        all = exchange_by_pmix(comm, data, size, block, parts, sizes, err);
    }
    if (all)
        return all < 0 ? -1 : 0;
    return mpi_share(comm, data, size, block, parts, sizes, err);
}

int mpi_introduce(struct comm *comm, const void *data, size_t size, void **block,
                  const void **parts, size_t *sizes, struct err *err)
{
    struct mpi_state *state = mpi_state(comm);
    int all = 0;

    if (state->pmix && !state->lacks[0])
        all = exchange_by_pmix(comm, data, size, block, parts, sizes, err);
    if (all < 0 || (!all && mpi_share(comm, data, size, block, parts, sizes, err)))
        return -1;
    snprintf(comm->way, sizeof(comm->way), "%s%s%s", all ? "PMIx" : "MPI",
             state->lacks[0] ? ", since PMIx failed: " : "", state->lacks);
    return 0;
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
