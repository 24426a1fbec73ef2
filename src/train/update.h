/* SPDX-License-Identifier: MIT */
/* The optimizer's step over this rank's parameters, and BatchNorm's running statistics. */
#ifndef TASUKI_TRAIN_UPDATE_H
#define TASUKI_TRAIN_UPDATE_H

#include <stdbool.h>

#include "train/stepping.h"
#include "train/store.h"

struct update {
    const struct backend *backend;
    struct optimizer_args args;
    double ema;                 /* decay of store->averages; 0: there are none */
    int n_ranges;
    struct update_range {       /* what this rank steps; neighbours in all arrays become one */
        size_t param, gradient, state, bytes;   /* offsets */
        size_t tensor, tensor_bytes;    /* all of the parameter */
        int group;              /* see buckets.h */
        bool decays, counts;    /* counts: in the norm, where others have it, too */
    } *ranges;
    struct stepping stepping;   /* of these */
    struct ranges *averaged;    /* their averages, where there are any, */
    struct ranges *stats;       /* and BatchNorm's statistics; NULL: there are none */
};

/* Runs in the store's stream. After an error there is nothing to clear. */
int update_init(struct update *update, const struct store *store, const struct optimizer_args *args,
                double ema, const struct plan *plan, struct err *err);
void update_clear(struct update *update);
/* Sum up squares of the gradients: of parameters that count, or under ZeRO-1 of all that this rank steps.
 * They are known when the stream has come to it.
 */
int update_sum(struct update *update, const struct store *store, struct err *err);
double update_squares(const struct update *update);

/* See executor_first_bad(). */
int update_first_bad(const struct update *update, const struct store *store, int *order,
                     const char **name, struct err *err);

struct update_step {
    int64_t step;               /* from 0, of those that are taken */
    int64_t batch;              /* from 0, of all */
    double rate;                /* what the learning rate is multiplied by */
    double g_scale;             /* and the gradients */
};
/* Gradients are final. Nothing but for LARS and LAMB: see stepping_norms(). Where a rank has a part of a
 * tensor what is in update->stepping is summed up before update_run().
 */
int update_norms(struct update *update, const struct store *store,
                 const struct update_step *step, struct err *err);
/* Averages start as the parameters after step 0. */
int update_run(struct update *update, struct store *store, const struct update_step *step,
               struct err *err);

/* Put the averages in the parameters' place, whose values then are in the gradients' place; of
 * what this rank steps.
 */
int update_borrow(const struct update *update, struct store *store, struct err *err);
int update_return(const struct update *update, struct store *store, struct err *err);

#endif
