/* SPDX-License-Identifier: MIT */
#include "graph/dtype.h"

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
    return dtype == DTYPE_F32 || dtype == DTYPE_F64;
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
    default:
        return dtype_widen(dtype, dtype_whole(dtype, data, i));
    }
}

int64_t dtype_whole(enum dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F64:
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
