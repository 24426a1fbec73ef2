/* SPDX-License-Identifier: MIT */
/* The training log: JSON lines. Lines of steps have "step" and no "event". */
#ifndef TASUKI_TRAIN_JOURNAL_H
#define TASUKI_TRAIN_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct journal;

/* In the line "start"; tasuki-log(5) is the contract. */
#define JOURNAL_SCHEMA "tasuki-log"
#define JOURNAL_VERSION 1

/* 'path' NULL: a journal that writes nothing. 'append' goes on behind what is there. A pipe must
 * have a reader.
 */
struct journal *journal_open(const char *path, bool append, struct err *err);
/* One line; takes the reference to 'line'. After the first one that cannot be written, which is a
 * warning, nothing is.
 */
void journal_write(struct journal *journal, json_t *line);
/* The same with 4 digits, for lines with figures of each rank. */
void journal_write_short(struct journal *journal, json_t *line);
/* The line of a step, without allocating anything. Numbers that are not finite become null. */
struct journal_step {
    int64_t step, epoch;        /* from 1 */
    double loss, seconds, samples_per_second, predicted_seconds;
    bool classifies;
    double accuracy;            /* where it does */
    double lr;
    bool clips;
    double norm;                /* of the gradients, where they are clipped */
    double loss_scale;          /* 0: the loss is not scaled */
    bool skipped;               /* gradients overflowed */
};
void journal_step(struct journal *journal, const struct journal_step *step);
/* NULL is fine. */
void journal_close(struct journal *journal);

#endif
