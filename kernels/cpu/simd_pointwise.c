/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"

#define BINARY(name, op)                                                                       \
    static void name(size_t n, const float *a, int sa, const float *b, int sb, float *y)       \
    {                                                                                          \
        size_t i;                                                                              \
                                                                                               \
        if (sa && sb) {                                                                        \
            _Pragma("omp simd") for (i = 0; i < n; i++) y[i] = a[i] op b[i];                   \
        } else if (sa) {                                                                       \
            const float s = b[0];                                                              \
            _Pragma("omp simd") for (i = 0; i < n; i++) y[i] = a[i] op s;                      \
        } else {                                                                               \
            const float s = a[0];                                                              \
            _Pragma("omp simd") for (i = 0; i < n; i++) y[i] = s op b[sb ? i : 0];             \
        }                                                                                      \
    }

BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
BINARY(divide, /)

static void binary(enum simd_binary op, size_t n, const float *a, int sa, const float *b,
                   int sb, float *y)
{
    switch (op) {
    case SIMD_ADD:
        add(n, a, sa, b, sb, y);
        break;
    case SIMD_SUB:
        sub(n, a, sa, b, sb, y);
        break;
    case SIMD_MUL:
        mul(n, a, sa, b, sb, y);
        break;
    case SIMD_DIV:
        divide(n, a, sa, b, sb, y);
        break;
    }
}

#define EACH(expression)                                                                       \
    do {                                                                                       \
        _Pragma("omp simd") for (i = 0; i < n; i++)                                            \
        {                                                                                      \
            float v = x[i];                                                                    \
            y[i] = (expression);                                                               \
        }                                                                                      \
    } while (0)

static void unary(enum simd_unary op, size_t n, const float *x, float *y)
{
    size_t i;

    switch (op) {
    case SIMD_NEG:
        EACH(-v);
        break;
    case SIMD_RELU:
        EACH(v < 0 ? 0 : v); /* NaN stays NaN */
        break;
    case SIMD_SQRT:
        EACH(sqrtf(v));
        break;
    case SIMD_RECIPROCAL:
        EACH(1.0f / v);
        break;
    case SIMD_EXP:
        EACH(simd_exp(v));
        break;
    case SIMD_TANH:
        EACH(simd_tanh(v));
        break;
    case SIMD_SIGMOID:
        EACH(simd_sigmoid(v));
        break;
    case SIMD_GELU:
        EACH(v * simd_normal(v, simd_exp(-0.5f * v * v)));
        break;
    case SIMD_COPY:
        memmove(y, x, n * sizeof(*x));
        break;
    }
}

#define SLOPE(expression)                                                                      \
    do {                                                                                       \
        _Pragma("omp simd") for (i = 0; i < n; i++)                                            \
        {                                                                                      \
            float g = dy[i], v = kept[i];                                                      \
            dx[i] = (expression);                                                              \
        }                                                                                      \
    } while (0)

static inline float gelu_slope(float x)
{
    float e = simd_exp(-0.5f * x * x);

    return simd_normal(x, e) + x * 0.398942280f * e;
}

static void slope(enum simd_slope op, size_t n, const float *dy, const float *kept, float *dx)
{
    size_t i;

    switch (op) {
    case SIMD_RELU_SLOPE:
        SLOPE(v > 0 ? g : 0);
        break;
    case SIMD_GELU_SLOPE:
        SLOPE(g * gelu_slope(v));
        break;
    case SIMD_TANH_SLOPE:
        SLOPE(g * (1.0f - v * v));
        break;
    case SIMD_SIGMOID_SLOPE:
        SLOPE(g * v * (1.0f - v));
        break;
    }
}

/* A NaN stays one. */
static inline float between(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static void curve(enum simd_curve op, float a, float b, size_t n, const float *x, float *y)
{
    size_t i;

    switch (op) {
    case SIMD_ABS:
        EACH(fabsf(v));
        break;
    case SIMD_CLIP:
        EACH(between(v, a, b));
        break;
    case SIMD_LEAKY_RELU:
        EACH(v < 0 ? a * v : v);
        break;
    case SIMD_HARD_SIGMOID:
        EACH(between(a * v + b, 0.0f, 1.0f));
        break;
    case SIMD_HARD_SWISH:
        EACH(v * between(v * (1.0f / 6) + 0.5f, 0.0f, 1.0f));
        break;
    case SIMD_SWISH:
        EACH(v * simd_sigmoid(a * v));
        break;
    }
}

static inline float swish_slope(float x, float a)
{
    float s = simd_sigmoid(a * x);

    return s + a * x * s * (1.0f - s);
}

static void curve_slope(enum simd_curve op, float a, float b, size_t n, const float *dy,
                        const float *kept, float *dx)
{
    size_t i;

    switch (op) {
    case SIMD_ABS:
        SLOPE(v > 0 ? g : v < 0 ? -g : 0);
        break;
    case SIMD_CLIP:
        SLOPE(v >= a && v <= b ? g : 0);
        break;
    case SIMD_LEAKY_RELU:
        SLOPE(v > 0 ? g : a * g);
        break;
    case SIMD_HARD_SIGMOID:
        SLOPE(a * v + b > 0 && a * v + b < 1 ? a * g : 0);
        break;
    case SIMD_HARD_SWISH:
        SLOPE(v < -3 ? 0 : v <= 3 ? g * (v * (1.0f / 3) + 0.5f) : g);
        break;
    case SIMD_SWISH:
        SLOPE(g * swish_slope(v, a));
        break;
    }
}

static void axpy(size_t n, float a, const float *x, float *y)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void scale(size_t n, float a, const float *x, float *y)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        y[i] = a * x[i];
}

static void max_into(size_t n, const float *x, int32_t at, float *y, int32_t *pos)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++) {
        int take = !(x[i] <= y[i]);

        y[i] = take ? x[i] : y[i];
        pos[i] = take ? at : pos[i];
    }
}

static void max_grad(size_t n, const float *dy, const int32_t *pos, int32_t at, float *dx)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        dx[i] += pos[i] == at ? dy[i] : 0;
}

static void transpose(size_t rows, size_t columns, const float *x, size_t sx, float *y,
                      size_t sy)
{
    enum { TILE = 16 };
    size_t i, j, k, m;

    for (i = 0; i < rows; i += TILE) {
        m = rows - i < TILE ? rows - i : TILE;
        for (j = 0; j < columns; j++)
            for (k = 0; k < m; k++)
                y[j * sy + i + k] = x[(i + k) * sx + j];
    }
}

void SIMD(fill_pointwise)(struct simd *table)
{
    table->binary = binary;
    table->unary = unary;
    table->slope = slope;
    table->curve = curve;
    table->curve_slope = curve_slope;
    table->axpy = axpy;
    table->scale = scale;
    table->max_into = max_into;
    table->max_grad = max_grad;
    table->transpose = transpose;
}
