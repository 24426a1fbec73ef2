/* SPDX-License-Identifier: MIT */
/* The tables of struct topo_node: what tasuki-topo(5) calls a node. */
#ifndef TASUKI_TOPOLOGY_NODE_SHAPE_H
#define TASUKI_TOPOLOGY_NODE_SHAPE_H

#include "topology/shape.h"

extern const struct shape topo_node_shape;
/* The lists, for shape_push(). */
extern const struct shape_field topo_field_numas, topo_field_pcis, topo_field_gpus,
    topo_field_nics, topo_field_said, topo_field_links, topo_field_migs;

#endif
