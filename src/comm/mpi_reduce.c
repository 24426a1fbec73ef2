/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: groups and their sums.
 *
 * Sums in rank order: member i owns slice i of the array. Everybody sends it that slice, as much
 * at a time as the scratch holds; it adds them up, element by element in the order of the members,
 * and sends the sum back to all. Each member sends and receives 2(n-1)/n of the array, as in a
 * ring. A reduce-scatter is the first half of that, an all-gather the second.
 *
 * MPI's own collective makes a copy of the whole that nobody counts: it is for small arrays only,
 * of which many members have too little each.
 */
#include "comm/mpi_private.h"

#include <stdlib.h>

#include "base/mem.h"
#include "comm/sum.h"

#define PLAIN_BYTES ((size_t)64 << 10)

enum phase {
    PHASE_PLAIN = 0,    /* MPI's own collective */
    PHASE_COLLECT,      /* pieces of my slice come in */
    PHASE_SPREAD,       /* sums go out */
};

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

static size_t element_size(enum dtype dtype)
{
    return sum_element(dtype, NULL);
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

static size_t slice_start(const struct mpi_request *request, int member)
{
    return comm_slice_start(request->count, request->base.group->n, member);
}

static size_t slice_length(const struct mpi_request *request, int member)
{
    return slice_start(request, member + 1) - slice_start(request, member);
}

static unsigned char *slice(const struct mpi_request *request, int member)
{
    return request->data + slice_start(request, member) * element_size(request->dtype);
}

/* What this round is about of a member's slice; at the end of a slice it may be nothing. */
static size_t round_length(const struct mpi_request *request, int member)
{
    size_t length = slice_length(request, member);
    size_t left = length > request->summed ? length - request->summed : 0;

    return left < request->round ? left : request->round;
}

static unsigned char *round_start(const struct mpi_request *request, int member)
{
    return slice(request, member) + request->summed * element_size(request->dtype);
}

/* Member i's part of that: in my own data or in the scratch, packed in member order. */
static unsigned char *part(const struct mpi_request *request, int member)
{
    int me = request->base.group->me;
    size_t bytes = request->round * element_size(request->dtype);

    if (member == me)
        return round_start(request, me);
    return request->scratch + (size_t)(member - (member > me)) * bytes;
}

static const void *part_of(const void *request, int member)
{
    return part(request, member);
}

/* Over my own data. */
static void sum_round(struct mpi_request *request)
{
    int me = request->base.group->me;

    sum_parts(request->dtype, request->base.group->n, part_of, request,
              round_length(request, me), part(request, me));
}

static int next_tag(struct comm_group *group)
{
    struct mpi_group *state = group->state;
    int tag = state->tag;

    state->tag = tag + 2 < 32000 ? tag + 2 : 0;
    return tag;
}

/* Small steps around the ring of members, so that not all write to the same one first. */
static int post_collect(struct mpi_request *request, struct err *err)
{
    struct comm_group *group = request->base.group;
    const struct mpi_group *state = group->state;
    size_t size = element_size(request->dtype), mine = round_length(request, group->me) * size;

    for (int i = 1; i < group->n; i++) {
        int from = (group->me - i + group->n) % group->n;

        if (mpi_post_receive(&request->list, part(request, from), mine, from, request->base.tag,
                             state->comm, err))
            return -1;
    }
    for (int i = 1; i < group->n; i++) {
        int to = (group->me + i) % group->n;

        if (mpi_post_send(&request->list, round_start(request, to),
                          round_length(request, to) * size, to, request->base.tag, state->comm,
                          false, err))
            return -1;
    }
    return 0;
}

static int post_spread(struct mpi_request *request, struct err *err)
{
    struct comm_group *group = request->base.group;
    const struct mpi_group *state = group->state;
    size_t size = element_size(request->dtype), mine = slice_length(request, group->me) * size;
    int tag = request->base.tag + 1;

    request->phase = PHASE_SPREAD;
    for (int i = 1; i < group->n; i++) {
        int from = (group->me - i + group->n) % group->n;

        if (mpi_post_receive(&request->list, slice(request, from),
                             slice_length(request, from) * size, from, tag, state->comm, err))
            return -1;
    }
    for (int i = 1; i < group->n; i++)
        if (mpi_post_send(&request->list, slice(request, group->me), mine,
                          (group->me + i) % group->n, tag, state->comm, false, err))
            return -1;
    return 0;
}

/* The last slice is one of the longest. */
static size_t longest_slice(const struct mpi_request *request)
{
    return slice_length(request, request->base.group->n - 1);
}

static int take_scratch(struct mpi_request *request, struct err *err)
{
    size_t others = (size_t)request->base.group->n - 1, size = element_size(request->dtype), need;

    request->scratch = request->base.scratch;
    request->round = request->base.scratch_bytes / others / size;
    if (request->scratch && request->round == 0)
        return err_set(err, "%zu bytes are too few to sum in", request->base.scratch_bytes);
    if (request->scratch)
        return 0;
    request->round = longest_slice(request);
    if (size_mul(request->round * size, others, &need))
        return err_set(err, "%zu elements are too many", request->count);
    if (need > request->own_bytes) {
        free(request->own);
        request->own_bytes = 0;
        request->own = mem_try(need, 1, err);
        if (!request->own)
            return -1;
        request->own_bytes = need;
    }
    request->scratch = request->own;
    return 0;
}

static int start_in_order(struct mpi_request *request, struct comm_group *group,
                          struct err *err)
{
    if (take_scratch(request, err))
        return -1;
    request->phase = PHASE_COLLECT;
    request->summed = 0;
    request->base.tag = next_tag(group);
    return post_collect(request, err);
}

static int start_plain(struct mpi_request *request, struct comm_group *group, struct err *err)
{
    const struct mpi_group *state = group->state;

    request->phase = PHASE_PLAIN;
    MPI_CHECK(MPI_Iallreduce(MPI_IN_PLACE, request->data, (int)request->count,
                             mpi_type(request->dtype), MPI_SUM, state->comm,
                             mpi_list_add(&request->list)), err);
    return 0;
}

int mpi_collective(struct comm_request *base, struct comm_group *group, void *data, size_t n,
                   enum dtype dtype, bool deterministic, struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;

    if (!sum_element(dtype, err))
        return -1;
    request->list.n = 0;
    request->dtype = dtype;
    request->count = n;
    request->data = data;
    base->bytes = n * element_size(dtype);
    if (base->operation == COMM_ALL_GATHER) {
        base->tag = next_tag(group);
        return post_spread(request, err);
    }
    return deterministic || base->bytes > PLAIN_BYTES ? start_in_order(request, group, err)
                                                      : start_plain(request, group, err);
}

int mpi_collective_next(struct mpi_request *request, bool *done, struct err *err)
{
    if (request->phase != PHASE_COLLECT)
        return 0;
    sum_round(request);
    request->summed += request->round;
    if (request->summed < longest_slice(request)) {
        *done = false;
        return post_collect(request, err);
    }
    if (request->base.operation == COMM_REDUCE_SCATTER)
        return 0;
    *done = false;
    return post_spread(request, err);
}
