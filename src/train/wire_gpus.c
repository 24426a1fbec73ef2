/* SPDX-License-Identifier: MIT */
/* Wires between the GPUs of a run, by what passage.c and reduce.c use: they take what those take, but for
 * what overlaps.
 */
#include "train/wire.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "kernels/backend.h"

#define TAG 0
#define SUMS ((int64_t)1 << 32)     /* keys of teams that sum: behind those of pairs */

struct slot {
    struct comm_request *request;
    struct event *event;        /* behind what the GPU does of it */
    struct nccl_team *team;     /* that moves it; NULL: hosts do */
    char *data;                 /* where what the host receives is to go; NULL: it sends */
    size_t bytes;
};

struct gpu_wire {
    struct wire base;
    struct comm *comm;
    struct wire_gpu gpu;
    struct stream *stream;
    char *pinned;               /* as large as the pool: what has a place in one, has it in both */
    struct nccl *nccl;          /* NULL: hosts move everything */
    int n_ways;
    struct way {
        int peer;
        bool send;
        struct nccl_team *team;
    } *ways;
    struct nccl_team *joins, *spreads;  /* NULL: nothing to sum by NCCL, or to give on */
    struct comm_group *across;          /* whose hosts sum; NULL: not this one's */
    struct slot slots[WIRE_SLOTS];
};

static struct nccl_team *way_to(const struct gpu_wire *wire, int peer, bool send)
{
    for (int i = 0; i < wire->n_ways; i++)
        if (wire->ways[i].peer == peer && wire->ways[i].send == send)
            return wire->ways[i].team;
    return NULL;
}

/* To pinned memory, or back; over when this returns. */
static int copy(struct gpu_wire *wire, struct slot *slot, char *data, size_t bytes, bool back,
                struct err *err)
{
    const struct backend *backend = wire->gpu.backend;
    char *pinned = wire->pinned + (data - wire->base.pool);
    bool done = false;

    if (backend->copy(wire->stream, back ? data : pinned, bytes, back ? pinned : data, bytes, bytes, 1,
                      err) < 0 ||
        backend->event_record(slot->event, wire->stream, err) < 0)
        return -1;
    while (!done)
        if (backend->event_done(slot->event, &done, err) < 0 || comm_asked(wire->comm, done, err))
            return -1;
    return 0;
}

static void touch(const struct gpu_wire *wire, const char *data, size_t bytes, bool writes)
{
    const struct backend *backend = wire->gpu.backend;

    if (backend->host_touches)
        backend->host_touches(wire->gpu.device, wire->pinned + (data - wire->base.pool), bytes, writes);
}

static int post(struct wire *base, int index, int peer, bool send, char *data, size_t bytes,
                struct err *err)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    struct slot *slot = &wire->slots[index];
    char *pinned = wire->pinned + (data - base->pool);

    slot->team = way_to(wire, peer, send);
    if (slot->team)
        return nccl_post(slot->team, send ? NCCL_SEND : NCCL_RECEIVE, data, bytes, NULL, slot->event,
                         err);
    slot->data = send ? NULL : data;
    slot->bytes = bytes;
    if (send && copy(wire, slot, data, bytes, false, err))
        return -1;
    touch(wire, data, bytes, !send);
    return send ? comm_send(wire->comm, pinned, bytes, peer, TAG, slot->request, err)
                : comm_receive(wire->comm, pinned, bytes, peer, TAG, slot->request, err);
}

static int wait(struct wire *base, int index, struct err *err)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    struct slot *slot = &wire->slots[index];

    if (slot->team)
        return nccl_wait(slot->team, slot->event, err);
    if (comm_wait(slot->request, err))
        return -1;
    if (!slot->data)
        return 0;
    touch(wire, slot->data, slot->bytes, true);
    return copy(wire, slot, slot->data, slot->bytes, true, err);
}

static int by_team(struct nccl_team *team, enum nccl_operation operation, float *data, size_t n,
                   struct slot *slot, struct err *err)
{
    return nccl_post(team, operation, data, n * sizeof(*data), NULL, slot->event, err) ||
                   nccl_wait(team, slot->event, err) ? -1 : 0;
}

static int sum_by_hosts(struct gpu_wire *wire, float *data, size_t n, struct slot *slot, struct err *err)
{
    char *at = (char *)data;
    size_t bytes = n * sizeof(*data);

    if (copy(wire, slot, at, bytes, false, err))
        return -1;
    touch(wire, at, bytes, true);
    if (comm_allreduce(wire->across, wire->pinned + (at - wire->base.pool), n, DTYPE_F32, false,
                       slot->request, err) ||
        comm_wait(slot->request, err))
        return -1;
    touch(wire, at, bytes, true);
    return copy(wire, slot, at, bytes, true, err);
}

