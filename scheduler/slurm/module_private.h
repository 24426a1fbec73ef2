/* SPDX-License-Identifier: MIT */
/* Parts of tasuki-slurm.so. */
#ifndef TASUKI_SLURM_MODULE_PRIVATE_H
#define TASUKI_SLURM_MODULE_PRIVATE_H

#include <slurm/slurm.h>

#include "scheduler/slurm/facts.h"

struct err;

/* Put a copy in place of what is there; NULL is "". */
void module_set(char **text, const char *value);
/* Append the nodes of a host list, in its order. */
int module_add_nodes(struct slurm_facts *facts, const char *names, const node_info_msg_t *all,
                     struct err *err);
/* Names of the cluster and of its topology, and its switches. */
int module_add_cluster(struct slurm_facts *facts, struct err *err);

#endif
