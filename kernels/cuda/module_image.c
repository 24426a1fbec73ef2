/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: BatchNorms and pools by cuDNN, as graphs of one operation, or of one and a Relu. */
#include "kernels/cuda/module_cudnn.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MOST_OPERANDS 9         /* and the end of them */

_Static_assert(sizeof(struct cuda_image) == (7 + 6 * 2) * sizeof(int64_t), "compared as bytes");

struct cuda_image_kernel {
    struct cuda_image what;
    const struct cudnn_plan *plan;
    struct cuda_image_args args;        /* of 'pack' */
    cudnnBackendDescriptor_t pack;      /* NULL: it never ran */
    float epsilon;                      /* which the pack points to */
};

/* Names of the operands within a graph; NORMAL is what a Relu reads. */
enum { X = 1, Y, DY, DX, INDEX, SCALE, BIAS, MEAN, INVERSE, DSCALE, DBIAS, EPSILON, NORMAL };

struct graph {
    struct cudnn_graph made;
    const struct cuda_image *what;
};

typedef cudnnBackendDescriptor_t tensor;

/* Tensors ---------------------------------------------------------------------------------- */

/* [images, channels, space], stored with the channels last. */
static tensor image(struct graph *g, int64_t name, const int64_t *space)
{
    int64_t channels = g->what->channels;
    cudnnDataType_t narrow = g->what->narrow == CUDA_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
    const struct cudnn_tensor t = {
        .name = name, .type = name == INDEX ? CUDNN_DATA_INT8 : narrow, .rank = 4,
        .dim = { g->what->images, channels, space[0], space[1] },
        .stride = { space[0] * space[1] * channels, 1, space[1] * channels, channels },
        .is_virtual = name == NORMAL,
    };

    return cudnn_add_tensor(&g->made, &t);
}

static tensor numbers(struct graph *g, int64_t name)
{
    int64_t n = name == EPSILON ? 1 : g->what->channels;
    const struct cudnn_tensor t = { .name = name, .type = CUDNN_DATA_FLOAT, .rank = 4,
                                    .dim = { 1, n, 1, 1 }, .stride = { n, 1, n, n },
                                    .by_value = name == EPSILON };

    return cudnn_add_tensor(&g->made, &t);
}

/* Graphs ----------------------------------------------------------------------------------- */

static cudnnBackendDescriptor_t rectify(struct graph *g, tensor x, tensor y)
{
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_RELU_FWD;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    const struct cudnn_attribute how[] = {
        { CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode },
        { CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan },
    };
    cudnnBackendDescriptor_t desc =
        cudnn_add(&g->made, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, how, COUNT(how));
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &desc },
        { CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x },
        { CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y },
    };

    return cudnn_add(&g->made, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, list, COUNT(list));
}

#define OPERAND(KIND, NAME, TENSOR) \
    { CUDNN_ATTR_OPERATION_##KIND##_##NAME, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(TENSOR) }

static int add_norm(struct graph *g, cudnnBackendDescriptor_t *operations)
{
    const struct cuda_image *w = g->what;
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    tensor x = image(g, X, w->in), y = image(g, w->relu ? NORMAL : Y, w->in);
    tensor scale = numbers(g, SCALE), bias = numbers(g, BIAS), epsilon = numbers(g, EPSILON);
    tensor mean = numbers(g, MEAN), inverse = numbers(g, INVERSE);
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode },
        { CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase },
        OPERAND(NORM_FWD, XDESC, x), OPERAND(NORM_FWD, SCALE_DESC, scale),
        OPERAND(NORM_FWD, BIAS_DESC, bias), OPERAND(NORM_FWD, EPSILON_DESC, epsilon),
        OPERAND(NORM_FWD, MEAN_DESC, mean), OPERAND(NORM_FWD, INV_VARIANCE_DESC, inverse),
        OPERAND(NORM_FWD, YDESC, y),
    };

    operations[0] = cudnn_add(&g->made, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, list, COUNT(list));
    if (w->relu)
        operations[1] = rectify(g, y, image(g, Y, w->in));
    return w->relu ? 2 : 1;
}

