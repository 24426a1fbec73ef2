/* SPDX-License-Identifier: MIT */
/* Sources of node.c. */
#ifndef TASUKI_TOPOLOGY_NODE_READ_H
#define TASUKI_TOPOLOGY_NODE_READ_H

#include "topology/node.h"

/* From /proc, /sys and sysconf(): everything, roughly. What is not there stays 0. */
void topo_node_read_proc(struct topo_node *node);

/* From hwloc, over what is there already. 'xml': that file, and nothing of this machine.
 * Without hwloc: an error for 'xml', else nothing happens.
 */
int topo_node_read_hwloc(struct topo_node *node, const char *xml, struct err *err);

struct topo_device *topo_node_add_device(struct topo_node *node, enum topo_device_kind kind,
                                    const char *name, const char *address);
void topo_node_clear_devices(struct topo_node *node, enum topo_device_kind kind);
void topo_node_set_text(char **text, const char *value);

#endif
