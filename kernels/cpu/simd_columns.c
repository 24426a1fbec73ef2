/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"

/* Columns are taken WIDE at a time over ROWS rows, with sums that stay in the nearest cache,
 * and then added in double. With fewer columns the processor fetches no row ahead.
 */
enum { WIDE = 256, ROWS = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void column_sum(size_t rows, size_t n, size_t stride, const float *x, double *total)
{
    size_t r, r0, c, c0, m;

    for (c0 = 0; c0 < n; c0 += WIDE) {
        m = least(n - c0, WIDE);
        for (r0 = 0; r0 < rows; r0 += ROWS) {
            float s[WIDE] = {0};

            for (r = r0; r < least(rows, r0 + ROWS); r++) {
                const float *row = x + r * stride + c0;
#pragma omp simd
                for (c = 0; c < m; c++)
                    s[c] += row[c];
            }
            for (c = 0; c < m; c++)
                total[c0 + c] += s[c];
        }
    }
}

static void column_moments(size_t rows, size_t n, const float *x, const float *shift,
                           double *total, double *squares)
{
    size_t r, r0, c, c0, m;

    for (c0 = 0; c0 < n; c0 += WIDE) {
        m = least(n - c0, WIDE);
        for (r0 = 0; r0 < rows; r0 += ROWS) {
            float s[WIDE] = {0}, q[WIDE] = {0};

            for (r = r0; r < least(rows, r0 + ROWS); r++) {
                const float *row = x + r * n + c0;
#pragma omp simd
                for (c = 0; c < m; c++) {
                    float d = row[c] - shift[c0 + c];
                    s[c] += d;
                    q[c] += d * d;
                }
            }
            for (c = 0; c < m; c++) {
                total[c0 + c] += s[c];
                squares[c0 + c] += q[c];
            }
        }
    }
}

static void column_products(size_t rows, size_t n, const float *x, const float *dy,
                            const float *shift, double *total, double *products)
{
    size_t r, r0, c, c0, m;

    for (c0 = 0; c0 < n; c0 += WIDE) {
        m = least(n - c0, WIDE);
        for (r0 = 0; r0 < rows; r0 += ROWS) {
            float s[WIDE] = {0}, q[WIDE] = {0};

            for (r = r0; r < least(rows, r0 + ROWS); r++) {
                const float *row = x + r * n + c0, *slope = dy + r * n + c0;
#pragma omp simd
                for (c = 0; c < m; c++) {
                    s[c] += slope[c];
                    q[c] += slope[c] * (row[c] - shift[c0 + c]);
                }
            }
            for (c = 0; c < m; c++) {
                total[c0 + c] += s[c];
                products[c0 + c] += q[c];
            }
        }
    }
}

static void column_affine(size_t rows, size_t n, const float *x, const float *m, const float *a,
                          const float *b, float *y)
{
    size_t r, c;

    for (r = 0; r < rows; r++, x += n, y += n) {
#pragma omp simd
        for (c = 0; c < n; c++)
            y[c] = (x[c] - m[c]) * a[c] + b[c];
    }
}

static void column_affine2(size_t rows, size_t n, const float *dy, const float *x,
                           const float *c, const float *a, const float *m, const float *b,
                           float *dx)
{
    size_t r, i;

    for (r = 0; r < rows; r++, x += n, dy += n, dx += n) {
#pragma omp simd
        for (i = 0; i < n; i++)
            dx[i] = (dy[i] - c[i]) * a[i] + (x[i] - m[i]) * b[i];
    }
}

void SIMD(fill_columns)(struct simd *table)
{
    table->column_sum = column_sum;
    table->column_moments = column_moments;
    table->column_products = column_products;
    table->column_affine = column_affine;
    table->column_affine2 = column_affine2;
}
