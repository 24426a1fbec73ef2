/* SPDX-License-Identifier: MIT */
#include "train/update.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/layout.h"
#include "train/optimizer.h"

int update_states(const struct optimizer_args *args)
{
    return optimizer_states(args->kind);
}

static const struct program_value *root(const struct program *program, int value)
{
    return &program->values[program->values[value].root];
}

static int by_gradient(const void *a, const void *b)
{
    const struct update_range *x = a, *y = b;

    return x->gradient < y->gradient ? -1 : x->gradient > y->gradient;
}

/* The padding between two neighbours is zero in all arrays and stays zero. */
static void merge_ranges(struct update *u)
{
    int n = 0;

    qsort(u->ranges, (size_t)u->n_ranges, sizeof(*u->ranges), by_gradient);
    for (int i = 0; i < u->n_ranges; i++) {
        struct update_range *last = n ? &u->ranges[n - 1] : NULL, next = u->ranges[i];

        if (last && last->param + layout_aligned(last->bytes) == next.param &&
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
                 const struct optimizer_args *args, const struct plan *plan)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;

    *update = (struct update){ .args = *args };
    update->args.dtype = c->graph->real;
    for (int i = 0; i < ad->n_params; i++) {
        struct update_range *r;

        if (ad->params[i].stage != c->stage)
            continue;
        r = mem_push((void **)&update->ranges, &update->n_ranges, sizeof(*r));
        r->param = root(c->program, ad->params[i].param)->offset;
        r->gradient = root(c->program, ad->params[i].gradient)->offset;
        r->bytes = value_bytes(&c->graph->values[ad->params[i].param]);
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

int update_run(struct update *update, struct store *store, int64_t step, struct err *err)
{
    size_t element = dtype_size(update->args.dtype);

    update->args.step = step + 1;
    for (int i = 0; i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];
        char *m = store->n_states > 0 ? store->states[0] + r->gradient : NULL;
        char *v = store->n_states > 1 ? store->states[1] + r->gradient : NULL;

        if (store->compiled->backend->optimize(store->stream, &update->args,
                                               r->bytes / element, store->params + r->param,
                                               store->gradients + r->gradient, 1, m, v,
                                               err) < 0)
            return -1;
    }
    return update_stats(update, store, err);
}
