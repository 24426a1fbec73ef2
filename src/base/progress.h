/* SPDX-License-Identifier: MIT */
/* Progress on stderr: a bar that redraws itself on a terminal, else a line now and then.
 *
 * Silent after -q and on every rank but 0.
 */
#ifndef TASUKI_BASE_PROGRESS_H
#define TASUKI_BASE_PROGRESS_H

#include <stdint.h>

struct progress;

/* 'what' ("train") stands in front; 'total' <= 0: unknown. Never NULL. */
struct progress *progress_new(const char *what, int64_t total);
/* 'done' of the total, and a remark such as "loss 0.31". Cheap: draws at most 10 times a
 * second on a terminal; elsewhere at each tenth of the total, but not above once a second,
 * and at least each 30 seconds.
 */
void progress_update(struct progress *progress, int64_t done, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Draws the last state once more and leaves the line. NULL is fine. */
void progress_free(struct progress *progress);

/* The text of a bar 'width' columns wide, for tests. */
void progress_format(const char *what, int64_t done, int64_t total, double seconds,
                     const char *remark, int width, char *text, int room);

#endif
