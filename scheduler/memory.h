/* SPDX-License-Identifier: MIT */
/* Memory of a stage program: every value gets its offset.
 *
 * The same call serves the planner's forecast and the runtime, so the forecast is not an
 * estimate of a second program.
 *
 * Only what the backward needs of the forward is kept for each micro-batch in flight, and what W
 * needs of B where W does not directly follow. All else has one place, in the scratch: what
 * lives within F, and what lives within B and W. A stage is fed and receives right before the
 * part that reads it; SEND directly follows the part that makes its values, and copies them.
 *
 * Where the forward is recomputed, or part of it, a micro-batch keeps what that is made from, and
 * what W needs where it does not directly follow; what is run again has one place, into which F
 * puts the same values.
 *
 * In the arrays of parameters and of gradients a trained parameter and its gradient stand at
 * the same offset, in the order in which the gradients become final, then running statistics
 * and their contributions; so an interval of one array is the same interval of the other.
 * Where there are two versions of the weights, contributions are accumulated apart from it: see
 * train/store.h.
 */
#ifndef TASUKI_SCHEDULER_MEMORY_H
#define TASUKI_SCHEDULER_MEMORY_H

#include <stddef.h>

#include "graph/program.h"
#include "scheduler/schedule.h"

#define MEMORY_SCALARS 64   /* bytes for the divisor of the loss, in each version of the weights */

struct memory_use {
    size_t parameters;      /* and statistics */
    size_t gradients;       /* and contributions */
    size_t optimizer;
    size_t prepared;        /* constants, transposed or reordered weights */
    size_t slots;           /* one slot's bytes times the micro-batches in flight */
    size_t scratch;
    size_t workspace;
    size_t buffers;         /* of communication */
    size_t total;
};

/* Set places, their offsets and the sizes in 'program', for 'slots' micro-batches in flight
 * (one slot is scratch, too). Merged, B and W run as one list (program->backward), so that what W
 * needs is freed earlier. 'workspace' is the largest kernel workspace.
 */
void memory_place(struct program *program, enum backward_form form, int slots,
                  size_t workspace);

/* Add it all up for as many micro-batches in flight, versions of the weights and of what is
 * prepared of them, and so many bytes of optimizer state.
 */
struct memory_use memory_use(const struct program *program, int slots, int versions,
                             size_t optimizer, size_t buffers);

#endif
