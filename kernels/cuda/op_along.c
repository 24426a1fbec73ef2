/* SPDX-License-Identifier: MIT */
/* Along an axis, of any type: one thread for each line. */
#include "kernels/cuda/cuda.h"

static int run_cumsum(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    struct cuda_cumsum l = { .dtype = (int)d->in[0].dtype, .before = d->before,
                             .length = d->length, .after = d->after, .reverse = d->reverse,
                             .exclusive = d->exclusive, .in = args->inputs[0],
                             .out = args->outputs[0] };

    return d->out[0].elements ? k->device->cuda->cumsum(stream->cuda, &l, err) : 0;
}

static int make_cumsum(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    k->run = run_cumsum;
    return 0;
}

static int run_order(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    bool several = d->n_outputs > 1;
    struct cuda_order l = { .dtype = (int)d->in[0].dtype, .smallest = d->swap, .last = d->last,
                            .before = d->before, .length = d->length, .after = d->after,
                            .count = several ? d->count : 1, .in = args->inputs[0],
                            .values = several ? args->outputs[0] : NULL,
                            .indices = args->outputs[several] };

    return d->out[0].elements ? k->device->cuda->order(stream->cuda, &l, err) : 0;
}

/* A TopK's two outputs or an ArgMax's one. */
static int make_order(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    k->run = run_order;
    return 0;
}

const struct cuda_op cuda_ops_along[] = {
    { "CumSum", make_cumsum, 0 },
    { "ArgMax", make_order, 0 },
    { "TopK", make_order, 0 },
    { NULL, NULL, 0 },
};
