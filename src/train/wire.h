/* SPDX-License-Identifier: MIT */
/* How bytes get from one rank to another: where they lie, and who carries them. */
#ifndef TASUKI_TRAIN_WIRE_H
#define TASUKI_TRAIN_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct err;

#define WIRE_SLOTS 4            /* messages under way at once */

struct wire {
    size_t size;
    char *pool;                 /* messages are parts of it */
    /* Begin a message in a slot that is free, and wait for its end. Both ranks call. */
    int (*post)(struct wire *wire, int slot, int peer, bool send, char *data, size_t bytes,
                struct err *err);
    int (*wait)(struct wire *wire, int slot, struct err *err);
    void (*free)(struct wire *wire);
};

/* Messages of comm.h between buffers of the host. */
struct wire *wire_of_hosts(struct comm *comm, size_t size);
/* NULL is fine. */
void wire_free(struct wire *wire);

#endif