static int sum(struct wire *base, float *data, size_t n, struct err *err)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    struct slot *slot = &wire->slots[0];

    return (wire->joins && by_team(wire->joins, NCCL_SUM, data, n, slot, err)) ||
                   (wire->across && sum_by_hosts(wire, data, n, slot, err)) ||
                   (wire->spreads && by_team(wire->spreads, NCCL_BROADCAST, data, n, slot, err)) ? -1 : 0;
}

static void free_gpu_wire(struct wire *base)
{
    struct gpu_wire *wire = (struct gpu_wire *)base;
    const struct backend *backend = wire->gpu.backend;

    nccl_free(wire->nccl);
    comm_group_free(wire->across);
    for (int i = 0; i < WIRE_SLOTS; i++) {
        comm_request_free(wire->slots[i].request);
        if (wire->slots[i].event)
            backend->event_free(wire->slots[i].event);
    }
    if (wire->stream)
        backend->stream_free(wire->stream);
    if (base->pool)
        backend->release_aside(wire->gpu.device, base->pool, false);
    if (wire->pinned)
        backend->release_aside(wire->gpu.device, wire->pinned, true);
    free(wire->ways);
    free(wire);
}

static int make(struct gpu_wire *wire, struct err *err)
{
    const struct backend *backend = wire->gpu.backend;
    struct device *device = wire->gpu.device;

    wire->base.pool = backend->alloc_aside(device, wire->base.size, false, err);
    wire->pinned = wire->base.pool ? backend->alloc_aside(device, wire->base.size, true, err) : NULL;
    wire->stream = wire->pinned ? backend->stream_new(device, err) : NULL;
    if (!wire->stream)
        return -1;
    for (int i = 0; i < WIRE_SLOTS; i++) {
        wire->slots[i].event = backend->event_new(device, err);
        if (!wire->slots[i].event)
            return -1;
    }
    if (wire->gpu.nccl != NCCL_NOWHERE)
        wire->nccl = nccl_new(wire->comm, backend, device, wire->gpu.nccl, err);
    return wire->gpu.nccl == NCCL_NOWHERE || wire->nccl ? 0 : -1;
}

/* A team for each direction of a pair. */
static void add_ways(struct gpu_wire *wire, int n_pairs, const int *pairs)
{
    int me = comm_rank(wire->comm);

    for (int i = 0; i < 2 * n_pairs; i++) {
        const int ends[] = { pairs[i], pairs[i ^ 1] };
        int peer = ends[ends[0] == me];

        if ((ends[0] == me || ends[1] == me) && nccl_reaches(wire->nccl, peer) &&
            !way_to(wire, peer, ends[0] == me))
            *(struct way *)mem_push((void **)&wire->ways, &wire->n_ways, sizeof(struct way)) =
                (struct way){ peer, ends[0] == me, nccl_team_new(wire->nccl, 2, ends, i, true) };
    }
}

/* As reduce.h has it: what NCCL reaches joins, first ones sum across nodes and give on. */
static int add_sums(struct gpu_wire *wire, struct err *err)
{
    int n = comm_size(wire->comm), me = comm_rank(wire->comm), here = 1, n_across = n;
    int *ranks = mem_new((size_t)n, sizeof(*ranks)), *across = mem_new((size_t)n, sizeof(*across));
    bool sums = true;

    for (int r = 0; r < n; r++)
        across[r] = ranks[r] = r;
    if (wire->nccl) {
        n_across = nccl_leaders(wire->comm, n, ranks, across);
        here = nccl_reachable(wire->nccl, n, ranks);
        sums = here < n && ranks[0] == me;
    }
    if (here > 1)
        wire->joins = nccl_team_new(wire->nccl, here, ranks, SUMS, false);
    if (here > 1 && here < n)
        wire->spreads = nccl_team_new(wire->nccl, here, ranks, SUMS + 1, false);
    if (sums)
        wire->across = comm_group_new(wire->comm, n_across, across, err);
    free(ranks);
    free(across);
    return sums && !wire->across ? -1 : 0;
}

struct wire *wire_of_gpus(struct comm *comm, const struct wire_gpu *gpu, size_t size, int n_pairs,
                          const int *pairs, struct err *err)
{
    struct gpu_wire *wire = mem_new(1, sizeof(*wire));
    int bad;

    wire->base = (struct wire){ .size = size, .post = post, .wait = wait, .sum = sum,
                                .free = free_gpu_wire };
    wire->comm = comm;
    wire->gpu = *gpu;
    for (int i = 0; i < WIRE_SLOTS; i++)
        wire->slots[i].request = comm_request_new(comm);
    bad = comm_agree(comm, err, make(wire, err) < 0);
    if (!bad && wire->nccl)
        add_ways(wire, n_pairs, pairs);
    bad = bad || comm_agree(comm, err, add_sums(wire, err) < 0) ||
          (wire->nccl && nccl_connect(wire->nccl, err));
    if (!bad)
        return &wire->base;
    free_gpu_wire(&wire->base);
    return NULL;
}
