/* SPDX-License-Identifier: MIT */
/* What data is read from: a file system that all nodes share, and a disk in each node.
 *
 * Model: a node alone reads at its own bandwidth; nodes together at the shared one, if that is
 * less. Where n nodes read one file at once, each takes 1 + s (n - 1) times as long as alone, s
 * being the slow-down: 0 where files are spread over so many servers that it does not matter, 1
 * where one server hands the file to one node after the other, more where that server is slower
 * than a node.
 */
#ifndef TASUKI_TOPOLOGY_STORAGE_H
#define TASUKI_TOPOLOGY_STORAGE_H

#include <stdbool.h>

#include <jansson.h>

struct err;
struct json_reader;

/* Bytes and bytes per second; 0: not known. */
struct cluster_storage {
    char *name;             /* "Lustre"; NULL: none was given */
    double bandwidth;       /* of the file system, all nodes together */
    double client_bandwidth;/* of one node */
    double slow_down;       /* by each further reader of one file */
    double local_bandwidth; /* of the disk in each node */
    double local_size;      /* 0: also where there is no disk */
    int source;             /* where that comes from, as in cluster_place */
};

/* Is anything known? */
bool storage_is_known(const struct cluster_storage *storage);
void storage_clear(struct cluster_storage *storage);
/* The object "storage" of a topology file, but for its key "source". */
int storage_read(struct cluster_storage *storage, struct json_reader *r, struct err *err);
json_t *storage_to_json(const struct cluster_storage *storage);
/* One line without its end, malloc'ed. */
char *storage_text(const struct cluster_storage *storage);

/* Seconds until each of 'nodes' nodes (>= 1) has read so many bytes of the shared file system:
 * of a file of its own, or all of the same one. What is not known takes no time.
 */
double storage_seconds(const struct cluster_storage *storage, int nodes, double bytes,
                       bool same_file);
/* The same from the disk in the node. */
double storage_local_seconds(const struct cluster_storage *storage, double bytes);

#endif
