/* SPDX-License-Identifier: MIT */
/* Processes of several ranks: messages. */
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/hybrid_private.h"

struct comm_request *hybrid_request_new(struct comm *comm)
{
    struct hybrid_request *request = mem_new(1, sizeof(*request));

    (void)comm;
    return &request->base;
}

void hybrid_request_free(struct comm_request *base)
{
    struct hybrid_request *request = (struct hybrid_request *)base;

    for (int i = 0; i < request->room; i++) {
        comm_request_free(request->legs[i].near);
        comm_request_free(request->legs[i].far);
    }
    ordered_clear(&request->sum);
    free(request->legs);
    free(request);
}

static struct leg *next_leg(struct hybrid_request *request)
{
    if (request->n == request->room)
        mem_push((void **)&request->legs, &request->room, sizeof(*request->legs));
    return &request->legs[request->n++];
}

/* MPI tells processes apart; which of their threads is meant the tag says. */
static int far_tag(const struct hybrid *h, int tag, int sender, int receiver)
{
    int64_t most = h->most;

    return (int)((tag * most + sender) * most + receiver);
}

/* The request of the way by which this message goes, described. */
static struct comm_request *choose_way(struct hybrid_request *request,
                                       enum comm_operation operation, size_t bytes, int peer,
                                       int tag)
{
    const struct comm *comm = request->base.comm;
    const struct hybrid_rank *rank = hybrid_rank(comm);
    const struct hybrid *h = rank->hybrid;
    int process = comm->processes[peer], thread = peer - h->first[process];
    int mine = rank->near->rank;
    struct leg *leg = next_leg(request);

    if (process == h->far->rank) {
        leg->near = leg->near ? leg->near : comm_request_new(rank->near);
        leg->posted = leg->near;
        comm_describe(leg->near, operation, thread, tag, bytes);
        return leg->near;
    }
    leg->far = leg->far ? leg->far : comm_request_new(h->far);
    leg->posted = leg->far;
    tag = operation == COMM_SEND ? far_tag(h, tag, mine, thread) : far_tag(h, tag, thread, mine);
    comm_describe(leg->far, operation, process, tag, bytes);
    return leg->far;
}

/* Before and after a call of either part: those of MPI are one at a time. */
static void enter(struct hybrid_request *request, const struct comm_request *posted)
{
    struct hybrid *h = hybrid_rank(request->base.comm)->hybrid;

    if (posted->comm == h->far)
        pthread_mutex_lock(&h->lock);
}

static void leave(struct hybrid_request *request, const struct comm_request *posted)
{
    struct hybrid *h = hybrid_rank(request->base.comm)->hybrid;

    if (posted->comm == h->far)
        pthread_mutex_unlock(&h->lock);
}

int hybrid_post_send(struct hybrid_request *request, const void *data, size_t bytes, int to,
                     int tag, struct err *err)
{
    struct comm_request *posted = choose_way(request, COMM_SEND, bytes, to, tag);
    int bad;

    enter(request, posted);
    bad = posted->comm->driver->send(posted, data, err);
    leave(request, posted);
    posted->active = !bad;
    return bad;
}

int hybrid_post_receive(struct hybrid_request *request, void *data, size_t bytes, int from,
                        int tag, struct err *err)
{
    struct comm_request *posted = choose_way(request, COMM_RECEIVE, bytes, from, tag);
    int bad;

    enter(request, posted);
    bad = posted->comm->driver->receive(posted, data, err);
    leave(request, posted);
    posted->active = !bad;
    return bad;
}

int hybrid_send(struct comm_request *base, const void *data, struct err *err)
{
    struct hybrid_request *request = (struct hybrid_request *)base;

    request->n = 0;
    request->sum.phase = ORDERED_DONE;
    return hybrid_post_send(request, data, base->bytes, base->peer, base->tag, err);
}

int hybrid_receive(struct comm_request *base, void *data, struct err *err)
{
    struct hybrid_request *request = (struct hybrid_request *)base;

    request->n = 0;
    request->sum.phase = ORDERED_DONE;
    return hybrid_post_receive(request, data, base->bytes, base->peer, base->tag, err);
}

static int test_leg(struct hybrid_request *request, struct comm_request *posted, bool *done,
                    struct err *err)
{
    int bad;

    *done = true;
    if (!posted->active)
        return 0;
    enter(request, posted);
    bad = posted->comm->driver->test(posted, done, err);
    leave(request, posted);
    posted->active = !*done;
    return bad;
}

int hybrid_test(struct comm_request *base, bool *done, struct err *err)
{
    struct hybrid_request *request = (struct hybrid_request *)base;
    bool all = true;

    for (int i = 0; i < request->n; i++) {
        if (test_leg(request, request->legs[i].posted, done, err))
            return -1;
        all = all && *done;
    }
    *done = all;
    if (!all)
        return 0;
    request->n = 0;
    return hybrid_collective_next(request, done, err);
}
