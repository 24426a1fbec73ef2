/* SPDX-License-Identifier: MIT */
#include "train/stepping.h"

bool stepping_needs_norms(enum optimizer_kind kind)
{
    return kind == OPTIMIZER_LARS || kind == OPTIMIZER_LAMB;
}

static int make_all(struct stepping *s, const struct range *ranges, const struct range *tensors,
                    struct err *err)
{
    size_t bytes = (size_t)s->n * sizeof(double);

    s->ranges = s->backend->ranges_new(s->stream, ranges, s->n, err);
    if (!s->ranges)
        return -1;
    s->sums = s->backend->alloc_aside(s->device, 2 * bytes, false, err);
    if (!s->sums)
        return -1;
    s->host = s->backend->alloc_aside(s->device, 2 * bytes, true, err);
    if (!s->host)
        return -1;
    s->tensors = tensors ? s->backend->ranges_new(s->stream, tensors, s->n, err) : NULL;
    return tensors && !s->tensors ? -1 : 0;
}

int stepping_init(struct stepping *stepping, const struct backend *backend, struct device *device,
                  struct stream *stream, int n, const struct range *ranges,
                  const struct range *tensors, struct err *err)
{
    *stepping = (struct stepping){ .backend = backend, .device = device, .stream = stream, .n = n };
    if (make_all(stepping, ranges, tensors, err) == 0)
        return 0;
    stepping_clear(stepping);
    return -1;
}

void stepping_clear(struct stepping *stepping)
{
    struct stepping *s = stepping;

    if (s->tensors)
        s->backend->ranges_free(s->tensors);
    if (s->ranges)
        s->backend->ranges_free(s->ranges);
    if (s->sums)
        s->backend->release_aside(s->device, s->sums, false);
    if (s->host)
        s->backend->release_aside(s->device, s->host, true);
    *s = (struct stepping){ 0 };
}

static size_t bytes_of(const struct stepping *s)
{
    return (size_t)s->n * sizeof(double);
}

static void touch(const struct stepping *s, double *numbers, bool writes)
{
    if (s->backend->host_touches)
        s->backend->host_touches(s->device, numbers, bytes_of(s), writes);
}

static int copy(const struct stepping *s, double *to, const double *from, struct err *err)
{
    size_t bytes = bytes_of(s);

    return s->backend->copy(s->stream, to, bytes, from, bytes, bytes, 1, err);
}

int stepping_sum(struct stepping *stepping, enum dtype dtype, const void *g, struct err *err)
{
    struct stepping *s = stepping;

    return s->backend->sum_squares(s->stream, s->ranges, dtype, g, s->sums, err) < 0
               ? -1
               : copy(s, s->host, s->sums, err);
}

const double *stepping_squares(const struct stepping *stepping)
{
    touch(stepping, stepping->host, false);
    return stepping->host;
}

int stepping_take(struct stepping *stepping, struct err *err)
{
    return copy(stepping, stepping->host + stepping->n, stepping->sums, err);
}

double *stepping_shares(const struct stepping *stepping)
{
    touch(stepping, stepping->host + stepping->n, false);
    return stepping->host + stepping->n;
}

int stepping_put(struct stepping *stepping, struct err *err)
{
    touch(stepping, stepping->host + stepping->n, true);
    return copy(stepping, stepping->sums, stepping->host + stepping->n, err);
}

int stepping_norms(struct stepping *stepping, const struct optimizer_args *args,
                   const struct range_arrays *arrays, double g_scale, struct err *err)
{
    struct stepping *s = stepping;
    int bad;

    if (!s->tensors)
        return 0;
    bad = args->kind == OPTIMIZER_LAMB
              ? s->backend->moments(s->stream, args, s->ranges, arrays, g_scale, s->sums, err)
              : s->backend->sum_squares(s->stream, s->ranges, args->dtype, arrays->g, s->sums, err);
    return bad ? bad
               : s->backend->sum_squares(s->stream, s->tensors, args->dtype, arrays->p,
                                         s->sums + s->n, err);
}

int stepping_run(struct stepping *stepping, const struct optimizer_args *args,
                 const struct range_arrays *arrays, double g_scale, struct err *err)
{
    struct stepping *s = stepping;
    struct range_norms norms = { .squares = s->sums, .weights = s->sums + s->n };

    return s->backend->optimize(s->stream, args, s->ranges, arrays, g_scale,
                                s->tensors ? &norms : NULL, err);
}
