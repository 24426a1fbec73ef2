/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: groups and their sums.
 *
 * MPI's own collective makes a copy of the whole that nobody counts: it is for small arrays only,
 * of which many members have too little each.
 */
#include "comm/mpi_private.h"

#include <stdlib.h>

#include "base/mem.h"
#include "comm/sum.h"

#define PLAIN_BYTES ((size_t)64 << 10)

struct mpi_group {
    MPI_Comm comm;
    int tag;            /* of the next sum in rank order: two per sum, counting round */
};

/* Dissemination: after round k everybody has heard of 2^(k+1) members. Then all are here, and
 * the blocking call that follows will end.
 */
static int meet(struct comm_group *group, struct err *err)
{
    MPI_Comm control = mpi_state(group->comm)->control;
    struct mpi_list list = { 0 };
    int status = 0;

    for (int step = 1; step < group->n && !status; step *= 2) {
        int to = group->ranks[(group->me + step) % group->n];
        int from = group->ranks[(group->me - step + group->n) % group->n];

        status = mpi_post_receive(&list, NULL, 0, from, 0, control, err) ||
                 mpi_post_send(&list, NULL, 0, to, 0, control, false, err) ||
                 mpi_finish(group->comm, &list, "waiting for the members", err);
    }
    mpi_list_free(&list);
    return status ? -1 : 0;
}

static int make_communicator(struct comm_group *group, MPI_Comm *result, struct err *err)
{
    MPI_Comm control = mpi_state(group->comm)->control;
    MPI_Group world, members;

    MPI_CHECK(MPI_Comm_group(control, &world), err);
    MPI_CHECK(MPI_Group_incl(world, group->n, group->ranks, &members), err);
    MPI_CHECK(MPI_Comm_create_group(control, members, 0, result), err);
    MPI_CHECK(MPI_Group_free(&members), err);
    MPI_CHECK(MPI_Group_free(&world), err);
    return 0;
}

int mpi_group_open(struct comm_group *group, struct err *err)
{
    struct mpi_group *state;
    MPI_Comm comm;

    if (meet(group, err) || make_communicator(group, &comm, err))
        return -1;
    state = mem_new(1, sizeof(*state));
    state->comm = comm;
    group->state = state;
    return 0;
}

void mpi_group_close(struct comm_group *group)
{
    struct mpi_group *state = group->state;
    int finalized;

    /* MPI_Comm_free() is collective by the letter; Open MPI and MPICH only drop it. */
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Comm_free(&state->comm);
    free(state);
}

static MPI_Datatype mpi_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32: return MPI_FLOAT;
    case DTYPE_F64: return MPI_DOUBLE;
    case DTYPE_I32: return MPI_INT32_T;
    default: return MPI_INT64_T;
    }
}

static int next_tag(struct comm_group *group)
{
    struct mpi_group *state = group->state;
    int tag = state->tag;

    state->tag = tag + 2 < 32000 ? tag + 2 : 0;
    return tag;
}

static int send_part(struct comm_request *base, const void *data, size_t bytes, int member, int tag,
                     struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;
    const struct mpi_group *state = base->group->state;

    return mpi_post_send(&request->list, data, bytes, member, tag, state->comm, false, err);
}

static int receive_part(struct comm_request *base, void *data, size_t bytes, int member, int tag,
                        struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;
    const struct mpi_group *state = base->group->state;

    return mpi_post_receive(&request->list, data, bytes, member, tag, state->comm, err);
}

static const struct ordered_driver parts = { send_part, receive_part };

static int start_plain(struct mpi_request *request, void *data, size_t n, enum dtype dtype,
                       struct err *err)
{
    const struct mpi_group *state = request->base.group->state;

    request->sum.phase = ORDERED_DONE;
    MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, mpi_type(dtype), MPI_SUM, state->comm,
                             mpi_list_add(&request->list)), err);
    return 0;
}

int mpi_collective(struct comm_request *base, struct comm_group *group, void *data, size_t n,
                   enum dtype dtype, bool deterministic, struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;
    size_t size = sum_element(dtype, err);

    if (!size)
        return -1;
    request->list.n = 0;
    base->bytes = n * size;
    if (base->operation == COMM_ALLREDUCE && !deterministic && base->bytes <= PLAIN_BYTES)
        return start_plain(request, data, n, dtype, err);
    base->tag = next_tag(group);
    return ordered_start(base, &request->sum, &parts, data, n, dtype, err);
}

int mpi_collective_next(struct mpi_request *request, bool *done, struct err *err)
{
    return ordered_next(&request->base, &request->sum, &parts, done, err);
}
