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

        if (last && !stepping_needs_norms(u->args.kind) && last->group == next.group &&
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

    if (part.bytes == 0 && !stepping_needs_norms(u->args.kind))
        return;
    r = mem_push((void **)&u->ranges, &u->n_ranges, sizeof(*r));
    *r = (struct update_range){
        .param = param + (part.offset - gradient), .gradient = part.offset,
        .state = part.state, .bytes = part.bytes, .tensor = param,
        .tensor_bytes = value_bytes(v), .group = part.group, .decays = !v->no_decay,
        .counts = part.counts && (!part.whole || owned_here(c, p->param)),
    };
}

static size_t element(const struct update *u)
{
    return dtype_size(u->args.dtype);
}

/* stat = decay * stat + contribution is SGD's p - lr * (g + wd * p) with lr = -1 and
 * wd = decay - 1: no kernel of its own.
 */
static struct range stat_range(const struct update *u, const struct store *store,
                               const struct stat_update *from, const struct plan *plan)
{
    const struct compiled *c = store->compiled;
    size_t at = root(c->program, from->contribution)->offset;
    struct slice part = slices_part(&store->slices, at,
                                    value_bytes(&c->graph->values[from->stat]));

    return (struct range){
        .n = part.bytes / element(u), .g = part.offset / element(u),
        .p = (root(c->program, from->stat)->offset + (part.offset - at)) / element(u),
        .decay = step_decay(from->decay, plan) - 1,
    };
}

static int make_stats(struct update *u, const struct store *store, const struct plan *plan,
                      struct err *err)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;
    struct range *list = mem_new((size_t)ad->n_stats, sizeof(*list));
    int n = 0;

    for (int i = 0; i < ad->n_stats; i++) {
        if (ad->stats[i].stage != c->stage)
            continue;
        list[n] = stat_range(u, store, &ad->stats[i], plan);
        n += list[n].n > 0;
    }
    u->stats = n ? c->backend->ranges_new(store->stream, list, n, err) : NULL;
    free(list);
    return n && !u->stats ? -1 : 0;
}

static struct range stepped(const struct update *u, const struct update_range *r)
{
    return (struct range){ .n = r->bytes / element(u), .p = r->param / element(u),
                           .g = r->gradient / element(u), .state = r->state / element(u),
                           .decay = r->decays ? 1 : 0 };
}

/* average + (1 - decay) (p - average) is SGD's rule, as above. */
static struct range averaged(const struct update *u, const struct update_range *r)
{
    return (struct range){ .n = r->bytes / element(u), .p = r->state / element(u),
                           .g = r->param / element(u), .decay = 1 };
}

static struct range whole(const struct update *u, const struct update_range *r)
{
    return (struct range){ .n = r->bytes && r->decays ? r->tensor_bytes / element(u) : 0,
                           .g = r->tensor / element(u) };
}

static struct range *list_ranges(const struct update *u,
                                 struct range (*from)(const struct update *,
                                                      const struct update_range *))
{
    struct range *list = mem_new((size_t)u->n_ranges, sizeof(*list));

    for (int i = 0; i < u->n_ranges; i++)
        list[i] = from(u, &u->ranges[i]);
    return list;
}

static int make_tables(struct update *u, const struct store *store, struct err *err)
{
    const struct backend *backend = store->compiled->backend;
    bool norms = stepping_needs_norms(u->args.kind);
    struct range *ranges = list_ranges(u, stepped), *tensors = list_ranges(u, whole);
    struct range *averages = list_ranges(u, averaged);
    int bad = stepping_init(&u->stepping, backend, store->device, store->stream, u->n_ranges, ranges,
                            norms ? tensors : NULL, err);

    if (!bad && u->ema > 0)
        u->averaged = backend->ranges_new(store->stream, averages, u->n_ranges, err);
    free(ranges);
    free(tensors);
    free(averages);
    return bad || (u->ema > 0 && !u->averaged) ? -1 : 0;
}

int update_init(struct update *update, const struct store *store, const struct optimizer_args *args,
                double ema, const struct plan *plan, struct err *err)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;

    *update = (struct update){ .args = *args, .ema = ema, .backend = c->backend };
    update->args.dtype = c->graph->real;
    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == c->stage)
            add_range(update, store, &ad->params[i]);
    merge_ranges(update, c->sharded);
    if (make_tables(update, store, err) == 0 && make_stats(update, store, plan, err) == 0)
        return 0;
    update_clear(update);
    return -1;
}

