/* SPDX-License-Identifier: MIT */
/* What Slurm knows of a job or of a partition: plain data, and its JSON.
 *
 * "Not known" is "" or -1 (times, counts), and has no key in the JSON.
 */
#ifndef TASUKI_SLURM_FACTS_H
#define TASUKI_SLURM_FACTS_H

#include <stdint.h>

#include <jansson.h>

struct err;

#define SLURM_NO_LIMIT 0        /* of a time limit, and of nodes_most */

struct slurm_node {
    char *name;
    char *state;            /* "idle", "down+drain": base state and flags */
    char *reason;           /* why it is down or drained */
    char *features;         /* "v100,nvlink" */
    char *gres;             /* as configured: "gpu:p100:4(S:0-1)" */
    char *given;            /* of that to the job: "gpu:p100:2(IDX:0-1)"; "" for partitions */
    int sockets, cores, threads;    /* in all: of the node, of a socket, of a core; 0 unknown */
    double memory;          /* bytes, 0 unknown */
};

struct slurm_switch {
    char *name;
    int level;              /* 0: nodes hang on it */
    int64_t link_speed;     /* LinkSpeed of topology.conf, in units of the site's own; -1 */
    int n_nodes, n_switches;
    char **nodes, **switches;       /* that hang on it; nodes of level 0 only */
};

struct slurm_facts {
    char *version;          /* of slurmctld: "22.05.8" */
    char *cluster;
    char *topology;         /* "topology/tree" */
    char *job;              /* "123"; "": these are of a partition */
    char *name, *user;      /* of the job */
    char *state;            /* of the job: "running"; of the partition: "up" */
    char *why;              /* of a job that waits: "Resources"; may be "" */
    int64_t over;           /* of a job: 1: it has ended, nothing of it is left, 0: not */
    char *tasks;            /* of a whole array, those that wait: "1-3,7%2"; may be "" */
    char *output;           /* of a job: the file that its script's output goes to; may be "" */
    char *directory;        /* of a job: in which it works; may be "" */
    char *batch_host;       /* of a batch job: the node on which its script runs; may be "" */
    int64_t requeue;        /* of a job: 1: it is a batch job that may be requeued, 0: not */
    char *partition;
    int64_t time_left, time_limit;  /* seconds; a partition has only a limit */
    int64_t time_default;
    int64_t kill_wait;      /* seconds from SIGTERM at the time limit to SIGKILL */
    int64_t nodes_least, nodes_most;        /* of a partition: nodes that a job may have */
    int64_t nodes_wanted;   /* by a job that has none yet */
    int n_nodes;
    struct slurm_node *nodes;
    int n_switches;         /* -1: not collected */
    struct slurm_switch *switches;
    char *switches_why;     /* they were not */
};

struct slurm_facts *slurm_facts_new(void);
void slurm_facts_free(struct slurm_facts *facts);
json_t *slurm_facts_to_json(const struct slurm_facts *facts);
struct slurm_facts *slurm_facts_from_json(const char *path, const json_t *json,
                                          struct err *err);

#endif
