/* SPDX-License-Identifier: MIT */
/* Running one operator by itself, on made-up input, to see how long it takes. */
#ifndef TASUKI_TRAIN_STOPWATCH_H
#define TASUKI_TRAIN_STOPWATCH_H

#include "kernels/backend.h"

struct err;

struct measured {
    double seconds;         /* median */
    double spread;          /* of the middle half of the runs, relative to the median */
    int runs;
};

int stopwatch_node(const struct backend *backend, struct device *device,
                 const struct graph *graph, int node, const struct value_layout *layouts,
                 struct measured *result, struct err *err);
/* Of one megabyte of parameters. */
int stopwatch_update(const struct backend *backend, struct device *device,
                   const struct optimizer_args *args, struct measured *result,
                   struct err *err);

#endif
