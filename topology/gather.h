/* SPDX-License-Identifier: MIT */
/* The nodes of all ranks become one cluster model.
 *
 * How the descriptions travel is the caller's affair: each rank packs its own, and merges
 * what it got from all.
 */
#ifndef TASUKI_TOPOLOGY_GATHER_H
#define TASUKI_TOPOLOGY_GATHER_H

#include <stdbool.h>
#include <stddef.h>

struct cluster;
struct err;
struct topo_node;
struct topo_record;
struct topo_tasks;

/* Two lines of JSON, malloc'ed. Of the ranks of a host the first sends the 'whole' node. */
char *gather_pack(const struct topo_node *node, bool whole, size_t *size, struct err *err);

/* Rank r sits on hosts[r] and packed parts[r]. Ranks of a host become devices "HOST/cpu0" … of
 * its node, in rank order, which share its cores and memory. Nodes are below their switches
 * where these are known; those on one machine are below it. Links are those of the tables until
 * somebody measures.
 */
struct cluster *gather_merge(int n_ranks, const char *const *hosts, const void *const *parts,
                             const size_t *sizes, const char *name, struct err *err);

/* This node as one device; the cluster's name is GATHER_HERE. */
#define GATHER_HERE "this machine"
struct cluster *gather_here(struct err *err);

/* The nodes of all ranks, each as the first of its ranks packed it; GPUs that the driver hides
 * from that one are as others packed them.
 */
struct topo_record *gather_record_of(int n_ranks, const void *const *parts, const size_t *sizes,
                                     struct err *err);

/* Which CPUs and GPUs each rank may use. */
struct topo_tasks *gather_tasks(const struct topo_record *record, int n_ranks,
                                const void *const *parts, const size_t *sizes, struct err *err);

#endif
