/* SPDX-License-Identifier: MIT */
/* Scratch for the sums of gradients over replicas: of the buckets (stage_bucket_bytes()) some are
 * under way at once. Each of these has room for the parts of the other replicas of as many bytes
 * as a bucket may have; a single gradient that is larger is summed in parts.
 */
#ifndef TASUKI_SCHEDULER_SUMS_H
#define TASUKI_SCHEDULER_SUMS_H

#include <stddef.h>

#include "scheduler/layout.h"

#define SUMS_AT_ONCE 2          /* while one comes in, another goes out */
#define SUMS_TIED ((size_t)4 << 20)     /* at a time of what several stages share */

/* Scratch of one sum of so many bytes: a slice from each other member. */
static inline size_t sums_scratch(size_t bytes, int members)
{
    size_t slice = (bytes + (size_t)members - 1) / (size_t)members;

    return ((size_t)members - 1) * layout_aligned(slice);
}

#endif
