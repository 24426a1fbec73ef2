/* SPDX-License-Identifier: MIT */
/* What the files of the hybrid driver share. */
#ifndef TASUKI_COMM_HYBRID_PRIVATE_H
#define TASUKI_COMM_HYBRID_PRIVATE_H

#include <pthread.h>

#include "comm/driver.h"
#include "comm/hybrid.h"
#include "comm/ordered.h"

struct hybrid_group;

struct hybrid {
    struct comm *far;           /* the processes */
    pthread_mutex_t lock;       /* of its calls */
    int *first;                 /* [processes + 1]: the first rank of each, and their number */
    int *process;               /* [ranks] */
    int most;                   /* ranks of a process */
    int max_tag;                /* of messages; those of groups are above it, … */
    int groups;                 /* … of so many at once */
};

/* The state of a rank. */
struct hybrid_rank {
    struct hybrid *hybrid;
    struct comm *near;          /* the threads of this process */
    struct hybrid_group *open;     /* its groups */
};

static inline struct hybrid_rank *hybrid_rank(const struct comm *comm)
{
    return comm->state;
}

/* Has the thread that speaks for its process this rank? */
static inline bool hybrid_leads(const struct comm *comm)
{
    return hybrid_rank(comm)->near->rank == 0;
}

/* Tags that are set apart for a group: two for each sum, counting round. Sums of several rounds are
 * fewer at once than that.
 */
#define HYBRID_GROUP_TAGS 128

/* A message under way. */
struct leg {
    struct comm_request *near, *far;    /* made when they are first needed */
    struct comm_request *posted;        /* the one of them that has it */
};

struct hybrid_request {
    struct comm_request base;
    int n, room;
    struct leg *legs;           /* [room], of which n are posted */
    struct ordered sum;         /* of a group; done: nothing is left to do when all have come */
};

/* hybrid_data.c */
/* Post one message more. */
int hybrid_post_send(struct hybrid_request *request, const void *data, size_t bytes, int to,
                     int tag, struct err *err);
int hybrid_post_receive(struct hybrid_request *request, void *data, size_t bytes, int from,
                        int tag, struct err *err);
struct comm_request *hybrid_request_new(struct comm *comm);
void hybrid_request_free(struct comm_request *request);
int hybrid_send(struct comm_request *request, const void *data, struct err *err);
int hybrid_receive(struct comm_request *request, void *data, struct err *err);
int hybrid_test(struct comm_request *request, bool *done, struct err *err);

/* hybrid_reduce.c */
int hybrid_group_open(struct comm_group *group, struct err *err);
void hybrid_group_close(struct comm_group *group);
int hybrid_collective(struct comm_request *request, struct comm_group *group, void *data, size_t n,
                      enum dtype dtype, bool deterministic, struct err *err);
/* What was posted has completed: post what comes next, or it is 'done'. */
int hybrid_collective_next(struct hybrid_request *request, bool *done, struct err *err);

#endif
