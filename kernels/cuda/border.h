/* SPDX-License-Identifier: MIT */
/* In which form values cross the borders of stages: that in which the whole network, in one stage, has them.
 *
 * Ranks on both sides, and the planner, have to come to the same. So nothing counts but the graph: neither
 * where it is cut, how many samples a replica has, nor the device; of convolutions of two axes it is taken
 * that there are such in 16 bits. Where a rank has it otherwise it puts a Reorder.
 */
#ifndef TASUKI_KERNELS_CUDA_BORDER_H
#define TASUKI_KERNELS_CUDA_BORDER_H

#include "kernels/cuda/narrow.h"

/* In which a value of this form crosses. */
enum cuda_form cuda_border_form(const struct value *value, enum cuda_form form);
/* Of each value there is, one byte; malloc'ed. Of the boundaries' alone; a gradient and what is received for it
 * have the same.
 */
unsigned char *cuda_border_forms(const struct graph *graph, const struct autodiff *autodiff,
                                 enum cuda_narrow narrow);
/* The 'crossing' of backend.h. */
size_t *cuda_crossing_bf16(const struct graph *graph, const struct autodiff *autodiff);
size_t *cuda_crossing_fp16(const struct graph *graph, const struct autodiff *autodiff);

#endif
