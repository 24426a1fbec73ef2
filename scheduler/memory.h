/* SPDX-License-Identifier: MIT */
/* Memory of a stage program: every value gets its offset.
 *
 * The same call serves the planner's forecast and the runtime, so the forecast is not an
 * estimate of a second program.
 *
 * What a stage receives has its place from the start of the part that reads it, what it sends
 * keeps its place until the slot is used again: so neither F nor a RECV may touch a slot whose
 * sends are not over. In the arrays of parameters and of gradients a trained parameter and its
 * gradient stand at the same offset, in the order in which the gradients become final, then
 * running statistics and their contributions; so an interval of one array is the same interval
 * of the other.
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
