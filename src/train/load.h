/* SPDX-License-Identifier: MIT */
/* Is somebody else at work on the cores that this process may use?
 *
 * By the kernel's count of their busy time less this process's own: what is busy elsewhere, as on
 * a node whose cores are shared out, does not matter, nor do others where cores are left over.
 */
#ifndef TASUKI_TRAIN_LOAD_H
#define TASUKI_TRAIN_LOAD_H

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

/* At one moment: seconds. */
struct load {
    double clock;
    double busy;        /* of all these cores, whoever used them */
    double own;         /* of this process */
    int cores;          /* 0: cannot be told */
};

void load_read(struct load *load);
/* Between two moments, did 'threads' threads (0: one for each core) lack a tenth of what they
 * wanted, since others had it? No where it cannot be told.
 */
bool load_crowded(const struct load *from, const struct load *to, int threads);
/* Is it so now? Looks for a fifth of a second. */
bool load_crowded_now(int threads);

/* For load_read(), and tests: busy seconds of these cores in a file like /proc/stat, and how many
 * of them are there.
 */
double load_of_cores(FILE *stat, const cpu_set_t *mine, int *cores);

#endif
