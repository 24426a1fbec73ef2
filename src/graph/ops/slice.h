/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_GRAPH_SLICE_H
#define TASUKI_GRAPH_SLICE_H

#include "graph/graph.h"

struct err;

/* Element (i, j, …) of the result is element (start + i*step, …) of the input. */
struct slice {
    int64_t start[GRAPH_MAX_RANK], step[GRAPH_MAX_RANK];
    struct shape shape;     /* of the result */
};

/* Of a Slice. */
int slice_of(const struct graph *graph, int node, struct slice *slice, struct err *err);
/* Of a SliceGrad: where dy goes. */
int slice_of_grad(const struct graph *graph, int node, struct slice *slice, struct err *err);
/* Sizes of the outputs of a Split along '*axis'. */
int split_sizes(const struct graph *graph, int node, int *axis, int64_t *sizes,
                struct err *err);
/* Of a Transpose: axis i of the result is axis perm[i] of the input. */
int transpose_perm(const struct graph *graph, int node, int *perm, struct err *err);

#endif
