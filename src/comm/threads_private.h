/* SPDX-License-Identifier: MIT */
/* What the files of the threads driver share. */
#ifndef TASUKI_COMM_THREADS_PRIVATE_H
#define TASUKI_COMM_THREADS_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "comm/driver.h"
#include "comm/threads.h"

struct threads_request;
struct team;
struct lookout;

/* Messages to one rank that wait for their counterpart, oldest first. */
struct box {
    pthread_mutex_t lock;
    struct threads_request *first;
};

/* What a rank shows the others. */
struct hub_part {
    const void *data;
    size_t size;
    int value;
};

struct hub {
    int size;
    bool lone;                  /* of a rank that frees it itself */
    atomic_uint meetings;       /* of all ranks, so far */
    struct hub_part *parts;     /* [size]: each rank's own, but between two meetings */
    struct box *boxes;          /* [size] */
    pthread_mutex_t lock;       /* of what follows */
    int arrived;                /* at the next meeting */
    bool failed;                /* a rank did, by itself … */
    char why[512];              /* … and why */
    atomic_bool told;           /* rank 0 knows */
    struct comm **comms;        /* [size]; NULL: not there */
    struct team *teams;         /* groups that are open on any rank */
    struct lookout *lookout;    /* rank 0's; NULL: nobody is to be told that nothing moves */
};

static inline struct hub *hub_of(const struct comm *comm)
{
    return comm->state;
}

/* For who watches what orders accesses to memory (tests/fake_watch.c), which atomics do not tell: what was
 * done before one gives has been done when another one takes. Not there in a program's run.
 */
__attribute__((weak)) void tasuki_watch_gives(const void *what);
__attribute__((weak)) void tasuki_watch_takes(const void *what);

static inline void hub_gives(const void *what)
{
    if (tasuki_watch_gives)
        tasuki_watch_gives(what);
}

static inline void hub_takes(const void *what)
{
    if (tasuki_watch_takes)
        tasuki_watch_takes(what);
}

/* Until all ranks call it; 'what' is said if they do not. */
int hub_meet(struct comm *comm, const char *what, struct err *err);

enum threads_state { STATE_WAITING, STATE_DONE, STATE_WRONG };

struct threads_request {
    struct comm_request base;
    /* a message */
    struct threads_request *next;
    const void *source;
    void *target;
    int sender;
    atomic_int state;
    /* a collective */
    struct sum *sum;
    int phase;
};

/* threads_remark.c */
void threads_attend(struct comm *comm, const struct comm_words *words);

/* threads_data.c */
struct comm_request *threads_request_new(struct comm *comm);
void threads_request_free(struct comm_request *request);
int threads_send(struct comm_request *request, const void *data, struct err *err);
int threads_receive(struct comm_request *request, void *data, struct err *err);
int threads_test(struct comm_request *request, bool *done, struct err *err);

/* threads_reduce.c */
int threads_group_open(struct comm_group *group, struct err *err);
void threads_group_close(struct comm_group *group);
int threads_collective(struct comm_request *request, struct comm_group *group, void *data,
                       size_t n, enum dtype dtype, bool deterministic, struct err *err);
/* As far as the others let it go on now. */
void threads_collective_next(struct threads_request *request, bool *done);
void teams_free(struct team *teams);

#endif
