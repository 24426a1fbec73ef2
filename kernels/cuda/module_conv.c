/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: convolutions by cuDNN's backend API, as graphs of one operation. */
#include "kernels/cuda/module_cudnn.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define WORKSPACE_LIMIT ((int64_t)256 << 20)

_Static_assert(sizeof(struct cuda_conv) == 2 * sizeof(int) + (4 + 7 * 3 + 4) * sizeof(int64_t),
               "compared as bytes");

/* How one is computed: shared by all that are equal, kept until the device is closed. */
struct cuda_conv_plan {
    struct cuda_conv_plan *next;
    struct cuda_conv what;
    struct cudnn_plan cudnn;            /* without an execution: there is no engine */
};

struct cuda_convolution {
    struct cuda_conv_plan *plan;
    struct cuda_conv_args args;         /* of 'pack' */
    cudnnBackendDescriptor_t pack;      /* NULL: it never ran */
};

/* Names of the operands within a graph. */
enum { X = 'x', W = 'w', Y = 'y' };

/* Descriptors ------------------------------------------------------------------------------ */

static cudnnDataType_t type_of(const struct cuda_conv *what, int64_t name)
{
    return !what->narrow || (name == W && what->wide_w) ? CUDNN_DATA_FLOAT
           : what->narrow == CUDA_FLOAT16                ? CUDNN_DATA_HALF
                                                        : CUDNN_DATA_BFLOAT16;
}

/* [rows, columns, space…], one behind the other, or [rows, space…, columns]. */
static int build_tensor(struct cuda_conv_plan *p, int64_t name, int64_t rows, int64_t columns,
                        const int64_t *space, cudnnBackendDescriptor_t *tensor, struct err *err)
{
    struct cudnn_tensor t = { .name = name, .type = type_of(&p->what, name), .rank = p->what.rank + 2,
                              .dim = { rows, columns } };

    memcpy(t.dim + 2, space, (size_t)p->what.rank * sizeof(*space));
    t.stride[t.rank - 1] = p->what.last ? columns : 1;
    for (int i = t.rank - 1; i > 0; i--)
        t.stride[i - 1] = t.stride[i] * t.dim[i];
    if (p->what.last) {
        t.stride[0] = t.stride[1];
        t.stride[1] = 1;
    }
    return cudnn_build_tensor(&p->cudnn, &t, tensor, err);
}

static int build_window(struct cuda_conv_plan *p, cudnnBackendDescriptor_t *window, struct err *err)
{
    const struct cuda_conv *c = &p->what;
    int64_t rank = c->rank;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode },
        { CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank },
        { CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, rank, c->dilation },
        { CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, rank, c->stride },
        { CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, rank, c->before },
        { CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, rank, c->after },
    };

    return cudnn_build(&p->cudnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, list, COUNT(list), window, err);
}

/* What the attributes of an operation are called. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
} names[] = {
    [CUDA_CONV_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
    [CUDA_CONV_DGRAD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
    [CUDA_CONV_WGRAD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
};

/* The number of groups follows from the channels. */
static int build_operation(struct cuda_conv_plan *p, cudnnBackendDescriptor_t *operation,
                           struct err *err)
{
    const struct cuda_conv *c = &p->what;
    cudnnBackendDescriptor_t x, w, y, window;
    float alpha = 1, beta = 0;
    const struct cudnn_attribute list[] = {
        { names[c->kind].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x },
        { names[c->kind].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w },
        { names[c->kind].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y },
        { names[c->kind].window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window },
        { names[c->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha },
        { names[c->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta },
    };

    if (build_tensor(p, X, c->images, c->in_channels, c->in, &x, err) ||
        build_tensor(p, W, c->out_channels, c->in_channels / c->groups, c->kernel, &w, err) ||
        build_tensor(p, Y, c->images, c->out_channels, c->out, &y, err) ||
        build_window(p, &window, err))
        return -1;
    return cudnn_build(&p->cudnn, names[c->kind].type, list, COUNT(list), operation, err);
}

/* Choosing --------------------------------------------------------------------------------- */

/* The same bits each time, and float32's precision: Winograd's largest tiles lose it, too, and of 16
 * bits all of them, as transforms do.
 */
static bool note_fits(const void *context, cudnnBackendNumericalNote_t note)
{
    const struct cuda_conv *what = context;

    switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return what->tf32 != 0 || what->narrow;
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return !what->narrow;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return false;
    default:
        return true;
    }
}

/* For what there is another way of, and for what runs well without, nothing is compiled. */
static int choose(struct cuda_conv_plan *p, struct err *err)
{
    struct cudnn_choice choice = { note_fits, &p->what, WORKSPACE_LIMIT, false };
    cudnnBackendDescriptor_t operation;

    if (build_operation(p, &operation, err) ||
        cudnn_choose(&p->cudnn, &operation, 1, &choice, err))
        return -1;
    if (p->what.wide_w || (p->cudnn.execution && (p->cudnn.on_tensor_cores || !p->what.narrow)))
        return 0;
    choice.compiles = true;
    p->cudnn.execution = NULL;
    return cudnn_choose(&p->cudnn, &operation, 1, &choice, err);
}

/* The table -------------------------------------------------------------------------------- */

static struct cuda_conv_plan *find(const struct cuda_device *device, const struct cuda_conv *what)
{
    for (struct cuda_conv_plan *p = device->conv_plans; p; p = p->next)
        if (memcmp(&p->what, what, sizeof(*what)) == 0)
            return p;
    return NULL;
}

/* What makes float32 of 16 bits on no tensor core is slow. */
static bool is_slow(const struct cuda_conv_plan *p)
{
    return p->what.wide_w && !p->cudnn.on_tensor_cores;
}

/* A mixture of types cuDNN may call a mistake. */
static int create_plan(struct cuda_device *device, const struct cuda_conv *what,
                       struct cuda_conv_plan **plan, struct err *err)
{
    struct err own = { .code = EXIT_OK };
    struct cuda_conv_plan *p = mem_new(1, sizeof(*p));
    bool recalled;

