/* SPDX-License-Identifier: MIT */
/* For simd_*.c only: names per instruction set, and the elementary functions. */
#ifndef TASUKI_KERNELS_CPU_SIMD_PRIVATE_H
#define TASUKI_KERNELS_CPU_SIMD_PRIVATE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/simd.h"

#ifndef SIMD_ISA
#define SIMD_ISA base
#endif
#define SIMD_PASTE_(a, b) a##_##b
#define SIMD_PASTE(a, b) SIMD_PASTE_(a, b)
#define SIMD(name) SIMD_PASTE(simd_##name, SIMD_ISA)

/* Each source fills its part of the table. */
void SIMD(fill_pointwise)(struct simd *table);
void SIMD(fill_rows)(struct simd *table);
void SIMD(fill_columns)(struct simd *table);
void SIMD(fill_train)(struct simd *table);
void SIMD(fill_dropout)(struct simd *table);

static inline float simd_from_bits(int32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline int32_t simd_to_bits(float value)
{
    int32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* exp within 2 ulp; below -87.33 it is 0. x = n ln 2 + r, |r| <= ln 2 / 2; the polynomial is
 * that of Cody and Waite's range with Taylor's first terms.
 */
static inline float simd_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x > 88.72f ? 88.72f : x;
    float t = (c < -87.33f ? -87.33f : c) * 1.44269504f + magic;
    float n = t - magic;
    float r = c - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.98756916e-4f;

    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    /* 2^n in two factors: n may be 128. */
    p *= simd_from_bits((int32_t)((uint32_t)(simd_to_bits(t) - 0x4B400000) << 23) + 0x3F000000);
    return c < -87.33f ? 0.0f : p * 2.0f;
}

static inline float simd_tanh(float x)
{
    float e = simd_exp(-2.0f * fabsf(x));
    float y = (1.0f - e) / (1.0f + e);
    float small = x - x * x * x * (1.0f / 3.0f);

    return fabsf(x) < 0.02f ? small : copysignf(y, x);
}

static inline float simd_sigmoid(float x)
{
    return 1.0f / (1.0f + simd_exp(-x));
}

/* Phi(x), the normal distribution, with 'e' = exp(-x*x/2): erfc(z) = t P(t) exp(-z z) with
 * t = 1/(1 + 0.39 z), error below 1e-8 (coefficients fitted for this program).
 */
static inline float simd_normal(float x, float e)
{
    float t = 1.0f / (1.0f + 0.39f * 0.707106781f * fabsf(x));
    float p = -0.227537723f;
    float tail;

    p = p * t + 0.88666683f;
    p = p * t - 0.635404295f;
    p = p * t + 0.649562651f;
    p = p * t + 0.0913871082f;
    p = p * t + 0.235325427f;
    tail = 0.5f * t * p * e;
    return x > 0 ? 1.0f - tail : tail;
}

#endif
