/* SPDX-License-Identifier: MIT */
/* The switches above a node, and nodes in a cluster model below their switches.
 *
 * topo_node.switches is a path from the top of the network: "/spine/leaf1". "/" is a network
 * of which no switch is known, "" one that nobody described. Where a node hangs on several
 * switches of a level they stand together, as Slurm writes them: "/spine/leaf[1-2]".
 */
#ifndef TASUKI_TOPOLOGY_SWITCHES_H
#define TASUKI_TOPOLOGY_SWITCHES_H

struct cluster;
struct err;

/* The path of an address that Slurm gives a task: "spine.leaf1.n1" with the pattern
 * "switch.switch.node" (topology/tree), "b3.n1" with "block.node", "n1" with "node". malloc'ed;
 * NULL where the two do not fit.
 */
char *switches_path(const char *address, const char *pattern, struct err *err);

/* Put n nodes with these paths below 'parent': a place for each switch, with no limit on its
 * wire and the latency of 'parent', and place(context, i, its place) for each node. Nodes stay
 * in their order but for those of a switch, which come together. Of more than 4 levels the
 * lowest are taken.
 */
void switches_place(struct cluster *cluster, int parent, int n, const char *const *paths,
                    void (*place)(void *context, int node, int parent), void *context);

#endif
