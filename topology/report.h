/* SPDX-License-Identifier: MIT */
/* Topology for people to read. */
#ifndef TASUKI_TOPOLOGY_REPORT_H
#define TASUKI_TOPOLOGY_REPORT_H

struct cluster;
struct err;
struct topo_node;
struct topo_record;

/* This node's hardware, some lines; malloc'ed. */
char *report_node(const struct topo_node *node);
/* Each kind of node once, with the hosts that are of it; malloc'ed, "" where there are none. */
char *report_record(const struct topo_record *record, struct err *err);
/* Each switch with what hangs on it, and who says so; that none is known; or, of several
 * nodes, that it was not collected. "" for one node of which nothing is known, and for a
 * cluster without descriptions of nodes. malloc'ed; NULL with 'err'.
 */
char *report_switches(const struct topo_record *record, const struct cluster *cluster,
                      struct err *err);
/* A drawing of one node, or of many as a grid; for Graphviz likewise; the file that
 * NCCL_TOPO_FILE names. malloc'ed, NULL with 'err'.
 */
char *report_svg(const struct topo_record *record, const struct cluster *cluster,
                 struct err *err);
char *report_dot(const struct topo_record *record, const struct cluster *cluster,
                 struct err *err);
char *report_nccl(const struct topo_node *node, struct err *err);
/* The cluster as a tree; neighbours that are alike share a line. malloc'ed. */
char *report_cluster(const struct cluster *cluster);

/* "23.5 GiB", "4.0 GB/s", "25 us" into 'text', which is returned. */
char *report_bytes(double bytes, char text[24]);
char *report_rate(double bytes_per_second, char text[24]);
char *report_time(double seconds, char text[24]);

#endif
