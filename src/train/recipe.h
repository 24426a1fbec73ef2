/* SPDX-License-Identifier: MIT */
/* How to train, beside the update rule: learning rates, decay, clipping, smoothing, averages. */
#ifndef TASUKI_TRAIN_RECIPE_H
#define TASUKI_TRAIN_RECIPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "train/rate.h"

struct err;
struct json_reader;

struct recipe {
    enum rate_kind schedule;
    struct span warmup, every, length;  /* length 0: of the whole run */
    double factor, final;               /* final < 0: as the schedule has it */
    double clip;            /* largest norm of the gradient of all parameters; 0: any */
    double label_smoothing;
    double ema;             /* decay of the averages of parameters; 0: there are none */
    int n_no_decay;         /* patterns; strings are the caller's */
    const char *const *no_decay;
};

/* What the user said. */
struct recipe_given {
    bool schedule, warmup, every, length, factor, final, clip, label_smoothing, ema, no_decay;
};

struct recipe recipe_defaults(void);
const char *recipe_schedule_name(enum rate_kind kind);

/* Going on from a checkpoint: what was not said is as it was 'saved'. The figures of another
 * schedule are not kept.
 */
void recipe_resume(struct recipe *recipe, const struct recipe_given *given,
                   const struct recipe *saved);
/* Epochs become steps, and what follows from the length of the run is filled in. */
int recipe_resolve(struct recipe *recipe, int64_t steps_per_epoch, int64_t total_steps,
                   struct err *err);
/* Of a recipe that is resolved. */
struct rate recipe_rate(const struct recipe *recipe);

/* "recipe" of logs and checkpoints, where spans are steps. */
json_t *recipe_to_json(const struct recipe *recipe);
/* The object "recipe" of 'top'; defaults where there is none. '*patterns' is malloc'ed, its
 * strings are the JSON's.
 */
int recipe_from_json(struct recipe *recipe, struct json_reader *top, const char ***patterns,
                     struct err *err);

#endif
