/* SPDX-License-Identifier: MIT */
/* Arithmetic on whole numbers as ONNX means it: modulo 2^64, division towards zero. */
#ifndef TASUKI_GRAPH_INTEGER_H
#define TASUKI_GRAPH_INTEGER_H

#include <stdbool.h>
#include <stdint.h>

int64_t integer_power(int64_t base, int64_t exponent);
/* -1 where b is 0. The rest has the sign of b, or with 'c_rule' of a. */
int integer_divide(int64_t a, int64_t b, int64_t *result);
int integer_rest(int64_t a, int64_t b, bool c_rule, int64_t *result);

#endif
