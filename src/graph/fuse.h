/* SPDX-License-Identifier: MIT */
/* Fusion: several nodes become one that computes the same.
 *
 * A pattern is matched by dataflow from its anchor, whatever the order of operands; the last
 * node of the pattern is rewritten in place, so the order of nodes stays topological, and what
 * only the pattern read is removed.
 */
#ifndef TASUKI_GRAPH_FUSE_H
#define TASUKI_GRAPH_FUSE_H

#include "graph/graph.h"

struct err;

int fuse_graph(struct graph *graph, struct err *err);

/* What was found, by kind (node->fusion), in the order in which the kinds first occur. */
struct fuse_found {
    const char *fusion;
    int n, *nodes;          /* ascending */
};
/* '*n' kinds; fuse_found_free(). */
struct fuse_found *fuse_found(const struct graph *graph, int *n);
void fuse_found_free(int n, struct fuse_found *found);

/* One pattern (fuse_*.c): look whether it ends with, or starts at, 'node' and rewrite. */
int fuse_linear(struct graph *graph, int node, struct err *err);
int fuse_activation(struct graph *graph, int node, struct err *err);
int fuse_layer_norm(struct graph *graph, int node, struct err *err);
int fuse_rms_norm(struct graph *graph, int node, struct err *err);
int fuse_residual_norm(struct graph *graph, int node, struct err *err);
int fuse_silu(struct graph *graph, int node, struct err *err);
int fuse_log_softmax(struct graph *graph, int node, struct err *err);
int fuse_gelu(struct graph *graph, int node, struct err *err);
int fuse_cross_entropy(struct graph *graph, int node, struct err *err);
int fuse_matmul(struct graph *graph, int node, struct err *err);
int fuse_split(struct graph *graph, int node, struct err *err);
int fuse_slices(struct graph *graph, int node, struct err *err);
int fuse_attention(struct graph *graph, int node, struct err *err);

/* For the patterns ---------------------------------------------------------------------- */

bool fuse_is(const struct graph *graph, int node, const char *op);
/* Producer of input 'index' if it is an 'op' (any operator where NULL), else -1. */
int fuse_producer(const struct graph *graph, int node, int index, const char *op);
/* The one node that reads value 'v' if it is an 'op' and 'v' is nothing else, else -1. */
int fuse_reader(const struct graph *graph, int v, const char *op);
/* Is the value a constant with one element? */
bool fuse_scalar(const struct graph *graph, int v, double *x);
/* Make 'node' an 'op' on these inputs, without attributes; its output 0 stays, others go.
 * 'fusion' names the pattern; NULL where the node is only a part of one. fuse_check() infers it
 * when its attributes are set: the output must keep its shape.
 */
int fuse_rewrite(struct graph *graph, int node, const char *fusion, const char *op,
                 int n_inputs, const int *inputs, struct err *err);
int fuse_check(struct graph *graph, int node, struct err *err);

#endif
