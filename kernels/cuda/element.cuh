/* SPDX-License-Identifier: MIT */
/* How kernels are written, and elements of all types read and written: for device.cuh, and part of the
 * text of chains (chain.c), which NVRTC compiles without any header of a system.
 */
#ifndef TASUKI_KERNELS_CUDA_ELEMENT_CUH
#define TASUKI_KERNELS_CUDA_ELEMENT_CUH

/* For a loop over n pieces of work, thread after thread, in steps of all threads of the grid. */
#define CUDA_EACH(i, n)                                                                   \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);             \
         i += (int64_t)gridDim.x * blockDim.x)

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

/* The same, and no part of a fused multiply-add with what follows: -0 is added, and rounded. */
CUDA_DEVICE float real_apart(float x)
{
#ifdef __CUDACC__
    asm("add.rn.f32 %0, %0, 0f80000000;" : "+f"(x));
#endif
    return x;
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

#endif
