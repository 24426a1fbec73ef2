/* SPDX-License-Identifier: MIT */
/* Inner loops of the CPU backend, float32, one thread each.
 *
 * The sources simd_*.c are portable C that the compiler vectorises. On x86-64 they are
 * compiled several times for different instruction sets, and simd_best() picks the table for
 * the processor it runs on; elsewhere there is one table for the target the build chose.
 */
#ifndef TASUKI_KERNELS_CPU_SIMD_H
#define TASUKI_KERNELS_CPU_SIMD_H

#include <stddef.h>
#include <stdint.h>

struct err;

enum simd_binary { SIMD_ADD, SIMD_SUB, SIMD_MUL, SIMD_DIV };

enum simd_unary {
    SIMD_NEG,
    SIMD_RELU,
    SIMD_SQRT,
    SIMD_RECIPROCAL,
    SIMD_EXP,
    SIMD_TANH,
    SIMD_SIGMOID,
    SIMD_GELU,
    SIMD_COPY
};

/* Gradients of pointwise functions: dx from dy and what the forward pass kept. */
enum simd_slope {
    SIMD_RELU_SLOPE,   /* kept: y (or x) */
    SIMD_GELU_SLOPE,   /* kept: x */
    SIMD_TANH_SLOPE,   /* kept: y */
    SIMD_SIGMOID_SLOPE /* kept: y */
};

/* Functions with parameters a and b, and their gradients from x. */
enum simd_curve {
    SIMD_ABS,
    SIMD_CLIP,          /* between a and b */
    SIMD_LEAKY_RELU,    /* slope a */
    SIMD_HARD_SIGMOID,  /* a x + b */
    SIMD_HARD_SWISH,
    SIMD_SWISH          /* x sigmoid(a x) */
};

struct simd_dropout {       /* philox.h */
    uint64_t key;
    uint32_t step, sample;
    uint64_t first;         /* element of the sample that x[0] is */
    uint32_t threshold;     /* dropped where the word is below */
    float scale;
};

struct simd_update { /* constants of one optimizer step, see optimize.c */
    float lr, g_scale, decay, momentum, rest1, beta2, rest2; /* rest: 1 - beta */
    float epsilon, step_size, root_scale, keep;              /* keep: 1 - lr * decay */
    float m_scale, trusted;                                  /* LAMB; trusted: lr * trust */
};

struct simd {
    const char *name;
    /* y[i] = a[i*sa] op b[i*sb]; strides are 0 or 1. y may be a or b. */
    void (*binary)(enum simd_binary op, size_t n, const float *a, int sa, const float *b,
                   int sb, float *y);
    void (*unary)(enum simd_unary op, size_t n, const float *x, float *y);
    void (*slope)(enum simd_slope op, size_t n, const float *dy, const float *kept, float *dx);
    void (*curve)(enum simd_curve op, float a, float b, size_t n, const float *x, float *y);
    void (*curve_slope)(enum simd_curve op, float a, float b, size_t n, const float *dy,
                        const float *x, float *dx);
    void (*axpy)(size_t n, float a, const float *x, float *y);  /* y += a x */
    void (*scale)(size_t n, float a, const float *x, float *y); /* y = a x */
    double (*dot)(size_t n, const float *a, const float *b);
    double (*sum)(size_t n, const float *x);
    double (*sum_squares)(size_t n, const float *x); /* accumulated in double */
    float (*max)(size_t n, const float *x);

    /* One row of n. */
    void (*softmax)(size_t n, const float *x, float *y);
    void (*softmax_grad)(size_t n, const float *y, const float *dy, float *dx);
    /* log(sum(exp(x))), and p = exp(x - that) where p is not NULL. */
    float (*log_sum_exp)(size_t n, const float *x, float *p);
    void (*layernorm)(size_t n, const float *x, const float *scale, const float *bias,
                      float epsilon, float *y, float *mean, float *inv_std);
    void (*layernorm_dgrad)(size_t n, const float *x, const float *dy, const float *scale,
                            float mean, float inv_std, float *dx);
    /* dscale += dy (x - mean) inv_std, dbias += dy; either may be NULL. */
    void (*layernorm_wgrad)(size_t n, const float *x, const float *dy, float mean,
                            float inv_std, float *dscale, float *dbias);

    /* 'rows' rows of 'n' columns 'stride' elements apart: sums per column, added to double
     * arrays. column_moments: of (x - shift) and its square; column_products: of dy and
     * dy (x - shift), the latter only where dy counts (y > 0) if y is not NULL.
     */
    void (*column_sum)(size_t rows, size_t n, size_t stride, const float *x, double *sum);
    void (*column_moments)(size_t rows, size_t n, const float *x, const float *shift,
                           double *sum, double *squares);
    void (*column_products)(size_t rows, size_t n, const float *x, const float *dy,
                            const float *shift, double *sum, double *products);
    /* y = (x - m) a + b per column. */
    void (*column_affine)(size_t rows, size_t n, const float *x, const float *m, const float *a,
                          const float *b, float *y);
    /* dx = (dy - c) a + (x - m) b per column. */
    void (*column_affine2)(size_t rows, size_t n, const float *dy, const float *x,
                           const float *c, const float *a, const float *m, const float *b,
                           float *dx);
    /* The same where the channel is constant over n contiguous elements. */
    void (*row_moments)(size_t n, const float *x, float shift, double *sum, double *squares);
    void (*row_products)(size_t n, const float *x, const float *dy, float shift, double *sum,
                         double *products);
    void (*row_affine)(size_t n, const float *x, float m, float a, float b, float *y);
    void (*row_affine2)(size_t n, const float *dy, const float *x, float c, float a, float m,
                        float b, float *dx);

    /* y[j*sy + i] = x[i*sx + j] for i < rows, j < columns. */
    void (*transpose)(size_t rows, size_t columns, const float *x, size_t sx, float *y,
                      size_t sy);
    void (*dropout)(size_t n, const struct simd_dropout *d, const float *x, float *y);
    /* Where x > y (or is no number): y = x, pos = at. And dx += dy where pos == at. */
    void (*max_into)(size_t n, const float *x, int32_t at, float *y, int32_t *pos);
    void (*max_grad)(size_t n, const float *dy, const int32_t *pos, int32_t at, float *dx);

    void (*sgd)(size_t n, const struct simd_update *u, float *p, const float *g);
    void (*momentum)(size_t n, const struct simd_update *u, float *p, const float *g, float *m);
    void (*nesterov)(size_t n, const struct simd_update *u, float *p, const float *g, float *m);
    void (*adam)(size_t n, const struct simd_update *u, float *p, const float *g, float *m,
                 float *v);
    void (*adamw)(size_t n, const struct simd_update *u, float *p, const float *g, float *m,
                  float *v);
    /* LAMB's two halves; the first returns the sum of squares of its direction. */
    double (*lamb_moments)(size_t n, const struct simd_update *u, const float *p,
                           const float *g, float *m, float *v);
    void (*lamb)(size_t n, const struct simd_update *u, float *p, const float *m,
                 const float *v);
};

/* Of those that TASUKI_MAX_ISA allows, or all. */
const struct simd *simd_best(struct err *err);

#endif
