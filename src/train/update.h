/* SPDX-License-Identifier: MIT */
/* The optimizer's step over this rank's parameters, and BatchNorm's running statistics. */
#ifndef TASUKI_TRAIN_UPDATE_H
#define TASUKI_TRAIN_UPDATE_H

#include <stdbool.h>

#include "train/store.h"

struct update {
    struct optimizer_args args;
    double ema;                 /* decay of store->averages; 0: there are none */
    int n_ranges;
    struct update_range {       /* what this rank steps; neighbours in all arrays become one */
        size_t param, gradient, state, bytes;   /* offsets */
        size_t tensor, tensor_bytes;    /* all of the parameter */
        int group;              /* see buckets.h */
        bool decays, counts;    /* counts: in the norm, where others have it, too */
    } *ranges;
    double *squares;            /* [n_ranges]: see update_norms(); NULL: no step needs any */
    int n_stats;
    struct update_stat {
        size_t stat, contribution, bytes;   /* offsets of what this rank steps */
        double decay;           /* of one whole step */
    } *stats;
};

void update_init(struct update *update, const struct store *store,
                 const struct optimizer_args *args, double ema, const struct plan *plan);
void update_clear(struct update *update);
/* One optimizer's step over a whole tensor of 'n'; LARS and LAMB scale it by norms, of a tensor
 * that decays.
 *   LARS (You, Gitman, Ginsburg 2017): momentum of r (g + wd p), r = trust |p| / (|g| + wd |p|)
 *   LAMB (You et al. 2019): p -= lr |p| / |u| u, u = m' / (sqrt(v') + epsilon) + wd p, where m'
 *   and v' are Adam's moments, bias corrected
 * The ratio is 1 where one of its norms is 0.
 */
int update_range(const struct backend *backend, struct stream *stream,
                 const struct optimizer_args *args, bool decays, size_t n, void *p,
                 const void *g, double g_scale, void *m, void *v, struct err *err);
/* Of the gradients: of parameters that count, or under ZeRO-1 of all that this rank steps. */
int update_squares(const struct update *update, const struct store *store, double *squares,
                   struct err *err);

/* See executor_first_bad(). */
int update_first_bad(const struct update *update, const struct store *store, int *order,
                     const char **name, struct err *err);

struct update_step {
    int64_t step;               /* from 0, of those that are taken */
    int64_t batch;              /* from 0, of all */
    double rate;                /* what the learning rate is multiplied by */
    double g_scale;             /* and the gradients */
};
/* Gradients are final. For LARS and LAMB, of each range the sum of squares that its step depends
 * on into update->squares (LAMB's moments move for it); where a rank has a part of a tensor, they
 * are summed up before update_run().
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
