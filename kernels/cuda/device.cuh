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

#define CUDA_BLOCK 256          /* threads */
#define CUDA_WARP 32

/* For a loop over n pieces of work, thread after thread, in steps of all threads of the grid. */
#define CUDA_EACH(i, n)                                                                   \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);             \
         i += (int64_t)gridDim.x * blockDim.x)

/* Blocks for that: no more than keep the largest GPUs busy. */
static inline unsigned cuda_grid(int64_t n, int block)
{
    int64_t blocks = (n + block - 1) / block;

    return blocks < 1 ? 1 : blocks > 4096 ? 4096 : (unsigned)blocks;
}

/* A kernel has one parameter, a struct of launch.h, named l. What the tests run has a way in that takes
 * a pointer, and says how large the struct is.
 */
#ifdef CUDA_EMULATED
#define CUDA_BOUNDED_KERNEL(name, type, blocks) CUDA_KERNEL(name, type)
#define CUDA_KERNEL(name, type)                                                           \
    static void name##_body(struct type l);                                               \
    extern "C" void name(void *parameter)                                                 \
    {                                                                                     \
        name##_body(*(struct type *)parameter);                                           \
    }                                                                                     \
    extern "C" { extern const size_t name##_bytes; const size_t name##_bytes = sizeof(struct type); } \
    static void name##_body(struct type l)
#else
#define CUDA_KERNEL(name, type) extern "C" __global__ void name(struct type l)
/* Of so few registers that a multiprocessor has room for so many blocks of CUDA_BLOCK threads. */
#define CUDA_BOUNDED_KERNEL(name, type, blocks)                                           \
    extern "C" __global__ void __launch_bounds__(CUDA_BLOCK, blocks) name(struct type l)
#endif

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

#ifdef __CUDACC__
#define CUDA_DEVICE static __device__ __forceinline__
#define CUDA_UNROLL _Pragma("unroll 8")     /* so many loads are under way at once */
#define CUDA_UNROLL_ALL _Pragma("unroll")   /* arrays become registers */
#else
#define CUDA_DEVICE static inline
#define CUDA_UNROLL
#define CUDA_UNROLL_ALL
#endif

/* The upper half of a float32. */
struct bfloat {
    uint16_t bits;
};

/* IEEE 754's binary16. */
struct float16 {
    uint16_t bits;
};

CUDA_DEVICE float real_of(float x)
{
    return x;
}

CUDA_DEVICE float real_of(struct bfloat x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float y;

    memcpy(&y, &bits, sizeof(y));
    return y;
}

CUDA_DEVICE void put_real(float *to, float x)
{
    *to = x;
}

/* The nearest one, of two the even one; a NaN stays one. */
CUDA_DEVICE void put_real(struct bfloat *to, float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
#else
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    to->bits = (uint16_t)((x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
#endif
}

CUDA_DEVICE float real_of(struct float16 x)
{
#ifdef CUDA_EMULATED
    return fake_widened(x.bits, true);
#else
    float y;

    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}

/* Likewise; what is too large becomes infinite. */
CUDA_DEVICE void put_real(struct float16 *to, float x)
{
#ifdef CUDA_EMULATED
    to->bits = fake_rounded(x, true);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
#endif
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

/* Four neighbours at once, the i-th four: aligned to as many. */
CUDA_DEVICE float4 four_of(const float *x, int64_t i)
{
    return ((const float4 *)x)[i];
}

template <typename NARROW> CUDA_DEVICE float4 four_of(const NARROW *x, int64_t i)
{
    uint2 raw = ((const uint2 *)x)[i];
    NARROW four[4];
    float4 y;

    memcpy(four, &raw, sizeof(four));
    y.x = real_of(four[0]), y.y = real_of(four[1]), y.z = real_of(four[2]), y.w = real_of(four[3]);
    return y;
}

CUDA_DEVICE void put_four(float *to, int64_t i, float4 x)
{
    ((float4 *)to)[i] = x;
}

template <typename NARROW> CUDA_DEVICE void put_four(NARROW *to, int64_t i, float4 x)
{
    NARROW four[4];
    uint2 raw;

    put_real(&four[0], x.x), put_real(&four[1], x.y), put_real(&four[2], x.z), put_real(&four[3], x.w);
    memcpy(&raw, four, sizeof(raw));
    ((uint2 *)to)[i] = raw;
}

/* May fours of them be read there? */
template <typename REAL> CUDA_DEVICE bool is_wide_at(const void *x)
{
    return ((uintptr_t)x & (4 * sizeof(REAL) - 1)) == 0;
}

/* Elements in a word of CUDA_WORD bytes. */
#define CUDA_WIDTH(REAL) (CUDA_WORD / (int)sizeof(REAL))

/* The i-th word of what is aligned to words; zeros where it is not there. */
CUDA_DEVICE uint4 word_at(const void *x, int64_t i, bool is_there)
{
    uint4 word = { 0, 0, 0, 0 };

    if (is_there)
        word = ((const uint4 *)x)[i];
    return word;
}

template <typename REAL> CUDA_DEVICE void spread_word(uint4 word, float *to)
{
    REAL own[CUDA_WIDTH(REAL)];

    memcpy(own, &word, sizeof(own));
    CUDA_UNROLL_ALL
    for (int k = 0; k < CUDA_WIDTH(REAL); k++)
        to[k] = real_of(own[k]);
}

template <typename REAL> CUDA_DEVICE void put_word(REAL *to, int64_t i, const float *x)
{
    REAL own[CUDA_WIDTH(REAL)];
    uint4 word;

    CUDA_UNROLL_ALL
    for (int k = 0; k < CUDA_WIDTH(REAL); k++)
        put_real(&own[k], x[k]);
    memcpy(&word, own, sizeof(word));
    ((uint4 *)to)[i] = word;
}

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
