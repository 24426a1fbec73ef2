/* SPDX-License-Identifier: MIT */
#include "train/channel.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

void channel_init(struct channel *channel, const struct route *route, struct comm *comm,
                  int rank, const struct store *store, char *buffers)
{
    *channel = (struct channel){ .route = route, .comm = comm, .rank = rank, .store = store,
                                 .buffers = buffers };
    channel->requests = mem_new((size_t)route->depth, sizeof(struct comm_request *));
    for (int i = 0; i < route->depth; i++)
        channel->requests[i] = comm_request_new(comm);
}

void channel_clear(struct channel *channel)
{
    for (int i = 0; channel->requests && i < channel->route->depth; i++)
        comm_request_free(channel->requests[i]);
    free(channel->requests);
    *channel = (struct channel){ 0 };
}

static int tag_of(const struct route *route, int micro)
{
    return 2 * micro + (route->gradient ? 1 : 0);
}

static char *buffer_of(const struct channel *channel, int index)
{
    return channel->buffers + (size_t)(index % channel->route->depth) * channel->route->bytes;
}

static int post_receive(struct channel *channel, struct err *err)
{
    int i = channel->posted++;

    return comm_receive(channel->comm, buffer_of(channel, i), channel->route->bytes,
                        channel->rank, tag_of(channel->route, channel->micros[i]),
                        channel->requests[i % channel->route->depth], err);
}

int channel_start(struct channel *channel, int n, const int *micros, struct err *err)
{
    channel->n = n;
    channel->micros = micros;
    channel->posted = channel->used = 0;
    while (!channel->route->send && channel->posted < channel->route->depth &&
           channel->posted < n)
        if (post_receive(channel, err) < 0)
            return -1;
    return 0;
}

static int unpack(const struct channel *channel, const char *message, int slot,
                  struct err *err)
{
    const struct store *store = channel->store;
    const struct backend *backend = store->compiled->backend;

    for (int k = 0; k < channel->route->n; k++) {
        const struct route_piece *p = &channel->route->pieces[k];
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

int channel_receive(struct channel *channel, int micro, int slot, struct err *err)
{
    int i = channel->used;

    if (i >= channel->n || channel->micros[i] != micro)
        return err_set(err, "receive from rank %d: micro-batch %d comes out of order",
                       channel->rank, micro);
    if (comm_wait(channel->requests[i % channel->route->depth], err) < 0 ||
        unpack(channel, buffer_of(channel, i), slot, err) < 0)
        return -1;
    channel->used++;
    if (channel->posted < channel->n)
        return post_receive(channel, err);
    return 0;
}

int channel_send(struct channel *channel, int micro, int slot, struct err *err)
{
    const struct store *store = channel->store;
    const struct backend *backend = store->compiled->backend;
    struct comm_request *request = channel->requests[channel->sent];
    char *message = buffer_of(channel, channel->sent);

    if (comm_wait(request, err) < 0)
        return -1;
    for (int k = 0; k < channel->route->n; k++) {
        const struct route_piece *p = &channel->route->pieces[k];
        const char *from = (const char *)store_address(store, p->value, slot) + p->offset;

        if (backend->copy(store->stream, message + p->at, p->width, from, p->stride, p->width,
                          p->rows, err) < 0)
            return -1;
    }
    if (backend->stream_sync(store->stream, err) < 0)
        return -1;
    channel->sent = (channel->sent + 1) % channel->route->depth;
    return comm_send(channel->comm, message, channel->route->bytes, channel->rank,
                     tag_of(channel->route, micro), request, err);
}

int channel_drain(struct channel *channel, struct err *err)
{
    for (int i = 0; channel->route->send && i < channel->route->depth; i++)
        if (comm_wait(channel->requests[i], err) < 0)
            return -1;
    return 0;
}

int channel_progress(struct channel *channel, struct err *err)
{
    bool done;
    int i = channel->route->send ? channel->sent + channel->route->depth - 1 : channel->used;

    return comm_test(channel->requests[i % channel->route->depth], &done, err);
}
