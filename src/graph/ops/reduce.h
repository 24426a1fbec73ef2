/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_GRAPH_REDUCE_H
#define TASUKI_GRAPH_REDUCE_H

#include "graph/graph.h"

struct err;

/* Which axes of its input a ReduceMean or ReduceSum sums over, as bits. */
int reduce_axes(const struct graph *graph, int node, unsigned *axes, struct err *err);

#endif
