/* SPDX-License-Identifier: MIT */
/* Pools with windows. */
#include <math.h>

#include "base/err.h"
#include "kernels/cuda/cuda.h"

static int run_by_library(const struct cuda_kernel *k, struct stream *stream,
                          const struct kernel_args *args, struct err *err)
{
    enum cuda_pool_kind kind = k->launch.pool.kind;
    struct cuda_image_args l = { .workspace = args->workspace };

    if (kind == CUDA_POOL_MAX_GRAD || kind == CUDA_POOL_MEAN_GRAD) {
        l.dy = args->inputs[0];
        l.dx = args->outputs[0];
    } else {
        l.x = args->inputs[0];
        l.y = args->outputs[0];
    }
    if (kind == CUDA_POOL_MAX)
        l.index = args->outputs[1];
    if (kind == CUDA_POOL_MAX_GRAD)
        l.index = (int8_t *)(uintptr_t)args->inputs[1];
    return k->device->cuda->image(stream->cuda, k->image, &l, err);
}

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

/* Of two axes, whose last windows end within what is padded. */
static bool describe(const struct window *w, enum cuda_image_kind kind, enum cuda_narrow narrow,
                     struct cuda_image *image)
{
    *image = (struct cuda_image){ .kind = kind, .narrow = (int64_t)narrow, .images = w->images,
                                  .channels = w->in_channels, .count_padding = w->count_padding };
    if (w->rank != 2 || w->kernel[1] * w->kernel[2] > INT8_MAX)
        return false;
    for (int i = 0; i < 2; i++) {
        int axis = 1 + i;
        int64_t room = w->in[axis] + w->before[axis] + w->after[axis] - w->kernel[axis];

        image->in[i] = w->in[axis];
        image->out[i] = w->out[axis];
        image->kernel[i] = w->kernel[axis];
        image->stride[i] = w->stride[axis];
        image->before[i] = w->before[axis];
        image->after[i] = w->after[axis];
        if (w->dilation[axis] != 1 || w->before[axis] < 0 || w->after[axis] < 0 || room < 0 ||
            room / w->stride[axis] + 1 != w->out[axis])
            return false;
    }
    return true;
}

static const enum cuda_image_kind image_kinds[] = {
    [CUDA_POOL_MAX] = CUDA_IMAGE_MAX, [CUDA_POOL_MAX_GRAD] = CUDA_IMAGE_MAX_GRAD,
    [CUDA_POOL_MEAN] = CUDA_IMAGE_MEAN, [CUDA_POOL_MEAN_GRAD] = CUDA_IMAGE_MEAN_GRAD,
};

/* A MaxPool and its gradient are both cuDNN's, or both ours: lowering has asked for both. */
static void find_library(struct cuda_kernel *k, enum cuda_pool_kind kind)
{
    bool mean = kind == CUDA_POOL_MEAN || kind == CUDA_POOL_MEAN_GRAD;
    struct cuda_image image;

    if (!k->device->library_pools || !k->last || !(mean || k->places_by_library) ||
        !describe(&k->digest->window, image_kinds[kind], k->narrow, &image))
        return;
    k->failed = k->device->cuda->image_new(k->device->gpu, &image, &k->image, k->err) < 0;
    if (!k->image)
        return;
    k->workspace = k->device->cuda->image_workspace(k->image);
    k->run = run_by_library;
}

bool cuda_pool_fits(struct device *device, const struct graph *graph, int node)
{
    static const enum cuda_image_kind kinds[] = { CUDA_IMAGE_MAX, CUDA_IMAGE_MAX_GRAD };
    struct err err = { 0 };
    struct kernel *digest =
        device->reference->kernel_new(device->reference_device, graph, node, NULL, &err);
    bool fits = digest != NULL;

    for (int i = 0; i < 2 && fits; i++) {
        struct cuda_image_kernel *kernel = NULL;
        struct cuda_image image;

        fits = describe(&digest->window, kinds[i], device->narrow, &image) &&
               device->cuda->image_new(device->gpu, &image, &kernel, &err) == 0 && kernel;
        if (kernel)
            device->cuda->image_free(kernel);
    }
    if (digest)
        device->reference->kernel_free(digest);
    return fits;
}

static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct window *w = &k->digest->window;
    struct cuda_pool *l = &k->launch.pool;

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || k->digest->in[0].dtype != DTYPE_F32 || !is_small(w))
        return -1;
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
    find_library(k, l->kind);
    /* Nobody else knows what cuDNN's positions mean. */
    return k->failed || (k->places_by_library && !k->image) ? -1 : 0;
}

const struct cuda_op cuda_ops_pool[] = {
    { "MaxPool", make, CUDA_POOL_MAX },
    { "MaxPoolIndices", make, CUDA_POOL_INDICES },
    { "MaxPoolGrad", make, CUDA_POOL_MAX_GRAD },
    { "AveragePool", make, CUDA_POOL_MEAN },
    { "AveragePoolGrad", make, CUDA_POOL_MEAN_GRAD },
    { NULL, NULL, 0 },
};
