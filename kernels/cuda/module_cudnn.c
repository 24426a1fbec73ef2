/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: convolutions by cuDNN's backend API, as graphs of one operation. */
#include "kernels/cuda/module_private.h"

#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define WORKSPACE_LIMIT ((int64_t)256 << 20)
#define MOST_CONFIGS 128        /* those for tensor cores come first, dozens of them */
#define ALIGNMENT 16            /* of operands: the widest load */

_Static_assert(sizeof(struct cuda_conv) == 2 * sizeof(int) + (4 + 7 * 3 + 1) * sizeof(int64_t),
               "compared as bytes");

struct cuda_cudnn {
    cudnnHandle_t handle;
    struct plan *plans;
};

/* How one is computed: shared by all that are equal. */
struct plan {
    struct cuda_device *device;
    struct plan *next;
    int users;
    struct cuda_conv what;
    bool unknown;                       /* cuDNN does not have it */
    int n_owned;
    cudnnBackendDescriptor_t *owned;    /* all that refer to each other, in order */
    cudnnBackendDescriptor_t execution; /* one of them, in the end */
    int64_t workspace;
};

struct cuda_convolution {
    struct plan *plan;
    struct cuda_conv_args args;         /* of 'pack' */
    cudnnBackendDescriptor_t pack;      /* NULL: it never ran */
};

/* Names of the operands within a graph. */
enum { X = 'x', W = 'w', Y = 'y' };

static int cudnn_error(const struct cuda_device *device, cudnnStatus_t code, const char *call,
                       struct err *err)
{
    char more[512] = "";

    cudnnGetLastErrorString(more, sizeof(more));
    return err_set(err, "GPU %s: %.*s: %s%s%s", device->address, (int)strcspn(call, "("), call,
                   cudnnGetErrorString(code), *more ? ": " : "", more);
}

/* Return -1 from the caller, with what cuDNN says of the failed call on this GPU. */
#define CUDNN_CHECK(device, call, err)                                      \
    do {                                                                    \
        cudnnStatus_t cudnn_check_code = (call);                            \
        if (cudnn_check_code != CUDNN_STATUS_SUCCESS)                       \
            return cudnn_error(device, cudnn_check_code, #call, (err));     \
    } while (0)

/* Descriptors ------------------------------------------------------------------------------ */

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *values;
};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static int create(struct plan *p, cudnnBackendDescriptorType_t type,
                  cudnnBackendDescriptor_t *descriptor, struct err *err)
{
    CUDNN_CHECK(p->device, cudnnBackendCreateDescriptor(type, descriptor), err);
    *(cudnnBackendDescriptor_t *)mem_push((void **)&p->owned, &p->n_owned,
                                          sizeof(*p->owned)) = *descriptor;
    return 0;
}

static int set_all(const struct plan *p, cudnnBackendDescriptor_t descriptor,
                   const struct attribute *list, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        CUDNN_CHECK(p->device, cudnnBackendSetAttribute(descriptor, list[i].name, list[i].type,
                                                        list[i].n, list[i].values), err);
    return 0;
}

static int build(struct plan *p, cudnnBackendDescriptorType_t type,
                 const struct attribute *list, int n, cudnnBackendDescriptor_t *descriptor,
                 struct err *err)
{
    cudnnStatus_t code;

    if (create(p, type, descriptor, err) || set_all(p, *descriptor, list, n, err))
        return -1;
    code = cudnnBackendFinalize(*descriptor);
    p->unknown = CUDNN_STATUS_CATEGORY((int)code) == CUDNN_STATUS_NOT_SUPPORTED;
    return code == CUDNN_STATUS_SUCCESS
               ? 0
               : cudnn_error(p->device, code, "cudnnBackendFinalize", err);
}

/* [rows, columns, space…], one behind the other. */
static int build_tensor(struct plan *p, int64_t name, int64_t rows, int64_t columns,
                        const int64_t *space, cudnnBackendDescriptor_t *tensor, struct err *err)
{
    int64_t dim[5] = { rows, columns }, stride[5], alignment = ALIGNMENT;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int rank = p->what.rank + 2;
    const struct attribute list[] = {
        { CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim },
        { CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride },
        { CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name },
        { CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment },
    };

    memcpy(dim + 2, space, (size_t)p->what.rank * sizeof(*dim));
    stride[rank - 1] = 1;
    for (int i = rank - 1; i > 0; i--)
        stride[i - 1] = stride[i] * dim[i];
    return build(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, list, COUNT(list), tensor, err);
}

