/* SPDX-License-Identifier: MIT */
/* Numbers of 16 bits for the stand-ins, in C and C++: bfloat16, or float16 where 'half' is set. */
#ifndef TASUKI_TESTS_FAKE_REAL_H
#define TASUKI_TESTS_FAKE_REAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float fake_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float fake_widened(uint16_t bits, bool half)
{
    uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;

    if (!half)
        return fake_float((uint32_t)bits << 16);
    if (size >= 0x7c00)
        return fake_float(sign | 0x7f800000u | size << 13);
    return (sign ? -0x1p112f : 0x1p112f) * fake_float(size << 13);
}

/* The nearest one, of two the even one; a NaN stays one, and what is too large becomes infinite. */
static inline uint16_t fake_rounded(float x, bool half)
{
    uint32_t bits, size;

    memcpy(&bits, &x, sizeof(bits));
    size = bits & 0x7fffffffu;
    if (!half)
        return (uint16_t)((x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    if (size > 0x7f800000u) {
        size = 0x7e00;
    } else if (size >= 0x477ff000u) {       /* 65520, half way beyond the largest */
        size = 0x7c00;
    } else if (size < 0x38800000u) {        /* 2^-14: the last place of 1/2 is 2^-24 */
        float y = fake_float(size) + 0.5f;

        memcpy(&size, &y, sizeof(size));
        size -= 0x3f000000u;
    } else {
        size = (size - (112u << 23) + 0xfffu + (size >> 13 & 1)) >> 13;
    }
    return (uint16_t)((bits >> 16 & 0x8000u) | size);
}

#endif
