/* SPDX-License-Identifier: MIT */
/* The nodes of a job of PJM, PBS or Grid Engine, by the file that each names in its environment.
 * Those of Slurm are libslurm's to tell (scheduler/slurm/slurm.h).
 */
#ifndef TASUKI_TRAIN_JOB_NODES_H
#define TASUKI_TRAIN_JOB_NODES_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct job_node {
    char *name;
    int64_t slots;          /* processes that the job may have there */
};

struct job_nodes {
    const char *variable;   /* that names the file: "PBS_NODEFILE"; NULL: no job has one */
    const char *path;       /* of the file, as the environment has it */
    const char *scheduler, *job;    /* "PBS", "123.server" */
    bool counted;           /* slots are a limit; false: the job was asked for by nodes alone */
    int n;
    struct job_node *list;  /* in the file's order, each node once */
    int64_t slots;          /* of all */
};

/* 0 with no variable outside of such a job; -1 where the file cannot be read, or lists no node.
 *
 * Grid Engine's file has the slots of each node. PBS has a line for each process that the job was
 * asked for (mpiprocs, Torque's ppn); where that was not said a line for each chunk, and no limit if
 * these are nodes. PJM has a line for each node, and the limit in PJM_PROC_BY_NODE.
 */
int job_nodes_read(struct job_nodes *nodes, struct err *err);
void job_nodes_clear(struct job_nodes *nodes);

/* "PBS job 123: 4 nodes, 16 slots"; malloc'ed. */
char *job_nodes_title(const struct job_nodes *nodes);

enum job_misfit {
    JOB_FITS,
    JOB_CROWDED,            /* more ranks on a node than its slots, or in all */
    JOB_ELSEWHERE           /* a rank on a node that is not the job's */
};

/* Are n ranks, each on hosts[i], what the job has? '*rank' is the first that is not, or -1 where
 * there are too many in all. Names are the same that differ in what follows a dot; where the job
 * has addresses, or no name is known, only all of them can be counted.
 */
enum job_misfit job_nodes_fit(const struct job_nodes *nodes, int n, const char *const *hosts,
                              int *rank);
/* The node of this name; NULL: none of the job's is known by it. */
const struct job_node *job_nodes_find(const struct job_nodes *nodes, const char *host);

#endif
