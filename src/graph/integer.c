/* SPDX-License-Identifier: MIT */
#include "graph/integer.h"

int64_t integer_smallest(enum dtype dtype)
{
    return dtype_is_unsigned(dtype) ? 0 : (int64_t)(UINT64_MAX << (8 * dtype_size(dtype) - 1));
}

int64_t integer_largest(enum dtype dtype)
{
    return dtype == DTYPE_BOOL ? 1 : dtype_wrap(dtype, ~integer_smallest(dtype));
}

int integer_order(enum dtype dtype, int64_t a, int64_t b)
{
    /* From 2^63 on, numbers without sign are below 0 here. */
    if (dtype == DTYPE_U64 && (a < 0) != (b < 0))
        return a < 0 ? 1 : -1;
    return (a > b) - (a < b);
}

int64_t integer_power(enum dtype dtype, int64_t base, enum dtype of_exponent, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base, left = (uint64_t)exponent;

    if (integer_order(of_exponent, exponent, 0) < 0)
        return base == 1 ? 1
               : base == -1 && !dtype_is_unsigned(dtype) ? (exponent % 2 ? -1 : 1) : 0;
    for (; left; left >>= 1, factor *= factor)
        if (left & 1)
            result *= factor;
    return (int64_t)result;
}

int integer_divide(enum dtype dtype, int64_t a, int64_t b, int64_t *result)
{
    if (b == 0)
        return -1;
    if (dtype == DTYPE_U64)
        *result = (int64_t)((uint64_t)a / (uint64_t)b);
    else    /* INT64_MIN / -1 is not defined in C. */
        *result = b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    return 0;
}

int integer_rest(enum dtype dtype, int64_t a, int64_t b, bool c_rule, int64_t *result)
{
    int64_t rest;

    if (b == 0)
        return -1;
    if (dtype == DTYPE_U64) {
        *result = (int64_t)((uint64_t)a % (uint64_t)b);
        return 0;
    }
    rest = b == -1 ? 0 : a % b;
    *result = rest && !c_rule && (rest < 0) != (b < 0) ? rest + b : rest;
    return 0;
}
