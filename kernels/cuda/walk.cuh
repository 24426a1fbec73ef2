/* SPDX-License-Identifier: MIT */
/* Walks over several operands at once, for kernels. */
#ifndef TASUKI_KERNELS_CUDA_WALK_CUH
#define TASUKI_KERNELS_CUDA_WALK_CUH

#include "kernels/cuda/device.cuh"

/* N operands; INDEX is as wide as the elements need: divisions of 64 bits are slow. */
template <int N, typename INDEX>
CUDA_DEVICE void walk_places_of(const struct cuda_walk &w, INDEX e, int64_t *at)
{
    for (int i = 0; i < N; i++)
        at[i] = w.start[i];
    for (int k = w.rank - 1; k > 0; k--) {
        INDEX next = e / (INDEX)w.dim[k], index = e - next * (INDEX)w.dim[k];

        for (int i = 0; i < N; i++)
            at[i] += (int64_t)index * w.stride[i][k];
        e = next;
    }
    for (int i = 0; i < N; i++)
        at[i] += (int64_t)e * w.stride[i][0];
}

/* Where the first N operands of element 'e' are. */
template <int N>
CUDA_DEVICE void walk_places(const struct cuda_walk &w, int64_t e, int64_t *at)
{
    if (w.elements < (int64_t)1 << 31)
        walk_places_of<N, uint32_t>(w, (uint32_t)e, at);
    else
        walk_places_of<N, int64_t>(w, e, at);
}

/* x / d and in 'rest' x % d; 'small': both are below 2^31. */
CUDA_DEVICE int64_t divide(int64_t x, int64_t d, bool small, int64_t *rest)
{
    int64_t quotient = small ? (int64_t)((uint32_t)x / (uint32_t)d) : x / d;

    *rest = x - quotient * d;
    return quotient;
}

#endif
