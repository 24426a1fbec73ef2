/* SPDX-License-Identifier: MIT */
/* How far GPUs and NICs of a node are from each other, in the words that users know. */
#ifndef TASUKI_TOPOLOGY_DISTANCE_H
#define TASUKI_TOPOLOGY_DISTANCE_H

#include <stdbool.h>

struct topo_nic;
struct topo_node;

enum topo_near {
    TOPO_SELF,      /* X */
    TOPO_NVLINK,    /* NV#: that many NVLinks, direct or through NVSwitches */
    TOPO_PIX,       /* at most one PCIe bridge: the same switch */
    TOPO_PXB,       /* several PCIe bridges, no host bridge */
    TOPO_PHB,       /* the same PCIe host bridge */
    TOPO_NODE,      /* several host bridges of a NUMA node */
    TOPO_SYS,       /* across NUMA nodes */
    TOPO_FAR        /* ?: not known */
};

struct topo_distance {
    enum topo_near near;
    int links;              /* NVLINK */
    double bandwidth;       /* NVLINK: bytes/s each way, 0 unknown */
    bool blind;             /* the way over PCI; whether there are NVLinks was not collected */
};

struct topo_distance topo_distance_gpus(const struct topo_node *node, int a, int b);
struct topo_distance topo_distance_nic(const struct topo_node *node, int gpu, int nic);
/* The way over PCI alone, as if there were no NVLink. */
struct topo_distance topo_distance_pci(const struct topo_node *node, int a, int b);
/* "PIX", "NV12", into 'text', which is returned. */
const char *topo_distance_word(struct topo_distance distance, char text[16]);
/* What each word means, some lines. */
const char *topo_distance_legend(void);

/* The NICs that carry messages between nodes, HCAs where there are some, in the order of their
 * PCI addresses: the position of a NIC is its rail. Returns how many; '*nics' is malloc'ed.
 */
int topo_rails(const struct topo_node *node, int **nics);
/* Not active; a state that is not known counts as active. */
bool topo_nic_is_down(const struct topo_nic *nic);
/* The rail of GPU 'gpu': the nearest NIC that is not down; GPUs that are as near to several
 * share them in turn. -1: there is none.
 */
int topo_nearest_rail(const struct topo_node *node, int gpu);

#endif
