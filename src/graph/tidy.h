/* SPDX-License-Identifier: MIT */
/* Passes over a forward graph between its construction and its use. */
#ifndef TASUKI_GRAPH_TIDY_H
#define TASUKI_GRAPH_TIDY_H

#include "graph/graph.h"

struct err;

/* Keep these nodes in this order, which must be topological, and the values they touch; ids
 * change. Inputs of the graph that no node touches are dropped, and where there is a loss such
 * outputs.
 */
void tidy_keep(struct graph *graph, int n, const int *order);

/* Remove what neither the loss nor 'correct' needs (without a loss: what no output needs). */
void tidy_remove_dead(struct graph *graph);

/* Parameters that no gradient can reach, and those that are frozen, become constants. */
void tidy_parameters(struct graph *graph);

/* Nodes that depend on no sample become PART_PREPARE, and one that several nodes read is
 * repeated for each, so that no such value ever crosses a cut.
 */
int tidy_prepare(struct graph *graph, struct err *err);

#endif
