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

/* A group at a time, each in an order that all its members have. */
static int by_group(const void *a, const void *b)
{
    const struct update_range *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->gradient < y->gradient ? -1 : x->gradient > y->gradient;
}

static bool adapts(const struct optimizer_args *args)
{
    return args->kind == OPTIMIZER_LARS || args->kind == OPTIMIZER_LAMB;
}

static bool follows(const struct update_range *a, const struct update_range *b, bool sharded)
{
    size_t way = b->gradient - a->gradient, end = a->gradient + a->bytes;

    return (sharded ? end : layout_aligned(end)) == b->gradient &&
           b->param - a->param == way && b->state - a->state == way;
}

/* The padding between two neighbours is zero in all arrays and stays zero, but where sums are
 * scattered, which leaves anything there.
 */
static void merge_ranges(struct update *u, bool sharded)
{
    int n = 0;

    if (u->n_ranges)
        qsort(u->ranges, (size_t)u->n_ranges, sizeof(*u->ranges), by_group);
    for (int i = 0; i < u->n_ranges; i++) {
        struct update_range *last = n ? &u->ranges[n - 1] : NULL, next = u->ranges[i];

        if (last && !adapts(&u->args) && last->group == next.group &&
            last->decays == next.decays && last->counts == next.counts &&
            follows(last, &next, sharded))
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

/* LARS and LAMB sum up norms of what this rank has nothing of, too. */
static void add_range(struct update *u, const struct store *store, const struct param_grad *p)
{
    const struct compiled *c = store->compiled;
    const struct value *v = &c->graph->values[p->param];
    size_t param = root(c->program, p->param)->offset;
    size_t gradient = root(c->program, p->gradient)->offset;
    struct slice part = slices_part(&store->slices, gradient, value_bytes(v));
    struct update_range *r;

    if (part.bytes == 0 && !adapts(&u->args))
        return;
    r = mem_push((void **)&u->ranges, &u->n_ranges, sizeof(*r));
    *r = (struct update_range){
        .param = param + (part.offset - gradient), .gradient = part.offset,
        .state = part.state, .bytes = part.bytes, .tensor = param,
        .tensor_bytes = value_bytes(v), .group = part.group, .decays = !v->no_decay,
        .counts = part.counts && (!part.whole || owned_here(c, p->param)),
    };
}

static void add_stat(struct update *u, const struct store *store,
                     const struct stat_update *from, const struct plan *plan)
{
    const struct compiled *c = store->compiled;
    size_t at = root(c->program, from->contribution)->offset;
    struct slice part = slices_part(&store->slices, at,
                                    value_bytes(&c->graph->values[from->stat]));
    struct update_stat *s;

    if (part.bytes == 0)
        return;
    s = mem_push((void **)&u->stats, &u->n_stats, sizeof(*s));
    s->stat = root(c->program, from->stat)->offset + (part.offset - at);
    s->contribution = part.offset;
    s->bytes = part.bytes;
    s->decay = step_decay(from->decay, plan);
}

void update_init(struct update *update, const struct store *store,
                 const struct optimizer_args *args, double ema, const struct plan *plan)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;

    *update = (struct update){ .args = *args, .ema = ema };
    update->args.dtype = c->graph->real;
    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == c->stage)
            add_range(update, store, &ad->params[i]);
    merge_ranges(update, c->sharded);
    if (adapts(args))
        update->squares = mem_new((size_t)update->n_ranges, sizeof(*update->squares));
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == c->stage)
            add_stat(update, store, &ad->stats[i], plan);
}

void update_clear(struct update *update)
{
    free(update->ranges);
    free(update->squares);
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
        struct optimizer_args args = { .kind = OPTIMIZER_SGD, .dtype = u->args.dtype, .lr = -1,
                                       .weight_decay = s->decay - 1, .step = 1 };

        if (store->compiled->backend->optimize(
                store->stream, &args, s->bytes / dtype_size(args.dtype),
                store->params + s->stat, store->gradients + s->contribution, 1, NULL, NULL,
                err) < 0)
            return -1;
    }
    return 0;
}

static double ratio(double above, double below)
{
    return above > 0 && below > 0 ? above / below : 1;
}

/* Arrays of what is stepped at once. */
struct arrays {
    size_t n;
    void *p, *m, *v;
    const void *g;
};

/* What the step needs of a part of a tensor, to be summed over all of it: LARS the squares of
 * the gradients, LAMB those of the update, for which it moves the moments.
 */
static int squares_of(const struct backend *backend, struct stream *stream,
                      const struct optimizer_args *args, const struct arrays *a, double g_scale,
                      double *squares, struct err *err)
{
    *squares = 0;
    if (a->n == 0)
        return 0;
    if (args->kind == OPTIMIZER_LAMB)
        return backend->moments(stream, args, a->n, a->p, a->g, g_scale, a->m, a->v, squares,
                                err);
    return backend->sum_squares(stream, args->dtype, a->n, a->g, squares, err);
}

/* The step of a part of a tensor with so many elements from 'tensor' on. */
static int adapt(const struct backend *backend, struct stream *stream,
                 const struct optimizer_args *args, bool decays, size_t n, const void *tensor,
                 const struct arrays *a, double g_scale, double squares, struct err *err)
{
    struct optimizer_args scaled = *args;
    double p2 = 0, r = 1;

    if (a->n == 0)
        return 0;
    if (decays && backend->sum_squares(stream, args->dtype, n, tensor, &p2, err) < 0)
        return -1;
    if (args->kind == OPTIMIZER_LAMB) {
        scaled.trust = ratio(sqrt(p2), sqrt(squares));
    } else if (decays && squares > 0) {
        r = ratio(args->trust * sqrt(p2),
                  fabs(g_scale) * sqrt(squares) + args->weight_decay * sqrt(p2));
        scaled.weight_decay *= r;
    }
    return backend->optimize(stream, &scaled, a->n, a->p, a->g, r * g_scale, a->m, a->v, err);
}

