/* SPDX-License-Identifier: MIT */
/* A route with its buffers and requests: messages in flight for one peer and direction.
 *
 * By NCCL messages have no tags: they are posted in the same order by both ranks, receives ahead
 * as by comm.h. Kernels that pack and unpack are ordered with them by events; the host waits for a
 * message where it would otherwise, so that no stream it waits for ever waits for another rank.
 */
#ifndef TASUKI_TRAIN_PASSAGE_H
#define TASUKI_TRAIN_PASSAGE_H

#include "comm/comm.h"
#include "train/nccl.h"
#include "train/route.h"
#include "train/store.h"

struct passage {
    const struct route *route;
    struct comm *comm;
    const struct store *store;
    int rank;
    int tags;                   /* the first of this route's */
    char *buffers;              /* depth * bytes */
    struct comm_request **requests;
    struct nccl_team *team;     /* NULL: by comm.h, in memory of the host */
    struct event **moved;       /* [depth]: behind each buffer's message on the GPU, by NCCL */
    bool *moving;               /* [depth] */
    int n;                      /* messages of a step */
    const int *micros;          /* receive: in the order in which they are used */
    int64_t expected, posted, used;     /* receive: messages since the last start */
    int sent;                   /* send: buffer of the next message */
};

/* 'tags': the first of as many as a step has messages in both directions, which no other route
 * between the two ranks has.
 */
void passage_init(struct passage *passage, const struct route *route, struct comm *comm,
                  int rank, int tags, const struct store *store, char *buffers);
/* After that: messages go by NCCL, between this rank and the other; the buffers are the GPU's. */
int passage_use_nccl(struct passage *passage, struct nccl_team *team, struct err *err);
void passage_clear(struct passage *passage);

/* Start of a step with 'n' messages: post as many receives as there are buffers. It 'follows':
 * those of the step before are not all there yet.
 */
int passage_start(struct passage *passage, int n, const int *micros, bool follows,
                  struct err *err);
/* Wait until the next message is there, or the buffer of the next one to be sent free. */
int passage_wait(struct passage *passage, struct err *err);
/* Copy that message, which is of this micro-batch, into 'slot', and post another receive. */
int passage_receive(struct passage *passage, int micro, int slot, struct err *err);
/* Pack and post. */
int passage_send(struct passage *passage, int micro, int slot, struct err *err);
/* Wait until everything sent has left. */
int passage_drain(struct passage *passage, struct err *err);
/* One test, so that messages move while kernels run. */
int passage_progress(struct passage *passage, struct err *err);

#endif
