/* SPDX-License-Identifier: MIT */
/* Processes that the kernel has ended for want of memory, and how much there is. */
#ifndef TASUKI_BASE_OOM_H
#define TASUKI_BASE_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What to do about it. */
#define OOM_ADVICE "ask for more memory on each node, or run fewer ranks there"

struct oom {
    double limit;           /* bytes: of the control group, else of the machine */
    bool grouped;           /* it is a control group's: this process's, or of one above it */
    int64_t group, machine; /* how many were ended so far: of that group, of all; -1: not known.
                             * With cgroup v1 a group's are those of this process's own group */
};

/* Look at this process's control group, v1 or v2, and at the machine. 'root' stands before /proc
 * and /sys: "".
 */
struct oom oom_look(const char *root);

/* "the kernel of n2 has ended 1 process of the ranks' control group for want of memory since the
 * run started (limit of the control group: 2 GiB)". False, and "": no more than before were ended.
 */
bool oom_text(const struct oom *before, const struct oom *now, const char *host,
              const char *since, char *text, size_t size);

#endif
