/* SPDX-License-Identifier: MIT */
/* What tasuki-cuda.so does for training by NCCL: messages and sums in memory of GPUs.
 *
 * A team is an NCCL communicator: ranks on a GPU each that call in one order. Nothing waits for
 * the others: what a call began has been handed to the stream once ready() says so, and before
 * that the team takes no other call. As runtime.h, both sides check version and sizes.
 */
#ifndef TASUKI_KERNELS_CUDA_COLLECTIVES_H
#define TASUKI_KERNELS_CUDA_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/driver.h"    /* CUDA_ID_SIZE */

struct err;
struct cuda_device;
struct cuda_stream;
struct cuda_team;

#define CUDA_COLLECTIVES_VERSION 2
#define CUDA_COLLECTIVES_SYMBOL "tasuki_cuda_collectives"

struct cuda_collectives {
    int version;
    size_t err_size;
    bool there;             /* built with NCCL; else all that follows is NULL */

    /* One member makes an id, and all of them open a team by it. What such a team has on the GPU takes as
     * many multiprocessors as 'blocks' for all the time that it waits for a peer, and what is queued behind
     * cannot have them; 0: NCCL's choice. Before NCCL 2.17 it always is.
     */
    int (*id)(char id[CUDA_ID_SIZE], struct err *err);
    struct cuda_team *(*open)(struct cuda_device *device, int n, int me, int blocks,
                              const char id[CUDA_ID_SIZE], struct err *err);
    /* Has all that was called begun? An error of NCCL that came up meanwhile is one here. */
    int (*ready)(struct cuda_team *team, bool *ready, struct err *err);

    /* Of float32 on the GPU, in place. Member i has slice i, from starts[i] to starts[i + 1]. */
    int (*sum)(struct cuda_team *team, struct cuda_stream *stream, float *data, size_t n,
               struct err *err);
    /* Each member's slice becomes the sum; what is beside it means nothing then. */
    int (*scatter)(struct cuda_team *team, struct cuda_stream *stream, float *data,
                   const size_t *starts, struct err *err);
    /* Each member's slice goes to all. */
    int (*gather)(struct cuda_team *team, struct cuda_stream *stream, float *data,
                  const size_t *starts, struct err *err);
    int (*send)(struct cuda_team *team, struct cuda_stream *stream, const void *data,
                size_t bytes, int to, struct err *err);
    int (*receive)(struct cuda_team *team, struct cuda_stream *stream, void *data, size_t bytes,
                   int from, struct err *err);

    /* Begin to leave the others in order, then close(). */
    int (*leave)(struct cuda_team *team, struct err *err);
    /* 'abort': whatever is under way ends now, undone. */
    void (*close)(struct cuda_team *team, bool abort);
};

#endif
