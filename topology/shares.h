/* SPDX-License-Identifier: MIT */
/* The cores of a node in shares, one for each of its ranks.
 *
 * Shares are disjoint and have as many cores each. Of a core they have all hardware threads that
 * the process may use. A rank with a GPU gets cores of the GPU's NUMA node, as far as they go
 * round among the ranks that want them; all else comes from one NUMA node where one has enough.
 */
#ifndef TASUKI_TOPOLOGY_SHARES_H
#define TASUKI_TOPOLOGY_SHARES_H

#include <stdbool.h>

struct topo_node;

struct shares_request {
    const struct topo_node *node;   /* whose usable PUs are shared out */
    const int *cores;               /* number of the core of each of these; NULL: all differ */
    int ranks;
    int most;                       /* cores of a share, 0: as many as there are */
    bool on_gpus;                   /* rank i computes on the i-th GPU that CUDA shows it */
    const int *gpus;                /* or on this one of the node's, -1: none; NULL: not known */
};

struct share {
    int n, *pus;                    /* ascending */
};

/* One for each rank; NULL where there are fewer cores than ranks. */
struct share *shares_of(const struct shares_request *request);
void shares_free(int ranks, struct share *shares);
/* How many cores have usable PUs. */
int shares_cores(const struct shares_request *request);

#endif
