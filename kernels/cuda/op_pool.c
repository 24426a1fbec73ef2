/* SPDX-License-Identifier: MIT */
/* Pools with windows. */
#include <math.h>

#include "kernels/cuda/cuda.h"

static int run(const struct cuda_kernel *k, struct stream *stream,
               const struct kernel_args *args, struct err *err)
{
    struct cuda_pool l = k->launch.pool;

    l.x = args->inputs[0];
    switch (l.kind) {
    case CUDA_POOL_INDICES:
        l.indices = args->outputs[0];
        break;
    case CUDA_POOL_MAX:
        l.saved = k->digest->n_outputs > 1 ? args->outputs[1] : NULL;
        l.y = args->outputs[0];
        break;
    case CUDA_POOL_MAX_GRAD:
        l.saved = (int32_t *)(uintptr_t)args->inputs[1];
        l.y = args->outputs[0];
        break;
    default:
        l.y = args->outputs[0];
        break;
    }
    return k->digest->out[0].elements ? k->device->cuda->pool(stream->cuda, &l, err) : 0;
}

/* Positions in a plane, and in what its windows see, are counted in 32 bits. */
static bool is_small(const struct window *w)
{
    double in = 1, out = 1, reach = 0;

    for (int d = 0; d < 3; d++) {
        in *= (double)w->in[d];
        out *= (double)w->out[d];
        reach = fmax(reach, (double)(w->in[d] + w->before[d] + w->after[d]) +
                                (double)w->stride[d] * (double)w->out[d] +
                                (double)w->dilation[d] * (double)w->kernel[d]);
    }
    return fmax(fmax(in, out), reach) < INT32_MAX;
}

static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct window *w = &k->digest->window;
    struct cuda_pool *l = &k->launch.pool;

    (void)graph, (void)node;
    l->kind = (enum cuda_pool_kind)cuda_op_of(k)->argument;
    l->planes = w->images * w->in_channels;
    for (int d = 0; d < 3; d++) {
        l->in[d] = (int)w->in[d];
        l->out[d] = (int)w->out[d];
        l->kernel[d] = (int)w->kernel[d];
        l->stride[d] = (int)w->stride[d];
        l->dilation[d] = (int)w->dilation[d];
        l->before[d] = (int)w->before[d];
        l->after[d] = (int)w->after[d];
    }
    l->count_padding = w->count_padding;
    l->swap = k->digest->swap;
    l->narrow = k->narrow;
    l->channels = k->last ? w->in_channels : 0;
    l->saved_channels = k->places_last ? w->in_channels : 0;
    k->run = run;
    return cuda_is_f32(k) && k->digest->in[0].dtype == DTYPE_F32 && is_small(w) ? 0 : -1;
}

const struct cuda_op cuda_ops_pool[] = {
    { "MaxPool", make, CUDA_POOL_MAX },
    { "MaxPoolIndices", make, CUDA_POOL_INDICES },
    { "MaxPoolGrad", make, CUDA_POOL_MAX_GRAD },
    { "AveragePool", make, CUDA_POOL_MEAN },
    { "AveragePoolGrad", make, CUDA_POOL_MEAN_GRAD },
    { NULL, NULL, 0 },
};
