// SPDX-License-Identifier: MIT
// Elements of any type, as graph/dtype.h has them.
#include <string.h>

#include "graph/dtype.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"

CUDA_DEVICE int64_t typed_truncate(int dtype, double x)
{
    if (dtype == DTYPE_BOOL)
        return x != 0;
    if (dtype == DTYPE_U64 && x >= 0x1p63)
        return x >= 0x1p64 ? (int64_t)UINT64_MAX : (int64_t)(uint64_t)x;
    return x != x ? 0 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

CUDA_DEVICE bool typed_is_float(int dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F64;
}

CUDA_DEVICE bool typed_is_unsigned(int dtype)
{
    return dtype == DTYPE_BOOL || dtype == DTYPE_U8 || dtype == DTYPE_U16 ||
           dtype == DTYPE_U32 || dtype == DTYPE_U64;
}

CUDA_DEVICE int64_t typed_whole(int dtype, const void *x, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32: return typed_truncate(DTYPE_I64, ((const float *)x)[i]);
    case DTYPE_F64: return typed_truncate(DTYPE_I64, ((const double *)x)[i]);
    case DTYPE_I8: return ((const int8_t *)x)[i];
    case DTYPE_I16: return ((const int16_t *)x)[i];
    case DTYPE_U16: return ((const uint16_t *)x)[i];
    case DTYPE_I32: return ((const int32_t *)x)[i];
    case DTYPE_U32: return ((const uint32_t *)x)[i];
    case DTYPE_I64:
    case DTYPE_U64: return ((const int64_t *)x)[i];
    case DTYPE_BOOL: return ((const uint8_t *)x)[i] != 0;
    default: return ((const uint8_t *)x)[i];
    }
}

CUDA_DEVICE double typed_real(int dtype, const void *x, int64_t i)
{
    if (dtype == DTYPE_F32)
        return ((const float *)x)[i];
    if (dtype == DTYPE_F64)
        return ((const double *)x)[i];
    if (dtype == DTYPE_U64)
        return (double)((const uint64_t *)x)[i];
    return (double)typed_whole(dtype, x, i);
}

CUDA_DEVICE void typed_put_whole(int dtype, void *y, int64_t i, int64_t x)
{
    uint64_t bits = (uint64_t)x;

    switch (dtype) {
    case DTYPE_BOOL: ((uint8_t *)y)[i] = x != 0; break;
    case DTYPE_I16:
    case DTYPE_U16: ((uint16_t *)y)[i] = (uint16_t)bits; break;
    case DTYPE_I32:
    case DTYPE_U32: ((uint32_t *)y)[i] = (uint32_t)bits; break;
    case DTYPE_I64:
    case DTYPE_U64: ((uint64_t *)y)[i] = bits; break;
    default: ((uint8_t *)y)[i] = (uint8_t)bits;
    }
}

CUDA_DEVICE void typed_put_real(int dtype, void *y, int64_t i, double x)
{
    if (dtype == DTYPE_F32)
        ((float *)y)[i] = (float)x;
    else if (dtype == DTYPE_F64)
        ((double *)y)[i] = x;
    else
        typed_put_whole(dtype, y, i, typed_truncate(dtype, x));
}

// -1, 0, 1: a < b, a == b, a > b.
CUDA_DEVICE int typed_order(int dtype, int64_t a, int64_t b)
{
    if (dtype == DTYPE_U64 && (a < 0) != (b < 0))
        return a < 0 ? 1 : -1;
    return (a > b) - (a < b);
}

CUDA_DEVICE int64_t typed_power(int dtype, int64_t base, int of_exponent, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base;

    if (typed_order(of_exponent, exponent, 0) < 0)
        return base == 1 ? 1
               : base == -1 && !typed_is_unsigned(dtype) ? (exponent % 2 ? -1 : 1) : 0;
    for (uint64_t left = (uint64_t)exponent; left; left >>= 1, factor *= factor)
        if (left & 1)
            result *= factor;
    return (int64_t)result;
}