    p->cudnn.device = device;
    p->what = *what;
    recalled = cudnn_recall(&p->cudnn, "convolution", what, sizeof(*what), WORKSPACE_LIMIT);
    if (!recalled && choose(p, &own) && !p->cudnn.unknown && !what->wide_w) {
        cudnn_clear(&p->cudnn);
        free(p);
        return err_set(err, "%s", own.text);
    }
    if (is_slow(p))
        p->cudnn.execution = NULL;
    if (!recalled)
        cudnn_remember(&p->cudnn, "convolution", what, sizeof(*what));
    if (p->cudnn.execution)
        cuda_count_product(device, 1, p->cudnn.on_tensor_cores);
    p->next = device->conv_plans;
    device->conv_plans = p;
    *plan = p;
    return 0;
}

int cuda_conv_new(struct cuda_device *device, const struct cuda_conv *conv,
                  struct cuda_convolution **convolution, struct err *err)
{
    struct cuda_conv_plan *p;

    *convolution = NULL;
    if (cudnn_open(device, err))
        return -1;
    p = find(device, conv);
    if (!p && create_plan(device, conv, &p, err))
        return -1;
    if (!p->cudnn.execution)
        return 0;
    *convolution = mem_new(1, sizeof(**convolution));
    (*convolution)->plan = p;
    return 0;
}

void cuda_conv_free(struct cuda_convolution *convolution)
{
    if (!convolution)
        return;
    if (convolution->pack)
        (void)cudnnBackendDestroyDescriptor(convolution->pack);
    free(convolution);
}

void cuda_conv_clear(struct cuda_device *device)
{
    while (device->conv_plans) {
        struct cuda_conv_plan *p = device->conv_plans;

        device->conv_plans = p->next;
        cudnn_clear(&p->cudnn);
        free(p);
    }
}

/* Running ---------------------------------------------------------------------------------- */

size_t cuda_conv_workspace(const struct cuda_convolution *convolution)
{
    size_t bytes = (size_t)convolution->plan->cudnn.workspace;

    return bytes ? bytes + CUDA_WORKSPACE_ALIGNMENT : 0;
}

/* Where a kernel's operands stay where they are the pack is made once. */
static int make_pack(struct cuda_convolution *c, const struct cuda_conv_args *args,
                     struct err *err)
{
    const struct cudnn_plan *p = &c->plan->cudnn;
    const int64_t ids[] = { X, W, Y };
    const void *at[] = { args->x, args->w, args->y };

    if (c->pack && memcmp(&c->args, args, sizeof(*args)) == 0)
        return 0;
    if (((uintptr_t)args->x | (uintptr_t)args->w | (uintptr_t)args->y) % CUDNN_ALIGNMENT)
        return err_set(err, "GPU %s: an operand of a convolution is not aligned to %d bytes",
                       p->device->address, CUDNN_ALIGNMENT);
    c->args = *args;
    return cudnn_make_pack(p, ids, at, COUNT(ids),
                           p->workspace ? cuda_workspace(args->workspace) : NULL, &c->pack, err);
}

int cuda_conv_run(struct cuda_stream *stream, struct cuda_convolution *convolution,
                  const struct cuda_conv_args *args, struct err *err)
{
    return make_pack(convolution, args, err)
               ? -1
               : cudnn_execute(&convolution->plan->cudnn, stream->stream, convolution->pack, err);
}
