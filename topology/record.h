/* SPDX-License-Identifier: MIT */
/* The nodes of a cluster, those that are alike stored once.
 *
 * Nodes are alike where they differ in nothing but names, serial numbers, addresses that a
 * subnet manager deals out, memory (of which firmware takes a part), what changes from second
 * to second (clocks, corrected errors), and what the process may use. That is each host's own;
 * the rest is its kind's. In a topology file this is the key "nodes".
 */
#ifndef TASUKI_TOPOLOGY_RECORD_H
#define TASUKI_TOPOLOGY_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

struct err;
struct topo_node;

struct topo_record;

struct topo_record *topo_record_new(void);
void topo_record_free(struct topo_record *record);

/* A node as ranks send it: what is its own on one line, its kind on the next. Of the ranks of a
 * node one sends its kind; the others leave it out (not 'whole'), but for the GPUs that the
 * driver shows them where it hides others. malloc'ed.
 */
char *topo_record_pack(const struct topo_node *node, bool whole, size_t *size,
                       struct err *err);
/* 'kind' is for a part without one: the whole part of another rank of the node, or NULL. */
struct topo_node *topo_record_unpack(const char *what, const char *text, size_t size,
                                     const char *kind, size_t kind_size, struct err *err);
/* What a part says of its own: {"host": …, "own": {…}, "gpus": {"3": …}}.
 * json_decref() it.
 */
json_t *topo_record_own(const char *text, size_t size, struct err *err);

/* Add a packed node; a kind that is known is not even parsed. A host that is there already is
 * left as it is.
 */
int topo_record_add_packed(struct topo_record *record, const char *text, size_t size,
                           struct err *err);
int topo_record_add_node(struct topo_record *record, const struct topo_node *node,
                         struct err *err);

int topo_record_hosts(const struct topo_record *record);
int topo_record_kinds(const struct topo_record *record);
const char *topo_record_host(const struct topo_record *record, int host);
int topo_record_kind(const struct topo_record *record, int host);
int topo_record_find(const struct topo_record *record, const char *host);   /* -1 */
/* How many hosts are of a kind; the first of them in '*first' (may be NULL). */
int topo_record_count(const struct topo_record *record, int kind, int *first);
/* topo_node.switches of a host, without making the node. */
const char *topo_record_switches(const struct topo_record *record, int host);
double topo_record_memory(const struct topo_record *record, int host);     /* topo_node.memory */
/* What tells hosts apart but their names, their memory, and what says nothing of how they are:
 * serial numbers, addresses, clocks that nothing holds down. malloc'ed.
 */
char *topo_record_likeness(const struct topo_record *record, int host);
/* The node of a host, made anew: topo_node_free() it. */
struct topo_node *topo_record_node(const struct topo_record *record, int host,
                                   struct err *err);

/* The value of the key "nodes". What is read is checked node by node of each kind. */
json_t *topo_record_to_json(const struct topo_record *record);
struct topo_record *topo_record_from_json(const char *path, const json_t *nodes,
                                          struct err *err);

#endif
