/* SPDX-License-Identifier: MIT */
/* NumPy's .npy format, versions 1 to 3: one array in a file.
 *
 * "\x93NUMPY", two bytes of version, the length of the header (16 bits little-endian in version
 * 1, else 32), the header, which is a Python dictionary { 'descr': '<f4', 'fortran_order':
 * False, 'shape': (3, 4), }, then the elements. Read strictly: those three keys, each once, and
 * as many bytes as the shape says. Arrays that are not row-major and little-endian are refused.
 */
#ifndef TASUKI_TRAIN_NPY_H
#define TASUKI_TRAIN_NPY_H

#include <stddef.h>

#include "graph/graph.h"

struct err;

#define NPY_MAGIC "\x93NUMPY"

struct npy {
    enum dtype dtype;
    struct shape shape;
    const void *data;       /* in the bytes that were parsed; may be unaligned */
};

/* 'path' is for errors. The array lies in 'bytes'. */
int npy_parse(const char *path, const unsigned char *bytes, size_t size, struct npy *npy,
              struct err *err);

#endif
