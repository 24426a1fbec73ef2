/* SPDX-License-Identifier: MIT */
/* Sums over flat ranges and the optimizers, by PyTorch's formulas. */
#include <math.h>

#include "kernels/host.h"
#include "kernels/reference/reference.h"

int ref_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
            struct err *err)
{
    size_t i;

    (void)stream, (void)err;
    if (dtype == DTYPE_F32)
        for (i = 0; i < n; i++)
            ((float *)y)[i] += ((const float *)x)[i];
    else
        for (i = 0; i < n; i++)
            ((double *)y)[i] += ((const double *)x)[i];
    return 0;
}

static double sum_squares(enum dtype dtype, size_t n, const void *x)
{
    double sum = 0, v;

    for (size_t i = 0; i < n; i++) {
        v = dtype == DTYPE_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
        sum += v * v;
    }
    return sum;
}

int ref_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                    double *sums, struct err *err)
{
    const struct range_arrays arrays = { .g = x };

    (void)stream, (void)err;
    for (int i = 0; i < ranges->n; i++)
        sums[i] = sum_squares(dtype, ranges->items[i].n,
                              host_range_arrays(&arrays, &ranges->items[i], dtype).g);
    return 0;
}

/* One parameter, its gradient and its state. */
struct element {
    double p, g, m, v;
};

static void update_momentum(const struct optimizer_args *a, struct element *e)
{
    e->g += a->weight_decay * e->p;
    e->m = a->step == 1 ? e->g : a->momentum * e->m + e->g;
    e->p -= a->lr * (a->kind == OPTIMIZER_NESTEROV ? e->g + a->momentum * e->m : e->m);
}

static void update_adam(const struct optimizer_args *a, struct element *e)
{
    double c1 = 1 - pow(a->beta1, (double)a->step), c2 = 1 - pow(a->beta2, (double)a->step);

    if (a->kind == OPTIMIZER_ADAMW)
        e->p *= 1 - a->lr * a->weight_decay;
    else
        e->g += a->weight_decay * e->p;
    e->m += (1 - a->beta1) * (e->g - e->m);
    e->v = a->beta2 * e->v + (1 - a->beta2) * e->g * e->g;
    e->p -= a->lr / c1 * e->m / (sqrt(e->v) / sqrt(c2) + a->epsilon);
}

static double lamb_direction(const struct optimizer_args *a, const struct element *e)
{
    double c1 = 1 - pow(a->beta1, (double)a->step), c2 = 1 - pow(a->beta2, (double)a->step);

    return e->m / c1 / (sqrt(e->v / c2) + a->epsilon) + a->weight_decay * e->p;
}

static void update(const struct optimizer_args *a, struct element *e)
{
    switch (a->kind) {
    case OPTIMIZER_SGD:
        e->p -= a->lr * (e->g + a->weight_decay * e->p);
        break;
    case OPTIMIZER_MOMENTUM:
    case OPTIMIZER_NESTEROV:
    case OPTIMIZER_LARS:
        update_momentum(a, e);
        break;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW:
        update_adam(a, e);
        break;
    case OPTIMIZER_LAMB:
        e->p -= a->lr * a->trust * lamb_direction(a, e);
        break;
    }
}

static double get(enum dtype dtype, const void *list, size_t i)
{
    if (!list)
        return 0;
    return dtype == DTYPE_F32 ? (double)((const float *)list)[i] : ((const double *)list)[i];
}

static void set(enum dtype dtype, void *list, size_t i, double value)
{
    if (!list)
        return;
    if (dtype == DTYPE_F32)
        ((float *)list)[i] = (float)value;
    else
        ((double *)list)[i] = value;
}

static struct element load(enum dtype dtype, const struct range_arrays *a, size_t i, double g_scale)
{
    return (struct element){ get(dtype, a->p, i), g_scale * get(dtype, a->g, i),
                             get(dtype, a->m, i), get(dtype, a->v, i) };
}

static void optimize(const struct optimizer_args *args, size_t n, const struct range_arrays *a,
                     double g_scale)
{
    for (size_t i = 0; i < n; i++) {
        struct element e = load(args->dtype, a, i, g_scale);

        update(args, &e);
        set(args->dtype, a->p, i, e.p);
        set(args->dtype, a->m, i, e.m);
        set(args->dtype, a->v, i, e.v);
    }
}

int ref_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale,
                 const struct range_norms *norms, struct err *err)
{
    (void)stream, (void)err;
    for (int i = 0; i < ranges->n; i++) {
        struct range_arrays a = host_range_arrays(arrays, &ranges->items[i], args->dtype);
        double scale = g_scale;
        struct optimizer_args own = host_range_args(args, ranges, i, norms, &scale);

        optimize(&own, ranges->items[i].n, &a, scale);
    }
    return 0;
}

static double move_moments(const struct optimizer_args *args, size_t n,
                           const struct range_arrays *a, double g_scale)
{
    double sum = 0, u;

    for (size_t i = 0; i < n; i++) {
        struct element e = load(args->dtype, a, i, g_scale);

        e.m += (1 - args->beta1) * (e.g - e.m);
        e.v = args->beta2 * e.v + (1 - args->beta2) * e.g * e.g;
        set(args->dtype, a->m, i, e.m);
        set(args->dtype, a->v, i, e.v);
        u = lamb_direction(args, &e);
        sum += u * u;
    }
    return sum;
}

int ref_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                const struct range_arrays *arrays, double g_scale, double *sums, struct err *err)
{
    (void)stream, (void)err;
    for (int i = 0; i < ranges->n; i++) {
        struct range_arrays a = host_range_arrays(arrays, &ranges->items[i], args->dtype);
        struct optimizer_args own = host_range_args(args, ranges, i, NULL, &g_scale);

        sums[i] = move_moments(&own, ranges->items[i].n, &a, g_scale);
    }
    return 0;
}
