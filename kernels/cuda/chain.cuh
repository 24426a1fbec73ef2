/* SPDX-License-Identifier: MIT */
/* What the kernel of a chain is made of; chain_text.c adds what it computes. */
#ifndef TASUKI_KERNELS_CUDA_CHAIN_CUH
#define TASUKI_KERNELS_CUDA_CHAIN_CUH

#include "kernels/cuda/curves.cuh"

/* As if one kernel had written it and the next one read it: rounded, and no part of a fused
 * multiply-add. So a chain gives the bits that its operators give one after the other.
 */
template <typename REAL> CUDA_DEVICE float chain_kept(float x)
{
    REAL y;

    put_real(&y, x);
    return real_apart(real_of(y));
}

CUDA_DEVICE float chain_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

CUDA_DEVICE bool chain_has_words(const void *x)
{
    return (uintptr_t)x % CUDA_WORD == 0;
}

/* The i-th N elements. */
template <typename REAL, int N> CUDA_DEVICE void chain_read(const void *x, int64_t i, float *to)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < N; k += CUDA_WIDTH(REAL))
        spread_word<REAL>(word_at(x, (i * N + k) / CUDA_WIDTH(REAL), true), to + k);
}

/* N elements from 'at' on, so far apart. */
template <typename REAL, int N>
CUDA_DEVICE void chain_along(const void *x, int64_t at, int64_t stride, float *to)
{
    const REAL *from = (const REAL *)x + at;

    if (stride == 1 && chain_has_words(from)) {
        chain_read<REAL, N>(from, 0, to);
        return;
    }
    CUDA_UNROLL_ALL
    for (int k = 0; k < N; k++)
        to[k] = k > 0 && stride == 0 ? to[0] : real_of(from[k * stride]);
}

template <typename REAL> CUDA_DEVICE float chain_at(const void *x, int64_t at)
{
    return real_of(((const REAL *)x)[at]);
}

/* What the result is added to: nothing, unless that is asked for. */
template <typename REAL, int N>
CUDA_DEVICE void chain_old(const struct cuda_chain &l, int64_t i, float *old)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < N; k++)
        old[k] = 0;
    if (l.add)
        chain_read<REAL, N>(l.out, i, old);
}

template <typename REAL, int N>
CUDA_DEVICE void chain_write(const struct cuda_chain &l, int64_t i, const float *y)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < N; k += CUDA_WIDTH(REAL))
        put_word((REAL *)l.out, (i * N + k) / CUDA_WIDTH(REAL), y + k);
}

#endif
