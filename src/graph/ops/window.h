/* SPDX-License-Identifier: MIT */
/* The geometry of convolutions and pools: windows that slide over 1 to 3 spatial axes. */
#ifndef TASUKI_GRAPH_WINDOW_H
#define TASUKI_GRAPH_WINDOW_H

#include "graph/graph.h"

struct err;

#define WINDOW_MAX 3

struct window {
    int rank;                       /* spatial axes */
    int64_t images;                 /* samples: N */
    int64_t in_channels, out_channels, groups;
    int64_t in[WINDOW_MAX], out[WINDOW_MAX];
    int64_t kernel[WINDOW_MAX], stride[WINDOW_MAX], dilation[WINDOW_MAX];
    int64_t before[WINDOW_MAX], after[WINDOW_MAX];  /* padding */
    bool count_padding;             /* AveragePool's divisor */
};

/* The window of a node of the convolution or pooling families, forward or gradient, from its
 * attributes and the shapes of the forward op's input x (and weights w; NULL for pools).
 * ceil_mode's last window starts inside the input or the padding before it (PyTorch's rule
 * and ONNX's since opset 22).
 */
int window_of(const struct graph *graph, int node, const struct shape *x,
              const struct shape *w, struct window *window, struct err *err);

#endif
