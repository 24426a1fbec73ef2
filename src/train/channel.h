/* SPDX-License-Identifier: MIT */
/* A route with its buffers and requests: messages in flight for one peer and direction. */
#ifndef TASUKI_TRAIN_CHANNEL_H
#define TASUKI_TRAIN_CHANNEL_H

#include "comm/comm.h"
#include "train/route.h"
#include "train/store.h"

struct channel {
    const struct route *route;
    struct comm *comm;
    const struct store *store;
    int rank;
    char *buffers;              /* depth * bytes */
    struct comm_request **requests;
    int n;                      /* messages of a step */
    const int *micros;          /* receive: in the order in which they are used */
    int posted, used;           /* receive: messages of this step */
    int sent;                   /* send: buffer of the next message */
};

void channel_init(struct channel *channel, const struct route *route, struct comm *comm,
                  int rank, const struct store *store, char *buffers);
void channel_clear(struct channel *channel);

/* Start of a step with 'n' messages: post as many receives as there are buffers. */
int channel_start(struct channel *channel, int n, const int *micros, struct err *err);
/* Wait for the message of the next micro-batch, copy it into 'slot', post another receive. */
int channel_receive(struct channel *channel, int micro, int slot, struct err *err);
/* Pack and post; waits only where the buffer is still on its way. */
int channel_send(struct channel *channel, int micro, int slot, struct err *err);
/* Wait until everything sent has left. */
int channel_drain(struct channel *channel, struct err *err);
/* One test, so that messages move while kernels run. */
int channel_progress(struct channel *channel, struct err *err);

#endif
