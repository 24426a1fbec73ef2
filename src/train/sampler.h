/* SPDX-License-Identifier: MIT */
/* Which samples a step uses: follows from (seed, epoch, step) alone, never from the number of
 * ranks.
 */
#ifndef TASUKI_TRAIN_SAMPLER_H
#define TASUKI_TRAIN_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct err;

/* The order of samples. One epoch visits samples / global_batch batches; the incomplete last
 * one is dropped.
 */
struct sampler {
    int64_t samples, global_batch;
    int64_t steps_per_epoch;
    uint64_t seed;
    bool shuffle;
    int64_t epoch;      /* of 'order'; -1: none yet */
    int64_t length;
    int64_t *order;
};

/* Fails where there are fewer samples than one global batch. */
int sampler_init(struct sampler *sampler, int64_t samples, int64_t global_batch,
                 uint64_t seed, bool shuffle, struct err *err);
/* The order of an evaluation: one epoch of all samples as they stand. Where the last batch is not
 * full its first sample completes it, and a batch of nothing but that sample follows.
 */
int sampler_init_whole(struct sampler *sampler, int64_t samples, int64_t global_batch,
                       struct err *err);
/* The same order once more. */
int sampler_copy(struct sampler *copy, const struct sampler *sampler, struct err *err);
void sampler_clear(struct sampler *sampler);
int64_t sampler_epoch(const struct sampler *sampler, int64_t step);
/* Indices of the global batch of a step (from 0); valid until the next call. */
const int64_t *sampler_step(struct sampler *sampler, int64_t step);

#endif
