/* SPDX-License-Identifier: MIT */
/* A route with its buffers and requests: messages in flight for one peer and direction.
 *
 * What is packed into a buffer or out of it is handed to a stream; the message leaves, or the buffer
 * is lent to the next one, when the stream has done so. That is owed until somebody asks, and whoever
 * is about to wait for another rank asks for all that his rank owes: others may wait for it.
 *
 * By NCCL messages have no tags: they are posted in the same order by both ranks, receives ahead
 * as by comm.h, and ordered with the streams by events: nothing is owed. No stream of kernels waits
 * for a message: the host does, before it hands over what needs it.
 */
#ifndef TASUKI_TRAIN_PASSAGE_H
#define TASUKI_TRAIN_PASSAGE_H

#include "comm/comm.h"
#include "train/lanes.h"
#include "train/nccl.h"
#include "train/route.h"
#include "train/store.h"

struct passage {
    const struct route *route;
    struct comm *comm;
    const struct store *store;
    struct lanes *lanes;
    struct passage *next;       /* of the rank */
    int rank;
    int tags;                   /* the first of this route's */
    char *buffers;              /* depth * bytes */
    struct comm_request **requests;
    struct event **events;      /* of each buffer: it is packed, or unpacked; NULL: it always is */
    bool scratch;               /* values of it are in scratch */
    struct nccl_team *team;     /* NULL: by comm.h, in memory of the host */
    struct event **moved;       /* [depth]: behind each buffer's message on the GPU, by NCCL */
    bool *moving;               /* [depth] */
    int n;                      /* messages of a step */
    const int *micros;          /* receive: in the order in which they are used */
    int64_t expected, posted, used;     /* receive: messages since the last start */
    int64_t packed, sent;       /* send: messages so far */
    int64_t step;               /* that was begun last, for the trace; -1: it is not traced */
    int *packed_micros;         /* of the messages in the buffers */
};

/* 'tags': the first of as many as a step has messages in both directions, which no other route
 * between the two ranks has. '*all' lists what the rank has, and it joins.
 */
int passage_init(struct passage *passage, const struct route *route, struct comm *comm,
                 int rank, int tags, const struct store *store, struct lanes *lanes,
                 char *buffers, struct passage **all, struct err *err);
/* After that: messages go by NCCL, between this rank and the other; the buffers are the GPU's. */
int passage_use_nccl(struct passage *passage, struct nccl_team *team, struct err *err);
void passage_clear(struct passage *passage);

/* Start of a step with 'n' messages: post as many receives as there are buffers. It 'follows':
 * those of the step before are not all there yet. 'step': -1 where none is traced.
 */
int passage_start(struct passage *passage, int n, const int *micros, bool follows, int64_t step,
                  struct err *err);
/* Wait until the next message is there, or the buffer of the next one to be sent free; if that takes
 * time, after all of the list have settled.
 */
int passage_wait(struct passage *passage, struct passage *all, struct err *err);
/* Copy that message, which is of this micro-batch, into 'slot', in the lane of what arrives. Another
 * receive is owed.
 */
int passage_receive(struct passage *passage, int micro, int slot, struct err *err);
/* Pack, in the lane of what leaves, which lanes_begin_leaving() has led there; to post it is owed. 'step' as
 * in passage_start().
 */
int passage_send(struct passage *passage, int micro, int slot, int64_t step, struct err *err);
/* Post what all of the list owe, when streams have come to it. */
int passage_settle_all(struct passage *all, struct err *err);
/* Wait until everything sent has left. */
int passage_drain(struct passage *passage, struct err *err);
/* One test, so that messages move while kernels run. */
int passage_progress(struct passage *passage, struct err *err);

#endif
