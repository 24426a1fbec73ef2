/* SPDX-License-Identifier: MIT */
/* Processes of several ranks: groups, each with tags of its own, and their sums. */
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/hybrid_private.h"

struct hybrid_group {
    struct hybrid_group *next;  /* of this rank */
    int number;                 /* no two that a rank has open have the same */
    unsigned sums;              /* so far */
};

static int finish(struct hybrid_request *request, struct err *err)
{
    struct comm *comm = request->base.comm;
    bool done = false;

    while (!done) {
        if (hybrid_test(&request->base, &done, err))
            return -1;
        if (done)
            break;
        if (patience_over(&comm->patience))
            return patience_fail(&comm->patience, "waiting for the members", err);
        patience_pause(&comm->patience);
    }
    patience_renew(&comm->patience);
    return 0;
}

/* The largest that any member gives: after round k everybody has heard of 2^(k+1) members. */
static int agree_on_largest(struct comm_group *group, int *number, struct err *err)
{
    struct comm *comm = group->comm;
    struct hybrid_request *request = (struct hybrid_request *)comm_request_new(comm);
    int status = 0;

    for (int step = 1; step < group->n && !status; step *= 2) {
        int to = group->ranks[(group->me + step) % group->n], theirs = 0;
        int from = group->ranks[(group->me - step + group->n) % group->n];

        status = hybrid_post_receive(request, &theirs, sizeof(theirs), from, comm->max_tag + 1,
                                     err) ||
                 hybrid_post_send(request, number, sizeof(*number), to, comm->max_tag + 1, err) ||
                 finish(request, err);
        *number = theirs > *number ? theirs : *number;
    }
    comm_request_free(&request->base);
    return status ? -1 : 0;
}

/* Above those of all groups that a member has open: it is used again when they are closed. */
int hybrid_group_open(struct comm_group *group, struct err *err)
{
    struct hybrid_rank *rank = hybrid_rank(group->comm);
    struct hybrid_group *state;
    int number = 0;

    for (const struct hybrid_group *g = rank->open; g; g = g->next)
        number = g->number >= number ? g->number + 1 : number;
    if (agree_on_largest(group, &number, err))
        return -1;
    if (number >= rank->hybrid->groups)
        return err_set(err, "%s has too few tags for more than %d groups at once",
                       group->comm->library, rank->hybrid->groups);
    state = mem_new(1, sizeof(*state));
    state->number = number;
    state->next = rank->open;
    rank->open = state;
    group->state = state;
    return 0;
}

void hybrid_group_close(struct comm_group *group)
{
    struct hybrid_group **at = &hybrid_rank(group->comm)->open;

    while (*at != group->state)
        at = &(*at)->next;
    *at = (*at)->next;
    free(group->state);
}

static int next_tag(const struct comm_group *group)
{
    struct hybrid_group *state = group->state;
    int turn = (int)(2 * state->sums++ % HYBRID_GROUP_TAGS);

    return group->comm->max_tag + 2 + state->number * HYBRID_GROUP_TAGS + turn;
}

static int send_part(struct comm_request *base, const void *data, size_t bytes, int member, int tag,
                     struct err *err)
{
    return hybrid_post_send((struct hybrid_request *)base, data, bytes, base->group->ranks[member],
                            tag, err);
}

static int receive_part(struct comm_request *base, void *data, size_t bytes, int member, int tag,
                        struct err *err)
{
    return hybrid_post_receive((struct hybrid_request *)base, data, bytes,
                               base->group->ranks[member], tag, err);
}

static const struct ordered_driver parts = { send_part, receive_part };

int hybrid_collective(struct comm_request *base, struct comm_group *group, void *data, size_t n,
                      enum dtype dtype, bool deterministic, struct err *err)
{
    struct hybrid_request *request = (struct hybrid_request *)base;

    (void)deterministic;
    request->n = 0;
    base->tag = next_tag(group);
    return ordered_start(base, &request->sum, &parts, data, n, dtype, err);
}

int hybrid_collective_next(struct hybrid_request *request, bool *done, struct err *err)
{
    return ordered_next(&request->base, &request->sum, &parts, done, err);
}
