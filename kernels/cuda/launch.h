/* SPDX-License-Identifier: MIT */
/* What kernels are launched with: plain structs, passed by value. C and CUDA read this file.
 *
 * Tensors are row-major float32 where nothing else is said. Sums are made in an order that depends on
 * shapes alone, never by atomic additions: the same input gives the same bits. Where 'add' is set
 * results are added to what is there. Numbers of elements fit 63 bits; an empty tensor launches
 * nothing.
 */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_H
#define TASUKI_KERNELS_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_RANK 8
#define CUDA_OPERANDS 4

/* All elements of one tensor, in order, and where in each operand the element is that goes with it:
 * start[i] + sum of index[k] * stride[i][k].
 */
struct cuda_walk {
    int rank, n;                            /* rank >= 1; operands */
    int64_t elements;
    int64_t dim[CUDA_RANK];
    int64_t start[CUDA_OPERANDS], stride[CUDA_OPERANDS][CUDA_RANK];
    int flat;                               /* operand i is at element i, for all of them */
};

/* y = f(a, b, c; p, q) over a walk whose operands are a, b and c. Names and meaning are those of
 * graph/ops/ops.h; gradients get dy first.
 */
#define CUDA_FUNCTIONS(X) \
    X(COPY) X(RELU) X(NEG) X(SQRT) X(EXP) X(LOG) X(TANH) X(SIGMOID) \
    X(GELU) X(GELU_TANH) X(SWISH) \
    X(ADD) X(SUB) X(MUL) X(DIV) \
    X(RELU_GRAD) X(TANH_GRAD) X(SIGMOID_GRAD)

enum cuda_function {
#define CUDA_FUNCTION(name) CUDA_##name,
    CUDA_FUNCTIONS(CUDA_FUNCTION)
#undef CUDA_FUNCTION
    CUDA_FUNCTION_COUNT
};

struct cuda_pointwise {
    enum cuda_function function;
    struct cuda_walk walk;
    double p, q;                            /* alpha, beta; the bounds of a clip */
    const float *in[3];                     /* NULL: not an operand, 0 */
    float *out;
    int add;
};

/* Every family: struct cuda_NAME and, in the module, cuda_launch_NAME(). */
#define CUDA_FAMILIES(X) \
    X(pointwise)

/* A product of matrices by cuBLASLt: y = f(alpha A B + beta c + bias), of shapes [m, n], [m, k],
 * [k, n] and [n]; a transposed operand is stored [k, m] or [n, k]. 'lda' elements are between two
 * rows as stored. There is a stack of them along 'rank' axes, where A, B and y go on by so many
 * elements; a step of 0 broadcasts. The last axis is the one that is best done at once. Nothing
 * between the members: they are compared as bytes.
 */
struct cuda_matmul {
    int64_t m, n, k, lda, ldb, ldy;
    int64_t dim[CUDA_RANK], step_a[CUDA_RANK], step_b[CUDA_RANK], step_y[CUDA_RANK];
    double alpha;
    int rank, trans_a, trans_b;
    int bias, relu;                         /* is there a bias; f is a ReLU */
    int tf32;                               /* factors may be rounded to 10 bits */
};

/* One run. Operands are aligned to 16 bytes and so are the steps of the stack, where they are not
 * to that of its last axis; 'workspace' is as large as the product says.
 */
struct cuda_matmul_args {
    const float *a, *b, *bias;
    const float *c;                         /* as y is; NULL: y itself */
    float *y;
    double beta;
    void *workspace;
};

enum cuda_conv_kind { CUDA_CONV_FORWARD, CUDA_CONV_DGRAD, CUDA_CONV_WGRAD };

/* A convolution by cuDNN, or one of its gradients: x[images, in_channels, in…],
 * w[out_channels, in_channels / groups, kernel…], y[images, out_channels, out…], of 'rank' spatial
 * axes, 2 or 3. Nothing between the members, what is not used is 0: they are compared as bytes.
 */
struct cuda_conv {
    enum cuda_conv_kind kind;
    int rank;
    int64_t images, in_channels, out_channels, groups;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    int64_t tf32;                           /* factors may be rounded to 10 bits */
};

/* One run: two are read, that which 'kind' computes is written. Aligned to 16 bytes. */
struct cuda_conv_args {
    const void *x, *w, *y;
    void *workspace;
};

#define CUDA_SIZE_OF(family) + sizeof(struct cuda_##family)
#define CUDA_LAUNCH_SIZES                                                                 \
    (sizeof(struct cuda_matmul) + sizeof(struct cuda_matmul_args) +                       \
     sizeof(struct cuda_conv) + sizeof(struct cuda_conv_args) CUDA_FAMILIES(CUDA_SIZE_OF))

#endif
