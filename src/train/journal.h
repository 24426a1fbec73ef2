/* SPDX-License-Identifier: MIT */
/* The training log: JSON lines. Lines of steps have "step" and no "event". */
#ifndef TASUKI_TRAIN_JOURNAL_H
#define TASUKI_TRAIN_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

struct err;
struct journal;

/* 'path' NULL: a journal that writes nothing. 'append' goes on behind what is there. */
struct journal *journal_open(const char *path, bool append, struct err *err);
/* One line; takes the reference to 'line'. A failure is kept for journal_close(). */
void journal_write(struct journal *journal, json_t *line);
/* Fails where any line could not be written. NULL is fine. */
int journal_close(struct journal *journal, struct err *err);

#endif