static struct optimizer_args args_for(const struct optimizer_args *args, bool decays)
{
    struct optimizer_args own = *args;

    if (!decays)
        own.weight_decay = 0;
    return own;
}

int update_range(const struct backend *backend, struct stream *stream,
                 const struct optimizer_args *args, bool decays, size_t n, void *p,
                 const void *g, double g_scale, void *m, void *v, struct err *err)
{
    struct optimizer_args own = args_for(args, decays);
    struct arrays a = { .n = n, .p = p, .m = m, .v = v, .g = g };
    double squares;

    if (!adapts(&own))
        return backend->optimize(stream, &own, n, p, g, g_scale, m, v, err);
    if (squares_of(backend, stream, &own, &a, g_scale, &squares, err) < 0)
        return -1;
    return adapt(backend, stream, &own, decays, n, p, &a, g_scale, squares, err);
}

int update_squares(const struct update *update, const struct store *store, double *squares,
                   struct err *err)
{
    size_t element = dtype_size(update->args.dtype);
    double one;

    *squares = 0;
    for (int i = 0; i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];

        if (!r->counts)
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

int update_first_bad(const struct update *update, const struct store *store, int *order,
                     const char **name, struct err *err)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;
    double squares;

    for (int i = 0; i < ad->n_params; i++) {
        const struct value *v = &c->graph->values[ad->params[i].param];
        struct slice part;

        if (ad->params[i].stage != c->stage)
            continue;
        part = slices_part(&store->slices, root(c->program, ad->params[i].gradient)->offset,
                           value_bytes(v));
        if (part.bytes == 0)
            continue;
        if (c->backend->sum_squares(store->stream, update->args.dtype,
                                    part.bytes / dtype_size(update->args.dtype),
                                    store->gradients + part.offset, &squares, err) < 0)
            return -1;
        if (isfinite(squares))
            continue;
        *order = i;
        *name = v->name;
        return 0;
    }
    *order = -1;
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
                                              store->averages + r->state,
                                              store->params + r->param, 1, NULL, NULL, err);
}

static struct optimizer_args args_at(const struct update *update,
                                     const struct update_step *step)
{
    struct optimizer_args args = update->args;

    args.step = step->step + 1;
    args.lr *= step->rate;
    return args;
}

static struct arrays arrays_of(const struct store *store, const struct update_range *r,
                               size_t element)
{
    return (struct arrays){
        .n = r->bytes / element, .p = store->params + r->param,
        .g = store->gradients + r->gradient,
        .m = store->n_states > 0 ? store->states[0] + r->state : NULL,
        .v = store->n_states > 1 ? store->states[1] + r->state : NULL,
    };
}

int update_norms(struct update *update, const struct store *store,
                 const struct update_step *step, struct err *err)
{
    const struct optimizer_args args = args_at(update, step);

    for (int i = 0; update->squares && i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];
        struct optimizer_args own = args_for(&args, r->decays);
        struct arrays a = arrays_of(store, r, dtype_size(args.dtype));

        if (squares_of(store->compiled->backend, store->stream, &own, &a, step->g_scale,
                       &update->squares[i], err) < 0)
            return -1;
    }
    return 0;
}

static int step_range(const struct store *store, const struct update_range *r,
                      const struct optimizer_args *args, double g_scale, double squares,
                      struct err *err)
{
    const struct backend *backend = store->compiled->backend;
    struct optimizer_args own = args_for(args, r->decays);
    size_t element = dtype_size(args->dtype);
    struct arrays a = arrays_of(store, r, element);

    if (!adapts(args))
        return backend->optimize(store->stream, &own, a.n, a.p, a.g, g_scale, a.m, a.v, err);
    return adapt(backend, store->stream, &own, r->decays, r->tensor_bytes / element,
                 store->params + r->tensor, &a, g_scale, squares, err);
}

int update_run(struct update *update, struct store *store, const struct update_step *step,
               struct err *err)
{
    const struct optimizer_args args = args_at(update, step);

    for (int i = 0; i < update->n_ranges; i++) {
        const struct update_range *r = &update->ranges[i];

        if (step_range(store, r, &args, step->g_scale,
                       update->squares ? update->squares[i] : 0, err) < 0 ||
            average(update, store, r, step->step, err) < 0)
            return -1;
    }
    return update_stats(update, store, err);
}

static int copy_ranges(const struct update *u, const struct store *store, bool averages,
                       struct err *err)
{
    for (int i = 0; i < u->n_ranges; i++) {
        const struct update_range *r = &u->ranges[i];
        char *param = store->params + r->param, *saved = store->gradients + r->gradient;
        const struct backend *backend = store->compiled->backend;

        if (averages && backend->copy(store->stream, saved, r->bytes, param, r->bytes, r->bytes,
                                      1, err) < 0)
            return -1;
        if (backend->copy(store->stream, param, r->bytes,
                          averages ? store->averages + r->state : saved, r->bytes, r->bytes, 1,
                          err) < 0)
            return -1;
    }
    return 0;
}

int update_borrow(const struct update *update, struct store *store, struct err *err)
{
    return copy_ranges(update, store, true, err);
}

int update_return(const struct update *update, struct store *store, struct err *err)
{
    return copy_ranges(update, store, false, err);
}
