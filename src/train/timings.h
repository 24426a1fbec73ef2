/* SPDX-License-Identifier: MIT */
/* Seconds of single operators on this device. Each unique (operator, attributes, shapes, types,
 * layouts, far operands) is measured once: warm-up, then the median of several runs. Kept per
 * device and version (cache.h).
 */
#ifndef TASUKI_TRAIN_TIMINGS_H
#define TASUKI_TRAIN_TIMINGS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "kernels/backend.h"
#include "train/reuse.h"

struct err;
struct timings;

/* 'directory' NULL: nothing is read or kept. A file that does not parse is measured anew, and
 * what was measured in a crowd (load.h) once there is none. 'threads' of the device; 0: all cores.
 * 'beside' how many others it is measured (beside.h); each number has a file of its own.
 */
struct timings *timings_open(const struct backend *backend, struct device *device, int threads,
                             int beside, const char *directory);
/* The cache is not written, and measuring fails once '*stop' is set. */
void timings_only_read(struct timings *timings, const atomic_bool *stop);
/* Adds what is new to the cache, beside what others added meanwhile; a directory that cannot be
 * written is no error.
 */
void timings_close(struct timings *timings);

/* A machine is slower at some moments than at others: what is new is measured in several rounds
 * over all of it, and the median counts. Returns whether another round is wanted.
 */
bool timings_round(struct timings *timings);
/* Seconds of one run; -1 with 'err'. 'layouts' as for kernel_new(). 'reuse' says which of its
 * operands are far.
 */
double timings_node(struct timings *timings, const struct graph *graph, int node,
                    const struct value_layout *layouts, const struct reuse *reuse,
                    struct err *err);
/* How many operators were measured, and how many that were asked for were known; and of the former
 * how far the middle half of the rounds spreads, relative to the median: for the median operator
 * and the worst.
 */
void timings_say(const struct timings *timings, enum log_level level);
/* That spread for the median operator; where none was measured now, of when they were. 0: not
 * known.
 */
double timings_usual_spread(const struct timings *timings);
/* What makes a node unique where all its values are plain: 16 hex digits. */
void timings_key(const struct graph *graph, int node, char key[17]);
/* Seconds of an update per byte of parameters, see stopwatch.h. */
double timings_update(struct timings *timings, const struct optimizer_args *args, bool offload,
                      const struct reuse *reuse, struct err *err);

#endif
