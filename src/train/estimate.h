/* SPDX-License-Identifier: MIT */
/* What a model would cost on a device that is not here: a roofline over its figures. */
#ifndef TASUKI_TRAIN_ESTIMATE_H
#define TASUKI_TRAIN_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"
#include "scheduler/cost.h"
#include "topology/cluster.h"

struct err;

/* The cost file of a graph with its loss at 'sizes' (ascending), whatever batch it was built for,
 * on a device of 'cluster', which has flops or a memory bandwidth. 'optimizer_states' arrays for
 * each parameter, of which 'offloaded' are in memory of the host; 'steps': with what runs in a
 * step, as no backend has lowered it.
 */
struct cost *estimate_cost(const struct graph *built, int n_sizes, const int64_t *sizes,
                           const struct cluster *cluster, const struct cluster_device *device,
                           int optimizer_states, int offloaded, bool steps, struct err *err);
/* Does anything say how fast devices of that kind are? */
bool estimate_knows(const struct cluster *cluster, const char *kind);
/* The same on each kind of its devices of which that is so, the slowest of a kind by its figures
 * standing for it, as one cost; of more than COST_MOST_KINDS on the slowest of all. Fails where
 * nothing says how fast any of them is.
 */
struct cost *estimate_kinds(const struct graph *built, int n_sizes, const int64_t *sizes,
                            const struct cluster *cluster, int optimizer_states, int offloaded,
                            bool steps, struct err *err);

#endif
