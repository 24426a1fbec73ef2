/* SPDX-License-Identifier: MIT */
/* Memory of a stage program: every value gets its offset.
 *
 * The same call serves the planner's forecast and the runtime, so the forecast is not an
 * estimate of a second program.
 */
#ifndef TASUKI_SCHEDULER_MEMORY_H
#define TASUKI_SCHEDULER_MEMORY_H

#include <stddef.h>

#include "graph/program.h"

struct memory_use {
    size_t parameters;      /* and statistics */
    size_t gradients;
    size_t optimizer;
    size_t prepared;        /* constants, transposed or reordered weights */
    size_t slots;           /* one slot's bytes times the micro-batches in flight */
    size_t scratch;
    size_t workspace;
    size_t buffers;         /* of communication */
    size_t total;
};

/* Set places' offsets and the sizes in 'program'. With 'merged' B and W run as one list
 * (program->backward), so that what W needs is freed earlier. 'workspace' is the largest
 * kernel workspace.
 */
void memory_place(struct program *program, bool merged, size_t workspace);

/* Add it all up for 'slots' micro-batches in flight. */
struct memory_use memory_use(const struct program *program, int slots,
                             int optimizer_states, size_t buffers);

#endif
