/* SPDX-License-Identifier: MIT */
/* Between cluster_file.c, which reads topology files, cluster_take.c, which chooses nodes of
 * them, and cluster_write.c.
 */
#ifndef TASUKI_TOPOLOGY_CLUSTER_PRIVATE_H
#define TASUKI_TOPOLOGY_CLUSTER_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* No cluster is deeper, or has more devices; nor has a file more places than twice that. */
#define CLUSTER_MOST_LEVELS 8
#define CLUSTER_MOST_DEVICES (1 << 20)

/* By enum cluster_kind, by enum allreduce, by enum origin. */
extern const char *const cluster_kind_names[];
extern const char *const cluster_algorithm_names[];
extern const char *const cluster_origin_names[];

/* How many nodes a place of a file has, those that it stands for all counted; what is no place
 * has none.
 */
int64_t take_nodes(const json_t *place);
/* Of one of the places that it stands for. */
int64_t take_nodes_each(const json_t *place);
/* Where a network grows: what is below this place is repeated. A switch that is the only one of
 * its level has room for more switches, but none for more nodes.
 */
const json_t *take_growing(const json_t *root);
/* Which children have how many of 'nodes' nodes, that all of them have at least: as few
 * subtrees as possible. 'shares' has room for each child.
 */
void take_shares(const json_t *children, int64_t nodes, int64_t *shares);

#endif
