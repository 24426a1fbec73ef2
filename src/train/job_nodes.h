/* SPDX-License-Identifier: MIT */
/* The nodes of a job of PJM, PBS or Grid Engine, by the file that each names in its environment.
 * Those of Slurm are libslurm's to tell (scheduler/slurm/slurm.h).
 */
#ifndef TASUKI_TRAIN_JOB_NODES_H
#define TASUKI_TRAIN_JOB_NODES_H

#include <stdint.h>

struct err;

struct job_node {
    char *name;
    int64_t slots;          /* processes that the job may have there */
};

struct job_nodes {
    const char *variable;   /* that names the file: "PBS_NODEFILE"; NULL: no job has one */
    const char *path;       /* of the file, as the environment has it */
    int n;
    struct job_node *list;  /* in the file's order, each node once */
    int64_t slots;          /* of all */
};

/* 0 with no variable outside of such a job; -1 where the file cannot be read, or lists no node. */
int job_nodes_read(struct job_nodes *nodes, struct err *err);
void job_nodes_clear(struct job_nodes *nodes);

#endif
