/* SPDX-License-Identifier: MIT */
/* Parts of tasuki-slurm.so. */
#ifndef TASUKI_SLURM_MODULE_PRIVATE_H
#define TASUKI_SLURM_MODULE_PRIVATE_H

#include <stdbool.h>

#include <slurm/slurm.h>

#include "scheduler/slurm/facts.h"

struct err;
struct slurm_job_id;

/* Before any other function of libslurm. */
void module_start(void);
/* "n[1-4]" as names; -1: it is no list. */
int module_expand(const char *list, int *n, char ***names);
/* Put a copy in place of what is there; NULL is "". */
void module_set(char **text, const char *value);
/* Append the nodes of a host list, in its order. */
int module_add_nodes(struct slurm_facts *facts, const char *names, const node_info_msg_t *all,
                     struct err *err);
/* Names of the cluster and of its topology, and its switches. */
int module_add_cluster(struct slurm_facts *facts, struct err *err);

/* As in driver.h. */
int module_has_node(const struct slurm_job_id *id, const char *node, bool *has, struct err *err);
int module_requeue(const struct slurm_job_id *id, struct err *err);
int module_end_job(const struct slurm_job_id *id, struct err *err);
int module_signal_step(const struct slurm_job_id *id, uint32_t step, int number, struct err *err);

/* What libslurm says in errno, of this; always -1. */
int module_refused(struct err *err, const char *what);
int module_no_job(struct err *err);

#endif
