/* SPDX-License-Identifier: MIT */
/* The shape of a convolution node, for its kernel and for lower(). */
#ifndef TASUKI_KERNELS_CPU_CONV_H
#define TASUKI_KERNELS_CPU_CONV_H

#include "kernels/cpu/onednn.h"
#include "graph/graph.h"

struct err;

int cpu_conv_shape(const struct graph *graph, int node, struct onednn_conv_shape *shape,
                   enum onednn_conv_kind *kind, struct err *err);

/* A side without a layout takes that of the other. */
void cpu_conv_last(const struct shape *x, const struct shape *y, bool *x_last, bool *y_last);

#endif
