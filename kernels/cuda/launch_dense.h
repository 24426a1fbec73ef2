/* SPDX-License-Identifier: MIT */
/* What libraries compute for us: described once, then run with other operands each time.
 * Included by launch.h.
 */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_DENSE_H
#define TASUKI_KERNELS_CUDA_LAUNCH_DENSE_H

enum cuda_bias { CUDA_NO_BIAS, CUDA_BIAS, CUDA_SUMS_OF_A, CUDA_SUMS_OF_B };
enum cuda_activation { CUDA_NOT_ACTIVATED, CUDA_RECTIFIED, CUDA_GELU_BY_ERF, CUDA_GELU_BY_TANH };

/* A product of matrices by cuBLASLt: y = f(alpha A B + beta c + bias), of shapes [m, n], [m, k],
 * [k, n] and [n]; a transposed operand is stored [k, m] or [n, k]. 'lda' elements are between
 * two rows as stored. There is a stack of them along 'rank' axes, where A, B and y go on by so
 * many elements; a step of 0 broadcasts. The last axis is the one that is best done at once. Instead
 * of adding a bias it can sum A or B along k beside, of y's type, in no stack.
 * Nothing between the members, what is not used is 0: they are compared as bytes.
 */
struct cuda_matmul {
    int64_t m, n, k, lda, ldb, ldy;
    int64_t ldkept;                         /* of what f is given, in no stack; 0: it is not kept */
    int64_t dim[CUDA_RANK], step_a[CUDA_RANK], step_b[CUDA_RANK], step_y[CUDA_RANK];
    double alpha;
    int rank, trans_a, trans_b;
    enum cuda_bias bias;
    enum cuda_activation activation;        /* f */
    int tf32;                               /* factors may be rounded to 10 bits */
    enum cuda_narrow narrow, narrow_y;      /* A and B, and y, c and the bias */
};

/* One run. Operands are aligned to 16 bytes; 'workspace' is as large as the product says. */
struct cuda_matmul_args {
    const void *a, *b, *bias;
    const void *c;                          /* as y is; NULL: y itself */
    void *y, *kept, *sums;                  /* of one type; sums are overwritten */
    double beta;
    void *workspace;
};

enum cuda_conv_kind { CUDA_CONV_FORWARD, CUDA_CONV_DGRAD, CUDA_CONV_WGRAD };

/* A convolution by cuDNN, or one of its gradients: x[images, in_channels, in…],
 * w[out_channels, in_channels / groups, kernel…], y[images, out_channels, out…], of 'rank'
 * spatial axes, 2 or 3. As above: compared as bytes.
 */
struct cuda_conv {
    enum cuda_conv_kind kind;
    int rank;
    int64_t images, in_channels, out_channels, groups;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    int64_t tf32;                           /* factors may be rounded to 10 bits */
    int64_t narrow;                         /* enum cuda_narrow: of x, w and y */
    int64_t wide_w;                         /* but not of w */
    int64_t last;                           /* of x, w and y the second axis is stored as the last */
};

/* One run: two are read, that which 'kind' computes is written. Aligned to 16 bytes. */
struct cuda_conv_args {
    const void *x, *w, *y;
    void *workspace;
};

/* Operands of an attention, of which each can be stored with its heads between rows and columns. */
enum cuda_sdpa_operand {
    CUDA_SDPA_Q, CUDA_SDPA_K, CUDA_SDPA_V, CUDA_SDPA_Y, CUDA_SDPA_DY, CUDA_SDPA_DQ, CUDA_SDPA_DK,
    CUDA_SDPA_DV
};

/* An attention of 16 bits by cuDNN, or its gradient, which keeps no scores: for each head of each of
 * 'batch' y[m, e] = softmax(scale q[m, d] k[n, d]') v[n, e]; 'causal': query i sees keys 0 to i. So
 * many heads of queries as 'group' says share one of k and v. 'saved' is float32, the logarithms of sums.
 * A mask is float32, one element behind the other, and added to the scaled scores; axes of one are
 * repeated. As above: compared as bytes.
 */
struct cuda_sdpa {
    int64_t batch, heads, group, m, n, d, e;
    double scale;
    int64_t causal, gradient;
    int64_t narrow;                         /* enum cuda_narrow */
    int64_t turned;                         /* bit i: operand i is [batch, rows, heads, columns] */
    int64_t masked, mask[4];                /* is there a mask; [batch, heads, m, n], or 1 */
};

/* One run, aligned to 16 bytes. Without 'gradient' y and 'saved' are written and the rest is NULL. */
struct cuda_sdpa_args {
    const void *q, *k, *v, *y, *saved, *mask;
    const void *dy, *dq, *dk, *dv;
    void *workspace;
};

enum cuda_image_kind {
    CUDA_IMAGE_NORM, CUDA_IMAGE_NORM_GRAD, CUDA_IMAGE_MAX, CUDA_IMAGE_MEAN, CUDA_IMAGE_MAX_GRAD,
    CUDA_IMAGE_MEAN_GRAD
};

/* A BatchNorm, a pool or a gradient of one by cuDNN: x[images, in, channels], y[images, out, channels] and
 * their gradients have 16 bits. Of a BatchNorm 'in' is all of space, and 1. As above: compared as bytes.
 */
struct cuda_image {
    int64_t kind;                           /* enum cuda_image_kind */
    int64_t narrow;                         /* enum cuda_narrow */
    int64_t images, channels, in[2], out[2], kernel[2], stride[2], before[2], after[2];
    int64_t count_padding;                  /* of a mean */
    int64_t relu;                           /* behind a BatchNorm */
    double epsilon;                         /* of that */
};

#define CUDA_IMAGE_SCRATCH ((int64_t)16 << 20)  /* at most */

/* One run, aligned to 16 bytes. A BatchNorm makes y, and of its images mean[channels] and
 * inverse[channels], which its gradient reads; that makes dx, dscale and dbias. 'index' is where in its
 * window a maximum was: made beside y, read for dx. What is not used is NULL.
 */
struct cuda_image_args {
    const void *x, *dy;
    void *y, *dx;
    const float *scale, *bias;
    float *mean, *inverse, *dscale, *dbias;
    int8_t *index;                          /* [images, out, channels] */
    void *workspace;
};

#define CUDA_DENSE_SIZES                                                                  \
    + sizeof(struct cuda_matmul) + sizeof(struct cuda_matmul_args) + sizeof(struct cuda_conv) \
        + sizeof(struct cuda_conv_args) + sizeof(struct cuda_sdpa) \
        + sizeof(struct cuda_sdpa_args) + sizeof(struct cuda_image) + sizeof(struct cuda_image_args)

#endif
