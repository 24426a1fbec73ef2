/* SPDX-License-Identifier: MIT */
/* Efficiency curves (topology/efficiency.h) from operators that were measured. */
#ifndef TASUKI_TRAIN_CALIBRATE_H
#define TASUKI_TRAIN_CALIBRATE_H

#include "scheduler/blocks.h"
#include "topology/efficiency.h"

struct calibration {
    int n;
    struct calibration_call {
        enum efficiency_class of;
        double work, speed;     /* operations or bytes; of them per second */
    } *calls;
};

void calibration_add(struct calibration *calibration, const struct node_work *work,
                     double seconds);
/* A point for each class and factor of 8 in work: the geometric means of what falls there. A
 * peak that was exceeded (0: not known) is raised to the best of these.
 */
void calibration_fit(const struct calibration *calibration, double *flops,
                     double *memory_bandwidth, struct efficiency *efficiency);
void calibration_clear(struct calibration *calibration);

#endif
