/* SPDX-License-Identifier: MIT */
/* Gradients as graph nodes, in two parts.
 *
 * autodiff() appends to a graph with a loss the nodes that compute the gradient of every
 * VALUE_PARAM. A node that works towards the gradient of an activation is PART_DGRAD (B), one
 * that works only towards parameters is PART_WGRAD (W); a kernel that yields both at once is B.
 * A gradient node belongs to the stage of its source node.
 *
 * Where a value is read in several stages, the contributions of each stage are summed in that
 * stage first and the producer's stage adds the sums, its own first, then in stage order: the
 * order of additions is fixed by the graph and the cuts alone.
 */
#ifndef TASUKI_GRAPH_AUTODIFF_H
#define TASUKI_GRAPH_AUTODIFF_H

#include "graph/graph.h"

struct err;

struct grad {
    struct graph *graph;
    const int *stage;       /* of each forward node; NULL: one stage */
    int n_stages;
    int node;               /* whose rule is running */
    void *state;            /* autodiff.c's own */
};

/* One (parameter, stage) pair: its gradient value. A parameter read in several stages (a tie)
 * has one entry in each.
 */
struct param_grad {
    int param;              /* VALUE_PARAM id */
    int stage;
    int gradient;           /* value id, same shape; written once per micro-batch */
};

/* A running statistic and how a step updates it (see batchnorm in HACKING.md): after the
 * step, stat = decay^groups * stat + the accumulated contribution over all groups.
 */
struct stat_update {
    int stat;               /* VALUE_STAT id */
    int stage;
    int contribution;       /* value id: this micro-batch's weighted sum; PART_FORWARD */
    double decay;           /* 1 - momentum */
};

/* The gradient of a value read in another stage than that of its producer travels back. */
struct boundary {
    int value;              /* forward value */
    int from, to;           /* stages: producer, reader (any distance) */
    int gradient;           /* the reader's summed contribution, sent from 'to' back to 'from';
                             * -1: no gradient (masks, integers) */
    int received;           /* the value in 'from' that stands for it: a VALUE_NODE without
                             * producer, filled by the receive */
};

/* What a node's rule adds to the gradient of an activation that the node reads. */
struct grad_contribution {
    int value, node;
    int gradient;
    int sum;                /* of all that its stage adds to it: 'gradient', or an AddN of these in
                             * this order; -1: nobody asks for it */
};

struct autodiff {
    int n_params, n_stats, n_boundaries, n_contributions;
    int seed;                       /* the loss's own gradient, a constant 1; 0: there is none */
    struct param_grad *params;      /* sorted by stage, then in the order in which the
                                     * gradients become final */
    struct stat_update *stats;
    struct boundary *boundaries;    /* sorted by (from, to, value) */
    struct grad_contribution *contributions;    /* in the order in which they are made */
};

/* 'stage[n]' for each of the graph's present nodes must not decrease along any edge. On
 * return '*result' is allocated in the graph's arena, and '*stage_out' (where not NULL) too:
 * the stage of every node including the gradient nodes.
 */
int autodiff(struct graph *graph, const int *stage, int n_stages, struct autodiff *result,
             int **stage_out, struct err *err);

/* For gradient rules (ops/FAMILY.c) -------------------------------------------------- */

/* The gradient of output 'index' of the node, summed over its readers; -1 if none flows. */
int grad_of_output(struct grad *grad, int index);
/* Does anybody want the gradient of input 'index'? */
bool grad_wanted(const struct grad *grad, int index);
/* Append a gradient node "NAME/grad…" with one output of the shape of input 'like_input'
 * and return the *value*; with several outputs use grad_node() and set shapes by inference.
 * Both copy the node's attributes. The part follows from where the result goes. -1 on error.
 */
int grad_emit(struct grad *grad, const char *op, int n_inputs, const int *inputs,
              int like_input, struct err *err);
/* The same for an op with 'n_outputs' outputs, inferred by the op; returns the node. */
int grad_node(struct grad *grad, const char *op, int n_inputs, const int *inputs,
              int n_outputs, struct err *err);
/* Declare 'gradient' to be a contribution to the gradient of input 'index'. */
void grad_add(struct grad *grad, int index, int gradient);

#endif
