/* SPDX-License-Identifier: MIT */
#include "train/update.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/layout.h"
#include "train/owned.h"

static const struct program_value *root(const struct program *program, int value)
{
    return &program->values[program->values[value].root];
}

static int by_gradient(const void *a, const void *b)
{
    const struct update_range *x = a, *y = b;

    return x->gradient < y->gradient ? -1 : x->gradient > y->gradient;
}

static bool adapts(const struct optimizer_args *args)
{
    return args->kind == OPTIMIZER_LARS || args->kind == OPTIMIZER_LAMB;
}

/* The padding between two neighbours is zero in all arrays and stays zero. */
static void merge_ranges(struct update *u)
{
    int n = 0;

    qsort(u->ranges, (size_t)u->n_ranges, sizeof(*u->ranges), by_gradient);
    for (int i = 0; i < u->n_ranges; i++) {
        struct update_range *last = n ? &u->ranges[n - 1] : NULL, next = u->ranges[i];

        if (last && !adapts(&u->args) && last->decays == next.decays &&
            last->owned == next.owned && last->param + layout_aligned(last->bytes) == next.param &&
            last->gradient + layout_aligned(last->bytes) == next.gradient)
            last->bytes = next.gradient + next.bytes - last->gradient;
        else
            u->ranges[n++] = next;
    }
    u->n_ranges = n;
}

static double step_decay(double decay, const struct plan *plan)
{
    int64_t groups = plan->batchnorm_samples > 0 ? plan->global_batch / plan->batchnorm_samples
                                                 : 1;

    return pow(decay, (double)groups);
}

void update_init(struct update *update, const struct store *store,
                 const struct optimizer_args *args, double ema, const struct plan *plan)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;

    *update = (struct update){ .args = *args, .ema = ema };
    update->args.dtype = c->graph->real;
    for (int i = 0; i < ad->n_params; i++) {
        struct update_range *r;

        if (ad->params[i].stage != c->stage)
            continue;
        r = mem_push((void **)&update->ranges, &update->n_ranges, sizeof(*r));
        r->param = root(c->program, ad->params[i].param)->offset;
        r->gradient = root(c->program, ad->params[i].gradient)->offset;
        r->bytes = value_bytes(&c->graph->values[ad->params[i].param]);
        r->decays = !c->graph->values[ad->params[i].param].no_decay;
        r->owned = owned_here(c, ad->params[i].param);
    }
    merge_ranges(update);
    for (int i = 0; i < ad->n_stats; i++) {
        struct update_stat *s;

        if (ad->stats[i].stage != c->stage)
            continue;
        s = mem_push((void **)&update->stats, &update->n_stats, sizeof(*s));
        s->stat = ad->stats[i].stat;
        s->contribution = ad->stats[i].contribution;
        s->decay = step_decay(ad->stats[i].decay, plan);
    }
}

void update_clear(struct update *update)
{
    free(update->ranges);
    free(update->stats);
    *update = (struct update){ 0 };
}

/* stat = decay * stat + contribution is SGD's p - lr * (g + wd * p) with lr = -1 and
 * wd = decay - 1: no kernel of its own.
 */
static int update_stats(struct update *u, struct store *store, struct err *err)
{
    for (int i = 0; i < u->n_stats; i++) {
        const struct update_stat *s = &u->stats[i];
        const struct value *v = &store->compiled->graph->values[s->stat];
        struct optimizer_args args = { .kind = OPTIMIZER_SGD, .dtype = v->dtype, .lr = -1,
                                       .weight_decay = s->decay - 1, .step = 1 };

        if (store->compiled->backend->optimize(
                store->stream, &args, (size_t)shape_elements(&v->shape),
                store_address(store, s->stat, 0), store_address(store, s->contribution, 0), 1,
                NULL, NULL, err) < 0)
            return -1;
    }
    return 0;
}

static double ratio(double above, double below)
{
    return above > 0 && below > 0 ? above / below : 1;
}

static int lars(const struct backend *backend, struct stream *stream,
                const struct optimizer_args *args, size_t n, void *p, const void *g,
                double g_scale, void *m, struct err *err)
{
    struct optimizer_args scaled = *args;
    double p2, g2, r;

    if (backend->sum_squares(stream, args->dtype, n, p, &p2, err) < 0 ||
        backend->sum_squares(stream, args->dtype, n, g, &g2, err) < 0)
        return -1;
    r = g2 > 0 ? ratio(args->trust * sqrt(p2),
                       fabs(g_scale) * sqrt(g2) + args->weight_decay * sqrt(p2)) : 1;
    scaled.weight_decay *= r;
    return backend->optimize(stream, &scaled, n, p, g, r * g_scale, m, NULL, err);
}

