/* SPDX-License-Identifier: MIT */
/* Others at the same work while costs are measured.
 *
 * The ranks of a node share its memory, and caches. What an operator takes while the other cores
 * are idle is not what it takes in a run. So threads of this process measure the same operators
 * at about the same time, on other cores, and what they find is thrown away.
 */
#ifndef TASUKI_TRAIN_BESIDE_H
#define TASUKI_TRAIN_BESIDE_H

#include "train/profile.h"

struct err;
struct beside;

/* How many others this process has cores for, of 'ranks' on the node with 'threads' each (0: that
 * share the cores).
 */
int beside_count(int ranks, int threads);

/* 'n' threads, each with a device, a copy of the model and the cache in 'directory' (may be NULL)
 * of its own; none of them writes it. NULL where n is 0 or there cannot be any.
 */
struct beside *beside_start(const struct profile_options *options, int n, const char *directory);
/* They stop at their next operator. NULL is fine. */
void beside_stop(struct beside *beside);

#endif