CUDA_DEVICE int64_t typed_arithmetic(const struct cuda_typed &l, int64_t a, int64_t b)
{
    int order = typed_order(l.from[0], a, b);

    switch (l.function) {
    case CUDA_TYPED_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case CUDA_TYPED_SUB: return (int64_t)((uint64_t)a - (uint64_t)b);
    case CUDA_TYPED_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case CUDA_TYPED_NEG: return (int64_t)(0 - (uint64_t)a);
    case CUDA_TYPED_ABS:
        return typed_order(l.from[0], a, 0) < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    case CUDA_TYPED_SIGN: return typed_order(l.from[0], a, 0);
    case CUDA_TYPED_MAX: return order > 0 ? a : b;
    case CUDA_TYPED_MIN: return order < 0 ? a : b;
    case CUDA_TYPED_AND: return a && b;
    case CUDA_TYPED_OR: return a || b;
    case CUDA_TYPED_XOR: return !a != !b;
    case CUDA_TYPED_NOT: return !a;
    case CUDA_TYPED_POW: return typed_power(l.from[0], a, l.from[1], b);
    default: return a;
    }
}

CUDA_DEVICE bool typed_holds(const struct cuda_typed &l, bool below, bool equal, bool above)
{
    switch (l.function) {
    case CUDA_TYPED_EQUAL: return equal;
    case CUDA_TYPED_LESS: return below;
    case CUDA_TYPED_LESS_OR_EQUAL: return below || equal;
    case CUDA_TYPED_GREATER: return above;
    default: return above || equal;
    }
}

CUDA_DEVICE bool typed_compare(const struct cuda_typed &l, int64_t ia, int64_t ib)
{
    if (typed_is_float(l.from[0])) {
        double a = typed_real(l.from[0], l.in[0], ia), b = typed_real(l.from[1], l.in[1], ib);

        return typed_holds(l, a < b, a == b, a > b);
    } else {
        int order = typed_order(l.from[0], typed_whole(l.from[0], l.in[0], ia),
                                typed_whole(l.from[1], l.in[1], ib));

        return typed_holds(l, order < 0, order == 0, order > 0);
    }
}

CUDA_DEVICE bool typed_infinite(const struct cuda_typed &l, double x)
{
    return (x > 1.7976931348623157e308 && l.positive) ||
           (x < -1.7976931348623157e308 && l.negative);
}

CUDA_DEVICE double typed_real_of(const struct cuda_typed &l, const int64_t *at)
{
    double a = typed_real(l.from[0], l.in[0], at[0]);
    double b = l.in[1] ? typed_real(l.from[1], l.in[1], at[1]) : 0;
    double c = l.in[2] ? typed_real(l.from[2], l.in[2], at[2]) : 0;

    switch (l.function) {
    case CUDA_TYPED_POW: return pow(a, b);
    case CUDA_TYPED_POW_GRAD: return c == 0 ? 0 : a * c * pow(b, c - 1);
    default: return a;
    }
}

CUDA_DEVICE bool typed_reals(const struct cuda_typed &l)
{
    return typed_is_float(l.from[0]) || typed_is_float(l.to) ||
           (l.function == CUDA_TYPED_POW && typed_is_float(l.from[1]));
}

CUDA_DEVICE void typed_element(const struct cuda_typed &l, int64_t e, const int64_t *at)
{
    if (l.function == CUDA_TYPED_IS_NAN || l.function == CUDA_TYPED_IS_INF) {
        double x = typed_real(l.from[0], l.in[0], at[0]);

        typed_put_whole(l.to, l.out, e,
                        l.function == CUDA_TYPED_IS_NAN ? x != x : typed_infinite(l, x));
    } else if (l.function >= CUDA_TYPED_EQUAL) {
        typed_put_whole(l.to, l.out, e, typed_compare(l, at[0], at[1]));
    } else if (typed_reals(l)) {
        typed_put_real(l.to, l.out, e, typed_real_of(l, at));
    } else {
        int64_t y = typed_arithmetic(l, typed_whole(l.from[0], l.in[0], at[0]),
                                     l.in[1] ? typed_whole(l.from[1], l.in[1], at[1]) : 0);

        typed_put_whole(l.to, l.out, e, y);
    }
}

// y[n] of the walk's shape.
CUDA_KERNEL(kernel_typed, cuda_typed)
{
    CUDA_EACH(e, l.walk.elements) {
        int64_t at[3];

        walk_places<3>(l.walk, e, at);
        typed_element(l, e, at);
    }
}

cudaError_t cuda_launch_typed(cudaStream_t stream, const struct cuda_typed *launch)
{
    return CUDA_LAUNCH(kernel_typed, cuda_grid(launch->walk.elements, CUDA_BLOCK), CUDA_BLOCK,
                       launch, stream);
}

