/* SPDX-License-Identifier: MIT */
/* Names and defaults of the update rules. The arithmetic is the backend's. */
#ifndef TASUKI_TRAIN_OPTIMIZER_H
#define TASUKI_TRAIN_OPTIMIZER_H

#include <jansson.h>
#include <stdbool.h>

#include "kernels/backend.h"

/* "sgd", "momentum", "nesterov", "adam", "adamw", "lars", "lamb", as --optimizer lists them; -1:
 * another.
 */
int optimizer_from_name(const char *name, enum optimizer_kind *kind);
const char *optimizer_name(enum optimizer_kind kind);
/* Arrays of state for each parameter: 0, 1 (momentum) or 2 (Adam's m and v). */
int optimizer_states(enum optimizer_kind kind);
/* Of these and averages of the parameters, those that the device's own memory has. */
int optimizer_resident(enum optimizer_kind kind, bool averaged, bool offload);
/* lr 0.01 (Adam, LAMB: 0.001), momentum 0.9, betas 0.9 and 0.999, epsilon 1e-8 (LAMB: 1e-6),
 * weight decay 0 (AdamW, LAMB: 0.01), trust 0.001; dtype and step are left zero.
 */
struct optimizer_args optimizer_defaults(enum optimizer_kind kind);

/* "optimizer" of logs and checkpoints. */
json_t *optimizer_to_json(const struct optimizer_args *args);

/* What the user said of an optimizer; the rest of its figures are defaults. */
struct optimizer_given {
    bool kind, lr, momentum, beta1, beta2, epsilon, weight_decay, trust;
};
/* Going on from a checkpoint: what was not said is as it was 'saved'. A kind that was said and
 * is another one leaves 'args' alone: the caller refuses it.
 */
void optimizer_resume(struct optimizer_args *args, const struct optimizer_given *given,
                      const struct optimizer_args *saved);

#endif
