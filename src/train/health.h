/* SPDX-License-Identifier: MIT */
/* How nodes are before ranks are started on them: what each says of itself, and which are bad.
 *
 * A node says so on one line, which the launcher reads from the step that asks. It is held
 * against what Slurm says of it and against its peers, the nodes of which Slurm says the same:
 * what all of them have in common is no fault of a node.
 */
#ifndef TASUKI_TRAIN_HEALTH_H
#define TASUKI_TRAIN_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/oom.h"

struct topo_node;

/* What a node says of itself. */
struct health {
    char *node;             /* as Slurm calls it */
    int64_t cpus;           /* hardware threads, whoever may use them; 0: not known */
    double memory;          /* bytes, of the whole node; 0: not known */
    int64_t gpus;           /* that the driver shows, or their partitions; -1: nobody looked */
    char *driver;           /* why it shows none, or what is wrong with one; "" */
    char *trouble;          /* with a folder that ranks write to; "" */
    char *missing;          /* a file that is not there, or cannot be read; "" */
    struct oom oom;         /* processes that it ended for want of memory so far */
};

/* What is asked for, and what Slurm says. */
struct health_record {
    int64_t cpus;           /* 0: not known */
    double memory;
    int64_t gpus, given;    /* of the node; of those, the job's */
    char *gres;             /* as Slurm words it; "" */
};

/* What a run needs of a node; NULL: it does not matter. */
struct health_needs {
    const struct topo_node *gpus;   /* this node, by which they are counted */
    const char *temporary;          /* a folder of its own, with some room */
    const char *shared;             /* a folder that all nodes write to */
    const char *file;               /* that all read */
};

/* Look at this node. */
struct health health_look(const struct health_needs *needs);
/* A line, without its end, malloc'ed; and back: false where it is none. health_clear() it. */
char *health_line(const struct health *health);
bool health_read(const char *line, struct health *health);
void health_clear(struct health *health);

/* What is wrong with each of n nodes, malloc'ed; NULL: nothing. */
void health_judge(int n, const struct health *said, const struct health_record *slurm,
                  char **why);

#endif
