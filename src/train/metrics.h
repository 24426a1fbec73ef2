/* SPDX-License-Identifier: MIT */
/* Figures of a running job in the text format of Prometheus, for node_exporter's textfile
 * collector. tasuki-train(1) lists them.
 */
#ifndef TASUKI_TRAIN_METRICS_H
#define TASUKI_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

struct err;

/* What each rank did of late. */
struct rank_metrics {
    int stage;                  /* -1: it has no work */
    double compute;             /* share of the time, 0 to 1 */
    double memory;              /* bytes, at most so far */
};

/* NAN: not known, and left out, but for the loss. */
struct metrics {
    const char *job, *model;    /* labels; 'job' NULL: without */
    bool running;
    int64_t step, steps, epoch; /* done, in all; counted from 1 */
    double loss, accuracy, lr;
    double step_seconds, predicted_seconds, samples_per_second;
    double test_loss, test_accuracy;
    int64_t checkpoint_step;    /* 0: none yet */
    int n_ranks;                /* 0: no report yet */
    struct rank_metrics *ranks;
};

/* All that is known; malloc'ed. */
char *metrics_text(const struct metrics *metrics);
/* The same into a file, which is replaced whole. */
int metrics_write(const struct metrics *metrics, const char *path, struct err *err);

#endif
