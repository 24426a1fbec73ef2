/* SPDX-License-Identifier: MIT */
/* Where the GPUs and NICs of a node stand in a drawing: a column for each, neighbours on the
 * PCI tree beside each other, and the PCIe switches above them.
 */
#ifndef TASUKI_TOPOLOGY_SVG_LEAVES_H
#define TASUKI_TOPOLOGY_SVG_LEAVES_H

struct topo_node;

struct leaf {
    int gpu, nic, rail;     /* indices; -1 where it is the other kind */
    int numa, pci;          /* -1: not known */
    int depth;              /* switches above it */
};

struct leaf_switch {
    int first, last;        /* columns */
    int depth;              /* switches above it */
};

struct leaves {
    int n, n_switches, depth;       /* depth: most switches above a leaf */
    struct leaf *leaf;
    struct leaf_switch *switches;
};

struct leaves *leaves_of(const struct topo_node *node);
void leaves_free(struct leaves *leaves);

#endif
