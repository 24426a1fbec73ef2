/* SPDX-License-Identifier: MIT */
/* What every .cu file includes. nvcc compiles them for GPUs; a C++ compiler with CUDA_EMULATED, for
 * the tests, which run kernels without a GPU (tests/fake_gpu.h). So that both can, kernels are
 * extern "C", not templates, and are launched by CUDA_LAUNCH alone.
 */
#ifndef TASUKI_KERNELS_CUDA_DEVICE_CUH
#define TASUKI_KERNELS_CUDA_DEVICE_CUH

#ifdef CUDA_EMULATED
#include "tests/fake_gpu.h"
#else
#include <cuda_runtime.h>
#include <string.h>
#endif

#include "kernels/cuda/launch.h"
#include "kernels/cuda/element.cuh"

/* For kernels and for who launches them. */
#ifdef __CUDACC__
#define CUDA_EITHER static __host__ __device__ __forceinline__
#else
#define CUDA_EITHER static inline
#endif

#define CUDA_BLOCK 256          /* threads */
#define CUDA_WARP 32

/* Blocks for that: no more than keep the largest GPUs busy. */
static inline unsigned cuda_grid(int64_t n, int block)
{
    int64_t blocks = (n + block - 1) / block;

    return blocks < 1 ? 1 : blocks > 4096 ? 4096 : (unsigned)blocks;
}

/* A kernel of its own for each type of elements, so that none takes registers for another; and the
 * one for the type that a launch has.
 */
#define CUDA_KERNELS_BY_TYPE(name, type, blocks, body)                                    \
    CUDA_BOUNDED_KERNEL(name##_float, type, blocks) { body<float>(l); }                   \
    CUDA_BOUNDED_KERNEL(name##_bfloat, type, blocks) { body<struct bfloat>(l); }          \
    CUDA_BOUNDED_KERNEL(name##_float16, type, blocks) { body<struct float16>(l); }
#define CUDA_KERNEL_OF_TYPE(name, narrow)                                                 \
    ((narrow) == CUDA_FLOAT16    ? (const void *)name##_float16                           \
     : (narrow) == CUDA_BFLOAT16 ? (const void *)name##_bfloat                            \
                                 : (const void *)name##_float)

/* Launch 'kernel' with one argument, a struct. */
#define CUDA_LAUNCH(kernel, blocks, threads, argument, stream)                            \
    cuda_launch((const void *)kernel, blocks, threads, (void *)(argument), stream)

static inline cudaError_t cuda_launch(const void *kernel, unsigned blocks, unsigned threads,
                                      void *argument, cudaStream_t stream)
{
    void *arguments[] = { argument };

    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
}

/* What a kernel does of elements of a type, by the type that its launch has. */
#define CUDA_BY_TYPE(narrow, body, ...)                                                   \
    do {                                                                                  \
        if ((narrow) == CUDA_FLOAT16)                                                     \
            body<struct float16>(__VA_ARGS__);                                            \
        else if ((narrow) == CUDA_BFLOAT16)                                               \
            body<struct bfloat>(__VA_ARGS__);                                             \
        else                                                                              \
            body<float>(__VA_ARGS__);                                                     \
    } while (0)

/* The N floats that go with the i-th word of N elements. */
template <int N> CUDA_DEVICE void floats_at(const float *x, int64_t i, float *to)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < N; k += 4) {
        float4 four = ((const float4 *)x)[i * (N / 4) + k / 4];

        to[k] = four.x, to[k + 1] = four.y, to[k + 2] = four.z, to[k + 3] = four.w;
    }
}

/* The sum of what the threads of a warp have, for all of them, in a fixed tree. All threads of the
 * block call it.
 */
CUDA_DEVICE float warp_sum(float x)
{
    CUDA_UNROLL_ALL
    for (int far = CUDA_WARP / 2; far > 0; far /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, far);
    return x;
}

/* The sum of what all threads of the block have, for all of them, in a fixed tree. All threads call
 * it; 'shared' is CUDA_BLOCK floats.
 */
CUDA_DEVICE float block_sum(float x, float *shared)
{
    shared[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    x = shared[0];
    __syncthreads();
    return x;
}

CUDA_DEVICE float block_max(float x, float *shared)
{
    shared[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && !(shared[threadIdx.x] >= shared[threadIdx.x + half]))
            shared[threadIdx.x] = shared[threadIdx.x + half];
        __syncthreads();
    }
    x = shared[0];
    __syncthreads();
    return x;
}

/* Where operand 'i' of element 'e' of the walk is. */
CUDA_DEVICE int64_t walk_at(const struct cuda_walk &w, int i, int64_t e)
{
    int64_t at = w.start[i];

    if (w.flat)
        return e;
    for (int k = w.rank - 1; k >= 0; k--) {
        at += e % w.dim[k] * w.stride[i][k];
        e /= w.dim[k];
    }
    return at;
}

#endif
