/* SPDX-License-Identifier: MIT */
/* What the files of tasuki-mpi.so share. Nothing of the core is linked into it but err.c,
 * mem.c and patience.c, of which it has its own copies.
 */
#ifndef TASUKI_COMM_MPI_PRIVATE_H
#define TASUKI_COMM_MPI_PRIVATE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "comm/driver.h"
#include "comm/ordered.h"

/* MPI counts are ints: longer messages travel in pieces of this size. */
#define MPI_PIECE ((size_t)1 << 30)

/* Return -1 from the caller, with what MPI says of the failed call. */
#define MPI_CHECK(call, err)                                        \
    do {                                                            \
        int mpi_check_code = (call);                                \
        if (mpi_check_code != MPI_SUCCESS)                          \
            return mpi_error(mpi_check_code, #call, (err));         \
    } while (0)

int mpi_error(int code, const char *call, struct err *err);

struct pmix_session;

struct mpi_state {
    MPI_Comm messages;      /* send and receive: the user's tags */
    MPI_Comm control;       /* everything else */
    struct pmix_session *pmix;  /* NULL: there is none */
    bool rendezvous;        /* of user messages: a send ends when its receive has begun */
    bool exchanged;         /* once, by PMIx */
    char lacks[160];        /* what a rank lacked of what PMIx brought: it is not asked again; "" */
};

static inline struct mpi_state *mpi_state(const struct comm *comm)
{
    return comm->state;
}

/* A growing list of MPI requests, tested together. */
struct mpi_list {
    int n, room;
    MPI_Request *requests;
};

/* A place for one more request. */
MPI_Request *mpi_list_add(struct mpi_list *list);
int mpi_list_test(struct mpi_list *list, bool *done, struct err *err);
void mpi_list_free(struct mpi_list *list);

/* Post 'bytes' in pieces. 'rendezvous': as in struct mpi_state. */
int mpi_post_send(struct mpi_list *list, const void *data, size_t bytes, int to, int tag,
                  MPI_Comm comm, bool rendezvous, struct err *err);
int mpi_post_receive(struct mpi_list *list, void *data, size_t bytes, int from, int tag,
                     MPI_Comm comm, struct err *err);

/* Test until done or the deadline of 'comm' passes; 'what' names the operation. */
int mpi_finish(struct comm *comm, struct mpi_list *list, const char *what, struct err *err);

struct mpi_request {
    struct comm_request base;
    struct mpi_list list;
    struct ordered sum;     /* of a group; done: nothing is left to do when all has come */
};

/* mpi_data.c */
struct comm_request *mpi_request_new(struct comm *comm);
void mpi_request_free(struct comm_request *request);
int mpi_send(struct comm_request *request, const void *data, struct err *err);
int mpi_receive(struct comm_request *request, void *data, struct err *err);
int mpi_test(struct comm_request *request, bool *done, struct err *err);

/* mpi_reduce.c */
int mpi_group_open(struct comm_group *group, struct err *err);
void mpi_group_close(struct comm_group *group);
int mpi_collective(struct comm_request *request, struct comm_group *group, void *data, size_t n,
                   enum dtype dtype, bool deterministic, struct err *err);
/* The requests of the present phase have completed: start the next, or it is 'done'. */
int mpi_collective_next(struct mpi_request *request, bool *done, struct err *err);

/* mpi_control.c */
int mpi_share(struct comm *comm, const void *data, size_t size, void **block, const void **parts,
              size_t *sizes, struct err *err);
int mpi_exchange(struct comm *comm, const void *data, size_t size, void **block,
                 const void **parts, size_t *sizes, struct err *err);
int mpi_introduce(struct comm *comm, const void *data, size_t size, void **block,
                  const void **parts, size_t *sizes, struct err *err);
int mpi_broadcast(struct comm *comm, int root, void **data, size_t *size, struct err *err);
int mpi_fence(struct comm *comm, struct err *err);
int mpi_least(struct comm *comm, int value, int *least, struct err *err);
/* Everybody's block of 'size' bytes, in rank order. */
int mpi_gather_all(struct comm *comm, const void *data, void *all, size_t size,
                   struct err *err);

/* mpi_pmix.c: all of it is absent where there is no PMIx at build time (open gives NULL). */
int pmix_session_open(struct pmix_session **session, struct err *err);
void pmix_session_close(struct pmix_session *session);
/* This process as PMIx knows it; -1 or "" where it does not say. */
int pmix_session_local_size(const struct pmix_session *session);
const char *pmix_session_host(const struct pmix_session *session);
const char *pmix_session_version(void);
/* For topo --check, by its name: "4.2.2" of the library, which need not have started; "". */
__attribute__((visibility("default"))) const char *tasuki_pmix_version(void);
int pmix_session_exchange(struct pmix_session *session, struct comm *comm, const void *data,
                          size_t size, void **block, const void **parts, size_t *sizes,
                          struct err *err);
int pmix_session_fence(struct pmix_session *session, struct comm *comm, struct err *err);

#endif
