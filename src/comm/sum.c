/* SPDX-License-Identifier: MIT */
#include "comm/sum.h"

#include <stdint.h>
#include <string.h>

#include "base/err.h"

enum { RUN = 512 };     /* elements that stay in the cache while they are summed */

size_t sum_element(enum dtype dtype, struct err *err)
{
    switch (dtype) {
    case DTYPE_F32: case DTYPE_I32: return 4;
    case DTYPE_F64: case DTYPE_I64: return 8;
    default:
        err_set(err, "this type of element cannot be summed");
        return 0;
    }
}

#define DEFINE_ADD(name, type)                                  \
    static void name(type *sum, const void *part, size_t n)     \
    {                                                           \
        const type *x = part;                                   \
                                                                \
        _Pragma("omp simd")                                     \
        for (size_t i = 0; i < n; i++)                          \
            sum[i] += x[i];                                     \
    }

DEFINE_ADD(add_f32, float)
DEFINE_ADD(add_f64, double)
DEFINE_ADD(add_i32, int32_t)
DEFINE_ADD(add_i64, int64_t)

void sum_parts(enum dtype dtype, int members, const void *(*part)(const void *context, int m),
               const void *context, size_t n, void *into)
{
    union {
        float f32[RUN];
        double f64[RUN];
        int32_t i32[RUN];
        int64_t i64[RUN];
    } sum;
    size_t size = sum_element(dtype, NULL);

    for (size_t at = 0; at < n; at += RUN) {
        size_t length = n - at < RUN ? n - at : RUN;

        memcpy(&sum, (const char *)part(context, 0) + at * size, length * size);
        for (int m = 1; m < members; m++) {
            const char *x = (const char *)part(context, m) + at * size;

            switch (dtype) {
            case DTYPE_F32: add_f32(sum.f32, x, length); break;
            case DTYPE_F64: add_f64(sum.f64, x, length); break;
            case DTYPE_I32: add_i32(sum.i32, x, length); break;
            default: add_i64(sum.i64, x, length); break;
            }
        }
        memcpy((char *)into + at * size, &sum, length * size);
    }
}
