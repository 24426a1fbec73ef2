/* SPDX-License-Identifier: MIT */
#include "graph/integer.h"

int64_t integer_power(int64_t base, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base;

    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    for (; exponent; exponent >>= 1, factor *= factor)
        if (exponent & 1)
            result *= factor;
    return (int64_t)result;
}

int integer_divide(int64_t a, int64_t b, int64_t *result)
{
    if (b == 0)
        return -1;
    /* INT64_MIN / -1 is not defined in C. */
    *result = b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    return 0;
}

int integer_rest(int64_t a, int64_t b, bool c_rule, int64_t *result)
{
    int64_t rest;

    if (b == 0)
        return -1;
    rest = b == -1 ? 0 : a % b;
    *result = rest && !c_rule && (rest < 0) != (b < 0) ? rest + b : rest;
    return 0;
}
