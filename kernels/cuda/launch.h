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

#include "kernels/cuda/launch_dense.h"

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

#define CUDA_SIZE_OF(family) + sizeof(struct cuda_##family)
#define CUDA_LAUNCH_SIZES ((size_t)0 CUDA_DENSE_SIZES CUDA_FAMILIES(CUDA_SIZE_OF))

#endif
