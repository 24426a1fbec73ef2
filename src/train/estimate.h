/* SPDX-License-Identifier: MIT */
/* What a model would cost on a device that is not here: a roofline over its figures. */
#ifndef TASUKI_TRAIN_ESTIMATE_H
#define TASUKI_TRAIN_ESTIMATE_H

#include <stdint.h>

#include "graph/graph.h"
#include "scheduler/cost.h"
#include "topology/cluster.h"

struct err;

/* The cost file of a graph with its loss at 'sizes' (ascending), whatever batch it was built for,
 * on a device of 'cluster', which has flops or a memory bandwidth. 'optimizer_states'
 * arrays for each parameter; 'steps': with what runs in a step, as no backend has lowered it.
 */
struct cost *estimate_cost(const struct graph *built, int n_sizes, const int64_t *sizes,
                           const struct cluster *cluster, const struct cluster_device *device,
                           int optimizer_states, bool steps, struct err *err);
/* The same on each kind of its devices, of which the slowest by its figures stands for all, as one
 * cost. Fails where nothing says how fast one of them is.
 */
struct cost *estimate_kinds(const struct graph *built, int n_sizes, const int64_t *sizes,
                            const struct cluster *cluster, int optimizer_states, bool steps,
                            struct err *err);

#endif
