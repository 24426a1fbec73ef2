/* SPDX-License-Identifier: MIT */
#include "train/convert.h"

#include <stdint.h>
#include <string.h>

static double load_real(enum dtype dtype, const char *from)
{
    float f;
    double d;

    if (dtype == DTYPE_F32) {
        memcpy(&f, from, sizeof(f));
        return (double)f;
    }
    memcpy(&d, from, sizeof(d));
    return d;
}

static int64_t load_int(enum dtype dtype, const char *from)
{
    int32_t i;
    int64_t l;

    switch (dtype) {
    case DTYPE_I32:
        memcpy(&i, from, sizeof(i));
        return i;
    case DTYPE_I64:
        memcpy(&l, from, sizeof(l));
        return l;
    default:
        return *(const unsigned char *)from;
    }
}

static void store(enum dtype to, char *out, double real, int64_t whole)
{
    float f = (float)real;
    int32_t i = (int32_t)whole;

    switch (to) {
    case DTYPE_F32: memcpy(out, &f, sizeof(f)); break;
    case DTYPE_F64: memcpy(out, &real, sizeof(real)); break;
    case DTYPE_I32: memcpy(out, &i, sizeof(i)); break;
    case DTYPE_I64: memcpy(out, &whole, sizeof(whole)); break;
    default: *(unsigned char *)out = (unsigned char)whole; break;
    }
}

void convert(enum dtype from, const void *source, enum dtype to, void *target, size_t n)
{
    const char *in = source;
    char *out = target;
    size_t in_size = dtype_size(from), out_size = dtype_size(to);

    if (from == to) {
        memcpy(out, in, n * in_size);
        return;
    }
    for (size_t i = 0; i < n; i++, in += in_size, out += out_size) {
        if (dtype_is_float(from)) {
            store(to, out, load_real(from, in), 0);
        } else {
            int64_t whole = load_int(from, in);

            store(to, out, (double)whole, whole);
        }
    }
}
