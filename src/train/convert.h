/* SPDX-License-Identifier: MIT */
/* Numbers from one type to another on the host. */
#ifndef TASUKI_TRAIN_CONVERT_H
#define TASUKI_TRAIN_CONVERT_H

#include <stddef.h>

#include "graph/graph.h"

/* 'n' elements, unaligned on both sides. Floats to integers is not supported: the caller
 * refuses it.
 */
void convert(enum dtype from, const void *in, enum dtype to, void *out, size_t n);

#endif
