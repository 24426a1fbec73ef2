/* SPDX-License-Identifier: MIT */
/* A lone process: messages to itself are copied, everything else is there at once. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/driver.h"

/* Requests that wait for their counterpart, oldest first. */
struct self_request {
    struct comm_request base;
    struct self_request *next;
    const void *from;
    void *to;
    bool matched;
};

static int self_open(struct comm *comm, const struct launch *launch, struct err *err)
{
    char host[256] = "localhost";

    (void)launch;
    (void)err;
    gethostname(host, sizeof(host) - 1);
    comm->rank = 0;
    comm->size = 1;
    comm->max_tag = INT_MAX;
    comm->hosts = mem_new(1, sizeof(*comm->hosts));
    comm->hosts[0] = mem_strdup(host);
    memcpy(comm->library, "no MPI", sizeof("no MPI"));
    return 0;
}

static void self_close(struct comm *comm, bool met)
{
    (void)met;
    free(comm->hosts[0]);
    free(comm->hosts);
}

static int self_exchange(struct comm *comm, const void *data, size_t size, void **block,
                         const void **parts, size_t *sizes, struct err *err)
{
    void *copy = mem_new(1, size);

    (void)comm;
    (void)err;
    if (size)
        memcpy(copy, data, size);
    *block = copy;
    parts[0] = copy;
    sizes[0] = size;
    return 0;
}

static int self_broadcast(struct comm *comm, int root, void **data, size_t *size,
                          struct err *err)
{
    (void)comm;
    (void)root;
    (void)data;
    (void)size;
    (void)err;
    return 0;
}

static int self_fence(struct comm *comm, struct err *err)
{
    (void)comm;
    (void)err;
    return 0;
}

static int self_least(struct comm *comm, int value, int *least, struct err *err)
{
    (void)comm;
    (void)err;
    *least = value;
    return 0;
}

static struct comm_request *self_request_new(struct comm *comm)
{
    struct self_request *request = mem_new(1, sizeof(*request));

    (void)comm;
    return &request->base;
}

static void forget(struct self_request *request)
{
    struct self_request **at = (struct self_request **)&request->base.comm->state;

    for (; *at; at = &(*at)->next)
        if (*at == request) {
            *at = request->next;
            return;
        }
}

static void self_request_free(struct comm_request *base)
{
    forget((struct self_request *)base);
    free(base);
}

static int match(struct self_request *mine, struct err *err)
{
    struct self_request *other;
    struct self_request **at = (struct self_request **)&mine->base.comm->state;

    mine->matched = false;
    mine->next = NULL;
    for (; (other = *at); at = &other->next)
        if (other->base.tag == mine->base.tag &&
            other->base.operation != mine->base.operation)
            break;
    *at = other ? other->next : mine;
    if (!other)
        return 0;
    if (other->base.bytes != mine->base.bytes)
        return err_set(err, "%zu bytes sent or received as %zu", other->base.bytes,
                       mine->base.bytes);
    if (mine->base.bytes)
        memcpy(mine->to ? mine->to : other->to, mine->from ? mine->from : other->from,
               mine->base.bytes);
    mine->matched = other->matched = true;
    return 0;
}

static int self_send(struct comm_request *base, const void *data, struct err *err)
{
    struct self_request *request = (struct self_request *)base;

    request->from = data;
    request->to = NULL;
    return match(request, err);
}

static int self_receive(struct comm_request *base, void *data, struct err *err)
{
    struct self_request *request = (struct self_request *)base;

    request->from = NULL;
    request->to = data;
    return match(request, err);
}

static int self_test(struct comm_request *base, bool *done, struct err *err)
{
    (void)err;
    *done = ((struct self_request *)base)->matched;
    return 0;
}

/* A group has one member here, and comm.c asks no driver about such a group. */
const struct comm_driver comm_self_driver = {
    .version = COMM_DRIVER_VERSION,
    .comm_size = sizeof(struct comm),
    .request_size = sizeof(struct comm_request),
    .err_size = sizeof(struct err),
    .name = "self",
    .open = self_open,
    .close = self_close,
    .exchange = self_exchange,
    .broadcast = self_broadcast,
    .fence = self_fence,
    .least = self_least,
    .request_new = self_request_new,
    .request_free = self_request_free,
    .send = self_send,
    .receive = self_receive,
    .test = self_test,
};
