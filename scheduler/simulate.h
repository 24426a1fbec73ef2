/* SPDX-License-Identifier: MIT */
/* Event simulation of a plan's instruction lists: who does what when.
 *
 * No constants of its own: block times come from the cost file, links and cores from the
 * cluster model. Devices on one node share its cores: while more threads are busy than the
 * node has cores, all run slower in proportion.
 */
#ifndef TASUKI_SCHEDULER_SIMULATE_H
#define TASUKI_SCHEDULER_SIMULATE_H

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"
#include "topology/cluster.h"

struct err;

struct simulated_event {
    int stage, pipeline, replica;
    struct instruction instruction;
    double start, end;          /* seconds from the start of the iteration */
};

struct simulation {
    double iteration_seconds;
    int n_events;
    struct simulated_event *events;     /* by start time */
    double *busy;               /* per (pipeline, stage, replica): seconds of computing */
};

struct simulation *simulate(const struct plan *plan, const struct cost *cost,
                            const struct cluster *cluster, struct err *err);
void simulation_free(struct simulation *simulation);

#endif