static int build_window(struct plan *p, cudnnBackendDescriptor_t *window, struct err *err)
{
    const struct cuda_conv *c = &p->what;
    int64_t rank = c->rank;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const struct attribute list[] = {
        { CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode },
        { CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &rank },
        { CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, rank, c->dilation },
        { CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, rank, c->stride },
        { CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, rank, c->before },
        { CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, rank, c->after },
    };

    return build(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, list, COUNT(list), window, err);
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
static int build_operation(struct plan *p, cudnnBackendDescriptor_t *operation, struct err *err)
{
    const struct cuda_conv *c = &p->what;
    cudnnBackendDescriptor_t x, w, y, window;
    float alpha = 1, beta = 0;
    const struct attribute list[] = {
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
    return build(p, names[c->kind].type, list, COUNT(list), operation, err);
}

static int build_graph(struct plan *p, cudnnBackendDescriptor_t *graph, struct err *err)
{
    cudnnBackendDescriptor_t operation;
    const struct attribute list[] = {
        { CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->device->cudnn->handle },
        { CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operation },
    };

    if (build_operation(p, &operation, err))
        return -1;
    return build(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, list, COUNT(list), graph, err);
}

/* Choosing --------------------------------------------------------------------------------- */

/* The same bits each time, and float32's precision: Winograd's largest tiles lose it, too. */
static bool note_fits(const struct cuda_conv *what, cudnnBackendNumericalNote_t note)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return what->tf32 != 0;
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

static int config_fits(struct plan *p, cudnnBackendDescriptor_t config, bool *fits,
                       struct err *err)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t n = 0;

    if (create(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine, err))
        return -1;
    /* What says nothing of itself is not taken. */
    *fits = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                     &engine) == CUDNN_STATUS_SUCCESS &&
            cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                     CUDNN_TYPE_NUMERICAL_NOTE, COUNT(notes), &n,
                                     notes) == CUDNN_STATUS_SUCCESS;
    if (!*fits)
        return 0;
    for (int64_t i = 0; i < n && i < COUNT(notes); i++)
        *fits &= note_fits(&p->what, notes[i]);
    return 0;
}

/* An engine that refuses, for whatever reason, is not the one. */
static int try_config(struct plan *p, cudnnBackendDescriptor_t config, struct err *err)
{
    cudnnBackendDescriptor_t execution;
    const struct attribute list[] = {
        { CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->device->cudnn->handle },
        { CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config },
    };
    int64_t n = 0, workspace = 0;
    bool fits = false;

    if (config_fits(p, config, &fits, err))
        return -1;
    if (!fits)
        return 0;
    if (create(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &execution, err) ||
        set_all(p, execution, list, COUNT(list), err))
        return -1;
    if (cudnnBackendFinalize(execution) != CUDNN_STATUS_SUCCESS)
        return 0;
    if (cudnnBackendGetAttribute(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &n, &workspace) != CUDNN_STATUS_SUCCESS ||
        workspace > WORKSPACE_LIMIT)
        return 0;
    p->workspace = workspace;
    p->execution = execution;
    return 0;
}

static int try_mode(struct plan *p, cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode,
                    struct err *err)
{
    cudnnBackendDescriptor_t heuristics, configs[MOST_CONFIGS];
    const struct attribute list[] = {
        { CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph },
        { CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode },
    };
    cudnnStatus_t code;
    int64_t n = 0;

    if (build(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, list, COUNT(list), &heuristics, err))
        return -1;
    for (int i = 0; i < MOST_CONFIGS; i++)
        if (create(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i], err))
            return -1;
    code = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS, &n, configs);
    p->unknown = CUDNN_STATUS_CATEGORY((int)code) == CUDNN_STATUS_NOT_SUPPORTED;
    if (p->unknown)
        return 0;
    if (code != CUDNN_STATUS_SUCCESS)
        return cudnn_error(p->device, code, "cudnnBackendGetAttribute", err);
    for (int64_t i = 0; i < n && i < MOST_CONFIGS && !p->execution; i++)
        if (try_config(p, configs[i], err))
            return -1;
    return 0;
}

static int choose(struct plan *p, struct err *err)
{
    cudnnBackendDescriptor_t graph;

    if (build_graph(p, &graph, err) ||
        (try_mode(p, graph, CUDNN_HEUR_MODE_A, err) && !p->unknown))
        return -1;
    return p->execution ? 0 : try_mode(p, graph, CUDNN_HEUR_MODE_FALLBACK, err);
}

/* The table -------------------------------------------------------------------------------- */

/* What they were used for has ended: that a call fails now helps nobody. */
static void destroy(struct plan *p)
{
    for (int i = p->n_owned - 1; i >= 0; i--)
        (void)cudnnBackendDestroyDescriptor(p->owned[i]);
    free(p->owned);
    free(p);
}

