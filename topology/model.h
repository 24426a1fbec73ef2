/* SPDX-License-Identifier: MIT */
/* The cluster model of described nodes, as their hardware reports it: GPUs are its devices, a
 * node without any is one CPU device.
 *
 * GPUs that NVLinks join are an island; a GPU's wire carries what its active links carry
 * together where switches join them, else the mean of a pair. A node's wire is its rails that
 * are up, of which one transfer takes one. Latencies come from tables. Nodes
 * are below their switches where these are known.
 */
#ifndef TASUKI_TOPOLOGY_MODEL_H
#define TASUKI_TOPOLOGY_MODEL_H

#include "topology/cluster.h"

struct err;
struct topo_node;
struct topo_record;

struct cluster *model_of_record(const struct topo_record *record, const char *name,
                                struct err *err);

/* What joins a rank's GPU to others, bytes/s each way. */
struct model_gpu {
    char island[32];            /* address of the first GPU of those that NVLinks join; "": none do */
    double nvlink, pcie;
    enum origin nvlink_origin, pcie_origin;
};

/* Of one that its node reports, or, 'gpu' < 0, of which nothing is known. */
struct model_gpu model_gpu(const struct topo_node *node, int gpu);
/* A cluster of which the devices, right below nodes, are ranks (gather_merge()), with the GPUs of
 * these, by rank: as model_of_record() has them, but these alone.
 */
struct cluster *model_of_ranks(const struct cluster *cluster, const struct model_gpu *gpus);

/* What joins a node to others: the wire above it, and the latency of what that leads to. */
struct model_network {
    double bandwidth, flow_bandwidth, latency;
    enum origin origin;
};

struct model_network model_network(const struct topo_node *node);

/* A kind of GPU as cost files call it ("V100-SXM2-32GB" for "Tesla V100-SXM2-32GB"). */
const char *model_device_kind(const char *name);

#endif
