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
    bool fuse, offload;
    int nodes, devices;
};

#define TRIALS_LEAST 6  /* rounds: of fewer the interval below has no end */
#define TRIALS_MOST 30

/* How many times as long steps take as those of the plan that they are compared with: median of
 * the ratios of all rounds, and the interval of 95 % that two of the ratios bound, whatever they
 * are distributed like (Thompson 1936; also the sign test). Looked at after each round from
 * TRIALS_LEAST to TRIALS_MOST, what is as fast lies below 1 at one of them in 1 trial of 15.
 */
struct trials_ratio {
    double median, low, high;
};

/* Of the first 'n' rounds of both, 0 <= n <= TRIALS_MOST. */
struct trials_ratio trials_compare(int n, const double *seconds, const double *others);
/* -1: shown to be faster than the other; 1: slower; 0: neither. */
int trials_shown(const struct trials_ratio *ratio);
/* Of two plans that were compared with the same third: what is shown to be faster than that comes
 * before what is not, and this before what is shown to be slower; those shown to be so are in the
 * order of their medians. Else 0. For qsort().
 */
int trials_order(const struct trials_ratio *a, const struct trials_ratio *b);

/* Multiply the times of all blocks that are known, updates too, by their factors. */
void trials_apply(const struct trials_key *key, struct cost *cost);
/* The shapes of the plans that the last trial ran, as trials_order() has them: how many they are,
 * none where that was of another global batch. '*doubt': how many times as long as foreseen any of
 * them took, beside the first, whose times correct the costs; 1 or more. '*shapes' go to
 * plan_shapes_free().
 */
int trials_shapes(const struct trials_key *key, int64_t global_batch, struct plan_shape **shapes,
                  double *doubt);
/* Of 'n' plans that were made with such costs, in that order: 'steps', the seconds of a step of
 * each; 'seconds' that who runs each list of the first computed in a step, beside what all stages of
 * the list were to. Nothing is noted of a list that took none. A file that cannot be written is no
 * error. Returns whether anything was written.
 */
bool trials_record(const struct trials_key *key, int n, const struct plan *const *plans,
                   const double *steps, const double *seconds);

#endif
