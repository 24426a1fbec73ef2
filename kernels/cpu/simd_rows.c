/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"

/* Long sums are taken in pieces of this many floats, and the pieces added in double: few enough for
 * a compiler that adds one after the other, too.
 */
enum { PIECE = 512 };

static size_t piece(size_t n, size_t at)
{
    return n - at < PIECE ? n - at : PIECE;
}

static double sum(size_t n, const float *x)
{
    double total = 0;
    size_t at, i, m;

    for (at = 0; at < n; at += PIECE) {
        float s = 0;
        m = piece(n, at);
#pragma omp simd reduction(+ : s)
        for (i = 0; i < m; i++)
            s += x[at + i];
        total += s;
    }
    return total;
}

static double dot(size_t n, const float *a, const float *b)
{
    double total = 0;
    size_t at, i, m;

    for (at = 0; at < n; at += PIECE) {
        float s = 0;
        m = piece(n, at);
#pragma omp simd reduction(+ : s)
        for (i = 0; i < m; i++)
            s += a[at + i] * b[at + i];
        total += s;
    }
    return total;
}

static double sum_squares(size_t n, const float *x)
{
    double total = 0;
    size_t i;

#pragma omp simd reduction(+ : total)
    for (i = 0; i < n; i++)
        total += (double)x[i] * (double)x[i];
    return total;
}

static float max(size_t n, const float *x)
{
    float m = -INFINITY;
    size_t i;

#pragma omp simd reduction(max : m)
    for (i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* Exponentials of x - m, over their sum, which is returned. */
static float exponentials(size_t n, const float *x, float m, float *y)
{
    float s = 0, inverse;
    size_t i;

#pragma omp simd reduction(+ : s)
    for (i = 0; i < n; i++) {
        float e = simd_exp(x[i] - m);
        y[i] = e;
        s += e;
    }
    inverse = 1.0f / s;
#pragma omp simd
    for (i = 0; i < n; i++)
        y[i] *= inverse;
    return s;
}

static void softmax(size_t n, const float *x, float *y)
{
    exponentials(n, x, max(n, x), y);
}

static void softmax_grad(size_t n, const float *y, const float *dy, float *dx)
{
    float s = (float)dot(n, y, dy);
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - s);
}

static float log_sum_exp(size_t n, const float *x, float *p)
{
    float m = max(n, x), s = 0;
    size_t i;

    if (!p) {
#pragma omp simd reduction(+ : s)
        for (i = 0; i < n; i++)
            s += simd_exp(x[i] - m);
        return m + logf(s);
    }
    return m + logf(exponentials(n, x, m, p));
}

static void layernorm(size_t n, const float *x, const float *scale, const float *bias,
                      float epsilon, float *y, float *mean, float *inv_std)
{
    float m = (float)(sum(n, x) / (double)n), v = 0, r;
    size_t i;

#pragma omp simd reduction(+ : v)
    for (i = 0; i < n; i++)
        v += (x[i] - m) * (x[i] - m);
    r = 1.0f / sqrtf(v / (float)n + epsilon);
    if (bias) {
#pragma omp simd
        for (i = 0; i < n; i++)
            y[i] = (x[i] - m) * r * scale[i] + bias[i];
    } else {
#pragma omp simd
        for (i = 0; i < n; i++)
            y[i] = (x[i] - m) * r * scale[i];
    }
    if (mean)
        *mean = m;
    if (inv_std)
        *inv_std = r;
}

static void layernorm_dgrad(size_t n, const float *x, const float *dy, const float *scale,
                            float mean, float inv_std, float *dx)
{
    float s = 0, p = 0, a, b;
    size_t i;

#pragma omp simd reduction(+ : s, p)
    for (i = 0; i < n; i++) {
        float g = dy[i] * scale[i];
        s += g;
        p += g * (x[i] - mean);
    }
    a = s / (float)n;
    b = p * inv_std * inv_std / (float)n;
#pragma omp simd
    for (i = 0; i < n; i++)
        dx[i] = (dy[i] * scale[i] - a - (x[i] - mean) * b) * inv_std;
}

static void layernorm_wgrad(size_t n, const float *x, const float *dy, float mean,
                            float inv_std, float *dscale, float *dbias)
{
    size_t i;

    if (dscale) {
#pragma omp simd
        for (i = 0; i < n; i++)
            dscale[i] += dy[i] * ((x[i] - mean) * inv_std);
    }
    if (dbias) {
#pragma omp simd
        for (i = 0; i < n; i++)
            dbias[i] += dy[i];
    }
}

static void row_moments(size_t n, const float *x, float shift, double *total, double *squares)
{
    size_t at, i, m;

    for (at = 0; at < n; at += PIECE) {
        float s = 0, q = 0;
        m = piece(n, at);
#pragma omp simd reduction(+ : s, q)
        for (i = 0; i < m; i++) {
            float d = x[at + i] - shift;
            s += d;
            q += d * d;
        }
        *total += s;
        *squares += q;
    }
}

static void row_products(size_t n, const float *x, const float *dy, float shift, double *total,
                         double *products)
{
    size_t at, i, m;

    for (at = 0; at < n; at += PIECE) {
        float s = 0, q = 0;
        m = piece(n, at);
#pragma omp simd reduction(+ : s, q)
        for (i = 0; i < m; i++) {
            s += dy[at + i];
            q += dy[at + i] * (x[at + i] - shift);
        }
        *total += s;
        *products += q;
    }
}

static void row_affine(size_t n, const float *x, float m, float a, float b, float *y)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        y[i] = (x[i] - m) * a + b;
}

static void row_affine2(size_t n, const float *dy, const float *x, float c, float a, float m,
                        float b, float *dx)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        dx[i] = (dy[i] - c) * a + (x[i] - m) * b;
}

void SIMD(fill_rows)(struct simd *table)
{
    table->sum = sum;
    table->dot = dot;
    table->sum_squares = sum_squares;
    table->max = max;
    table->softmax = softmax;
    table->softmax_grad = softmax_grad;
    table->log_sum_exp = log_sum_exp;
    table->layernorm = layernorm;
    table->layernorm_dgrad = layernorm_dgrad;
    table->layernorm_wgrad = layernorm_wgrad;
    table->row_moments = row_moments;
    table->row_products = row_products;
    table->row_affine = row_affine;
    table->row_affine2 = row_affine2;
}
