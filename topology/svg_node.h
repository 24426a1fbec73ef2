/* SPDX-License-Identifier: MIT */
/* The drawings that report_svg() chooses from; both malloc'ed. */
#ifndef TASUKI_TOPOLOGY_SVG_NODE_H
#define TASUKI_TOPOLOGY_SVG_NODE_H

struct cluster;
struct err;
struct topo_node;
struct topo_record;

/* In detail: NUMA nodes, PCIe switches, GPUs and NICs, NVLinks. */
char *svg_of_node(const struct topo_node *node);
/* A cell for each node, in the frames of their switches. Of more than 256 nodes, neighbours
 * that are alike share a cell; more than 1,024 cells are counted, not drawn. NULL with 'err'.
 */
char *svg_of_nodes(const struct topo_record *record, const struct cluster *cluster,
                   struct err *err);

#endif
