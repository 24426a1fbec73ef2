/* SPDX-License-Identifier: MIT */
/* Rows picked and put by index. An index that is out of range is not reported: it gives a NaN
 * where it picks and is skipped where it puts.
 */
#include "kernels/cuda/cuda.h"

/* Rows of what is picked and where the digest has them in a tensor of 'data' elements. */
static void target_along(struct cuda_target *t, const struct kernel *d)
{
    t->kind = CUDA_ALONG;
    t->n = d->in[1].elements;
    t->rows = d->before * t->n;
    t->inner = d->after;
    t->length = d->length;
}

static void target_elements(struct cuda_target *t, const struct kernel *d)
{
    t->kind = CUDA_ELEMENTS;
    t->rows = d->in[1].elements;
    t->inner = 1;
    t->length = d->length;
    t->after = d->after;
    cuda_walk_from(&t->walk, &d->walk);
    cuda_walk_merge(&t->walk);
}

static void target_tuples(struct cuda_target *t, const struct kernel *d)
{
    t->kind = CUDA_TUPLES;
    t->n = d->tuple.n;
    t->rows = d->tuple.groups * d->tuple.rows;
    t->inner = d->tuple.inner;
    t->length = d->tuple.inner ? d->tuple.size / d->tuple.inner : 0;
    t->group = d->tuple.rows;
    for (int k = 0; k < t->n; k++)
        t->dim[k] = d->tuple.dim[k];
}

static void make_target(const struct cuda_kernel *k, struct cuda_target *t)
{
    *t = (struct cuda_target){ .wide = k->digest->in[1].dtype == DTYPE_I64 };
    switch ((enum cuda_target_kind)cuda_op_of(k)->argument) {
    case CUDA_ALONG:
        target_along(t, k->digest);
        break;
    case CUDA_ELEMENTS:
        target_elements(t, k->digest);
        break;
    case CUDA_TUPLES:
        target_tuples(t, k->digest);
        break;
    }
}

static bool is_empty(const struct cuda_target *t)
{
    return t->rows == 0 || t->inner == 0;
}

/* Gather ----------------------------------------------------------------------------------- */

/* Neighbours in a row always go together. */
static void widen(struct cuda_gather *l)
{
    while (l->size < 16 && l->target.kind != CUDA_ELEMENTS && l->target.inner % 2 == 0 &&
           (uintptr_t)l->in % (2 * (size_t)l->size) == 0 &&
           (uintptr_t)l->out % (2 * (size_t)l->size) == 0) {
        l->size *= 2;
        l->target.inner /= 2;
    }
}

static int run_gather(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    struct cuda_gather l = k->launch.gather;

    if (is_empty(&l.target))
        return 0;
    l.in = args->inputs[0];
    l.out = args->outputs[0];
    l.target.index = args->inputs[1];
    widen(&l);
    return k->device->cuda->gather(stream->cuda, &l, err);
}

static int make_gather(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    make_target(k, &k->launch.gather.target);
    k->launch.gather.size = (int)dtype_size(k->digest->out[0].dtype);
    k->run = run_gather;
    return 0;
}

/* Scatter ---------------------------------------------------------------------------------- */

/* Send the rows of 'in' to their targets. */
static int scatter(const struct cuda_kernel *k, struct stream *stream, struct cuda_scatter *l,
                   const struct kernel_args *args, const void *in, struct err *err)
{
    if (is_empty(&l->target))
        return 0;
    l->in = in;
    l->out = args->outputs[0];
    l->target.index = args->inputs[1];
    l->keys = args->workspace;
    l->part = (float *)(l->keys + l->n_keys);
    return k->device->cuda->scatter(stream->cuda, l, err);
}

static int run_sum(const struct cuda_kernel *k, struct stream *stream,
                   const struct kernel_args *args, struct err *err)
{
    struct cuda_scatter l = k->launch.scatter;

    l.add = args->accumulate == ACCUMULATE_YES;
    if (!l.add &&
        k->device->cuda->fill_zero(stream->cuda, args->outputs[0], cuda_output_bytes(k), err))
        return -1;
    return scatter(k, stream, &l, args, args->inputs[0], err);
}

static int run_scatter(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_scatter l = k->launch.scatter;
    size_t bytes = cuda_output_bytes(k);

    if (args->outputs[0] != args->inputs[0] &&
        k->device->cuda->copy(stream->cuda, args->outputs[0], bytes, args->inputs[0], bytes,
                              bytes, 1, err))
        return -1;
    return scatter(k, stream, &l, args, k->digest->n_inputs > 2 ? args->inputs[2] : NULL, err);
}

/* Keys, and for sums a row for each chunk. -1: too many for a key. */
static int make_workspace(struct cuda_kernel *k)
{
    struct cuda_scatter *l = &k->launch.scatter;
    int64_t chunks = (l->target.rows + CUDA_SCATTER_CHUNK - 1) / CUDA_SCATTER_CHUNK;

    if (l->target.rows >= INT32_MAX || k->digest->out[0].elements >= UINT32_MAX)
        return -1;
    for (l->n_keys = CUDA_SCATTER_BLOCK; l->n_keys < l->target.rows; l->n_keys *= 2)
        ;
    k->workspace = (size_t)l->n_keys * sizeof(*l->keys);
    if (l->action == CUDA_SCATTER_SUM)
        k->workspace += (size_t)(chunks * l->target.inner) * sizeof(*l->part);
    return 0;
}

static int make_sum(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    if (!cuda_is_f32(k))
        return -1;
    make_target(k, &k->launch.scatter.target);
    k->launch.scatter.action = CUDA_SCATTER_SUM;
    k->launch.scatter.size = sizeof(float);
    k->run = run_sum;
    k->accumulates = true;
    return make_workspace(k);
}

static enum cuda_scatter_action action_of(const struct kernel *d)
{
    static const enum cuda_scatter_action actions[] = {
        [REF_PUT] = CUDA_SCATTER_PUT, [REF_ADD] = CUDA_SCATTER_ADD,
        [REF_MULTIPLY] = CUDA_SCATTER_MULTIPLY, [REF_LARGER] = CUDA_SCATTER_LARGER,
        [REF_SMALLER] = CUDA_SCATTER_SMALLER,
    };

    return d->n_inputs > 2 ? actions[d->reduction] : CUDA_SCATTER_CLEAR;
}

static int make_scatter(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_scatter *l = &k->launch.scatter;

    (void)graph, (void)node;
    l->action = action_of(k->digest);
    l->size = (int)dtype_size(k->digest->out[0].dtype);
    if (l->action != CUDA_SCATTER_PUT && l->action != CUDA_SCATTER_CLEAR &&
        k->digest->out[0].dtype != DTYPE_F32)
        return -1;
    make_target(k, &l->target);
    k->run = run_scatter;
    return make_workspace(k);
}

const struct cuda_op cuda_ops_index[] = {
    { "Gather", make_gather, CUDA_ALONG },
    { "GatherGrad", make_sum, CUDA_ALONG },
    { "GatherElements", make_gather, CUDA_ELEMENTS },
    { "GatherElementsGrad", make_sum, CUDA_ELEMENTS },
    { "GatherND", make_gather, CUDA_TUPLES },
    { "GatherNdGrad", make_sum, CUDA_TUPLES },
    { "ScatterElements", make_scatter, CUDA_ELEMENTS },
    { "ClearElements", make_scatter, CUDA_ELEMENTS },
    { "ScatterND", make_scatter, CUDA_TUPLES },
    { "ClearNd", make_scatter, CUDA_TUPLES },
    { NULL, NULL, 0 },
};