void update_clear(struct update *update)
{
    free(update->ranges);
    stepping_clear(&update->stepping);
    if (update->averaged)
        update->backend->ranges_free(update->averaged);
    if (update->stats)
        update->backend->ranges_free(update->stats);
    *update = (struct update){ 0 };
}

int update_sum(struct update *update, const struct store *store, struct err *err)
{
    return stepping_sum(&update->stepping, update->args.dtype, store->gradients, err);
}

double update_squares(const struct update *update)
{
    const double *sums = stepping_squares(&update->stepping);
    double squares = 0;

    for (int i = 0; i < update->n_ranges; i++)
        if (update->ranges[i].counts)
            squares += sums[i];
    return squares;
}

/* Of what this rank has of each gradient. */
static struct range *list_gradients(const struct update *u, const struct store *store)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;
    struct range *list = mem_new((size_t)ad->n_params, sizeof(*list));

    for (int i = 0; i < ad->n_params; i++) {
        const struct param_grad *p = &ad->params[i];
        struct slice part;

        if (p->stage != c->stage)
            continue;
        part = slices_part(&store->slices, root(c->program, p->gradient)->offset,
                           value_bytes(&c->graph->values[p->param]));
        list[i] = (struct range){ .n = part.bytes / element(u), .g = part.offset / element(u) };
    }
    return list;
}

int update_first_bad(const struct update *update, const struct store *store, int *order,
                     const char **name, struct err *err)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;
    struct range *list = list_gradients(update, store);
    struct stepping sums;
    int bad = stepping_init(&sums, c->backend, store->device, store->stream, ad->n_params, list,
                            NULL, err);

    free(list);
    if (bad)
        return -1;
    bad = stepping_sum(&sums, update->args.dtype, store->gradients, err) < 0 ||
                  c->backend->stream_sync(store->stream, err) < 0
              ? -1 : 0;
    *order = -1;
    for (int i = 0; i < ad->n_params && !bad && *order < 0; i++)
        if (!isfinite(stepping_squares(&sums)[i])) {
            *order = i;
            *name = c->graph->values[ad->params[i].param].name;
        }
    stepping_clear(&sums);
    return bad;
}

static struct optimizer_args args_at(const struct update *update,
                                     const struct update_step *step)
{
    struct optimizer_args args = update->args;

    args.step = step->step + 1;
    args.lr *= step->rate;
    return args;
}

static struct range_arrays arrays_of(const struct store *store)
{
    return (struct range_arrays){ .p = store->params, .g = store->gradients,
                                  .m = store->states[0], .v = store->states[1] };
}

int update_norms(struct update *update, const struct store *store,
                 const struct update_step *step, struct err *err)
{
    const struct optimizer_args args = args_at(update, step);
    const struct range_arrays arrays = arrays_of(store);

    return stepping_norms(&update->stepping, &args, &arrays, step->g_scale, err);
}

/* SGD's rule over them, whose gradients lie there. */
static int blend(const struct update *u, const struct store *store, struct ranges *ranges, double lr,
                 double decay, void *to, const void *from, struct err *err)
{
    const struct optimizer_args args = { .kind = OPTIMIZER_SGD, .dtype = u->args.dtype, .lr = lr,
                                         .weight_decay = decay, .step = 1 };
    const struct range_arrays arrays = { .p = to, .g = from };

    return ranges ? u->backend->optimize(store->stream, &args, ranges, &arrays, 1, NULL, err) : 0;
}

int update_run(struct update *update, struct store *store, const struct update_step *step,
               struct err *err)
{
    const struct optimizer_args args = args_at(update, step);
    const struct range_arrays arrays = arrays_of(store);
    double follow = step->step == 0 ? 1 : 1 - update->ema;

    if (stepping_run(&update->stepping, &args, &arrays, step->g_scale, err) < 0 ||
        blend(update, store, update->averaged, -follow, -1, store->averages, store->params,
              err) < 0)
        return -1;
    return blend(update, store, update->stats, -1, 1, store->params, store->gradients, err);
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
