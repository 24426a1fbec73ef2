/* SPDX-License-Identifier: MIT */
/* Machines that one is not on, by name: topology files NAME.json in the folders of
 *
 *   $TASUKI_MACHINES (separated by colons),
 *   $XDG_CONFIG_HOME/tasuki/machines, else ~/.config/tasuki/machines,
 *   $(sysconfdir)/tasuki/machines,
 *   etc/machines next to the program, so that a build tree runs in place,
 *   $(pkgdatadir)/machines.
 *
 * The first that has the name counts. Those in the last two are shipped, the others were saved
 * on machines.
 */
#ifndef TASUKI_TOPOLOGY_MACHINE_H
#define TASUKI_TOPOLOGY_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct cluster;
struct err;
struct gpu_links;
struct links;
struct topo_record;
struct topo_tasks;

/* What a topology file describes beside the cluster. Where it does not, and but for the record
 * where not all nodes are wanted, that is NULL.
 */
struct machine_parts {
    struct topo_record *record; /* the nodes of the cluster; all alike where one is described */
    struct topo_tasks *tasks;
    struct links *links;
    struct gpu_links *gpus;
    json_t *slurm;              /* json_decref() it */
};

/* "NAME", "FILE", "NAME:N" or "FILE:N", which is N nodes of it. A word with a slash, one that
 * ends in ".json" and a file that exists are files. An unknown name is an error that lists
 * those there are.
 *
 * 'parts' (NULL: not wanted) are the caller's to free; after an error all are NULL.
 */
struct cluster *machine_open(const char *spec, struct machine_parts *parts, struct err *err);

/* Does it say how many nodes there are? */
bool machine_counts(const char *cluster);

/* What --cluster and --nodes together mean, malloc'ed: 'cluster' NULL and 'nodes' > 0 are so
 * many nodes of the only machine that was saved. EXIT_USAGE where none was or several were, and
 * where 'cluster' says how many nodes by itself. Both left out: NULL without an error.
 */
char *machine_spec(const char *cluster, int64_t nodes, struct err *err);

/* Where NAME is to be saved, malloc'ed: in the first folder of $TASUKI_MACHINES, else in
 * $(sysconfdir)/tasuki/machines where that may be written, else in the user's. The folder is
 * made. Names are letters, digits, '-', '_' and '.', which may not come first.
 */
char *machine_save_path(const char *name, struct err *err);

#endif
