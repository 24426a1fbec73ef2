/* SPDX-License-Identifier: MIT */
/* What stands behind comm.h: a table of functions, of the core's own or of a loaded module.
 *
 * A module is linked without the core: it shares these structs and nothing else, so both
 * sides check COMM_DRIVER_VERSION and the sizes.
 */
#ifndef TASUKI_COMM_DRIVER_H
#define TASUKI_COMM_DRIVER_H

#include "comm/comm.h"
#include "comm/patience.h"
#include "comm/where.h"

#define COMM_DRIVER_VERSION 12
#define COMM_DRIVER_SYMBOL "tasuki_comm_driver"

struct comm_driver {
    int version;
    size_t comm_size, request_size, err_size;   /* sizeof the shared structs */
    const char *name;

    /* Fills rank, size, hosts, library, max_tag and state. */
    int (*open)(struct comm *comm, const struct launch *launch, struct err *err);
    /* Frees what open() allocated; collective where all ranks have 'met'. */
    void (*close)(struct comm *comm, bool met);
    int (*exchange)(struct comm *comm, const void *data, size_t size, void **block,
                    const void **parts, size_t *sizes, struct err *err);
    /* NULL, or the same, but never by the launcher's own means, of which the first exchange is. */
    int (*share)(struct comm *comm, const void *data, size_t size, void **block,
                 const void **parts, size_t *sizes, struct err *err);
    /* NULL, or the same, by the launcher's means wherever they work; says so in comm->way. */
    int (*introduce)(struct comm *comm, const void *data, size_t size, void **block,
                     const void **parts, size_t *sizes, struct err *err);
    int (*broadcast)(struct comm *comm, int root, void **data, size_t *size, struct err *err);
    int (*fence)(struct comm *comm, struct err *err);
    /* The smallest 'value' of all ranks. */
    int (*least)(struct comm *comm, int value, int *least, struct err *err);

    struct comm_request *(*request_new)(struct comm *comm);
    void (*request_free)(struct comm_request *request);
    int (*send)(struct comm_request *request, const void *data, struct err *err);
    int (*receive)(struct comm_request *request, void *data, struct err *err);
    int (*test)(struct comm_request *request, bool *done, struct err *err);

    int (*group_open)(struct comm_group *group, struct err *err);
    void (*group_close)(struct comm_group *group);
    /* What request->operation says. */
    int (*collective)(struct comm_request *request, struct comm_group *group, void *data,
                      size_t n, enum dtype dtype, bool deterministic, struct err *err);

    /* NULL, or: this rank has failed by itself, and why. Ends the waits of the others. Returns where
     * it is the first one, which says so; else it waits until that has ended the process. Rank 0's
     * comm->tell is called before.
     */
    void (*fail)(struct comm *comm, const char *why);
    /* NULL, or: where all ranks are, [size] to be freed. */
    struct sighting *(*look)(struct comm *comm);
    /* NULL, or: whom to tell that nothing moves, where nobody watches; see comm_set_words(). */
    void (*attend)(struct comm *comm, const struct comm_words *words);
};

struct comm {
    const struct comm_driver *driver;
    int rank, size, max_tag;
    char **hosts;               /* [size]: one allocation each, freed by close() */
    const int *processes;       /* [size], see comm_process(); NULL: all are one, or one each */
    char library[128];
    char way[256];              /* see comm_way() */
    bool agreed;                /* all ranks know of a failure, and have the same text */
    int speaker;                /* of that: the rank that says it */
    int starved;                /* 1 + what comm_starved() says */
    struct patience patience;
    struct where where;
    const struct sighting *standstill;  /* see comm_standstill() */
    void (*tell)(void *data, const char *text);     /* see comm_tell() */
    void *tell_data;
    struct watch *watch;        /* NULL: nobody notices deaths */
    struct comm *whole;         /* NULL; or this is a part of that one, whose rank waits here */
    void *state;                /* the driver's own */
};

/* Of the rank that waits. */
static inline struct patience *comm_patience(struct comm *comm)
{
    return comm->whole ? &comm->whole->patience : &comm->patience;
}

enum comm_operation {
    COMM_SEND, COMM_RECEIVE, COMM_ALLREDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER
};

/* Drivers put theirs around it: this comes first. */
struct comm_request {
    struct comm *comm;
    bool active;
    enum comm_operation operation;
    int peer, tag;              /* send, receive */
    struct comm_group *group;   /* of the others */
    size_t bytes;
    void *scratch;              /* lent, for sums */
    size_t scratch_bytes;
};

struct comm_group {
    struct comm *comm;
    int n, me;                  /* members, and this rank's place among them */
    int *ranks;
    void *state;                /* the driver's own */
};

struct watch_verdict;

extern const struct comm_driver comm_threads_driver, comm_hybrid_driver;

/* Of a request that is about to be posted. */
void comm_describe(struct comm_request *request, enum comm_operation operation, int peer, int tag,
                   size_t bytes);

/* By the thread that watches: this rank is to say why, and its main thread does not come to it. */
void comm_last_words(struct comm *comm, const struct watch_verdict *verdict,
                     void (*last)(void *data, const char *text), void *data);

#endif