static int add_norm_grad(struct graph *g, cudnnBackendDescriptor_t *operations)
{
    const struct cuda_image *w = g->what;
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    tensor x = image(g, X, w->in), dy = image(g, DY, w->in), dx = image(g, DX, w->in);
    tensor mean = numbers(g, MEAN), inverse = numbers(g, INVERSE), scale = numbers(g, SCALE);
    tensor dscale = numbers(g, DSCALE), dbias = numbers(g, DBIAS);
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode },
        OPERAND(NORM_BWD, XDESC, x), OPERAND(NORM_BWD, MEAN_DESC, mean),
        OPERAND(NORM_BWD, INV_VARIANCE_DESC, inverse), OPERAND(NORM_BWD, DYDESC, dy),
        OPERAND(NORM_BWD, SCALE_DESC, scale), OPERAND(NORM_BWD, DSCALE_DESC, dscale),
        OPERAND(NORM_BWD, DBIAS_DESC, dbias), OPERAND(NORM_BWD, DXDESC, dx),
    };

    operations[0] =
        cudnn_add(&g->made, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, list, COUNT(list));
    return 1;
}

static bool is_largest(const struct cuda_image *w)
{
    return w->kind == CUDA_IMAGE_MAX || w->kind == CUDA_IMAGE_MAX_GRAD;
}

static cudnnBackendDescriptor_t window(struct graph *g)
{
    const struct cuda_image *w = g->what;
    int64_t rank = 2;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnPaddingMode_t padding = is_largest(w) ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    cudnnResampleMode_t mode = is_largest(w)      ? CUDNN_RESAMPLE_MAXPOOL
                               : w->count_padding ? CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING
                                                  : CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &mode },
        { CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan },
        { CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding },
        { CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank },
        { CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_INT64, rank, w->stride },
        { CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_INT64, rank, w->before },
        { CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_INT64, rank, w->after },
        { CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_INT64, rank, w->kernel },
    };

    return cudnn_add(&g->made, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, list, COUNT(list));
}

static bool is_pool_grad(const struct cuda_image *w)
{
    return w->kind == CUDA_IMAGE_MAX_GRAD || w->kind == CUDA_IMAGE_MEAN_GRAD;
}

#define POOLED(FORWARD, BACKWARD, TENSOR)                                                        \
    { back ? CUDNN_ATTR_OPERATION_RESAMPLE_BWD_##BACKWARD : CUDNN_ATTR_OPERATION_RESAMPLE_FWD_##FORWARD, \
      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(TENSOR) }

/* Where a maximum was in its window, its gradient is told. */
static int add_pool(struct graph *g, cudnnBackendDescriptor_t *operations)
{
    const struct cuda_image *w = g->what;
    bool back = is_pool_grad(w);
    cudnnBackendDescriptor_t how = window(g);
    tensor x = image(g, back ? DX : X, w->in), y = image(g, back ? DY : Y, w->out);
    tensor index = is_largest(w) ? image(g, INDEX, w->out) : NULL;
    const struct cudnn_attribute list[] = {
        POOLED(DESC, DESC, how), POOLED(XDESC, DXDESC, x), POOLED(YDESC, DYDESC, y),
        POOLED(IDXDESC, IDXDESC, index),
    };

    operations[0] = cudnn_add(&g->made, back ? CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR
                                  : CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
                          list, index ? 4 : 3);
    return 1;
}

static int add_operations(struct graph *g, cudnnBackendDescriptor_t *operations)
{
    switch ((enum cuda_image_kind)g->what->kind) {
    case CUDA_IMAGE_NORM:
        return add_norm(g, operations);
    case CUDA_IMAGE_NORM_GRAD:
        return add_norm_grad(g, operations);
    default:
        return add_pool(g, operations);
    }
}

/* The same bits each time, and sums of float32. */
static bool note_fits(const void *what, cudnnBackendNumericalNote_t note)
{
    (void)what;
    return note != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
           note != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
}

