/* SPDX-License-Identifier: MIT */
/* Tasks that could be bound better, or get their GPUs otherwise.
 *
 * Found is only what another binding would cure. That more tasks than CPUs run on a node is
 * what somebody asked for; that a task which sees all GPUs chooses one is how programs work.
 */
#ifndef TASUKI_TOPOLOGY_CHECK_TASKS_H
#define TASUKI_TOPOLOGY_CHECK_TASKS_H

struct findings;
struct task_check;
struct topo_node;
struct topo_record;
struct topo_tasks;

/* 'tasks' may be NULL: each node has one then, which is as 'task_check_host' gets it. Both must
 * outlive the check.
 */
struct task_check *task_check_new(const struct topo_record *record,
                                  const struct topo_tasks *tasks);
void task_check_free(struct task_check *check);
/* The tasks of the record's host 'host', which is 'node'. */
void task_check_host(const struct task_check *check, int host, const struct topo_node *node,
                     struct findings *findings);

#endif
