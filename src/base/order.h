/* SPDX-License-Identifier: MIT */
/* Ascending numbers, for qsort(), and what is in order mostly. */
#ifndef TASUKI_BASE_ORDER_H
#define TASUKI_BASE_ORDER_H

#include <stdlib.h>

static inline int order_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

static inline int order_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* qsort(), where they are not sorted already. */
static inline void order_sort(void *items, size_t n, size_t size,
                              int (*compare)(const void *, const void *))
{
    const char *at = items;

    for (size_t i = 1; i < n; i++, at += size)
        if (compare(at, at + size) > 0) {
            qsort(items, n, size, compare);
            return;
        }
}

#endif
