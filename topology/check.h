/* SPDX-License-Identifier: MIT */
/* Which nodes are not well: by what they say of themselves, and by what their siblings have;
 * and which tasks are not bound well.
 *
 * Siblings are the nodes with the same processor and the same GPUs. Of each feature the value
 * that most of them have is taken for right; where as many have another, the better one.
 * What a node did not collect is never held against it, but that it could not be collected is.
 */
#ifndef TASUKI_TOPOLOGY_CHECK_H
#define TASUKI_TOPOLOGY_CHECK_H

#include "topology/findings.h"

struct err;
struct links;
struct topo_record;
struct topo_tasks;

/* 'tasks' may be NULL: then the process that described a node is its only task. 'links' and
 * 'gpus' may be NULL: then no link was measured between hosts, between GPUs.
 */
struct findings *topo_check(const struct topo_record *record, const struct topo_tasks *tasks,
                            const struct links *links, const struct links *gpus,
                            struct err *err);

#endif
