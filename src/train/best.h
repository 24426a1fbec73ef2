/* SPDX-License-Identifier: MIT */
/* By which figure of an evaluation the best checkpoint is chosen. */
#ifndef TASUKI_TRAIN_BEST_H
#define TASUKI_TRAIN_BEST_H

/* As --best lists them. */
enum best_by { BEST_NONE, BEST_LOSS, BEST_ACCURACY };

#endif
