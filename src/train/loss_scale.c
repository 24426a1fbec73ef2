/* SPDX-License-Identifier: MIT */
#include "train/loss_scale.h"

#include <math.h>

bool loss_scale_valid(double factor)
{
    int exponent;

    return factor >= 1 && factor <= LOSS_SCALE_MOST && frexp(factor, &exponent) == 0.5;
}

double loss_scale_inverse(const struct loss_scale *scale)
{
    return scale->factor > 0 ? 1 / scale->factor : 1;
}

bool loss_scale_judge(struct loss_scale *scale, bool finite)
{
    if (!finite && scale->factor > 1) {
        scale->factor /= 2;
        scale->good = 0;
        scale->skipped++;
        return true;
    }
    if (finite && scale->factor > 0 && ++scale->good == LOSS_SCALE_STEPS) {
        scale->good = 0;
        if (scale->factor < LOSS_SCALE_MOST)
            scale->factor *= 2;
    }
    return false;
}
