/* SPDX-License-Identifier: MIT */
/* The same training on more and on less of a cluster: how long it takes, and which to ask for. */
#ifndef TASUKI_SCHEDULER_SIZES_H
#define TASUKI_SCHEDULER_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "scheduler/plan.h"
#include "topology/cluster.h"

struct err;

/* What the sizes are asked about. */
struct size_request {
    bool nodes;             /* sizes count nodes, else devices */
    int first, last;
    int most;               /* of more sizes than that four of each doubling are compared; 0: all */
    int64_t steps, epochs;  /* 0: not said; of epochs the caller makes steps */
    double start_up, start_up_node;     /* seconds before the first step, and for each node;
                                         * negative: as the cluster says */
    double data_bytes;      /* of an epoch; 0: not said */
    int64_t samples;        /* of an epoch; 0: not known */
    /* Each node copies the data before the steps and reads its copy; else it reads its share of
     * each step from the shared file system.
     */
    bool staged;
    /* A plan for this much of the cluster; NULL with 'err' where there is none. */
    struct plan *(*plan)(void *user, const struct cluster *part, struct err *err);
    void *user;
};

/* What the time until all is done goes to, as the mean over all devices. */
enum size_part {
    SIZE_START_UP, SIZE_STAGING,
    SIZE_READING,           /* waiting for data */
    SIZE_COMPUTES, SIZE_REDUCES,
    SIZE_UNEVEN,            /* waiting for replicas that have more samples */
    SIZE_WAITS,             /* for other stages */
    SIZE_UNUSED,            /* of devices that the plan leaves idle */
    SIZE_PARTS
};

struct size_row {
    int nodes, devices;     /* of which the plan may leave some idle */
    struct plan *plan;      /* NULL: there is none */
    char *refused;          /* why */
    double reading;         /* seconds in which all nodes read a step's samples, ahead of it */
    double step;            /* the longer of that and the plan's iteration */
    double steps, finish;   /* seconds of all steps; with the start and staging before them */
    double parts[SIZE_PARTS];           /* seconds, of which finish is the sum */
    enum size_part limit;               /* the largest of these */
    double efficiency;      /* samples/s of a device, relative to the smallest with a plan */
    double node_hours;
    /* Shares of the step, mean over all devices: computing, waiting for the all-reduce, and
     * for other stages and for data, or without work.
     */
    double busy, reducing, idle;
};

struct sizes {
    struct size_request request;
    int n, best;            /* best: -1 where no size has a plan */
    struct size_row *rows;
    bool storage;           /* the cluster says how fast data is read */
    bool start_up;          /* it, or the request, how long a run takes to start */
};

/* Of sizes that finish within this much of the fastest the one with fewest node-hours is best. */
#define SIZES_NEAR 0.05
/* A dip is that much less efficient than both sizes beside it: forecasts do not tell less apart. */
#define SIZES_DIP 0.01

/* Each size is the first so many nodes or devices. NULL where the cluster has fewer. */
struct sizes *sizes_new(const struct cluster *cluster, const struct size_request *request,
                        struct err *err);
void sizes_free(struct sizes *sizes);
/* Nodes, or devices, as the request counts. */
int sizes_size(const struct sizes *sizes, int i);
/* "computing", "all-reduce", … */
const char *size_part_name(enum size_part part);
/* The part that takes more seconds longer than in another size than the others do. */
enum size_part size_grows(const struct size_row *row, const struct size_row *other);
/* The same of the steps' seconds, summed over the devices. */
enum size_part size_wastes(const struct size_row *row, const struct size_row *other);
/* Is its efficiency below those of the sizes before and behind it, by SIZES_DIP? */
bool size_dips(const struct sizes *sizes, int i);
json_t *sizes_to_json(const struct sizes *sizes);

#endif
