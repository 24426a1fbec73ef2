/* SPDX-License-Identifier: MIT */
/* The lines of a file that another process writes: each is given once, when it is complete. A
 * file that was truncated or replaced by another is read from its start.
 */
#ifndef TASUKI_BASE_TAIL_H
#define TASUKI_BASE_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct tail;

#define TAIL_MOST ((size_t)64 << 20)    /* bytes of a line; longer ones are passed over */

struct tail_reader {
    /* 'text' has no newline and is not terminated; NULL: the line is longer than TAIL_MOST. */
    void (*line)(void *context, const char *text, size_t length);
    void (*restart)(void *context);     /* what was read before is gone */
    void *context;
};

/* The file need not be there yet. */
struct tail *tail_new(const char *path, const struct tail_reader *reader);
void tail_free(struct tail *tail);
/* Read what there is by now. Returns 1 where lines came, 0 where none did or there is no file,
 * and -1 where it cannot be read.
 */
int tail_poll(struct tail *tail, struct err *err);
bool tail_found(const struct tail *tail);
/* Seconds since the file was last written; 0 where there is none. */
double tail_age(const struct tail *tail);

#endif
