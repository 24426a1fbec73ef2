/* SPDX-License-Identifier: MIT */
/* Ranks that are threads: messages. */
#include "comm/threads_private.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct comm_request *threads_request_new(struct comm *comm)
{
    struct threads_request *request = mem_new(1, sizeof(*request));

    (void)comm;
    return &request->base;
}

/* Where a message waits: with who receives it. */
static struct box *box_of(const struct threads_request *request)
{
    const struct comm *comm = request->base.comm;
    bool receives = request->base.operation == COMM_RECEIVE;

    return &hub_of(comm)->boxes[receives ? comm->rank : request->base.peer];
}

static bool are_two_ends(const struct threads_request *a, const struct threads_request *b)
{
    return a->sender == b->sender && a->base.tag == b->base.tag &&
           a->base.operation != b->base.operation;
}

static void copy(struct threads_request *mine, struct threads_request *other)
{
    bool mine_receives = mine->base.operation == COMM_RECEIVE;
    const struct threads_request *to = mine_receives ? mine : other;
    const struct threads_request *from = mine_receives ? other : mine;

    if (mine->base.bytes)
        memcpy(to->target, from->source, mine->base.bytes);
}

/* Copy what 'other' has waited for; from here on it is no more to be touched. */
static int deliver(struct threads_request *mine, struct threads_request *other, struct err *err)
{
    size_t theirs = other->base.bytes;
    int state = theirs == mine->base.bytes ? STATE_DONE : STATE_WRONG;

    if (state == STATE_DONE)
        copy(mine, other);
    atomic_store(&mine->state, state);
    hub_gives(&other->state);
    atomic_store(&other->state, state);
    if (state == STATE_WRONG)
        return err_set(err, "%zu bytes sent or received as %zu", theirs, mine->base.bytes);
    return 0;
}

static int post(struct threads_request *mine, struct err *err)
{
    struct box *box = box_of(mine);
    struct threads_request *other, **at = &box->first;

    atomic_store(&mine->state, STATE_WAITING);
    mine->next = NULL;
    pthread_mutex_lock(&box->lock);
    for (; (other = *at) && !are_two_ends(mine, other); at = &other->next)
        ;
    *at = other ? other->next : mine;
    pthread_mutex_unlock(&box->lock);
    return other ? deliver(mine, other, err) : 0;
}

int threads_send(struct comm_request *base, const void *data, struct err *err)
{
    struct threads_request *request = (struct threads_request *)base;

    request->source = data;
    request->sender = base->comm->rank;
    return post(request, err);
}

int threads_receive(struct comm_request *base, void *data, struct err *err)
{
    struct threads_request *request = (struct threads_request *)base;

    request->target = data;
    request->sender = base->peer;
    return post(request, err);
}

int threads_test(struct comm_request *base, bool *done, struct err *err)
{
    struct threads_request *request = (struct threads_request *)base;
    int state;

    if (base->operation >= COMM_ALLREDUCE) {
        threads_collective_next(request, done);
        return 0;
    }
    state = atomic_load(&request->state);
    *done = state != STATE_WAITING;
    if (*done)
        hub_takes(&request->state);
    if (state == STATE_WRONG)
        return err_set(err, "the other end has another size");
    return 0;
}

/* Nobody has come yet, or somebody is copying right now. */
static void take_back(struct threads_request *request)
{
    struct box *box = box_of(request);
    struct threads_request **at = &box->first;
    bool found;

    pthread_mutex_lock(&box->lock);
    for (; *at && *at != request; at = &(*at)->next)
        ;
    found = *at != NULL;
    if (found)
        *at = request->next;
    pthread_mutex_unlock(&box->lock);
    while (!found && atomic_load(&request->state) == STATE_WAITING)
        sched_yield();
}

void threads_request_free(struct comm_request *base)
{
    struct threads_request *request = (struct threads_request *)base;

    if (base->active && base->operation < COMM_ALLREDUCE)
        take_back(request);
    free(request);
}
