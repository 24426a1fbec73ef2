/* SPDX-License-Identifier: MIT */
/* Ways to sum an array over devices, so that all have it, and what they take.
 *
 * Devices are taken in tree order, so that every subtree of the cluster is one run of them, and
 * each wire carries one hop of a ring each way. For n devices and S bytes:
 *
 * - ring: 2(n-1) rounds, in which each device sends S/n to the next;
 * - tree: two binary trees, half of S by each, whose inner devices are the leaves of the other
 *   (Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
 *   scan", 2009), pipelined: 2 ceil(log2 n) latencies, each of the furthest pair of its level,
 *   and 2 S over each wire of the ring;
 * - hierarchical: S down a chain of the devices of each node, pipelined, a ring over the first
 *   ones, and back up the chains. Where there is one node, or one device in each: the ring.
 */
#ifndef TASUKI_TOPOLOGY_ALLREDUCE_H
#define TASUKI_TOPOLOGY_ALLREDUCE_H

#include <stdbool.h>

struct cluster;

enum allreduce {
    ALLREDUCE_RING, ALLREDUCE_TREE, ALLREDUCE_HIERARCHICAL,
    ALLREDUCE_BEST      /* the fastest of these for the bytes */
};

#define ALLREDUCE_KINDS 3
#define ALLREDUCE_PHASES 3

/* Devices in tree order; 'copies' of them, each 'shift' further on in the cluster, where what is
 * said of one is true of all; 1: these are all.
 */
struct allreduce_group {
    int n;
    const int *devices;
    int copies, shift;
};

/* Transfers at one time. Those of the first copy: one may end in the second. */
struct allreduce_phase {
    int n;
    struct allreduce_hop {
        int from, to;       /* devices */
    } *hops;
    double latency;         /* seconds, by the measured factor */
    double share;           /* each carries so many times the bytes */
};

struct allreduce_way {
    int n_phases;
    struct allreduce_phase phases[ALLREDUCE_PHASES];
};

/* Seconds, and seconds per byte, where nothing else is on the wires. */
struct allreduce_line {
    double latency, rate;
};

/* 'kind' is not ALLREDUCE_BEST; the group has two devices or more. allreduce_clear() it. */
void allreduce_find(const struct cluster *cluster, enum allreduce kind,
                    const struct allreduce_group *group, struct allreduce_way *way);
void allreduce_clear(struct allreduce_way *way);
struct allreduce_line allreduce_line(const struct cluster *cluster,
                                     const struct allreduce_way *way);
/* May the cluster sum this way? 'sharded': as a reduce-scatter and an all-gather, which are the
 * halves of a ring.
 */
bool allreduce_allowed(const struct cluster *cluster, enum allreduce kind, bool sharded);
/* As cluster_allreduce_time(). */
double allreduce_time(const struct cluster *cluster, int n, const int *devices, bool sharded,
                      double bytes);

#endif
