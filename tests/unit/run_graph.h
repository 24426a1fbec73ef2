/* SPDX-License-Identifier: MIT */
/* Run a whole graph, forward and gradient nodes in order, on any backend: each value in its own
 * buffer with a plain layout. Host code sees every tensor as doubles. "cuda-bf16" and
 * "cuda-fp16" get what may be narrow so, in buffers beside.
 */
#ifndef TASUKI_TESTS_RUN_GRAPH_H
#define TASUKI_TESTS_RUN_GRAPH_H

#include "kernels/backend.h"

struct run_graph {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    const struct graph *graph;
    enum dtype narrow;              /* of "cuda-bf16" and "cuda-fp16"; else DTYPE_NONE */
    bool last;                      /* images of those have their channels last, where nodes take that */
    int n_nodes, n_values;          /* when it was made */
    struct kernel **kernels;        /* NULL for views */
    void **buffers;                 /* of every value; views share their root's */
    void *workspace;
    size_t workspace_bytes;
    struct step_state state;        /* training, one share that is the whole batch */
    struct step_state *device_state;    /* where kernels read it */
};

/* Compiles every node that is not a view. The graph must outlive it. */
struct run_graph *run_graph_new(const struct backend *backend, const struct graph *graph,
                                struct err *err);
struct run_graph *run_graph_new_last(const struct backend *backend, const struct graph *graph,
                                     struct err *err);
void run_graph_free(struct run_graph *run);

/* All elements of a value, converted from or to its type. Constants are set already. */
void run_graph_set(struct run_graph *run, int value, const double *data);
void run_graph_get(const struct run_graph *run, int value, double *data);

/* Inputs of the node that may be narrow become what is there of this type. */
void run_graph_round_inputs(struct run_graph *run, int node, enum dtype narrow);

/* Run nodes first … end-1 once. Outputs are filled with NaN before, so that a kernel that
 * leaves something out is seen.
 */
int run_graph_nodes(struct run_graph *run, int first, int end, struct err *err);
/* Run a node whose kernel accumulates again: its outputs are added to. */
int run_graph_add(struct run_graph *run, int node, struct err *err);

#endif
