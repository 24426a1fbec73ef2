/* SPDX-License-Identifier: MIT */
/* What kernels are launched with: plain structs, passed by value. C and CUDA read this file.
 *
 * Tensors are row-major float32 where nothing else is said; where 'narrow' says so those that are 'void'
 * have 16 bits, and are computed with as float32. Sums are made in an order that depends on
 * shapes alone, never by atomic additions: the same input gives the same bits. Where 'add' is set
 * results are added to what is there. Numbers of elements fit 63 bits; an empty tensor launches
 * nothing.
 */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_H
#define TASUKI_KERNELS_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct step_state;      /* kernels/step.h */

#define CUDA_RANK 8
#define CUDA_OPERANDS 4

enum cuda_narrow { CUDA_WIDE, CUDA_BFLOAT16, CUDA_FLOAT16 };    /* CUDA_WIDE: float32 after all */

#include "kernels/cuda/launch_chain.h"

/* Is it aligned to words? NULL is. */
static inline bool cuda_has_words(const void *x)
{
    return (uintptr_t)x % CUDA_WORD == 0;
}

/* Elements in a word. */
static inline int cuda_width(enum cuda_narrow narrow)
{
    return narrow ? CUDA_WORD / 2 : CUDA_WORD / 4;
}

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
 * graph/ops/ops.h; gradients get dy first. SCALE is p a.
 */
#define CUDA_FUNCTIONS(X) \
    X(COPY) X(SCALE) X(RELU) X(NEG) X(SQRT) X(EXP) X(LOG) X(ERF) X(TANH) X(SIGMOID) X(GELU) \
    X(GELU_TANH) X(FLOOR) X(CEIL) X(ROUND) X(SIGN) \
    X(ABS) X(RECIPROCAL) X(SIN) X(COS) X(LEAKY_RELU) X(ELU) X(CELU) X(SELU) X(SOFTPLUS) \
    X(SOFTSIGN) X(HARD_SIGMOID) X(HARD_SWISH) X(SWISH) X(MISH) X(CLIP) \
    X(ADD) X(SUB) X(MUL) X(DIV) X(POW) X(MOD) X(MAX) X(MIN) X(PRELU) \
    X(RELU_GRAD) X(TANH_GRAD) X(SIGMOID_GRAD) X(SQRT_GRAD) X(ERF_GRAD) X(GELU_GRAD) \
    X(GELU_TANH_GRAD) X(DIV_GRAD) X(POW_GRAD) X(POW_EXPONENT_GRAD) X(MAX_GRAD) X(MIN_GRAD) \
    X(PRELU_GRAD) X(PRELU_SLOPE_GRAD) \
    X(ABS_GRAD) X(RECIPROCAL_GRAD) X(SIN_GRAD) X(COS_GRAD) X(LEAKY_RELU_GRAD) X(ELU_GRAD) \
    X(CELU_GRAD) X(SELU_GRAD) X(SOFTPLUS_GRAD) X(SOFTSIGN_GRAD) X(HARD_SIGMOID_GRAD) \
    X(HARD_SWISH_GRAD) X(SWISH_GRAD) X(MISH_GRAD) X(CLIP_GRAD)

/* Those that can be narrow. */
#define CUDA_NARROW_FUNCTIONS(X) \
    X(COPY) X(RELU) X(NEG) X(TANH) X(SIGMOID) X(GELU) X(GELU_TANH) X(SWISH) X(ADD) X(SUB) X(MUL) \
    X(RELU_GRAD) X(TANH_GRAD) X(SIGMOID_GRAD) X(GELU_GRAD) X(GELU_TANH_GRAD) X(SWISH_GRAD)

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
    const void *in[3];                      /* NULL: not an operand, 0 */
    void *out;
    enum cuda_narrow narrow, narrow_out;    /* differ in a COPY of one flat operand alone */
    int add;
};

/* The sum of n tensors of one shape. */
#define CUDA_TERMS 64

struct cuda_addn {
    int n;
    int64_t elements;
    const void *in[CUDA_TERMS];
    void *out;
    enum cuda_narrow narrow;
    int add;
};

/* y = f(a, b, c) of elements of any type: a 'dtype' of graph/dtype.h. */
enum cuda_typed_function {
    CUDA_TYPED_CAST, CUDA_TYPED_ADD, CUDA_TYPED_SUB, CUDA_TYPED_MUL, CUDA_TYPED_NEG,
    CUDA_TYPED_ABS, CUDA_TYPED_SIGN, CUDA_TYPED_MAX, CUDA_TYPED_MIN, CUDA_TYPED_AND,
    CUDA_TYPED_OR, CUDA_TYPED_XOR, CUDA_TYPED_NOT, CUDA_TYPED_POW, CUDA_TYPED_POW_GRAD,
    CUDA_TYPED_EQUAL, CUDA_TYPED_LESS, CUDA_TYPED_LESS_OR_EQUAL, CUDA_TYPED_GREATER,
    CUDA_TYPED_GREATER_OR_EQUAL, CUDA_TYPED_IS_NAN, CUDA_TYPED_IS_INF
};

