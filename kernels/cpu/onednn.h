/* SPDX-License-Identifier: MIT */
/* oneDNN, as far as it is used: convolutions, reorders of their weights, and sgemm. The C APIs
 * of versions 2 and 3 differ; onednn.c alone knows.
 *
 * Activations lie channels first (NCHW) or channels last (NHWC), weights as ONNX has them
 * (OIHW) or as the convolution prefers. All scratch memory is the caller's.
 */
#ifndef TASUKI_KERNELS_CPU_ONEDNN_H
#define TASUKI_KERNELS_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct onednn;        /* an engine and a stream */
struct onednn_format; /* how weights lie in memory */
struct onednn_conv;

enum { ONEDNN_SPATIAL = 3 };

struct onednn_conv_shape {
    int spatial;             /* dimensions: 1 to 3 */
    int64_t n, c, o, groups; /* samples, channels in and out */
    int64_t in[ONEDNN_SPATIAL], out[ONEDNN_SPATIAL], kernel[ONEDNN_SPATIAL];
    int64_t stride[ONEDNN_SPATIAL], dilation[ONEDNN_SPATIAL]; /* dilation 1: dense */
    int64_t pad_low[ONEDNN_SPATIAL], pad_high[ONEDNN_SPATIAL];
};

enum onednn_conv_kind { CONV_FORWARD, CONV_DGRAD, CONV_WGRAD };

struct onednn_conv_layout {
    bool x_last, y_last;                 /* channels last? (x: of c, y: of o channels) */
    const struct onednn_format *weights; /* NULL: plain */
    bool bias;                           /* forward only */
};

struct onednn *onednn_open(struct err *err);
void onednn_close(struct onednn *onednn);
void onednn_version_text(char *text, size_t size); /* "oneDNN 2.6.0" */

/* The format of weights (of their gradient for CONV_WGRAD) that is fastest for this
 * convolution; NULL with 'err' untouched where that is the plain one. Free it.
 */
struct onednn_format *onednn_conv_format(struct onednn *onednn,
                                         const struct onednn_conv_shape *shape,
                                         enum onednn_conv_kind kind, bool x_last, bool y_last);
void onednn_format_free(struct onednn_format *format);
size_t onednn_format_bytes(const struct onednn_format *format);
bool onednn_format_equal(const struct onednn_format *a, const struct onednn_format *b);

struct onednn_conv *onednn_conv_new(struct onednn *onednn,
                                    const struct onednn_conv_shape *shape,
                                    enum onednn_conv_kind kind,
                                    const struct onednn_conv_layout *layout, struct err *err);
void onednn_conv_free(struct onednn_conv *conv);
size_t onednn_conv_scratch(const struct onednn_conv *conv);
/* x, w, y stand for the gradients where the kind writes them. 'bias' may be NULL. */
int onednn_conv_run(struct onednn_conv *conv, void *x, void *w, const void *bias, void *y,
                    void *scratch, struct err *err);

/* Weights between the plain form (NULL) and another. */
struct onednn_reorder;
struct onednn_reorder *onednn_reorder_new(struct onednn *onednn,
                                          const struct onednn_conv_shape *shape,
                                          const struct onednn_format *from,
                                          const struct onednn_format *to, bool accumulate,
                                          struct err *err);
void onednn_reorder_free(struct onednn_reorder *reorder);
size_t onednn_reorder_scratch(const struct onednn_reorder *reorder);
int onednn_reorder_run(struct onednn_reorder *reorder, const void *from, void *to,
                       void *scratch, struct err *err);

/* C = alpha op(A) op(B) + beta C, row-major, float32: op(A) is m x k, op(B) k x n. */
int onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                int64_t ldc, struct err *err);

#endif
