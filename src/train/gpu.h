/* SPDX-License-Identifier: MIT */
/* The GPU of each rank, by tasuki-cuda.so, and wires between GPUs.
 *
 * Which one a rank takes follows from what CUDA shows it: the first that a plan names and no rank
 * before it on the same node has taken; where there is none, the first that nobody has, or, where
 * all are taken, one in turn. GPUs are known by PCI address.
 */
#ifndef TASUKI_TRAIN_GPU_H
#define TASUKI_TRAIN_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct err;
struct gpu_plan;
struct gpu;
struct wire;

struct gpu_choice {
    char address[32];           /* "": none */
    int architecture;           /* 90: sm_90 */
    char *why;                  /* why not, on a node that has GPUs; else NULL */
    bool unseen;                /* that is: CUDA shows it none */
};

struct gpu_choices {
    int n;                      /* ranks */
    struct gpu_choice *list;
    char nccl[32];              /* "2.28.9"; "": not all that have a GPU have NCCL */
};

/* How many CUDA shows this process; 0 where there are none, or no tasuki-cuda.so. */
int gpu_count(void);
/* How many of those that CUDA shows the processes of a node this one is to drive: they share them
 * evenly, as far as they are shown the same. Collective of the processes; 'wanted': is this one to
 * drive any?
 */
int gpu_share(struct comm *processes, bool wanted, int *share, struct err *err);
/* 90, for sm_90, of the one at this PCI address, or of the first that CUDA shows; 0: there is none. */
int gpu_architecture(const char *address);

/* 'wanted': has this rank's node GPUs? 'plan' may be NULL. Both the same on all ranks, but for the
 * node of the plan. Collective.
 */
int gpu_choose(struct comm *comm, bool wanted, const struct gpu_plan *plan,
               struct gpu_choices *choices, struct err *err);
void gpu_choices_clear(struct gpu_choices *choices);

/* Use this rank's, with room for messages in so many bytes. */
struct gpu *gpu_open(struct comm *comm, const char *address, size_t bytes, struct err *err);
/* After an error the process ends without. NULL is fine. */
void gpu_close(struct gpu *gpu);

/* NCCL among these ranks, each on a GPU of its own. 'gpu' is NULL on all others. Collective of
 * all ranks; after an error they meet no more, since some may wait for others in NCCL.
 */
int gpu_connect(struct comm *comm, struct gpu *gpu, int n, const int *ranks, struct err *err);
int gpu_leave(struct gpu *gpu, struct err *err);

/* Between GPUs that are connected, and through pinned memory of the hosts and comm.h. */
struct wire *gpu_wire_nccl(struct gpu *gpu);
struct wire *gpu_wire_hosts(struct gpu *gpu);

#endif
