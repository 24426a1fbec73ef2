/* SPDX-License-Identifier: MIT */
/* tasuki-mpi.so: messages. */
#include "comm/mpi_private.h"

#include <stdlib.h>

#include "base/mem.h"

MPI_Request *mpi_list_add(struct mpi_list *list)
{
    if (list->n == list->room) {
        list->room = list->room ? 2 * list->room : 4;
        list->requests = mem_resize(list->requests, (size_t)list->room,
                                    sizeof(*list->requests));
    }
    list->requests[list->n] = MPI_REQUEST_NULL;
    return &list->requests[list->n++];
}

int mpi_list_test(struct mpi_list *list, bool *done, struct err *err)
{
    int flag;

    MPI_CHECK(MPI_Testall(list->n, list->requests, &flag, MPI_STATUSES_IGNORE), err);
    *done = flag;
    if (flag)
        list->n = 0;
    return 0;
}

void mpi_list_free(struct mpi_list *list)
{
    free(list->requests);
    *list = (struct mpi_list){ 0 };
}

static int piece(size_t bytes)
{
    return (int)(bytes < MPI_PIECE ? bytes : MPI_PIECE);
}

/* Pieces between the same two ranks with the same tag arrive in the order they were sent. An
 * empty message is one empty piece.
 */
int mpi_post_send(struct mpi_list *list, const void *data, size_t bytes, int to, int tag,
                  MPI_Comm comm, bool rendezvous, struct err *err)
{
    int (*post)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) =
        rendezvous ? MPI_Issend : MPI_Isend;
    const char *at = data;

    do {
        int n = piece(bytes);
        int code = post(at, n, MPI_BYTE, to, tag, comm, mpi_list_add(list));

        if (code != MPI_SUCCESS)
            return mpi_error(code, rendezvous ? "MPI_Issend" : "MPI_Isend", err);
        at += n;
        bytes -= (size_t)n;
    } while (bytes > 0);
    return 0;
}

int mpi_post_receive(struct mpi_list *list, void *data, size_t bytes, int from, int tag,
                     MPI_Comm comm, struct err *err)
{
    char *at = data;

    do {
        int n = piece(bytes);

        MPI_CHECK(MPI_Irecv(at, n, MPI_BYTE, from, tag, comm, mpi_list_add(list)), err);
        at += n;
        bytes -= (size_t)n;
    } while (bytes > 0);
    return 0;
}

int mpi_finish(struct comm *comm, struct mpi_list *list, const char *what, struct err *err)
{
    bool done;

    for (;;) {
        if (mpi_list_test(list, &done, err))
            return err_prefix(err, "%s", what);
        if (done)
            break;
        if (patience_over(comm_patience(comm)))
            return patience_fail(comm_patience(comm), what, err);
        patience_pause(comm_patience(comm));
    }
    patience_renew(comm_patience(comm));
    return 0;
}

struct comm_request *mpi_request_new(struct comm *comm)
{
    struct mpi_request *request = mem_new(1, sizeof(*request));

    (void)comm;
    return &request->base;
}

void mpi_request_free(struct comm_request *base)
{
    struct mpi_request *request = (struct mpi_request *)base;

    mpi_list_free(&request->list);
    ordered_clear(&request->sum);
    free(request);
}

int mpi_send(struct comm_request *base, const void *data, struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;
    const struct mpi_state *state = mpi_state(base->comm);

    request->sum.phase = ORDERED_DONE;
    request->list.n = 0;
    return mpi_post_send(&request->list, data, base->bytes, base->peer, base->tag,
                         state->messages, state->rendezvous, err);
}

int mpi_receive(struct comm_request *base, void *data, struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;

    request->sum.phase = ORDERED_DONE;
    request->list.n = 0;
    return mpi_post_receive(&request->list, data, base->bytes, base->peer, base->tag,
                            mpi_state(base->comm)->messages, err);
}

int mpi_test(struct comm_request *base, bool *done, struct err *err)
{
    struct mpi_request *request = (struct mpi_request *)base;

    if (mpi_list_test(&request->list, done, err))
        return -1;
    return *done ? mpi_collective_next(request, done, err) : 0;
}
