/* SPDX-License-Identifier: MIT */
/* This node: packages, NUMA, cores, caches, memory, GPUs, NICs.
 *
 * By hwloc where Tasuki was built with it, else from /proc, /sys and sysconf().
 */
#ifndef TASUKI_TOPOLOGY_NODE_H
#define TASUKI_TOPOLOGY_NODE_H

#include <stdbool.h>

#include <jansson.h>

struct err;

enum topo_device_kind { TOPO_GPU, TOPO_NIC };

struct topo_device {
    enum topo_device_kind kind;
    char *name;             /* "NVIDIA H100", "eth0": as people call it */
    char *address;          /* "0000:1b:00.0", "" where it is not on PCI */
    int numa;               /* NUMA node it is near to, -1: not known */
    double bandwidth;       /* NICs: bytes/s, 0: not known */
};

struct topo_node {
    char *host;
    char *machine;          /* the same for nodes that are virtual on one machine; "" unknown */
    char *cpu;              /* "Intel(R) Xeon(R) …" */
    char *source;           /* "hwloc 2.9.0", "/proc", the XML file */
    int packages, numa_nodes, cores, pus;   /* PUs are hardware threads */
    double l2, l3;          /* bytes of one cache, 0: none or not known */
    double memory;          /* bytes, as far as this job may use them */
    double flops;           /* of one core, float32/s by clock and vector width; 0 unknown */
    int n_usable;           /* PUs this process may run on */
    int *usable;
    int n_devices;
    struct topo_device *devices;
};

/* Look at this node, or at the one that an hwloc XML file describes. XML is read in a child
 * process: the library is known to crash on some mutated files.
 */
struct topo_node *topo_node_discover(const char *xml, struct err *err);
void topo_node_free(struct topo_node *node);

/* What ranks send to each other. */
json_t *topo_node_to_json(const struct topo_node *node);
struct topo_node *topo_node_from_json(const char *what, const json_t *json, struct err *err);

#endif
