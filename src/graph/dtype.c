/* SPDX-License-Identifier: MIT */
#include "graph/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [DTYPE_NONE] = { "none", 0 },    [DTYPE_F32] = { "float32", 4 },
    [DTYPE_F64] = { "float64", 8 },  [DTYPE_I32] = { "int32", 4 },
    [DTYPE_I64] = { "int64", 8 },    [DTYPE_BOOL] = { "bool", 1 },
    [DTYPE_U8] = { "uint8", 1 },     [DTYPE_I8] = { "int8", 1 },
    [DTYPE_I16] = { "int16", 2 },    [DTYPE_U16] = { "uint16", 2 },
    [DTYPE_U32] = { "uint32", 4 },   [DTYPE_U64] = { "uint64", 8 },
    [DTYPE_F16] = { "float16", 2 },  [DTYPE_BF16] = { "bfloat16", 2 },
};

size_t dtype_size(enum dtype dtype)
{
    return dtypes[dtype].size;
}

const char *dtype_name(enum dtype dtype)
{
    return dtypes[dtype].name;
}

bool dtype_is_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_F16 ||
           dtype == DTYPE_BF16;
}

bool dtype_is_unsigned(enum dtype dtype)
{
    return dtype == DTYPE_BOOL || dtype == DTYPE_U8 || dtype == DTYPE_U16 ||
           dtype == DTYPE_U32 || dtype == DTYPE_U64;
}

int64_t dtype_wrap(enum dtype dtype, int64_t x)
{
    uint64_t bits = (uint64_t)x;

    switch (dtype) {
    case DTYPE_BOOL:
        return x != 0;
    case DTYPE_U8:
        return (uint8_t)bits;
    case DTYPE_I8:
        return (int8_t)(uint8_t)bits;
    case DTYPE_I16:
        return (int16_t)(uint16_t)bits;
    case DTYPE_U16:
        return (uint16_t)bits;
    case DTYPE_I32:
        return (int32_t)(uint32_t)bits;
    case DTYPE_U32:
        return (uint32_t)bits;
    default:
        return x;
    }
}

int64_t dtype_truncate(enum dtype dtype, double x)
{
    if (dtype == DTYPE_BOOL)
        return x != 0;
    if (dtype == DTYPE_U64 && x >= 0x1p63)
        return x >= 0x1p64 ? (int64_t)UINT64_MAX : (int64_t)(uint64_t)x;
    return x != x ? 0
           : dtype_wrap(dtype, x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x);
}

double dtype_widen(enum dtype dtype, int64_t x)
{
    return dtype == DTYPE_U64 ? (double)(uint64_t)x : (double)x;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* float16 has 5 bits of exponent, biased by 15, and 10 of fraction; float32 8, by 127, and 23. */
static double half_real(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;

    if (rest < 0x400)   /* subnormal: multiples of 2^-24 */
        return (double)float_of(sign | bits_of((float)rest * 0x1p-24f));
    return (double)float_of(sign | ((rest << 13) +
                                    ((rest < 0x7c00 ? 127u - 15 : 255u - 31) << 23)));
}

/* The bits of a float beside 'x', odd ones where it is not 'x' itself (Boldo and Melquiond 2008):
 * it is rounded on as 'x' is. The nearest float may lie in the middle where 'x' is only near it.
 */
static uint32_t odd_bits(double x)
{
    float nearest = (float)x;
    uint32_t bits = bits_of(nearest);

    if (x != x || (double)nearest == x)
        return bits;
    return (fabs((double)nearest) > fabs(x) ? bits - 1 : bits) | 1;
}

/* Both round to the nearest, of two the even one. */
static uint16_t half_of(double x)
{
    uint32_t bits = odd_bits(x), sign = bits >> 16 & 0x8000;

    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        bits = 0x7e00;
    else if (bits >= 0x477ff000)        /* 65520, half way beyond the largest */
        bits = 0x7c00;
    else if (bits < 0x38800000)         /* 2^-14 */
        bits = (uint32_t)lrintf(float_of(bits) * 0x1p24f);
    else
        bits = (bits - ((127u - 15) << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    return (uint16_t)(sign | bits);
}

static uint16_t brain_of(double x)
{
    uint32_t bits = odd_bits(x);

    return x != x ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define LOAD(TYPE)                                                                            \
    do {                                                                                      \
        TYPE x_;                                                                              \
        memcpy(&x_, (const char *)data + (size_t)i * sizeof(x_), sizeof(x_));                 \
        return x_;                                                                            \
    } while (0)
#define STORE(TYPE, VALUE)                                                                    \
    memcpy((char *)data + (size_t)i * sizeof(TYPE), &(TYPE){ (TYPE)(VALUE) }, sizeof(TYPE))

double dtype_real(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
        LOAD(float);
    case DTYPE_F64:
        LOAD(double);
    case DTYPE_F16:
        return half_real((uint16_t)dtype_whole(DTYPE_U16, data, i));
    case DTYPE_BF16:
        return (double)float_of((uint32_t)dtype_whole(DTYPE_U16, data, i) << 16);
    default:
        return dtype_widen(dtype, dtype_whole(dtype, data, i));
    }
}

int64_t dtype_whole(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F64:
    case DTYPE_F16:
    case DTYPE_BF16:
        return dtype_truncate(DTYPE_I64, dtype_real(dtype, data, i));
    case DTYPE_I8:
        LOAD(int8_t);
    case DTYPE_I16:
        LOAD(int16_t);
    case DTYPE_U16:
        LOAD(uint16_t);
    case DTYPE_I32:
        LOAD(int32_t);
    case DTYPE_U32:
        LOAD(uint32_t);
    case DTYPE_I64:
    case DTYPE_U64:
        LOAD(int64_t);
    case DTYPE_BOOL:
        return ((const unsigned char *)data)[i] != 0;
    default:
        LOAD(uint8_t);
    }
}

void dtype_put_real(enum dtype dtype, void *data, int64_t i, double x)
{
    switch (dtype) {
    case DTYPE_F32:
        STORE(float, x);
        break;
    case DTYPE_F64:
        STORE(double, x);
        break;
    case DTYPE_F16:
        STORE(uint16_t, half_of(x));
        break;
    case DTYPE_BF16:
        STORE(uint16_t, brain_of(x));
        break;
    default:
        dtype_put_whole(dtype, data, i, dtype_truncate(dtype, x));
    }
}

void dtype_put_whole(enum dtype dtype, void *data, int64_t i, int64_t x)
{
    uint64_t bits = (uint64_t)x;

    switch (dtype) {
    case DTYPE_BOOL:
        STORE(uint8_t, x != 0);
        break;
    case DTYPE_I16:
    case DTYPE_U16:
        STORE(uint16_t, bits);
        break;
    case DTYPE_I32:
    case DTYPE_U32:
        STORE(uint32_t, bits);
        break;
    case DTYPE_I64:
    case DTYPE_U64:
        STORE(uint64_t, bits);
        break;
    default:
        STORE(uint8_t, bits);
    }
}

void dtype_convert(enum dtype from, const void *in, enum dtype to, void *out, size_t n)
{
    int64_t length = (int64_t)n, i;

    if (from == to)
        memcpy(out, in, n * dtype_size(from));
    else if (dtype_is_float(from) || dtype_is_float(to))
        for (i = 0; i < length; i++)
            dtype_put_real(to, out, i, dtype_real(from, in, i));
    else
        for (i = 0; i < length; i++)
            dtype_put_whole(to, out, i, dtype_whole(from, in, i));
}
