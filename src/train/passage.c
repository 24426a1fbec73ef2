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

void passage_clear(struct passage *passage)
{
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
    return backend->stream_sync(store->stream, err);
}

int passage_wait(struct passage *passage, struct err *err)
{
    int64_t next = passage->route->send ? passage->sent : passage->used;

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
    struct comm_request *request = passage->requests[passage->sent];
    char *message = buffer_of(passage, passage->sent);

    for (int k = 0; k < passage->route->n; k++) {
        const struct route_piece *p = &passage->route->pieces[k];
        const char *from = (const char *)store_address(store, p->value, slot) + p->offset;

        if (backend->copy(store->stream, message + p->at, p->width, from, p->stride, p->width,
                          p->rows, err) < 0)
            return -1;
    }
    if (backend->stream_sync(store->stream, err) < 0)
        return -1;
    passage->sent = (passage->sent + 1) % passage->route->depth;
    return comm_send(passage->comm, message, passage->route->bytes, passage->rank,
                     tag_of(passage, micro), request, err);
}

int passage_drain(struct passage *passage, struct err *err)
{
    for (int i = 0; passage->route->send && i < passage->route->depth; i++)
        if (comm_wait(passage->requests[i], err) < 0)
            return -1;
    return 0;
}

int passage_progress(struct passage *passage, struct err *err)
{
    bool done;
    int64_t i = passage->route->send ? passage->sent + passage->route->depth - 1
                                     : passage->used;

    return comm_test(passage->requests[i % passage->route->depth], &done, err);
}
