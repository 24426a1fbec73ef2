/* SPDX-License-Identifier: MIT */
/* Training data: samples of named tensors, read by index from one of several formats
 * (tasuki-data(5)). What a sample is follows from the data, the seed and the epoch alone, never
 * from who reads it, when or in which order.
 */
#ifndef TASUKI_TRAIN_DATA_H
#define TASUKI_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "graph/graph.h"
#include "graph/model.h"
#include "train/sampler.h"

struct data;
struct data_reader;
struct err;
struct options;

struct data_options {
    uint64_t seed;                  /* of synthetic samples and of what is drawn */
    bool test;                      /* held out */
    int64_t sequence_length;        /* where the model leaves it open; 0: not said */
    int64_t image_size;             /* the same of height and width */
    bool augment;                   /* pictures: crops and flips are drawn at random */
    double image_mean[3], image_std[3];     /* of colors in 0 … 1; std 0: as ImageNet's */
    const char *cache;              /* directory for what it takes long to find out; NULL: none */
    bool keeps_cache;               /* write there, too: one rank does */
    int64_t max_bad;                /* samples that may be unreadable and are left out */
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

/* The files that samples are read from, as long as the data are open. */
struct data_file {
    const char *path;
    struct file_map map;
};
const struct data_file *data_files(const struct data *data, int *n);
/* Is this tensor read from this file? */
bool data_file_feeds(const struct data *data, int file, int tensor);

/* Samples that were left out, as they cannot be read; '*n' of them are named and say why. What
 * is left out is decided when the data are opened, alike on every rank.
 */
int64_t data_bad(const struct data *data, int *n, const char *const **names);
/* How often a sample was read so far of which a part is damaged, and the name of the last; its
 * rest is used. By any thread.
 */
int64_t data_damaged(const struct data *data, const char **name);

/* The tensor that feeds a VALUE_INPUT: its index, or -1 with 'err' where there is none by
 * that name, its shape differs from the value's without the batch, or floats would become
 * integers.
 */
int data_bind(const struct data *data, const struct graph *graph, int value, struct err *err);

/* Integers of this tensor are in 0 … result - 1, or reading them fails; 0: not known. */
int64_t data_below(const struct data *data, int tensor);

/* Does reading a sample take much longer than copying it? */
bool data_decodes(const struct data *data);

/* Working memory for reading; each thread has its own. */
struct data_reader *data_reader_new(struct data *data);
void data_reader_free(struct data_reader *reader);

/* A tensor in the form that is wanted: a batch is [outer, samples, inner] of type 'to'.
 * Integers widen, floats change precision, integers become floats by value.
 */
struct data_want {
    int tensor;
    enum dtype to;
    struct batch batch;
};

/* Samples 'first' to 'first' + 'count' - 1 of a batch of 'n' samples into their places in
 * 'out', as they are in this epoch. Errors name the file and the sample.
 */
int data_gather(struct data_reader *reader, const struct data_want *want, int64_t epoch,
                const int64_t *samples, int64_t n, int64_t first, int64_t count, void *out,
                struct err *err);

#endif