struct cuda_typed {
    enum cuda_typed_function function;
    struct cuda_walk walk;
    int from[3], to;                        /* types of a, b, c and y */
    int negative, positive;                 /* IS_INF: which are wanted */
    const void *in[3];
    void *out;
};

/* Sums along the middle of [before, length, after], of any type; of real numbers in double. */
struct cuda_cumsum {
    int dtype;
    int64_t before, length, after;
    int reverse, exclusive;
    const void *in;
    void *out;
};

/* The first of [before, length, after] along the middle, the largest or smallest, of any type.
 * A NaN is the largest; of equal ones the lower index is first. Without 'values' only where the
 * first is, or of several the last of them.
 */
struct cuda_order {
    int dtype, smallest, last;
    int64_t before, length, after, count;
    const void *in;
    void *values;                           /* [before, count, after], as are the indices */
    int64_t *indices;
};

/* Elements of [outer, batch, inner], dropped by the words of philox.h for the step of 'state',
 * which is read on the device. Where no axis is the batch's all are of sample 0.
 */
struct cuda_dropout {
    const struct step_state *state;
    uint64_t key, threshold;
    float scale;
    int samples;                            /* is one? */
    int64_t outer, batch, inner;
    enum cuda_narrow narrow;
    const void *in;
    void *out;
    unsigned char *mask;                    /* 1: kept; NULL: nobody asks */
};

/* Element e of the walk: operand 0 is read, operand 1 written. Elements of 1, 2, 4, 8 or 16
 * bytes, aligned to their size; with 'add' of float32.
 */
struct cuda_move {
    struct cuda_walk walk;
    int size;
    /* Not -1: operand 0 is contiguous along this axis, operand 1 along the last one. Only for
     * elements of 2 and 4 bytes.
     */
    int across;
    const void *in;
    void *out;
    int add;
};

/* 'n' elements of 1, 2, 4 or 8 bytes: the first of 'bits'. */
struct cuda_fill {
    int64_t n;
    uint64_t bits;
    int size;
    void *out;
};

/* A walk of three: where operand 0 (one byte) is not 0 operand 1, else operand 2. */
struct cuda_choose {
    struct cuda_walk walk;
    int size;                               /* of an element: 1, 2, 4, 8 */
    const void *in[3];
    void *out;
};

/* Rows of 'inner' elements, each of which an index sends to a row of the data: its target, -1
 * where an index is out of range.
 *   ALONG     row [o, i] of [rows / n, n] to [o, index[i]] of [., length]
 *   ELEMENTS  row r to where the walk has it, and index[r] * after beyond
 *   TUPLES    row [g, i] of [., group] to [g, the tuple of n numbers below dim] of [., length]
 */
enum cuda_target_kind { CUDA_ALONG, CUDA_ELEMENTS, CUDA_TUPLES };

struct cuda_target {
    enum cuda_target_kind kind;
    int wide;                               /* indices are int64, not int32 */
    int64_t rows, inner, n, length, after, group, dim[CUDA_RANK];
    struct cuda_walk walk;
    const void *index;
};

/* Row r is the data's at its target; bytes of ones where that is -1, which are a NaN. */
struct cuda_gather {
    struct cuda_target target;
    int size;                               /* of an element: 1, 2, 4, 8, 16 */
    const void *in;
    void *out;
};

/* Each row goes to its target; several that go to one do so in their order. SUM: float32, to
 * what is zero there or with 'add' not. PUT: the last one stays. ADD and what follows: float32.
 * CLEAR: zeros, without 'in'. Targets are below 2^32 - 1, rows below 2^31.
 */
enum cuda_scatter_action {
    CUDA_SCATTER_SUM, CUDA_SCATTER_PUT, CUDA_SCATTER_ADD, CUDA_SCATTER_MULTIPLY,
    CUDA_SCATTER_LARGER, CUDA_SCATTER_SMALLER, CUDA_SCATTER_CLEAR
};

#define CUDA_SCATTER_BLOCK 512              /* the fewest keys */
#define CUDA_SCATTER_CHUNK 32               /* rows that are summed up one after the other */

struct cuda_scatter {
    struct cuda_target target;
    enum cuda_scatter_action action;
    int size;
    int64_t n_keys;                         /* a power of two, not below the rows */
    uint64_t *keys;                         /* workspace: n_keys */
    float *part;                            /* and for SUM a row for each chunk */
    const void *in;
    void *out;
    int add;
};
#include "kernels/cuda/launch_attention.h"
#include "kernels/cuda/launch_rows.h"

/* Every family: struct cuda_NAME and, in the module, cuda_launch_NAME(). */
#define CUDA_FAMILIES(X) \
    X(pointwise) \
    X(addn) \
    X(typed) \
    X(cumsum) \
    X(order) \
    X(dropout) \
    X(move) \
    X(fill) \
    X(choose) \
    X(gather) \
    X(scatter) \
    X(attention) \
    X(mask) \
    X(unseen) \
    CUDA_ROW_FAMILIES(X)

#define CUDA_SIZE_OF(family) + sizeof(struct cuda_##family)
#define CUDA_LAUNCH_SIZES ((size_t)0 + sizeof(struct cuda_chain) CUDA_DENSE_SIZES CUDA_FAMILIES(CUDA_SIZE_OF))

#endif
