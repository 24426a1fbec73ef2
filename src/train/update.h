/* SPDX-License-Identifier: MIT */
/* The optimizer's step over this rank's parameters, and BatchNorm's running statistics. */
#ifndef TASUKI_TRAIN_UPDATE_H
#define TASUKI_TRAIN_UPDATE_H

#include "train/store.h"

struct update {
    struct optimizer_args args;
    int n_ranges;
    struct update_range {       /* neighbours in both arrays become one */
        size_t param, gradient, bytes;  /* offsets */
    } *ranges;
    int n_stats;
    struct update_stat {
        int stat, contribution;
        double decay;           /* of one whole step */
    } *stats;
};

int update_states(const struct optimizer_args *args);
void update_init(struct update *update, const struct store *store,
                 const struct optimizer_args *args, const struct plan *plan);
void update_clear(struct update *update);
/* Gradients are final; 'step' counts from 0. */
int update_run(struct update *update, struct store *store, int64_t step, struct err *err);

#endif