// A line of 'length' elements, 'after' apart, from 'start' on.
CUDA_DEVICE void sum_along(const struct cuda_cumsum &l, int64_t start)
{
    bool real = typed_is_float(l.dtype);
    uint64_t whole = 0;
    double sum = 0;

    for (int64_t a = 0; a < l.length; a++) {
        int64_t at = start + (l.reverse ? l.length - 1 - a : a) * l.after;
        uint64_t w = real ? 0 : (uint64_t)typed_whole(l.dtype, l.in, at);
        double x = real ? typed_real(l.dtype, l.in, at) : 0;

        if (real)
            typed_put_real(l.dtype, l.out, at, l.exclusive ? sum : sum + x);
        else
            typed_put_whole(l.dtype, l.out, at, (int64_t)(l.exclusive ? whole : whole + w));
        sum += x;
        whole += w;
    }
}

// x, y[before, length, after].
CUDA_KERNEL(kernel_cumsum, cuda_cumsum)
{
    CUDA_EACH(i, l.before * l.after)
        sum_along(l, i / l.after * l.length * l.after + i % l.after);
}

cudaError_t cuda_launch_cumsum(cudaStream_t stream, const struct cuda_cumsum *launch)
{
    return CUDA_LAUNCH(kernel_cumsum, cuda_grid(launch->before * launch->after, CUDA_BLOCK),
                       CUDA_BLOCK, launch, stream);
}

// Does element a come before element b?
CUDA_DEVICE bool precedes(const struct cuda_order &l, int64_t a, int64_t b)
{
    if (typed_is_float(l.dtype)) {
        double u = typed_real(l.dtype, l.in, a), v = typed_real(l.dtype, l.in, b);

        if (u != u || v != v)
            return l.smallest ? v != v && u == u : u != u && v == v;
        return l.smallest ? u < v : u > v;
    } else {
        int order =
            typed_order(l.dtype, typed_whole(l.dtype, l.in, a), typed_whole(l.dtype, l.in, b));

        return l.smallest ? order < 0 : order > 0;
    }
}

CUDA_DEVICE int64_t first_in_order(const struct cuda_order &l, int64_t base)
{
    int64_t best = 0;

    for (int64_t a = 1; a < l.length; a++) {
        int64_t at = base + a * l.after, than = base + best * l.after;

        if (precedes(l, at, than) || (l.last && !precedes(l, than, at)))
            best = a;
    }
    return best;
}

// Put 'a' among the n first, which are in order.
CUDA_DEVICE void insert_in_order(const struct cuda_order &l, int64_t base, int64_t to,
                                 int64_t a, int64_t n)
{
    int64_t p = n;

    for (; p > 0; p--) {
        int64_t before = l.indices[to + (p - 1) * l.after];

        if (!precedes(l, base + a * l.after, base + before * l.after))
            break;
        if (p < l.count)
            l.indices[to + p * l.after] = before;
    }
    if (p < l.count)
        l.indices[to + p * l.after] = a;
}

CUDA_DEVICE void take_in_order(const struct cuda_order &l, int64_t base, int64_t to)
{
    for (int64_t a = 0; a < l.length; a++)
        insert_in_order(l, base, to, a, a < l.count ? a : l.count);
    for (int64_t p = 0; p < l.count; p++) {
        int64_t at = base + l.indices[to + p * l.after] * l.after;

        if (typed_is_float(l.dtype))
            typed_put_real(l.dtype, l.values, to + p * l.after, typed_real(l.dtype, l.in, at));
        else
            typed_put_whole(l.dtype, l.values, to + p * l.after,
                            typed_whole(l.dtype, l.in, at));
    }
}

CUDA_KERNEL(kernel_order, cuda_order)
{
    CUDA_EACH(i, l.before * l.after) {
        int64_t o = i / l.after, inner = i % l.after, base = o * l.length * l.after + inner;

        if (l.values)
            take_in_order(l, base, o * l.count * l.after + inner);
        else
            l.indices[i] = first_in_order(l, base);
    }
}

cudaError_t cuda_launch_order(cudaStream_t stream, const struct cuda_order *launch)
{
    return CUDA_LAUNCH(kernel_order, cuda_grid(launch->before * launch->after, CUDA_BLOCK),
                       CUDA_BLOCK, launch, stream);
}
