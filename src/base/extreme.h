/* SPDX-License-Identifier: MIT */
/* The larger and the smaller of two numbers that are numbers: fmax() and fmin() have to think of
 * NaN, and are calls of a library for that.
 */
#ifndef TASUKI_BASE_EXTREME_H
#define TASUKI_BASE_EXTREME_H

static inline double dmax(double a, double b)
{
    return a > b ? a : b;
}

static inline double dmin(double a, double b)
{
    return a < b ? a : b;
}

#endif
