/* SPDX-License-Identifier: MIT */
/* Blocks: what the planner cuts between, made from a graph with a loss.
 *
 * A block is a convex set of forward nodes that is never cut. Blocks depend on the structure of
 * the graph alone: the same model at another batch size has the same blocks, in the same order,
 * with the same names and nodes.
 *
 * Each node that does work on a weight matrix (a kernel, an embedding table) starts a block
 * called by its name; between two of these the cut lies where the fewest elements per sample
 * cross, as late as possible. All else joins its neighbours. What depends on no sample belongs
 * to its first reader.
 */
#ifndef TASUKI_SCHEDULER_BLOCKS_H
#define TASUKI_SCHEDULER_BLOCKS_H

#include "graph/autodiff.h"
#include "graph/graph.h"
#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "topology/efficiency.h"

struct err;
struct program;

struct block {
    char *name;
    int n_nodes;
    int *nodes;             /* ids of forward nodes, ascending */
};

struct blocks {
    int n;
    struct block *items;    /* in a topological order */
};

/* Before autodiff(). Sets 'block' of every forward node. */
struct blocks *blocks_new(struct graph *graph, struct err *err);
void blocks_free(struct blocks *blocks);

/* The stage of each of the graph's nodes (before autodiff()) under a plan, in the graph's
 * arena: what autodiff() wants. The plan's blocks must be those of the graph, by name, none
 * before one that it reads.
 */
int *blocks_stages(struct graph *graph, const struct plan *plan, struct err *err);

/* The training step of a graph with its loss in one stage, each node with its block; what autodiff()
 * says is left in 'gradients'. The graph is changed, and must outlive the program.
 */
struct program *blocks_whole(struct graph *graph, struct autodiff *gradients, struct err *err);

/* One batch size of a model: the training graph, differentiated with every block a stage of
 * its own, and the seconds that one run of each node takes (0 for views and what is not run).
 * The graph may have been built for another batch: what follows the samples is scaled.
 */
struct block_timing {
    int64_t batch;
    const struct graph *graph;
    const struct autodiff *autodiff;
    const int *stage_of;        /* block of every node, gradient nodes too */
    const double *seconds;      /* [n_nodes] */
    const double *prepared;     /* [blocks] bytes that a backend makes of parameters; may be NULL */
    const struct program *program;  /* one stage, as a backend lowers it; NULL: none does */
    const double *kernels;      /* [blocks] bytes that kernels ask for; may be NULL */
    const struct program *steps;    /* one stage, for what the file says of steps; NULL: nothing */
    const double *preparing;   /* [blocks] seconds in which it makes 'prepared'; may be NULL */
    const size_t *crossing;     /* bytes of each value where it is sent; NULL: as of the graph */
};

/* The cost file: times summed by block and part (P counts as 'step'), bytes from the shapes.
 * 'timings' by ascending batch. 'step_seconds' of one parameter byte, for the optimizer.
 */
struct cost *blocks_cost(const struct blocks *blocks, int n_sizes,
                         const struct block_timing *timings, double step_seconds,
                         int optimizer_states, const char *device, struct err *err);

/* "steps" of a cost file with blocks and sizes, of a program that is one stage, built for any
 * batch; none where these are too many.
 */
void blocks_steps(struct cost *cost, const struct program *program);

/* [blocks] of bytes that are there while a node of the block runs, at most. */
struct block_peaks {
    double *workspace;      /* beside what is kept for the backward, and what blocks send */
    double *ahead;          /* of that, in the forward */
    double *rest;           /* of it, in the backward, what does not wait for W */
    double *delayed;        /* where W is put off, of what the block keeps and what waits for W */
    double *peak_delayed;   /* with the rest */
    double *peak;           /* with what the block itself keeps, while that is there */
    double *again;          /* instead, with what of this selective recompute makes again */
};

/* Of a program that is one stage, as a backend has lowered it, or else from the graph; 'again' of
 * the forward's values, 'root' and 'kept' of all. 'peaks' are 0.
 */
void blocks_peaks_of_program(const struct program *program, int n_blocks, const bool *again,
                             struct block_peaks *peaks);
void blocks_peaks_of_graph(const struct block_timing *timing, int n_blocks, const int *root,
                           const bool *kept, const bool *again, struct block_peaks *peaks);
/* Does a block read it in another layout than a stage would receive it in, or is fed with it? */
bool blocks_reorder(const struct program *program, int value, int block);
bool blocks_reorder_input(const struct program *program, int value);

/* Bytes of a value of a graph that was built for another batch. */
double blocks_bytes(const struct graph *graph, int64_t batch, int value);
/* What a node has to do at so many samples. */
struct node_work {
    enum efficiency_class of;
    double flops, bytes;    /* read and written */
};

struct node_work blocks_work(const struct graph *graph, int64_t batch, int node);
/* How fast a device is: operations/s and bytes/s; 0: not known, no limit. */
struct roofline {
    double flops, memory_bandwidth;
    double narrow_flops, wide_flops;        /* of products, with factors of 16 bits and of 32; 0: 'flops' */
    /* Has this operand of a node, inputs before outputs, 16 bits there, not 32? NULL: none has. */
    bool (*is_narrow)(const struct graph *graph, int node, int operand);
    const struct efficiency *efficiency;    /* what it reaches of that; NULL: all */
};

/* Seconds of every node at so many samples; views are free. */
void blocks_roofline(const struct graph *graph, int64_t batch, const struct roofline *roofline,
                     double *seconds);

#endif
