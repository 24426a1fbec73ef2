/* SPDX-License-Identifier: MIT */
/* The sizes of a product of two stacks of matrices: MatMul and Gemm. */
#ifndef TASUKI_GRAPH_MATMUL_H
#define TASUKI_GRAPH_MATMUL_H

#include "graph/graph.h"

/* y[stack, m, n] = alpha * A[stack, m, k] B[stack, k, n]; a transposed operand is stored
 * [k, m] or [n, k]. 'dim_a' and 'dim_b' are those of the result or 1 (broadcast).
 */
struct matmul {
    int rank;                           /* of the stack */
    int64_t dim[GRAPH_MAX_RANK];
    int64_t dim_a[GRAPH_MAX_RANK], dim_b[GRAPH_MAX_RANK];
    int64_t m, n, k;
    bool trans_a, trans_b;
    double alpha;
};

/* -1 where the operands' shapes do not fit. 1-D operands are as in numpy. */
int matmul_dims(const struct graph *graph, int node, struct matmul *m);

#endif
