/* SPDX-License-Identifier: MIT */
/* Sums of what the members of a group have, element by element in the order of the members. */
#ifndef TASUKI_COMM_SUM_H
#define TASUKI_COMM_SUM_H

#include <stddef.h>

#include "graph/graph.h"    /* enum dtype */

struct err;

/* Bytes of an element; 0 with 'err' where such elements cannot be summed. */
size_t sum_element(enum dtype dtype, struct err *err);

/* Member m's 'n' elements start at part(context, m). The sum goes to 'into', which may be the
 * part of one of them.
 */
void sum_parts(enum dtype dtype, int members, const void *(*part)(const void *context, int m),
               const void *context, size_t n, void *into);

#endif
