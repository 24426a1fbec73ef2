/* SPDX-License-Identifier: MIT */
/* What the loss is multiplied by for its gradients, so that these are not too small for float16
 * (Micikevicius et al. 2018), by the rule of PyTorch's GradScaler: it doubles after so many steps in
 * which no gradient overflowed, and where one did the step is not taken and it halves. A power of
 * two: dividing by it loses nothing.
 */
#ifndef TASUKI_TRAIN_LOSS_SCALE_H
#define TASUKI_TRAIN_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#define LOSS_SCALE_START 65536.0
#define LOSS_SCALE_MOST 0x1p64
#define LOSS_SCALE_STEPS 2000

struct loss_scale {
    double factor;      /* 1 to LOSS_SCALE_MOST; 0: the loss is not scaled */
    int64_t good;       /* steps that it has lasted without an overflow */
    int64_t skipped;    /* steps that were not taken: the optimizer does not count them */
};

bool loss_scale_valid(double factor);
/* What gradients are multiplied by. */
double loss_scale_inverse(const struct loss_scale *scale);
/* After a step: is it not to be taken, since gradients overflowed? With a factor of 1 it is not the
 * factor's fault.
 */
bool loss_scale_judge(struct loss_scale *scale, bool finite);

#endif
