/* SPDX-License-Identifier: MIT */
/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC11): a random number is a function of key and counter alone, so that it does not matter
 * who draws it, when, or in which order. C and CUDA read this file.
 */
#ifndef TASUKI_KERNELS_PHILOX_H
#define TASUKI_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX static inline __host__ __device__
#else
#define PHILOX static inline
#endif

struct philox {
    uint32_t word[4];
};

PHILOX struct philox philox_draw(uint64_t key, struct philox counter)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    int round;

    for (round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * counter.word[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * counter.word[2];
        struct philox next = { { (uint32_t)(b >> 32) ^ counter.word[1] ^ k0, (uint32_t)b,
                                 (uint32_t)(a >> 32) ^ counter.word[3] ^ k1, (uint32_t)a } };

        counter = next;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return counter;
}

/* One key of a run's seed and a node's: the seed is spread first (SplitMix64's finalizer), so
 * that small seeds do not meet in the low bits.
 */
PHILOX uint64_t philox_key(uint64_t seed, uint64_t node)
{
    seed += 0x9E3779B97F4A7C15u;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
    return seed ^ (seed >> 31) ^ node;
}

/* Dropout: the four words for elements 4*quad … 4*quad+3 of a global sample at a step. */
PHILOX struct philox philox_dropout(uint64_t key, uint64_t step, uint64_t sample,
                                           uint64_t quad)
{
    struct philox counter = { { (uint32_t)quad, (uint32_t)(quad >> 32), (uint32_t)sample,
                                (uint32_t)step } };

    return philox_draw(key, counter);
}

/* An element is dropped where its word is below this. */
PHILOX uint64_t philox_threshold(double ratio)
{
    return (uint64_t)(ratio * 4294967296.0);
}

#endif
