/* SPDX-License-Identifier: MIT */
/* Training data: samples of named tensors, read by index from one of several formats
 * (tasuki-data(5)). What a sample is follows from the data, the seed and the epoch alone, never
 * from who reads it, when or in which order.
 */
#ifndef TASUKI_TRAIN_DATA_H
#define TASUKI_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"
#include "graph/model.h"
#include "train/sampler.h"

struct data;
struct data_reader;
struct err;
struct options;

struct data_options {
    uint64_t seed;                  /* of synthetic samples */
    bool test;                      /* held out */
    int64_t sequence_length;        /* where the model leaves it open; 0: not said */
    int64_t image_size;             /* the same of height and width */
};
/* What the options of a command say; the seed is left 0. */
int data_options_read(const struct options *options, struct data_options *data,
                      struct err *err);

/* 'spec' is a path or what else tasuki-data(5) allows; 'options' may be NULL. */
struct data *data_open(const char *spec, const struct data_options *options, struct err *err);
/* Formats that know no names and shapes of their own take those of the model's inputs, and of
 * the labels that 'loss' (--loss; may be NULL) asks for. To be called once, before all that
 * follows.
 */
int data_complete(struct data *data, struct model *model, const char *loss,
                  struct err *err);
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

/* Integers of this tensor are in 0 … result - 1, or reading them fails; 0: not known. */
int64_t data_below(const struct data *data, int tensor);

/* Working memory for reading; each thread has its own. */
struct data_reader *data_reader_new(const struct data *data);
void data_reader_free(struct data_reader *reader);

/* A tensor in the form that is wanted: a batch is [outer, samples, inner] of type 'to'. Integers
 * widen, floats change precision, integers become floats by value.
 */
struct data_want {
    int tensor;
    enum dtype to;
    struct batch batch;
};

/* Samples 'first' to 'first' + 'count' - 1 of a batch of 'n' samples into their places in 'out',
 * as they are in this epoch. Errors name the file and the sample.
 */
int data_gather(struct data_reader *reader, const struct data_want *want, int64_t epoch,
                const int64_t *samples, int64_t n, int64_t first, int64_t count, void *out,
                struct err *err);

#endif
