/* SPDX-License-Identifier: MIT */
/* What selective recompute keeps of the forward: the fewest bytes from which memory-bound operators
 * alone make again all that the backward reads.
 *
 * That is a minimum cut between what there is (what the stage is fed and receives, what
 * compute-bound operators made) and what the backward reads (Ford and Fulkerson 1956); of several,
 * the one after which the least is run again.
 */
#ifndef TASUKI_GRAPH_RECOMPUTE_H
#define TASUKI_GRAPH_RECOMPUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "graph/graph.h"

struct program_list;

/* Products of matrices, convolutions and attention: more operations for a byte than one. */
bool recompute_is_costly(const struct graph *graph, int node);

/* Of the values that the nodes of 'forward' read and make, each by its root (the value whose bytes
 * it has): 'bytes' of each, 0 for what there is anyhow, such as parameters; 'wanted': does the
 * backward read it? Sets 'kept' of each. All are [n_values].
 */
void recompute_keep(const struct graph *graph, const struct program_list *forward,
                    const int *root, const size_t *bytes, const bool *wanted, bool *kept);

/* Which nodes of 'forward' make 'wanted' from what is 'kept': sets 'runs' [forward->n], and in
 * 'wanted' what these read.
 */
void recompute_runs(const struct graph *graph, const struct program_list *forward,
                    const int *root, const bool *kept, bool *wanted, bool *runs);

#endif
