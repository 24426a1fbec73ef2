/* SPDX-License-Identifier: MIT */
/* Arithmetic on integers as ONNX means it: modulo 2^64, division towards zero. */
#ifndef TASUKI_GRAPH_INTEGER_H
#define TASUKI_GRAPH_INTEGER_H

#include "graph/dtype.h"

int64_t integer_smallest(enum dtype dtype);
int64_t integer_largest(enum dtype dtype);
/* -1, 0, 1: a < b, a == b, a > b. */
int integer_order(enum dtype dtype, int64_t a, int64_t b);
int64_t integer_power(enum dtype dtype, int64_t base, enum dtype of_exponent, int64_t exponent);
/* -1 where b is 0. The rest has the sign of b, or with 'c_rule' of a. */
int integer_divide(enum dtype dtype, int64_t a, int64_t b, int64_t *result);
int integer_rest(enum dtype dtype, int64_t a, int64_t b, bool c_rule, int64_t *result);

#endif