static int choose(struct cudnn_plan *p, const void *what, int64_t workspace_limit, struct err *err)
{
    const struct cudnn_choice choice = { note_fits, NULL, workspace_limit, true };
    struct graph g = { .made = { .plan = p, .err = err }, .what = what };
    cudnnBackendDescriptor_t operations[2];
    int n = add_operations(&g, operations);

    return g.made.failed ? -1 : cudnn_choose(p, operations, n, &choice, err);
}

static const struct cudnn_family images = { "image", sizeof(struct cuda_image), CUDA_IMAGE_SCRATCH, false,
                                            choose };

int cuda_image_new(struct cuda_device *device, const struct cuda_image *image,
                   struct cuda_image_kernel **kernel, struct err *err)
{
    const struct cudnn_plan *p;
    struct cuda_image_kernel *k;

    *kernel = NULL;
    if (cudnn_open(device, err))
        return -1;
    p = cudnn_plan_of(device, &images, image);
    if (!p->execution)
        return 0;
    k = *kernel = mem_new(1, sizeof(*k));
    k->what = *image;
    k->plan = p;
    k->epsilon = (float)image->epsilon;
    return 0;
}

void cuda_image_free(struct cuda_image_kernel *kernel)
{
    if (!kernel)
        return;
    if (kernel->pack)
        (void)cudnnBackendDestroyDescriptor(kernel->pack);
    free(kernel);
}

/* Running ---------------------------------------------------------------------------------- */

size_t cuda_image_workspace(const struct cuda_image_kernel *kernel)
{
    return (size_t)kernel->plan->workspace + CUDA_WORKSPACE_ALIGNMENT;
}

/* Operands of a graph, 0 behind the last. */
static const int64_t operands[][MOST_OPERANDS] = {
    [CUDA_IMAGE_NORM] = { X, Y, SCALE, BIAS, MEAN, INVERSE, EPSILON },
    [CUDA_IMAGE_NORM_GRAD] = { X, DY, DX, SCALE, MEAN, INVERSE, DSCALE, DBIAS },
    [CUDA_IMAGE_MAX] = { X, Y, INDEX },
    [CUDA_IMAGE_MEAN] = { X, Y },
    [CUDA_IMAGE_MAX_GRAD] = { DY, DX, INDEX },
    [CUDA_IMAGE_MEAN_GRAD] = { DY, DX },
};

/* Where the operands stay where they are the pack is made once. */
static int make_pack(struct cuda_image_kernel *k, const struct cuda_image_args *args, struct err *err)
{
    const void *const all[] = {
        [X] = args->x, [Y] = args->y, [DY] = args->dy, [DX] = args->dx, [INDEX] = args->index,
        [SCALE] = args->scale, [BIAS] = args->bias, [MEAN] = args->mean, [INVERSE] = args->inverse,
        [DSCALE] = args->dscale, [DBIAS] = args->dbias, [EPSILON] = &k->epsilon,
    };
    const int64_t *ids = operands[k->what.kind];
    const void *at[MOST_OPERANDS];
    int n = 0;

    if (k->pack && memcmp(&k->args, args, sizeof(*args)) == 0)
        return 0;
    for (; ids[n]; n++) {
        at[n] = all[ids[n]];
        if (ids[n] != EPSILON && (uintptr_t)at[n] % CUDNN_ALIGNMENT)
            return err_set(err, "GPU %s: an operand of a BatchNorm or pool is not aligned to %d bytes",
                           k->plan->device->address, CUDNN_ALIGNMENT);
    }
    k->args = *args;
    return cudnn_make_pack(k->plan, ids, at, n, cuda_workspace(args->workspace), &k->pack, err);
}

int cuda_image_run(struct cuda_stream *stream, struct cuda_image_kernel *kernel,
                   const struct cuda_image_args *args, struct err *err)
{
    return make_pack(kernel, args, err)
               ? -1
               : cudnn_execute(kernel->plan, stream->stream, kernel->pack, err);
}
