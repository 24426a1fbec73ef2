/* SPDX-License-Identifier: MIT */
/* What the files of tasuki-cuda.so share. Nothing of the core is linked into it but err.c and
 * mem.c, of which it has its own copies.
 */
#ifndef TASUKI_KERNELS_CUDA_MODULE_PRIVATE_H
#define TASUKI_KERNELS_CUDA_MODULE_PRIVATE_H

#include "config.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

#include "base/err.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/runtime.h"

struct cuda_state {
    cudaStream_t stream;
    cudaEvent_t events[CUDA_SLOTS];
#ifdef HAVE_NCCL
    ncclComm_t comm;            /* NULL: not connected */
#endif
};

/* For training. */
struct cuda_device {
    char address[32];
    char name[192];
    int number;
    size_t memory;              /* free when it was opened */
    size_t cache;               /* of the second level */
    cudaStream_t stream;        /* of what is allocated */
    struct cuda_cublas *cublas; /* NULL: nothing was multiplied */
    struct cuda_cudnn *cudnn;   /* NULL: not used yet */
    struct cuda_conv_plan *conv_plans;
    struct cuda_store store;    /* get NULL: nothing is kept */
    int products, on_tensor_cores;      /* see tensor_cores() of runtime.h */
    struct cuda_trial *trials;          /* module_activation.c; NULL: none yet */
    char activations[512];              /* what they showed */
};

/* One more, 1, or less, -1. */
static inline void cuda_count_product(struct cuda_device *device, int n, bool on_tensor_cores)
{
    device->products += n;
    device->on_tensor_cores += on_tensor_cores ? n : 0;
}

struct cuda_stream {
    struct cuda_device *device;
    cudaStream_t stream;
};

/* Where libraries want their workspace aligned, in a place that is larger by so much. */
#define CUDA_WORKSPACE_ALIGNMENT ((uintptr_t)256)

static inline void *cuda_workspace(void *workspace)
{
    uintptr_t mask = CUDA_WORKSPACE_ALIGNMENT - 1;

    return (void *)(((uintptr_t)workspace + mask) & ~mask);
}

static inline struct cuda_state *cuda_state(const struct cuda_gpu *gpu)
{
    return gpu->state;
}

/* Return -1 from the caller, with what CUDA says of the failed call on this GPU. */
#define CUDA_CHECK(gpu, call, err)                                      \
    do {                                                                \
        cudaError_t cuda_check_code = (call);                           \
        if (cuda_check_code != cudaSuccess)                             \
            return cuda_error((gpu)->address, cuda_check_code, #call, (err)); \
    } while (0)

/* "GPU 0000:1b:00.0: cudaMalloc: out of memory"; 'address' may be "". */
int cuda_error(const char *address, cudaError_t code, const char *call, struct err *err);
/* An event after all that is in the stream: 'slot' is done when that is. */
int cuda_mark(struct cuda_gpu *gpu, int slot, struct err *err);

/* module_chain.c: as in runtime.h */
void *cuda_chain_compile(struct cuda_device *device, const char *text, size_t *bytes, struct err *err);
struct cuda_chain_kernel *cuda_chain_new(struct cuda_device *device, const void *code, size_t bytes,
                                         struct err *err);
void cuda_chain_free(struct cuda_chain_kernel *kernel);
int cuda_chain_run(struct cuda_stream *stream, const struct cuda_chain_kernel *kernel,
                   const struct cuda_chain *launch, struct err *err);

/* module_cublas.c: the same */
#ifdef HAVE_CUBLASLT
int cuda_matmul_new(struct cuda_device *device, const struct cuda_matmul *matmul,
                    struct cuda_product **product, struct err *err);
void cuda_matmul_free(struct cuda_product *product);
size_t cuda_matmul_workspace(const struct cuda_product *product);
int cuda_matmul_run(struct cuda_stream *stream, const struct cuda_product *product,
                    const struct cuda_matmul_args *args, struct err *err);
void cuda_cublas_close(struct cuda_device *device);
/* cuda_matmul_new() of what need not be what its activation says: that does not count it either. */
int cuda_matmul_try(struct cuda_device *device, const struct cuda_matmul *matmul,
                    struct cuda_product **product, struct err *err);

/* module_activation.c: does cuBLASLt compute the activation, or the sums, that this product has? */
int cuda_activation_fits(struct cuda_device *device, const struct cuda_matmul *matmul, bool *fits,
                         struct err *err);
void cuda_activations_clear(struct cuda_device *device);
#endif

/* module_conv.c, module_sdpa.c, module_image.c and module_cudnn.c: the same */
#ifdef HAVE_CUDNN
int cuda_conv_new(struct cuda_device *device, const struct cuda_conv *conv,
                  struct cuda_convolution **convolution, struct err *err);
void cuda_conv_free(struct cuda_convolution *convolution);
void cuda_conv_clear(struct cuda_device *device);
size_t cuda_conv_workspace(const struct cuda_convolution *convolution);
int cuda_conv_run(struct cuda_stream *stream, struct cuda_convolution *convolution,
                  const struct cuda_conv_args *args, struct err *err);
int cuda_sdpa_new(struct cuda_device *device, const struct cuda_sdpa *sdpa,
                  struct cuda_sdpa_kernel **kernel, struct err *err);
void cuda_sdpa_free(struct cuda_sdpa_kernel *kernel);
size_t cuda_sdpa_workspace(const struct cuda_sdpa_kernel *kernel);
int cuda_sdpa_run(struct cuda_stream *stream, struct cuda_sdpa_kernel *kernel,
                  const struct cuda_sdpa_args *args, struct err *err);
int cuda_image_new(struct cuda_device *device, const struct cuda_image *image,
                   struct cuda_image_kernel **kernel, struct err *err);
void cuda_image_free(struct cuda_image_kernel *kernel);
size_t cuda_image_workspace(const struct cuda_image_kernel *kernel);
int cuda_image_run(struct cuda_stream *stream, struct cuda_image_kernel *kernel,
                   const struct cuda_image_args *args, struct err *err);
void cuda_cudnn_close(struct cuda_device *device);
#endif

#ifdef HAVE_NCCL
/* As cuda_error(), with what NCCL has to say besides; 'comm' may be NULL. */
int cuda_nccl_error(const char *address, ncclComm_t comm, ncclResult_t code, const char *call,
                    struct err *err);
int cuda_nccl(char text[32], struct err *err);
int cuda_id(char id[CUDA_ID_SIZE], struct err *err);
int cuda_connect(struct cuda_gpu *gpu, int n, int rank, const char id[CUDA_ID_SIZE],
                 struct err *err);
int cuda_ready(struct cuda_gpu *gpu, bool *ready, struct err *err);
int cuda_post(struct cuda_gpu *gpu, bool send, void *data, size_t bytes, int peer,
              struct err *err);
int cuda_launched(struct cuda_gpu *gpu, int slot, bool *launched, struct err *err);
int cuda_leave(struct cuda_gpu *gpu, struct err *err);
void cuda_disconnect(struct cuda_gpu *gpu);
#endif

#endif
