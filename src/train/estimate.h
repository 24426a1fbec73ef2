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

/* What is to be estimated. */
struct estimate {
    const struct graph *graph;      /* with its loss, whatever batch it was built for */
    int n_sizes;
    const int64_t *sizes;           /* ascending */
    const struct cluster *cluster;
    enum cluster_factors factors;   /* of products; FACTORS_BF16, FACTORS_FP16: values between them, too */
    int optimizer_states;           /* arrays for each parameter */
    int offloaded;                  /* of these, in memory of the host */
    bool steps;                     /* with what runs in a step, as no backend has lowered it */
};

/* The cost file, on a device of the cluster of which the speed is known. */
struct cost *estimate_cost(const struct estimate *estimate, const struct cluster_device *device,
                           struct err *err);
/* Does anything say how fast devices of that kind are, in float32? */
bool estimate_knows(const struct cluster *cluster, const char *kind);
/* The same on each kind of its devices of which that is so, the slowest of a kind by its figures
 * standing for it, as one cost; of more than COST_MOST_KINDS on the slowest of all. Fails where
 * nothing says how fast any of them is.
 */
struct cost *estimate_kinds(const struct estimate *estimate, struct err *err);

#endif
