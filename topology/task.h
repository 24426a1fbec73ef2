/* SPDX-License-Identifier: MIT */
/* The tasks of a step: which CPUs and GPUs of its host each may use. */
#ifndef TASUKI_TOPOLOGY_TASK_H
#define TASUKI_TOPOLOGY_TASK_H

#include <jansson.h>

struct err;
struct topo_node;

struct topo_task {
    int rank;               /* -1: a process by itself */
    char *host;
    int n_usable, *usable;  /* PUs; 0: not known */
    int n_visible, *visible;/* GPUs it may use, by index, in CUDA's order; -1: all of them */
    int n_partitions;       /* parts of these by MIG; 0: whole GPUs */
    char **partitions;      /* their UUIDs */
    int n_shown, *shown;    /* GPUs that the driver shows it; -1: it hides none from it */
    int isolated;           /* as in struct topo_node */
};

struct topo_tasks {
    int n;
    struct topo_task *list; /* by rank */
};

struct topo_tasks *topo_tasks_new(void);
void topo_tasks_free(struct topo_tasks *tasks);
/* From what a rank says of its own (topo_record_own()); -1: it is not in the form of a node.
 * 'places' are the indices of all GPUs of its host by address, where ranks do not see the same
 * ones; else NULL.
 */
int topo_tasks_add(struct topo_tasks *tasks, int rank, const json_t *own, const json_t *places,
                   struct err *err);
/* The process that described 'node'. */
void topo_tasks_add_node(struct topo_tasks *tasks, const struct topo_node *node);

/* A line each; malloc'ed. */
char *topo_tasks_text(const struct topo_tasks *tasks);
/* The value of the key "tasks" of a topology file. */
json_t *topo_tasks_to_json(const struct topo_tasks *tasks);
struct topo_tasks *topo_tasks_from_json(const char *path, const json_t *list, struct err *err);

#endif
