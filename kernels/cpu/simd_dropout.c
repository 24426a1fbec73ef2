/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"
#include "kernels/philox.h"

/* LANES counters at a time, one lane each; the words of four elements come from one. */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16 };
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 8 };
#else
enum { LANES = 8 };
#endif

typedef uint32_t lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

/* The 64-bit products of 32-bit lanes. Compilers make of the plain loop a product of 64-bit
 * lanes, which takes five times as long; so x86 gets its instruction by name.
 */
static inline void multiply(lanes x, uint32_t factor, lanes *high, lanes *low)
{
#if defined(__AVX512F__)
    __m512i f = _mm512_set1_epi32((int)factor);
    __m512i even = _mm512_mul_epu32((__m512i)x, f);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), f);

    *high = (lanes)_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = (lanes)_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
#elif defined(__AVX2__)
    __m256i f = _mm256_set1_epi32((int)factor);
    __m256i even = _mm256_mul_epu32((__m256i)x, f);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), f);

    *high = (lanes)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = (lanes)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
#else
    for (int i = 0; i < LANES; i++) {
        uint64_t product = (uint64_t)x[i] * factor;

        (*high)[i] = (uint32_t)(product >> 32);
        (*low)[i] = (uint32_t)product;
    }
#endif
}

/* STREAMS vectors go through the rounds side by side: one alone waits for its products. */
enum { STREAMS = 4, QUADS = STREAMS * LANES };

struct counters {
    lanes w0, w1, w2, w3;
};

static inline void start(const struct simd_dropout *d, uint64_t quad, struct counters *c)
{
    uint32_t lane[LANES];

    for (uint32_t i = 0; i < LANES; i++)
        lane[i] = i;
    memcpy(&c->w0, lane, sizeof(c->w0));
    memset(&c->w1, 0, sizeof(c->w1));
    c->w2 = c->w3 = c->w1;
    c->w0 += (uint32_t)quad;
    c->w1 += (uint32_t)(quad >> 32);
    c->w1 -= (lanes)(c->w0 < (uint32_t)quad); /* the carry: true is -1 */
    c->w2 += d->sample;
    c->w3 += d->step;
}

static inline void mix(struct counters *c, uint32_t k0, uint32_t k1)
{
    lanes high0, low0, high2, low2;

    multiply(c->w0, 0xD2511F53u, &high0, &low0);
    multiply(c->w2, 0xCD9E8D57u, &high2, &low2);
    c->w0 = high2 ^ c->w1 ^ k0;
    c->w1 = low2;
    c->w2 = high0 ^ c->w3 ^ k1;
    c->w3 = low0;
}

/* Through memory: stores of interleaved arrays are vectorised, single lanes are not. */
static inline void finish(const struct counters *c, uint32_t *words)
{
    uint32_t part[4][LANES];

    memcpy(part[0], &c->w0, sizeof(c->w0));
    memcpy(part[1], &c->w1, sizeof(c->w1));
    memcpy(part[2], &c->w2, sizeof(c->w2));
    memcpy(part[3], &c->w3, sizeof(c->w3));
#pragma omp simd
    for (int i = 0; i < LANES; i++) {
        words[4 * i] = part[0][i];
        words[4 * i + 1] = part[1][i];
        words[4 * i + 2] = part[2][i];
        words[4 * i + 3] = part[3][i];
    }
}

static void draw(const struct simd_dropout *d, uint64_t quad, uint32_t *words)
{
    uint32_t k0 = (uint32_t)d->key, k1 = (uint32_t)(d->key >> 32);
    struct counters a, b, c, e;

    start(d, quad, &a);
    start(d, quad + LANES, &b);
    start(d, quad + 2 * LANES, &c);
    start(d, quad + 3 * LANES, &e);
    for (int round = 0; round < 10; round++) {
        mix(&a, k0, k1);
        mix(&b, k0, k1);
        mix(&c, k0, k1);
        mix(&e, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    finish(&a, words);
    finish(&b, words + 4 * LANES);
    finish(&c, words + 8 * LANES);
    finish(&e, words + 12 * LANES);
}

static void dropout(size_t n, const struct simd_dropout *d, const float *x, float *y)
{
    const uint32_t threshold = d->threshold;
    const float scale = d->scale;
    uint32_t words[4 * QUADS];
    size_t at = 0, i, m, skip = d->first % 4;
    uint64_t quad = d->first / 4;

    while (at < n) {
        m = 4 * QUADS - skip < n - at ? 4 * QUADS - skip : n - at;
        draw(d, quad, words);
#pragma omp simd
        for (i = 0; i < m; i++) {
            float kept = x[at + i] * scale;

            y[at + i] = words[skip + i] >= threshold ? kept : 0;
        }
        at += m;
        quad += QUADS;
        skip = 0;
    }
}

void SIMD(fill_dropout)(struct simd *table)
{
    table->dropout = dropout;
}
