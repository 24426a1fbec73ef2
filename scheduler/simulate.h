/* SPDX-License-Identifier: MIT */
/* Event simulation of a plan's instruction lists: who does what when.
 *
 * No constants of its own: block times come from the cost file, links and cores from the
 * cluster model.
 * - Devices on one node share its cores: while more threads are busy than the node has cores,
 *   all run slower in proportion.
 * - A message moves when both sides have posted it, one at a time between two replicas and in
 *   one direction. It waits for the latency; then each wire on its way is shared evenly, and
 *   the slowest wire sets its pace.
 * - The last backward of a stage runs block by block from the last to the first. As soon as
 *   every replica has the gradients of a bucket of blocks (stage_bucket_bytes()), they are
 *   reduced, all buckets that are ready at once, by the cluster's algorithm
 *   (topology/allreduce.h): a ring over the replicas, which is
 *   2(n-1) times the longest latency, and on each hop 2(n-1)/n of the bytes, or phases of
 *   their own latency and bytes, one after the other. Shared parameters are reduced over all
 *   their stages at the end. Who computes while its gradients are reduced, or while it sends or
 *   receives, does so at the cluster's overlap of these.
 * - Where the schedule is not flushed, several iterations run one after the other, and what is
 *   said is of one between the first and the last.
 * - With jitter each computation takes longer by a share that is drawn evenly.
 */
#ifndef TASUKI_SCHEDULER_SIMULATE_H
#define TASUKI_SCHEDULER_SIMULATE_H

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"
#include "topology/cluster.h"

struct err;

struct simulated_event {
    int worker;                 /* of the simulation */
    int stage, pipeline, replica;
    struct instruction instruction;
    double start, end;          /* seconds from the start of the iteration */
};

struct simulation {
    double iteration_seconds;
    int n_events;
    struct simulated_event *events;     /* by start time */
    /* Workers are replicas: pipeline-major, then by stage, then by replica. */
    int n_workers;
    double *busy;               /* seconds of computing */
    double *reducing;           /* of waiting for the all-reduce after that */
    double *memory;             /* bytes, as the plan says; else by the sums of the cost file */
    int *devices;               /* in the cluster */
    double *moved;              /* [2 * places]: bytes over each uplink: up, down */
    struct schedule *schedule;  /* what was run */
};

struct simulated_jitter {
    double share;               /* that a computation takes longer at most */
    unsigned seed;
};

/* 'jitter' may be NULL: none. */
struct simulation *simulate(const struct plan *plan, const struct cost *cost,
                            const struct cluster *cluster,
                            const struct simulated_jitter *jitter, struct err *err);
/* The same for the iteration time alone; -1 with 'err' set on failure. */
double simulate_seconds(const struct plan *plan, const struct cost *cost,
                        const struct cluster *cluster, struct err *err);
/* INFINITY where that is seen to be more than 'limit', but for the rounding of sums: less is simulated
 * then. Of a schedule that is not flushed only what its workers compute is looked at.
 */
double simulate_within(double limit, const struct plan *plan, const struct cost *cost,
                       const struct cluster *cluster, struct err *err);
/* Parts of the cluster with as many pipelines each, of which one stands for all in these; 1: nothing
 * is alike. Each has as many devices as the first, next to each other.
 */
int simulate_copies(const struct plan *plan, const struct cluster *cluster);
/* Fill in the plan's iteration_seconds, and where the time of each stage goes. */
int simulate_forecast(struct plan *plan, const struct cost *cost, const struct cluster *cluster,
                      struct err *err);
void simulation_free(struct simulation *simulation);

#endif
