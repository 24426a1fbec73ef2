/* SPDX-License-Identifier: MIT */
/* A foreign hwloc XML file, read in a child process, which may crash. */
#ifndef TASUKI_TOPOLOGY_NODE_APART_H
#define TASUKI_TOPOLOGY_NODE_APART_H

struct err;
struct topo_input;
struct topo_node;

struct topo_node *topo_node_read_apart(const char *xml, struct err *err);

/* What the child does. */
int topo_node_read_xml(struct topo_node *node, const char *xml, struct err *err);

#endif
