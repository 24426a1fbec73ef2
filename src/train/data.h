/* SPDX-License-Identifier: MIT */
/* Training data: a safetensors file with one tensor per model input plus labels. The first
 * dimension counts samples and is the same for all. Which samples a step uses follows from
 * (seed, epoch, step) alone, never from the number of ranks.
 */
#ifndef TASUKI_TRAIN_DATA_H
#define TASUKI_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"
#include "graph/model.h"

struct err;
struct data;

struct data *data_open(const char *path, struct err *err);
void data_close(struct data *data);
const char *data_path(const struct data *data);
int64_t data_samples(const struct data *data);
/* The tensors without their sample dimension, for model_options. */
const struct model_tensor *data_tensors(const struct data *data, int *n);

/* The tensor that feeds a VALUE_INPUT: its index, or -1 with 'err' where there is none by
 * that name, its shape differs from the value's without the batch, or floats would become
 * integers.
 */
int data_bind(const struct data *data, const struct graph *graph, int value, struct err *err);

/* Gather 'n' samples of a tensor into [outer, n, inner] of type 'to'. Integers widen, floats
 * change precision, integers become floats by value.
 */
void data_gather(const struct data *data, int tensor, const int64_t *samples, int64_t n,
                 enum dtype to, struct batch batch, void *out);

/* The order of samples. One epoch visits samples / global_batch batches; the incomplete last
 * one is dropped.
 */
struct sampler {
    int64_t samples, global_batch;
    int64_t steps_per_epoch;
    uint64_t seed;
    bool shuffle;
    int64_t epoch;      /* of 'order'; -1: none yet */
    int64_t *order;
};

/* Fails where there are fewer samples than one global batch. */
int sampler_init(struct sampler *sampler, int64_t samples, int64_t global_batch,
                 uint64_t seed, bool shuffle, struct err *err);
void sampler_clear(struct sampler *sampler);
/* Indices of the global batch of a step (from 0); valid until the next call. */
const int64_t *sampler_step(struct sampler *sampler, int64_t step);

#endif
