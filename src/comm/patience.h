/* SPDX-License-Identifier: MIT */
/* How long one keeps asking, and what the CPU does meanwhile. */
#ifndef TASUKI_COMM_PATIENCE_H
#define TASUKI_COMM_PATIENCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

struct patience {
    double deadline;    /* seconds of asking in vain that are too many; 0: none */
    double remark;      /* seconds of it that are worth a word; 0: none */
    double waited;      /* seconds asked in vain since something completed */
    double last;        /* when was asked last */
    unsigned idle;      /* rounds without success since then */
    bool crowded;       /* more ranks than cores: sleep rather than spin */
    atomic_int remarkable;  /* as many have passed (for watch.c) */
    atomic_int broken;  /* another rank is lost: no use in waiting (set by watch.c) */
};

/* Something completed. */
void patience_renew(struct patience *patience);
/* Asked in vain once more: is it too long now, or of no use? Time during which nobody asked for
 * a second or more (the caller computed) does not count.
 */
bool patience_over(struct patience *patience);
/* Not because another rank is lost, but because the deadline has passed? */
bool patience_expired(struct patience *patience);
/* Why it is over: "nothing moved for 600 seconds". */
void patience_reason(const struct patience *patience, char *text, size_t size);
/* What waited fails with that reason; 'what' names it. Always -1. */
int patience_fail(const struct patience *patience, const char *what, struct err *err);
/* Let others use the CPU; the longer nothing happened, the longer. */
void patience_pause(struct patience *patience);

#endif
