/* SPDX-License-Identifier: MIT */
/* What the labels of the data say before a step: their weights, and whether they are valid. */
#ifndef TASUKI_TRAIN_LABELS_H
#define TASUKI_TRAIN_LABELS_H

#include <stdint.h>

#include "graph/graph.h"
#include "train/data.h"

struct err;

struct labels {
    struct data *data;
    struct data_reader *reader;
    int tensor;                 /* -1: no labels, or they carry no weights */
    struct loss_rule rule;
    int64_t per_sample;         /* labels of one sample */
    double *class_weights;      /* NULL: all 1 */
    int64_t *buffer;            /* of one sample */
};

/* Reads through all labels of the file once, unless it is known what they are below: one out of
 * range is an error that names it.
 */
int labels_init(struct labels *labels, struct data *data, const struct graph *graph,
                struct err *err);
void labels_clear(struct labels *labels);
/* The loss of these samples is divided by this. */
double labels_weight(const struct labels *labels, const int64_t *samples, int64_t n);
/* Labels that count towards accuracy. */
int64_t labels_count(const struct labels *labels, const int64_t *samples, int64_t n);

#endif
