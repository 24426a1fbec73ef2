/* SPDX-License-Identifier: MIT */
/* The sizes of an Attention and of its gradient (ops.h). */
#ifndef TASUKI_GRAPH_ATTENTION_H
#define TASUKI_GRAPH_ATTENTION_H

#include "graph/graph.h"
#include "graph/ops/attention_large.h"

/* For each of 'stack' matrices: y[m, e] = softmax(scale q[m, d] k'[d, n] + mask) v[n, e]. Matrix
 * s of the queries meets matrix s / group of keys and values.
 */
struct attention {
    int64_t stack, group, m, n, d, e;
    bool trans_k;               /* k is stored [d, n] */
    double scale;
    bool causal;                /* query i sees keys 0 … i + past */
    int64_t past;
    bool masked;                /* a query that sees no key gives 0 */
    /* The mask, broadcast to [stack, m, n]: its first element for matrix s is at
     * attention_mask(), and 0 steps repeat it.
     */
    enum { ATTENTION_NO_MASK, ATTENTION_ADD, ATTENTION_CHOOSE } mask;
    bool hide;                  /* of a bool: true hides, false shows */
    double fill;                /* the score of what a bool hides */
    int rank;                   /* of the stack */
    int64_t dim[GRAPH_MAX_RANK], step[GRAPH_MAX_RANK], step_m, step_n;
    int64_t mask_elements;
};

/* 'first': index of q among the node's inputs, which k, v follow; 'mask': of the mask, which
 * may be absent. -1 where the shapes do not fit.
 */
int attention_dims(const struct graph *graph, int node, int first, int mask,
                   struct attention *a);

int64_t attention_mask(const struct attention *a, int64_t s);

/* The keys that query i sees are 0 … attention_seen() - 1, but for the mask. */
static inline int64_t attention_seen(const struct attention *a, int64_t i)
{
    return a->causal && i + a->past + 1 < a->n ? i + a->past + 1 : a->n;
}

#endif
