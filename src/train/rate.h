/* SPDX-License-Identifier: MIT */
/* The learning rate of each step. */
#ifndef TASUKI_TRAIN_RATE_H
#define TASUKI_TRAIN_RATE_H

#include <stdint.h>

enum rate_kind { RATE_CONSTANT, RATE_STEP, RATE_COSINE, RATE_LINEAR, RATE_ONE_CYCLE };

/* Counted in steps. Of PyTorch the factors of
 *   warm-up     LinearLR(start_factor=1/W, total_iters=W-1): (t + 1) / W before step W
 *   step        StepLR: factor^floor(t / every), from the first step on
 *   cosine      CosineAnnealingLR(T_max=length-W), after the warm-up, down to 'final'
 *   linear      LinearLR(end_factor=final, total_iters=length-W), after the warm-up
 *   one-cycle   OneCycleLR without cycled momentum: up from 1/25 over the warm-up (0: 0.3 of the
 *               length), down to 'final' at the last step
 * and 'final' from 'length' on.
 */
struct rate {
    enum rate_kind kind;
    int64_t warmup, every, length;
    double factor, final;
};

/* What the learning rate is multiplied by in step 't' (from 0). */
double rate_at(const struct rate *rate, int64_t t);

#endif
