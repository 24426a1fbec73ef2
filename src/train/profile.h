/* SPDX-License-Identifier: MIT */
/* What a model costs on this device. */
#ifndef TASUKI_TRAIN_PROFILE_H
#define TASUKI_TRAIN_PROFILE_H

#include <stdint.h>
#include <stdio.h>

#include "graph/model.h"
#include "kernels/backend.h"
#include "scheduler/cost.h"
#include "train/calibrate.h"
#include "train/timings.h"

struct err;

struct profile_options {
    struct model *model;
    struct model_options model_options;     /* 'batch' is set to each size */
    const struct backend *backend;
    struct device *device;
    struct timings *timings;
    int threads;                /* of the device; 0: not known */
    struct optimizer_args optimizer;
    bool offload;               /* its state is in memory of the host */
    int n_sizes;
    const int64_t *sizes;       /* ascending */
    bool steps;                 /* the cost file says what runs in a step, too */
};

/* The cost file of the model: each unique operator is measured once per size, by itself,
 * with what a step has let fall out of the caches by then (reuse.h).
 */
struct cost *profile_cost(const struct profile_options *options, struct err *err);

/* The operators that profile_cost() measures, each with what it has to do. */
int profile_calibrate(const struct profile_options *options, struct calibration *calibration,
                      struct err *err);

/* Run whole training steps of 'samples' samples on one device and print the time of each kind
 * of operator as it is inside the step, with the share of layout reorders.
 */
int profile_table(const struct profile_options *options, int64_t samples, FILE *out,
                  struct err *err);

#endif
