/* SPDX-License-Identifier: MIT */
/* Which part of a picture is seen, by (seed, epoch, sample) alone. */
#ifndef TASUKI_TRAIN_CROP_H
#define TASUKI_TRAIN_CROP_H

#include "train/jpeg.h"

#include <stdint.h>

struct crop {
    struct jpeg_window window;
    bool flip;                  /* left and right exchanged */
};

/* As torchvision's RandomResizedCrop (8 to 100 % of the area, sides 3:4 to 4:3) and
 * RandomHorizontalFlip.
 */
struct crop crop_random(uint64_t seed, int64_t epoch, int64_t sample, int width, int height);
/* The middle: 7/8 of the shorter side, as Resize(256) and CenterCrop(224) leave; in the form of
 * out_width x out_height.
 */
struct crop crop_middle(int width, int height, int out_width, int out_height);

#endif
