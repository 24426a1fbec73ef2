/* SPDX-License-Identifier: MIT */
/* Types of elements, and arrays of them that need not be aligned. */
#ifndef TASUKI_GRAPH_DTYPE_H
#define TASUKI_GRAPH_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_NONE, DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_BOOL, DTYPE_U8, DTYPE_I8,
    DTYPE_I16, DTYPE_U16, DTYPE_U32, DTYPE_U64,
    DTYPE_F16, DTYPE_BF16       /* of files only: values are of the run's floating type */
};

#define DTYPE_F16_END 65520     /* from there on a number is infinite as float16 */

size_t dtype_size(enum dtype dtype);        /* bytes; 0 for DTYPE_NONE */
const char *dtype_name(enum dtype dtype);   /* "float32", "int64", … */
bool dtype_is_float(enum dtype dtype);
bool dtype_is_unsigned(enum dtype dtype);   /* no negative numbers; so is bool */

/* An integer or bool of any type is handled as an int64_t: a uint64 as the one of the same
 * bits, which is less than 0 from 2^63 on.
 *
 * What a type makes of a number: it modulo 2^bits; of a real one what is left of the decimal
 * point, where that is beyond 64 bits the nearest of them, and of a NaN 0.
 */
int64_t dtype_wrap(enum dtype dtype, int64_t x);
int64_t dtype_truncate(enum dtype dtype, double x);
/* An element of the type as a real number. */
double dtype_widen(enum dtype dtype, int64_t x);

/* Element 'i' of an array as a real number or an integer; a real one truncated as to int64. */
double dtype_real(enum dtype dtype, const void *data, int64_t i);
int64_t dtype_whole(enum dtype dtype, const void *data, int64_t i);
/* Set it; to an integer where it is of an integer type or bool. */
void dtype_put_real(enum dtype dtype, void *data, int64_t i, double x);
void dtype_put_whole(enum dtype dtype, void *data, int64_t i, int64_t x);
/* 'n' elements. */
void dtype_convert(enum dtype from, const void *in, enum dtype to, void *out, size_t n);

#endif
