/* SPDX-License-Identifier: MIT */
/* What trials of plans have shown: how many times longer the blocks of a model compute in a run
 * than their operators, measured one by one, say. One file for each model, device and number of
 * devices, beside the costs of operators (timings.h).
 */
#ifndef TASUKI_TRAIN_TRIALS_H
#define TASUKI_TRAIN_TRIALS_H

#include "scheduler/cost.h"
#include "scheduler/plan.h"

struct trials_key {
    const char *directory;      /* of the cache; NULL: nothing is read or kept */
    const char *model;          /* its hash */
    const char *backend, *device, *precision;
    bool fuse;
    int nodes, devices;
};

/* Multiply the times of all blocks that are known, updates too, by their factors. */
void trials_apply(const struct trials_key *key, struct cost *cost);
/* Of a plan that was made with such costs: 'seconds' that who runs each of its lists computed in a
 * step, beside what all stages of the list were to. Nothing is noted of a list that took none. A
 * file that cannot be written is no error. Returns whether anything was written.
 */
bool trials_record(const struct trials_key *key, const struct plan *plan,
                   const double *seconds);

#endif
