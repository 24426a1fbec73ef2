/* SPDX-License-Identifier: MIT */
/* Ascending numbers, for qsort(). */
#ifndef TASUKI_BASE_ORDER_H
#define TASUKI_BASE_ORDER_H

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

#endif
