/* SPDX-License-Identifier: MIT */
/* How bytes get from one rank to another: where they lie, and who carries them. */
#ifndef TASUKI_TRAIN_WIRE_H
#define TASUKI_TRAIN_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"
#include "train/nccl.h"

struct backend;
struct device;
struct err;

#define WIRE_SLOTS 4            /* messages under way at once */

struct wire {
    size_t size;
    char *pool;                 /* messages are parts of it */
    /* Begin a message in a slot that is free, and wait for its end. Both ranks call. */
    int (*post)(struct wire *wire, int slot, int peer, bool send, char *data, size_t bytes,
                struct err *err);
    int (*wait)(struct wire *wire, int slot, struct err *err);
    /* What all ranks have there becomes their sum. All call. NULL: comm.h sums, in memory of hosts. */
    int (*sum)(struct wire *wire, float *data, size_t n, struct err *err);
    void (*free)(struct wire *wire);
};

/* Messages of comm.h between buffers of the host. */
struct wire *wire_of_hosts(struct comm *comm, size_t size);

/* A run's GPU, and who moves its bytes. */
struct wire_gpu {
    const struct backend *backend;
    struct device *device;
    enum nccl_use nccl;
};

/* Between GPUs, from zeros, as training moves bytes: by NCCL as far as that is used, else through
 * pinned memory of the hosts. 'pairs' are ranks: a[0], b[0], a[1] …, the same on all. Collective; a
 * failure is one that all have agreed on, or of what connects them.
 */
struct wire *wire_of_gpus(struct comm *comm, const struct wire_gpu *gpu, size_t size, int n_pairs,
                          const int *pairs, struct err *err);
/* NULL is fine. */
void wire_free(struct wire *wire);

#endif
