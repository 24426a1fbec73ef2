/* SPDX-License-Identifier: MIT */
#include "train/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define TAG 0

struct host_wire {
    struct wire base;
    struct comm *comm;
    struct comm_request *requests[WIRE_SLOTS];
};

static int post(struct wire *base, int slot, int peer, bool send, char *data, size_t bytes,
                struct err *err)
{
    struct host_wire *wire = (struct host_wire *)base;
    struct comm_request *request = wire->requests[slot];

    return send ? comm_send(wire->comm, data, bytes, peer, TAG, request, err)
                : comm_receive(wire->comm, data, bytes, peer, TAG, request, err);
}

static int wait(struct wire *base, int slot, struct err *err)
{
    return comm_wait(((struct host_wire *)base)->requests[slot], err);
}

static void free_host_wire(struct wire *base)
{
    struct host_wire *wire = (struct host_wire *)base;

    for (int i = 0; i < WIRE_SLOTS; i++)
        comm_request_free(wire->requests[i]);
    free(base->pool);
    free(wire);
}

struct wire *wire_of_hosts(struct comm *comm, size_t size)
{
    struct host_wire *wire = mem_new(1, sizeof(*wire));

    wire->base = (struct wire){ .size = size, .pool = mem_new(size, 1), .post = post, .wait = wait,
                                .free = free_host_wire };
    wire->comm = comm;
    for (int i = 0; i < WIRE_SLOTS; i++)
        wire->requests[i] = comm_request_new(comm);
    memset(wire->base.pool, 1, size);
    return &wire->base;
}

void wire_free(struct wire *wire)
{
    if (wire)
        wire->free(wire);
}
