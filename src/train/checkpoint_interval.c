/* SPDX-License-Identifier: MIT */
#include "train/checkpoint_interval.h"

#include <math.h>

double checkpoint_interval(const struct checkpoint_pace *pace)
{
    double seconds = sqrt(2 * pace->paused * pace->mtbf / pace->nodes);

    if (pace->most_share > 0)
        seconds = fmax(seconds, pace->paused / pace->most_share);
    return fmax(seconds, pace->written);
}
