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

#include <stdint.h>

#include <jansson.h>

struct cluster;
struct err;
struct topo_record;
struct topo_tasks;

/* "NAME", "FILE", "NAME:N" or "FILE:N", which is N nodes of it. A word with a slash, one that
 * ends in ".json" and a file that exists are files. An unknown name is an error that lists
 * those there are.
 *
 * 'record' (NULL: not wanted) gets the nodes that are described there, those of the cluster;
 * all alike where only one kind is described. 'tasks' and 'slurm' (json_decref() it) get NULL
 * where the file has none, or not all nodes are wanted. All are NULL, or none.
 */
struct cluster *machine_open(const char *spec, struct topo_record **record,
                             struct topo_tasks **tasks, json_t **slurm, struct err *err);

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
