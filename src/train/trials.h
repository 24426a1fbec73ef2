/* SPDX-License-Identifier: MIT */
/* What trials of plans have shown: how many times longer the blocks of a model compute in a run
 * than their operators, measured one by one, say; and which plans were faster than others, which no
 * cost of blocks can tell where ranks share cores. One file for each model, device and number of
 * devices, beside the costs of operators (timings.h).
 */
#ifndef TASUKI_TRAIN_TRIALS_H
#define TASUKI_TRAIN_TRIALS_H

#include "scheduler/cost.h"
#include "scheduler/partition.h"

struct trials_key {
    const char *directory;      /* of the cache; NULL: nothing is read or kept */
    const char *model;          /* its hash */
    const char *backend, *device, *precision;
    bool fuse;
    int nodes, devices;
};

/* Multiply the times of all blocks that are known, updates too, by their factors. */
void trials_apply(const struct trials_key *key, struct cost *cost);
/* The shapes of the plans that the last trial ran, the fastest first: how many they are, none where
 * that was of another global batch. '*shapes' is free()'d.
 */
int trials_shapes(const struct trials_key *key, int64_t global_batch, struct plan_shape **shapes);
/* Of 'n' plans that were made with such costs, the fastest first: 'seconds' that who runs each list
 * of the first computed in a step, beside what all stages of the list were to. Nothing is noted of
 * a list that took none. A file that cannot be written is no error. Returns whether anything was
 * written.
 */
bool trials_record(const struct trials_key *key, int n, const struct plan *const *plans,
                   const double *seconds);

#endif
