/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"
#include "kernels/philox.h"

/* QUADS counters at a time, one lane each; the words of four elements come from one. */
enum { QUADS = 64 };

static void draw(const struct simd_dropout *d, uint64_t quad, uint32_t *words)
{
    const uint32_t key0 = (uint32_t)d->key, key1 = (uint32_t)(d->key >> 32);
    uint32_t w0[QUADS], w1[QUADS], w2[QUADS], w3[QUADS];
    uint32_t k0 = key0, k1 = key1;
    size_t i;
    int round;

    for (i = 0; i < QUADS; i++) {
        w0[i] = (uint32_t)(quad + i);
        w1[i] = (uint32_t)((quad + i) >> 32);
        w2[i] = d->sample;
        w3[i] = d->step;
    }
    for (round = 0; round < 10; round++) {
#pragma omp simd
        for (i = 0; i < QUADS; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * w0[i], b = (uint64_t)0xCD9E8D57u * w2[i];

            w0[i] = (uint32_t)(b >> 32) ^ w1[i] ^ k0;
            w1[i] = (uint32_t)b;
            w2[i] = (uint32_t)(a >> 32) ^ w3[i] ^ k1;
            w3[i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (i = 0; i < QUADS; i++) {
        words[4 * i] = w0[i];
        words[4 * i + 1] = w1[i];
        words[4 * i + 2] = w2[i];
        words[4 * i + 3] = w3[i];
    }
}

static void dropout(size_t n, const struct simd_dropout *d, const float *x, float *y)
{
    uint32_t words[4 * QUADS];
    size_t at = 0, i, m, skip = d->first % 4;
    uint64_t quad = d->first / 4;

    while (at < n) {
        m = 4 * QUADS - skip < n - at ? 4 * QUADS - skip : n - at;
        draw(d, quad, words);
#pragma omp simd
        for (i = 0; i < m; i++)
            y[at + i] = words[skip + i] >= d->threshold ? x[at + i] * d->scale : 0;
        at += m;
        quad += QUADS;
        skip = 0;
    }
}

void SIMD(fill_dropout)(struct simd *table)
{
    table->dropout = dropout;
}
