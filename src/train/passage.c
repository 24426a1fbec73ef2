/* SPDX-License-Identifier: MIT */
#include "train/passage.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

void passage_init(struct passage *passage, const struct route *route, struct comm *comm,
                  int rank, int tags, const struct store *store, char *buffers)
{
    *passage = (struct passage){ .route = route, .comm = comm, .rank = rank, .tags = tags,
                                 .store = store, .buffers = buffers };
    passage->requests = mem_new((size_t)route->depth, sizeof(struct comm_request *));
    for (int i = 0; i < route->depth; i++)
        passage->requests[i] = comm_request_new(comm);
}

int passage_use_nccl(struct passage *passage, struct nccl_team *team, struct err *err)
{
    size_t depth = (size_t)passage->route->depth;

    passage->team = team;
    passage->moving = mem_new(depth, sizeof(*passage->moving));
    passage->moved = mem_new(depth, sizeof(*passage->moved));
    for (size_t i = 0; i < depth; i++) {
        passage->moved[i] = nccl_event_new(team, err);
        if (!passage->moved[i])
            return -1;
    }
    return 0;
}

/* A post of either kind, behind what is in the stream of the kernels. */
static int post_nccl(struct passage *passage, int64_t index, struct err *err)
{
    int64_t k = index % passage->route->depth;

    passage->moving[k] = true;
    return nccl_post(passage->team, passage->route->send ? NCCL_SEND : NCCL_RECEIVE,
                     passage->buffers + (size_t)k * passage->route->bytes, passage->route->bytes,
                     passage->store->stream, passage->moved[k], err);
}

static int wait_nccl(struct passage *passage, int64_t index, struct err *err)
{
    int64_t k = index % passage->route->depth;

    if (!passage->moving[k])
        return 0;
    if (nccl_wait(passage->team, passage->moved[k], err) < 0)
        return err_prefix(err, "%s rank %d", passage->route->send ? "send to" : "receive from",
                          passage->rank);
    passage->moving[k] = false;
    return 0;
}

void passage_clear(struct passage *passage)
{
    for (int i = 0; passage->moved && i < passage->route->depth; i++)
        if (passage->moved[i])
            passage->store->compiled->backend->event_free(passage->moved[i]);
    free(passage->moved);
    free(passage->moving);
    for (int i = 0; passage->requests && i < passage->route->depth; i++)
        comm_request_free(passage->requests[i]);
    free(passage->requests);
    *passage = (struct passage){ 0 };
}

static int tag_of(const struct passage *passage, int micro)
{
    return passage->tags + 2 * micro + (passage->route->gradient ? 1 : 0);
}

static char *buffer_of(const struct passage *passage, int64_t index)
{
    return passage->buffers + (size_t)(index % passage->route->depth) * passage->route->bytes;
}

static int post_receive(struct passage *passage, struct err *err)
{
    int64_t i = passage->posted++;

    if (passage->team)
        return post_nccl(passage, i, err);
    return comm_receive(passage->comm, buffer_of(passage, i), passage->route->bytes,
                        passage->rank, tag_of(passage, passage->micros[i % passage->n]),
                        passage->requests[i % passage->route->depth], err);
}

int passage_start(struct passage *passage, int n, const int *micros, bool follows,
                  struct err *err)
{
    passage->n = n;
    passage->micros = micros;
    if (!follows)
        passage->expected = passage->posted = passage->used = 0;
    passage->expected += n;
    while (!passage->route->send && passage->posted < passage->used + passage->route->depth &&
           passage->posted < passage->expected)
        if (post_receive(passage, err) < 0)
            return -1;
    return 0;
}

static int unpack(const struct passage *passage, const char *message, int slot,
                  struct err *err)
{
    const struct store *store = passage->store;
    const struct backend *backend = store->compiled->backend;

    for (int k = 0; k < passage->route->n; k++) {
        const struct route_piece *p = &passage->route->pieces[k];
        char *to = (char *)store_address(store, p->value, slot) + p->offset;
        enum dtype dtype = store->compiled->graph->values[p->value].dtype;
        int bad;

        if (p->add)
            bad = backend->add(store->stream, dtype, p->width / dtype_size(dtype),
                               message + p->at, to, err);
        else
            bad = backend->copy(store->stream, to, p->stride, message + p->at, p->width,
                                p->width, p->rows, err);
        if (bad)
            return -1;
    }
    return passage->team ? 0 : backend->stream_sync(store->stream, err);
}

int passage_wait(struct passage *passage, struct err *err)
{
    int64_t next = passage->route->send ? passage->sent : passage->used;

    if (passage->team)
        return wait_nccl(passage, next, err);
    return comm_wait(passage->requests[next % passage->route->depth], err);
}

int passage_receive(struct passage *passage, int micro, int slot, struct err *err)
{
    int64_t i = passage->used;

    if (i >= passage->expected || passage->micros[i % passage->n] != micro)
        return err_set(err, "receive from rank %d: micro-batch %d comes out of order",
                       passage->rank, micro);
    if (unpack(passage, buffer_of(passage, i), slot, err) < 0)
        return -1;
    passage->used++;
    return passage->posted < passage->expected ? post_receive(passage, err) : 0;
}

int passage_send(struct passage *passage, int micro, int slot, struct err *err)
{
    const struct store *store = passage->store;
    const struct backend *backend = store->compiled->backend;
    int now = passage->sent;
    char *message = buffer_of(passage, now);

    for (int k = 0; k < passage->route->n; k++) {
        const struct route_piece *p = &passage->route->pieces[k];
        const char *from = (const char *)store_address(store, p->value, slot) + p->offset;

        if (backend->copy(store->stream, message + p->at, p->width, from, p->stride, p->width,
                          p->rows, err) < 0)
            return -1;
    }
    passage->sent = (now + 1) % passage->route->depth;
    if (passage->team)
        return post_nccl(passage, now, err);
    if (backend->stream_sync(store->stream, err) < 0)
        return -1;
    return comm_send(passage->comm, message, passage->route->bytes, passage->rank,
                     tag_of(passage, micro), passage->requests[now], err);
}

int passage_drain(struct passage *passage, struct err *err)
{
    for (int i = 0; passage->route->send && i < passage->route->depth; i++)
        if ((passage->team ? wait_nccl(passage, i, err)
                           : comm_wait(passage->requests[i], err)) < 0)
            return -1;
    return 0;
}

int passage_progress(struct passage *passage, struct err *err)
{
    bool done;
    int64_t i = passage->route->send ? passage->sent + passage->route->depth - 1
                                     : passage->used;

    /* The GPU needs nobody to ask. */
    if (passage->team)
        return 0;
    return comm_test(passage->requests[i % passage->route->depth], &done, err);
}
