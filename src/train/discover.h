/* SPDX-License-Identifier: MIT */
/* Where is this run: all ranks describe their nodes to each other. */
#ifndef TASUKI_TRAIN_DISCOVER_H
#define TASUKI_TRAIN_DISCOVER_H

#include <stdbool.h>

#include "comm/comm.h"
#include "topology/cluster.h"
#include "topology/node.h"
#include "train/measure.h"

struct err;

/* The cluster model of the run: one device for each rank (device.rank says which), the same on
 * all ranks. Collective. 'node' is this rank's, discovered before comm_open() because reading
 * the hardware may start a child process, which MPI does not like. Bandwidth and latency of the
 * links between ranks are measured unless that is MEASURE_NONE or there is one rank: then they
 * come from tables. What was measured is in '*links' where that is not NULL and something was.
 * A failure is one that all ranks have agreed on, or of the agreement itself.
 */
struct cluster *discover_cluster(struct comm *comm, const struct topo_node *node,
                                 enum measure measure, struct links **links, struct err *err);

/* Is this rank the first of its host, which describes the node for all of them? */
bool discover_is_first(const struct comm *comm);

#endif
