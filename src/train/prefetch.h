/* SPDX-License-Identifier: MIT */
/* Samples read ahead by threads, so that the training loop does not wait for them.
 *
 * The loop, of training or of an evaluation, takes shares (one micro-batch's samples of a replica)
 * in a fixed order; a ring of shares is filled ahead of it. Everything is allocated when it is
 * made.
 */
#ifndef TASUKI_TRAIN_PREFETCH_H
#define TASUKI_TRAIN_PREFETCH_H

#include "train/compile.h"
#include "train/data.h"
#include "train/placement.h"

struct err;
struct prefetch;

struct prefetch_options {
    struct data *data;
    const int *tensors;                 /* one for each input, see executor_bind() */
    const struct compiled *compiled;    /* of the stage */
    struct device *device;              /* which copies what was read */
    const struct placement *placement;
    const struct plan *plan;
    const struct sampler *sampler;      /* copied */
    int64_t first_step, end_step;
    int threads;                        /* >= 1 */
};

/* NULL without an error where the stage reads nothing. Starts the threads. */
struct prefetch *prefetch_new(const struct prefetch_options *options, struct err *err);
void prefetch_free(struct prefetch *prefetch);

/* The next share in the order of the stage's forward passes, step after step: one buffer for
 * each input, valid until it is released. Waits where it is not complete yet. An error of a sample
 * comes with its share.
 */
int prefetch_take(struct prefetch *prefetch, const void *const **inputs, struct err *err);
void prefetch_release(struct prefetch *prefetch);
/* How long prefetch_take() has waited so far. */
double prefetch_waited(const struct prefetch *prefetch);

#endif