static int lamb(const struct backend *backend, struct stream *stream,
                const struct optimizer_args *args, bool decays, size_t n, void *p,
                const void *g, double g_scale, void *m, void *v, struct err *err)
{
    struct optimizer_args scaled = *args;
    double p2 = 0, u2;

    if ((decays && backend->sum_squares(stream, args->dtype, n, p, &p2, err) < 0) ||
        backend->moments(stream, args, n, p, g, g_scale, m, v, &u2, err) < 0)
        return -1;
    scaled.trust = ratio(sqrt(p2), sqrt(u2));
    return backend->optimize(stream, &scaled, n, p, g, g_scale, m, v, err);
}

int update_range(const struct backend *backend, struct stream *stream,
                 const struct optimizer_args *args, bool decays, size_t n, void *p,
                 const void *g, double g_scale, void *m, void *v, struct err *err)
{
    struct optimizer_args own = *args;

    if (!decays)
        own.weight_decay = 0;
    if (own.kind == OPTIMIZER_LARS && decays)
        return lars(backend, stream, &own, n, p, g, g_scale, m, err);
    if (own.kind == OPTIMIZER_LAMB)
        return lamb(backend, stream, &own, decays, n, p, g, g_scale, m, v, err);
    return backend->optimize(stream, &own, n, p, g, g_scale, m, v, err);
}

int update_squares(const struct update *update, const struct store *store, double *squares,
                   struct err *err)
{
    size_t element = dtype_size(update->args.dtype);
    double one;

    *squares = 0;
    for (int i = 0; i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];

        if (!r->owned)
            continue;
        if (store->compiled->backend->sum_squares(store->stream, update->args.dtype,
                                                  r->bytes / element,
                                                  store->gradients + r->gradient, &one,
                                                  err) < 0)
            return -1;
        *squares += one;
    }
    return 0;
}

/* average + (1 - decay) (p - average) is SGD's rule, as above. */
static int average(const struct update *u, struct store *store, const struct update_range *r,
                   int64_t step, struct err *err)
{
    struct optimizer_args args = { .kind = OPTIMIZER_SGD, .dtype = u->args.dtype,
                                   .lr = step == 0 ? -1 : u->ema - 1, .weight_decay = -1,
                                   .step = 1 };

    if (u->ema <= 0)
        return 0;
    return store->compiled->backend->optimize(store->stream, &args,
                                              r->bytes / dtype_size(args.dtype),
                                              store->averages + r->gradient,
                                              store->params + r->param, 1, NULL, NULL, err);
}

int update_run(struct update *update, struct store *store, const struct update_step *step,
               struct err *err)
{
    struct optimizer_args args = update->args;
    size_t element = dtype_size(args.dtype);

    args.step = step->step + 1;
    args.lr *= step->rate;
    for (int i = 0; i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];
        char *m = store->n_states > 0 ? store->states[0] + r->gradient : NULL;
        char *v = store->n_states > 1 ? store->states[1] + r->gradient : NULL;

        if (update_range(store->compiled->backend, store->stream, &args, r->decays,
                         r->bytes / element, store->params + r->param,
                         store->gradients + r->gradient, step->g_scale, m, v, err) < 0 ||
            average(update, store, r, step->step, err) < 0)
            return -1;
    }
    return update_stats(update, store, err);
}

static int copy_all(const struct update *u, const struct store *store, char *to, bool to_params,
                    const char *from, bool from_params, struct err *err)
{
    for (int i = 0; i < u->n_ranges; i++) {
        const struct update_range *r = &u->ranges[i];

        if (store->compiled->backend->copy(
                store->stream, to + (to_params ? r->param : r->gradient), r->bytes,
                from + (from_params ? r->param : r->gradient), r->bytes, r->bytes, 1, err) < 0)
            return -1;
    }
    return 0;
}

int update_borrow(const struct update *update, struct store *store, struct err *err)
{
    if (copy_all(update, store, store->gradients, false, store->params, true, err) < 0)
        return -1;
    return copy_all(update, store, store->params, true, store->averages, false, err);
}

int update_return(const struct update *update, struct store *store, struct err *err)
{
    return copy_all(update, store, store->params, true, store->gradients, false, err);
}
