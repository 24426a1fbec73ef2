/* SPDX-License-Identifier: MIT */
/* What changes from step to step, for kernels: see backend.h. C and CUDA read this file. */
#ifndef TASUKI_KERNELS_STEP_H
#define TASUKI_KERNELS_STEP_H

#include <stdbool.h>
#include <stdint.h>

struct step_state {
    uint64_t seed;
    int64_t step;           /* counts from 0 */
    int64_t global_batch;   /* samples of the whole step */
    int64_t first_sample;   /* of this share, within the global batch */
    int64_t samples;        /* of this share */
    double weight_sum;      /* of the labels of the global batch: the loss divides by it */
    bool training;
};

#endif