static int open_cudnn(struct cuda_device *device, struct err *err)
{
    if (device->cudnn)
        return 0;
    device->cudnn = mem_new(1, sizeof(*device->cudnn));
    CUDNN_CHECK(device, cudnnCreate(&device->cudnn->handle), err);
    return 0;
}

void cuda_cudnn_close(struct cuda_device *device)
{
    struct cuda_cudnn *cudnn = device->cudnn;

    if (!cudnn)
        return;
    if (cudnn->handle)
        (void)cudnnDestroy(cudnn->handle);
    free(cudnn);
    device->cudnn = NULL;
}

static struct plan *find(const struct cuda_cudnn *cudnn, const struct cuda_conv *what)
{
    for (struct plan *p = cudnn->plans; p; p = p->next)
        if (memcmp(&p->what, what, sizeof(*what)) == 0)
            return p;
    return NULL;
}

/* Into the table, if there is a way to compute it. */
static int create_plan(struct cuda_device *device, const struct cuda_conv *what,
                       struct plan **plan, struct err *err)
{
    struct err own = { .code = EXIT_OK };
    struct plan *p = mem_new(1, sizeof(*p));
    bool failed;

    p->device = device;
    p->what = *what;
    failed = choose(p, &own) && !p->unknown;
    if (!p->execution) {
        destroy(p);
        return failed ? err_set(err, "%s", own.text) : 0;
    }
    p->next = device->cudnn->plans;
    device->cudnn->plans = p;
    *plan = p;
    return 0;
}

int cuda_conv_new(struct cuda_device *device, const struct cuda_conv *conv,
                  struct cuda_convolution **convolution, struct err *err)
{
    struct plan *p;

    *convolution = NULL;
    if (open_cudnn(device, err))
        return -1;
    p = find(device->cudnn, conv);
    if (!p && create_plan(device, conv, &p, err))
        return -1;
    if (!p)
        return 0;
    p->users++;
    *convolution = mem_new(1, sizeof(**convolution));
    (*convolution)->plan = p;
    return 0;
}

void cuda_conv_free(struct cuda_convolution *convolution)
{
    struct plan *p, **at;

    if (!convolution)
        return;
    p = convolution->plan;
    if (convolution->pack)
        (void)cudnnBackendDestroyDescriptor(convolution->pack);
    free(convolution);
    if (--p->users > 0)
        return;
    at = &p->device->cudnn->plans;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    destroy(p);
}

/* Running ---------------------------------------------------------------------------------- */

size_t cuda_conv_workspace(const struct cuda_convolution *convolution)
{
    size_t bytes = (size_t)convolution->plan->workspace;

    return bytes ? bytes + CUDA_WORKSPACE_ALIGNMENT : 0;
}

/* A pack cannot be changed; where a kernel's operands stay where they are it is made once. */
static int make_pack(struct cuda_convolution *c, const struct cuda_conv_args *args,
                     struct err *err)
{
    const struct plan *p = c->plan;
    const int64_t ids[] = { X, W, Y };
    const void *at[] = { args->x, args->w, args->y };
    void *workspace = p->workspace ? cuda_workspace(args->workspace) : NULL;
    const struct attribute list[] = {
        { CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, COUNT(ids), ids },
        { CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, COUNT(at), at },
        { CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace },
    };

    if (c->pack && memcmp(&c->args, args, sizeof(*args)) == 0)
        return 0;
    if (((uintptr_t)args->x | (uintptr_t)args->w | (uintptr_t)args->y) % ALIGNMENT)
        return err_set(err, "GPU %s: an operand of a convolution is not aligned to %d bytes",
                       p->device->address, ALIGNMENT);
    if (c->pack)
        (void)cudnnBackendDestroyDescriptor(c->pack);
    c->pack = NULL;
    CUDNN_CHECK(p->device, cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
                                                        &c->pack), err);
    if (set_all(p, c->pack, list, COUNT(list), err))
        return -1;
    CUDNN_CHECK(p->device, cudnnBackendFinalize(c->pack), err);
    c->args = *args;
    return 0;
}

int cuda_conv_run(struct cuda_stream *stream, struct cuda_convolution *convolution,
                  const struct cuda_conv_args *args, struct err *err)
{
    struct cuda_device *device = convolution->plan->device;
    cudnnHandle_t handle = device->cudnn->handle;

    if (make_pack(convolution, args, err))
        return -1;
    CUDNN_CHECK(device, cudnnSetStream(handle, stream->stream), err);
    CUDNN_CHECK(device, cudnnBackendExecute(handle, convolution->plan->execution,
                                            convolution->pack), err);
    return 0;
}
