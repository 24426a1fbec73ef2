/* SPDX-License-Identifier: MIT */
/* The description of a machine, made of an allocation of it. */
#ifndef TASUKI_TOPOLOGY_DESCRIBE_H
#define TASUKI_TOPOLOGY_DESCRIBE_H

#include <jansson.h>

struct cluster;
struct err;
struct topo_record;

/* A topology file of a machine whose nodes are all like those of 'cluster', numbered, and whose
 * switches are of the sizes seen; it may be extended without limit. Links are the median of
 * those between places of a level. GPUs are the devices of nodes that have some, whatever the
 * ranks were. Serial numbers and what changes from second to second are left out.
 *
 * Nodes that differ are an error that tells which do. 'record' may be empty. json_decref() it.
 */
json_t *describe_machine(const char *name, const struct cluster *cluster,
                         const struct topo_record *record, struct err *err);
/* What an older description says that nobody measures, where 'description' lacks it: storage,
 * and how many nodes there are.
 */
void describe_keep(json_t *description, const json_t *older);

#endif
