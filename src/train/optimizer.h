/* SPDX-License-Identifier: MIT */
/* Names and defaults of the update rules. The arithmetic is the backend's. */
#ifndef TASUKI_TRAIN_OPTIMIZER_H
#define TASUKI_TRAIN_OPTIMIZER_H

#include "kernels/backend.h"

struct err;

/* "sgd", "momentum", "nesterov", "adam", "adamw". */
int optimizer_from_name(const char *name, enum optimizer_kind *kind, struct err *err);
const char *optimizer_name(enum optimizer_kind kind);
/* Arrays of state for each parameter: 0, 1 (momentum) or 2 (Adam's m and v). */
int optimizer_states(enum optimizer_kind kind);
/* lr 0.01 (Adam: 0.001), momentum 0.9, betas 0.9 and 0.999, epsilon 1e-8, weight decay 0
 * (AdamW: 0.01); dtype and step are left zero.
 */
struct optimizer_args optimizer_defaults(enum optimizer_kind kind);

#endif
