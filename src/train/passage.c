/* SPDX-License-Identifier: MIT */
#include "train/passage.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/trace.h"

static bool in_scratch(const struct store *store, const struct route *route)
{
    const struct program_value *values = store->compiled->program->values;

    for (int k = 0; k < route->n; k++)
        if (values[values[route->pieces[k].value].root].place == PLACE_SCRATCH)
            return true;
    return false;
}

static int make_events(struct passage *passage, struct err *err)
{
    const struct store *store = passage->store;
    const struct backend *backend = store->compiled->backend;

    if (!backend->separate)
        return 0;
    passage->events = mem_new((size_t)passage->route->depth, sizeof(struct event *));
    for (int i = 0; i < passage->route->depth; i++) {
        passage->events[i] = backend->event_new(store->device, err);
        if (!passage->events[i])
            return -1;
    }
    return 0;
}

int passage_init(struct passage *passage, const struct route *route, struct comm *comm,
                 int rank, int tags, const struct store *store, struct lanes *lanes,
                 char *buffers, struct passage **all, struct err *err)
{
    *passage = (struct passage){ .route = route, .comm = comm, .rank = rank, .tags = tags,
                                 .store = store, .lanes = lanes, .buffers = buffers,
                                 .scratch = in_scratch(store, route), .next = *all };
    *all = passage;
    passage->packed_micros = mem_new((size_t)route->depth, sizeof(int));
    passage->requests = mem_new((size_t)route->depth, sizeof(struct comm_request *));
    for (int i = 0; i < route->depth; i++)
        passage->requests[i] = comm_request_new(comm);
    return make_events(passage, err);
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

/* Of receives that are posted ahead some may still be of the step before. */
static struct trace_event message_of(const struct passage *passage, int64_t index)
{
    bool send = passage->route->send, earlier = !send && index < passage->expected - passage->n;

    return (struct trace_event){
        .kind = send ? INSTRUCTION_SEND : INSTRUCTION_RECV, .peer = passage->route->peer,
        .micro = send ? passage->packed_micros[index] : passage->micros[index % passage->n],
        .step = passage->step - (earlier && passage->step >= 0),
    };
}

/* A post of either kind, behind what the stream does with the buffer. */
static int post_nccl(struct passage *passage, int64_t index, struct stream *stream,
                     struct err *err)
{
    const struct backend *backend = passage->store->compiled->backend;
    int64_t k = index % passage->route->depth;
    char *buffer = passage->buffers + (size_t)k * passage->route->bytes;
    const struct trace_event what = message_of(passage, index);

    nccl_note(passage->team, &what);
    passage->moving[k] = true;
    if (!passage->route->send && backend->forget)
        backend->forget(stream, buffer, passage->route->bytes);
    return nccl_post(passage->team, passage->route->send ? NCCL_SEND : NCCL_RECEIVE, buffer,
                     passage->route->bytes, stream, passage->moved[k], err);
}

static int test_message(struct passage *passage, int64_t index, bool *done, struct err *err)
{
    int64_t k = index % passage->route->depth;

    if (!passage->team)
        return comm_test(passage->requests[k], done, err);
    *done = !passage->moving[k];
    if (!*done && nccl_done(passage->team, passage->moved[k], done, err) < 0)
        return -1;
    passage->moving[k] = !*done;
    return 0;
}

static int wait_message(struct passage *passage, int64_t index, struct err *err)
{
    int64_t k = index % passage->route->depth;

    if (!passage->team)
        return comm_wait(passage->requests[k], err);
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
    const struct backend *backend = passage->events ? passage->store->compiled->backend : NULL;

    for (int i = 0; passage->moved && i < passage->route->depth; i++)
        if (passage->moved[i])
            passage->store->compiled->backend->event_free(passage->moved[i]);
    free(passage->moved);
    free(passage->moving);
    for (int i = 0; passage->requests && i < passage->route->depth; i++)
        comm_request_free(passage->requests[i]);
    for (int i = 0; backend && i < passage->route->depth; i++)
        if (passage->events[i])
            backend->event_free(passage->events[i]);
    free(passage->events);
    free(passage->packed_micros);
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

/* Has the stream done with the buffer of this message? */
static int buffer_ready(const struct passage *passage, int64_t index, bool wait, bool *ready,
                        struct err *err)
{
    const struct backend *backend = passage->store->compiled->backend;

    *ready = true;
    if (!passage->events || passage->team)
        return 0;
    for (;;) {
        if (backend->event_done(passage->events[index % passage->route->depth], ready, err) < 0)
            return -1;
        if (*ready || !wait)
            return 0;
        comm_idle(passage->comm);
    }
}

static void touch(const struct passage *passage, int64_t index, bool writes)
{
    const struct store *store = passage->store;

    if (passage->team)          /* the GPU does */
        return;
    for (int k = 0; store->compiled->backend->host_touches && k < passage->route->n; k++) {
        const struct route_piece *p = &passage->route->pieces[k];

        store->compiled->backend->host_touches(store->device, buffer_of(passage, index) + p->at,
                                               p->width * p->rows, writes);
    }
}

static int post_receive(struct passage *passage, struct err *err)
{
    int64_t i = passage->posted++;

    if (passage->team)
        return post_nccl(passage, i, passage->lanes->in, err);
    touch(passage, i, true);
    return comm_receive(passage->comm, buffer_of(passage, i), passage->route->bytes,
                        passage->rank, tag_of(passage, passage->micros[i % passage->n]),
                        passage->requests[i % passage->route->depth], err);
}

static int post_receives(struct passage *passage, bool wait, struct err *err)
{
    bool ready;

    while (passage->posted < passage->used + passage->route->depth &&
           passage->posted < passage->expected) {
        if (buffer_ready(passage, passage->posted, wait, &ready, err) < 0)
            return -1;
        if (!ready)
            return 0;
        if (post_receive(passage, err) < 0)
            return -1;
    }
    return 0;
}

static int post_send(struct passage *passage, int at, struct err *err)
{
    if (passage->team)
        return post_nccl(passage, at, passage->lanes->out, err);
    touch(passage, at, false);
    return comm_send(passage->comm, buffer_of(passage, at), passage->route->bytes, passage->rank,
                     tag_of(passage, passage->packed_micros[at]), passage->requests[at], err);
}

static int post_sends(struct passage *passage, bool wait, struct err *err)
{
    bool ready;

    for (; passage->sent < passage->packed; passage->sent++) {
        int at = (int)(passage->sent % passage->route->depth);

        if (buffer_ready(passage, at, wait, &ready, err) < 0)
            return -1;
        if (!ready)
            return 0;
        if (post_send(passage, at, err) < 0)
            return -1;
    }
    return 0;
}

static int settle(struct passage *passage, bool wait, struct err *err)
{
    return passage->route->send ? post_sends(passage, wait, err)
                                : post_receives(passage, wait, err);
}

int passage_settle_all(struct passage *all, struct err *err)
{
    for (struct passage *p = all; p; p = p->next)
        if (settle(p, true, err) < 0)
            return -1;
    return 0;
}

int passage_start(struct passage *passage, int n, const int *micros, bool follows, int64_t step,
                  struct err *err)
{
    passage->n = n;
    passage->step = step;
    passage->micros = micros;
    if (!follows)
        passage->expected = passage->posted = passage->used = 0;
    passage->expected += n;
    return passage->route->send ? 0 : post_receives(passage, true, err);
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

        if (p->add && backend->renew)
            backend->renew(passage->lanes->in, to, p->width);
        if (p->add)
            bad = backend->add(passage->lanes->in, dtype, p->width / dtype_size(dtype),
                               message + p->at, to, err);
        else
            bad = backend->copy(passage->lanes->in, to, p->stride, message + p->at, p->width,
                                p->width, p->rows, err);
        if (bad)
            return -1;
    }
    return 0;
}

/* Of the buffer that the stream has been handed work for. */
static int record(const struct passage *passage, int64_t index, struct stream *stream,
                  struct err *err)
{
    const struct backend *backend = passage->store->compiled->backend;

    if (!passage->events || passage->team)
        return 0;
    return backend->event_record(passage->events[index % passage->route->depth], stream, err);
}

/* Is the next message there, or the buffer of the next one to be sent free? */
static int test(struct passage *passage, bool *done, struct err *err)
{
    bool send = passage->route->send;
    int64_t next = send ? passage->packed : passage->used;

    *done = false;
    if (settle(passage, false, err) < 0)
        return -1;
    if (send ? passage->sent <= next - passage->route->depth : passage->posted <= next)
        return 0;
    return test_message(passage, next, done, err);
}

int passage_wait(struct passage *passage, struct passage *all, struct err *err)
{
    int64_t next = passage->route->send ? passage->packed : passage->used;
    bool done;

    if (test(passage, &done, err) < 0 || (!done && passage_settle_all(all, err) < 0))
        return -1;
    return done ? 0 : wait_message(passage, next, err);
}

int passage_receive(struct passage *passage, int micro, int slot, struct err *err)
{
    int64_t i = passage->used;

    if (i >= passage->expected || passage->micros[i % passage->n] != micro)
        return err_set(err, "receive from rank %d: micro-batch %d comes out of order",
                       passage->rank, micro);
    touch(passage, i, true);
    if (unpack(passage, buffer_of(passage, i), slot, err) < 0 ||
        record(passage, i, passage->lanes->in, err) < 0)
        return -1;
    passage->used++;
    return settle(passage, false, err);
}

static int pack(const struct passage *passage, char *message, int slot, struct err *err)
{
    const struct store *store = passage->store;

    for (int k = 0; k < passage->route->n; k++) {
        const struct route_piece *p = &passage->route->pieces[k];
        const char *from = (const char *)store_address(store, p->value, slot) + p->offset;

        /* NCCL reads what is between pieces, too: zeros, from the start. */
        if (store->compiled->backend->forget)
            store->compiled->backend->forget(passage->lanes->out, message + p->at,
                                             p->width * p->rows);
        if (store->compiled->backend->copy(passage->lanes->out, message + p->at, p->width, from,
                                           p->stride, p->width, p->rows, err) < 0)
            return -1;
    }
    return 0;
}

int passage_send(struct passage *passage, int micro, int slot, int64_t step, struct err *err)
{
    int64_t i = passage->packed;

    passage->step = step;
    if (pack(passage, buffer_of(passage, i), slot, err) < 0 ||
        record(passage, i, passage->lanes->out, err) < 0 ||
        lanes_end_leaving(passage->lanes, slot, passage->scratch, err) < 0)
        return -1;
    passage->packed_micros[i % passage->route->depth] = micro;
    passage->packed++;
    return settle(passage, false, err);
}

int passage_drain(struct passage *passage, struct err *err)
{
    if (passage->route->send && post_sends(passage, true, err) < 0)
        return -1;
    for (int i = 0; passage->route->send && i < passage->route->depth; i++)
        if (wait_message(passage, i, err) < 0)
            return -1;
    return 0;
}

int passage_progress(struct passage *passage, struct err *err)
{
    bool done;
    int64_t i = passage->route->send ? passage->sent + passage->route->depth - 1
                                     : passage->used;

    if (settle(passage, false, err) < 0)
        return -1;
    /* The GPU needs nobody to ask. */
    if (passage->team)
        return 0;
    return comm_test(passage->requests[i % passage->route->depth], &done, err);
}
