/* SPDX-License-Identifier: MIT */
/* ONNX's rules for axes, reshapes, slices and broadcasts, on plain numbers. */
#ifndef TASUKI_GRAPH_DIMS_H
#define TASUKI_GRAPH_DIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"

struct err;

/* Elements of a tensor are limited so that bytes and sums of a few never overflow. */
#define DIMS_MAX_ELEMENTS ((int64_t)1 << 40)

/* Product of the dimensions; fails above DIMS_MAX_ELEMENTS, or where one is negative. */
int dims_elements(const struct shape *shape, int64_t *elements, struct err *err);

/* -rank … rank-1 to 0 … rank-1. */
int dims_axis(int64_t axis, int rank, int *result, struct err *err);

/* Sorted and distinct axes; without any (n == 0) and 'all', each axis. */
int dims_axes(int n, const int64_t *axes, int rank, bool all, int *n_result, int *result,
              struct err *err);

/* The shape that 'dims' with their 0 (copy) and -1 (the rest) stand for. */
int dims_reshape(const struct shape *from, int n, const int64_t *dims, bool allow_zero,
                 struct shape *result, struct err *err);
int dims_squeeze(const struct shape *from, int n, const int64_t *axes, struct shape *result,
                 struct err *err);
int dims_unsqueeze(const struct shape *from, int n, const int64_t *axes, struct shape *result,
                   struct err *err);
int dims_flatten(const struct shape *from, int64_t axis, struct shape *result,
                 struct err *err);
int dims_broadcast(const struct shape *a, const struct shape *b, struct shape *result,
                   struct err *err);

/* One axis of a slice: 'start' and 'end' clamped as ONNX says; returns the length. With a
 * negative step 'end' is -1 where element 0 is the last.
 */
int64_t dims_slice(int64_t dim, int64_t *start, int64_t *end, int64_t step);

#endif
