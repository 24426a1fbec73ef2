/* SPDX-License-Identifier: MIT */
/* What tasuki-cuda.so does for the core: this process's GPU, and bytes that leave and reach it.
 *
 * The module is linked without the core: it shares these structs and nothing else, so both
 * sides check CUDA_DRIVER_VERSION and the sizes. It knows no MPI: who the peers are, and how
 * they learn of each other, is the caller's affair.
 *
 * Nothing waits: what takes long is posted, and asked after until it is done. Errors name the
 * GPU and the call. After one in a GPU that is open the process ends: nothing is repaired.
 */
#ifndef TASUKI_KERNELS_CUDA_DRIVER_H
#define TASUKI_KERNELS_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

struct err;

#define CUDA_DRIVER_VERSION 2
#define CUDA_DRIVER_SYMBOL "tasuki_cuda_driver"
#define CUDA_SLOTS 4            /* what may be under way at once */
#define CUDA_ID_SIZE 128        /* of what NCCL's ranks find each other by */

struct cuda_gpu {
    char address[32];           /* "0000:1b:00.0" */
    size_t bytes;
    char *device, *host;        /* so many bytes of the GPU, and pinned ones of the host */
    void *state;                /* the module's own */
};

struct cuda_address {
    char text[32];              /* as CUDA writes it: "0000:1B:00.0" */
    int architecture;           /* 90: sm_90 */
};

struct cuda_driver {
    int version;
    size_t err_size, gpu_size;  /* sizeof the shared structs */
    /* The GPUs that CUDA shows this process, which CUDA_VISIBLE_DEVICES may limit, in CUDA's
     * order: '*addresses' is malloc'ed. No GPU, or no driver for one, is an error.
     */
    int (*list)(int *n, struct cuda_address **addresses, struct err *err);
    /* Use the one at this address, and allocate so many bytes on both sides. */
    struct cuda_gpu *(*open)(const char *address, size_t bytes, struct err *err);
    /* Nothing may be under way; of NCCL's ranks it has left(). */
    void (*close)(struct cuda_gpu *gpu);

    /* Between the GPU and pinned memory. 'slot' is busy until it is done. */
    int (*copy)(struct cuda_gpu *gpu, int slot, void *to, const void *from, size_t bytes,
                struct err *err);
    int (*done)(struct cuda_gpu *gpu, int slot, bool *done, struct err *err);

    /* "2.28.9", the NCCL that is loaded, into 'text'. Built without NCCL, this and all that
     * follow are NULL.
     */
    int (*nccl)(char text[32], struct err *err);
    /* One rank makes an id, all of them connect by it; ready() says when all have. */
    int (*id)(char id[CUDA_ID_SIZE], struct err *err);
    int (*connect)(struct cuda_gpu *gpu, int n, int rank, const char id[CUDA_ID_SIZE],
                   struct err *err);
    int (*ready)(struct cuda_gpu *gpu, bool *ready, struct err *err);
    /* From or to memory of the GPU. Others may be posted, and done() asked, once it has been
     * launched().
     */
    int (*post)(struct cuda_gpu *gpu, bool send, void *data, size_t bytes, int peer,
                struct err *err);
    int (*launched)(struct cuda_gpu *gpu, int slot, bool *launched, struct err *err);
    /* Begin to leave the others in order; ready() says when that is done. */
    int (*leave)(struct cuda_gpu *gpu, struct err *err);
};

#endif
