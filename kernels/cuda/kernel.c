/* SPDX-License-Identifier: MIT */
/* From a node to its kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cuda/cuda.h"

static const struct cuda_op *const tables[] = {
    cuda_ops_chain,
    cuda_ops_conv,
    cuda_ops_matmul,
    cuda_ops_attention,
    cuda_ops_along,
    cuda_ops_index,
    cuda_ops_move,
    cuda_ops_pointwise,
    cuda_ops_softmax,
    cuda_ops_norm,
    cuda_ops_reduce,
    cuda_ops_pool,
};

static const struct cuda_op *find(const char *name)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
        for (const struct cuda_op *op = tables[t]; op->name; op++)
            if (strcmp(op->name, name) == 0)
                return op;
    return NULL;
}

const struct cuda_op *cuda_op_of(const struct cuda_kernel *kernel)
{
    return find(kernel->digest->entry->op);
}

bool cuda_is_f32(const struct cuda_kernel *kernel)
{
    const struct kernel *d = kernel->digest;

    for (int i = 0; i < d->n_inputs; i++)
        if (d->in[i].elements >= 0 && dtype_is_float(d->in[i].dtype) &&
            d->in[i].dtype != DTYPE_F32)
            return false;
    for (int i = 0; i < d->n_outputs; i++)
        if (d->out[i].elements >= 0 && dtype_is_float(d->out[i].dtype) &&
            d->out[i].dtype != DTYPE_F32)
            return false;
    return true;
}

size_t cuda_output_bytes(const struct cuda_kernel *kernel)
{
    const struct ref_tensor *y = &kernel->digest->out[0];

    return (size_t)y->elements * cuda_element_bytes(kernel, y->dtype);
}

enum cuda_narrow cuda_narrow_of(const struct cuda_kernel *kernel, int operand)
{
    return kernel->narrow_operand[operand] ? kernel->narrow : CUDA_WIDE;
}

size_t cuda_element_bytes(const struct cuda_kernel *kernel, enum dtype dtype)
{
    return kernel->narrow && dtype == DTYPE_F32 ? CUDA_NARROW_BYTES : dtype_size(dtype);
}

void cuda_walk_from(struct cuda_walk *to, const struct walk *from)
{
    *to = (struct cuda_walk){ .rank = from->rank, .n = from->n, .elements = 1, .flat = 1 };
    for (int k = from->rank - 1; k >= 0; k--) {
        to->dim[k] = from->dim[k];
        for (int i = 0; i < from->n; i++) {
            to->stride[i][k] = from->stride[i][k];
            /* The stride of an axis of one element does not matter. */
            to->flat &= from->dim[k] == 1 || from->stride[i][k] == to->elements;
        }
        to->elements *= from->dim[k];
    }
    for (int i = 0; i < from->n; i++) {
        to->start[i] = from->start[i];
        to->flat &= from->start[i] == 0;
    }
}

static void put_axis(struct cuda_walk *walk, int to, int from, int64_t dim)
{
    walk->dim[to] = dim;
    for (int i = 0; i < walk->n; i++)
        walk->stride[i][to] = walk->stride[i][from];
}

/* Does axis 'k' go on where the next one ends? */
static bool goes_on(const struct cuda_walk *walk, int k, int next)
{
    for (int i = 0; i < walk->n; i++)
        if (walk->stride[i][k] != walk->stride[i][next] * walk->dim[next])
            return false;
    return true;
}

void cuda_walk_merge(struct cuda_walk *walk)
{
    int n = 0;

    for (int k = 0; k < walk->rank; k++) {
        if (walk->dim[k] == 1)
            continue;
        if (n > 0 && goes_on(walk, n - 1, k))
            put_axis(walk, n - 1, k, walk->dim[n - 1] * walk->dim[k]);
        else
            put_axis(walk, n++, k, walk->dim[k]);
    }
    if (n == 0)
        walk->dim[0] = 1;
    walk->rank = n ? n : 1;
}

/* On the host ---------------------------------------------------------------------------- */

static size_t tensor_bytes(const struct ref_tensor *tensor)
{
    return tensor->elements < 0 ? 0 : (size_t)tensor->elements * dtype_size(tensor->dtype);
}

static const struct ref_tensor *operand(const struct kernel *d, int i)
{
    return i < d->n_inputs ? &d->in[i] : &d->out[i - d->n_inputs];
}

/* As it is on the GPU; its copy on the host has room for float32. */
static size_t operand_bytes(const struct cuda_kernel *k, int i)
{
    return k->narrow_operand[i] ? tensor_bytes(operand(k->digest, i)) / 2
                                : tensor_bytes(operand(k->digest, i));
}

/* In place: from the upper half of the copy to all of it, and back to the lower half. */
static void widen(enum dtype narrow_type, float *x, int64_t n)
{
    const uint16_t *narrow = (const uint16_t *)x + n;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)dtype_real(narrow_type, narrow, i);
}

static void round_all(enum dtype narrow_type, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dtype_put_real(narrow_type, x, i, (double)x[i]);
}

static char *place_of(const struct cuda_kernel *k, int i, bool input)
{
    return (char *)k->host[i] + (input && k->narrow_operand[i] ? operand_bytes(k, i) : 0);
}

/* Operands from 'first' on are read or written by the host. */
static void touch_host(const struct cuda_kernel *k, int first, int end, bool writes)
{
    enum dtype narrow = cuda_narrow_dtype(k->narrow);

    for (int i = first; i < end; i++) {
        if (!k->host[i])
            continue;
        k->device->cuda->host_touches(k->host[i], tensor_bytes(operand(k->digest, i)), writes);
        if (k->narrow_operand[i] && writes)
            round_all(narrow, k->host[i], operand(k->digest, i)->elements);
        else if (k->narrow_operand[i])
            widen(narrow, k->host[i], operand(k->digest, i)->elements);
    }
}

static int bring(const struct cuda_kernel *k, struct stream *stream,
                 const struct kernel_args *args, struct err *err)
{
    const struct cuda_runtime *cuda = k->device->cuda;

    for (int i = 0; i < k->digest->n_inputs; i++) {
        size_t bytes = operand_bytes(k, i);

        if (args->inputs[i] && bytes &&
            cuda->copy(stream->cuda, place_of(k, i, true), bytes, args->inputs[i], bytes, bytes,
                       1, err) < 0)
            return -1;
    }
    if (cuda->stream_sync(stream->cuda, err) < 0)
        return -1;
    touch_host(k, 0, k->digest->n_inputs, false);
    return 0;
}

static int take_back(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    const struct cuda_runtime *cuda = k->device->cuda;
    int n = k->digest->n_inputs;

    for (int i = 0; i < k->digest->n_outputs; i++) {
        size_t bytes = operand_bytes(k, n + i);

        if (args->outputs[i] && bytes &&
            cuda->copy(stream->cuda, args->outputs[i], bytes, place_of(k, n + i, false), bytes,
                       bytes, 1, err) < 0)
            return -1;
    }
    /* The next run of this kernel may not overwrite what is still being copied. */
    return cuda->stream_sync(stream->cuda, err);
}

static int run_on_host(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct kernel_args own = *args;
    int n = k->digest->n_inputs, n_all = n + k->digest->n_outputs;
    void **here = k->host + n_all;
    struct step_state state;

    if (k->device->cuda->copy(stream->cuda, &state, sizeof(state), args->state, sizeof(state),
                              sizeof(state), 1, err) < 0 ||
        bring(k, stream, args, err) < 0)
        return -1;
    for (int i = 0; i < n_all; i++)
        here[i] = (i < n ? args->inputs[i] : args->outputs[i - n]) ? k->host[i] : NULL;
    own.inputs = (const void *const *)here;
    own.outputs = here + n;
    own.workspace = here[n_all];
    own.state = &state;
    if (k->device->reference->kernel_run(k->digest, k->device->reference_stream, &own, err) < 0)
        return -1;
    touch_host(k, n, n_all, true);
    return take_back(k, stream, args, err);
}

/* Pinned copies of all operands, then room for the pointers of a run and for its workspace. */
static int make_fallback(struct cuda_kernel *k, struct err *err)
{
    const struct kernel *d = k->digest;
    int n = d->n_inputs + d->n_outputs;

    if (k->last || k->places_last)
        return err_set(err, "%s has no kernel of channels that are last", d->entry->op);
    k->run = run_on_host;
    k->accumulates = false;
    k->workspace = 0;
    k->host = mem_new(2 * (size_t)n + 1, sizeof(*k->host));
    if (d->workspace)
        k->host[2 * n] = mem_new(d->workspace, 1);
    for (int i = 0; i < n; i++) {
        size_t bytes = tensor_bytes(operand(d, i));

        if (bytes && !(k->host[i] = k->device->cuda->alloc(k->device->gpu, bytes, true, err)))
            return -1;
    }
    log_debug("cuda: %s runs on the host", d->entry->op);
    k->falls_back = true;
    fallbacks_add(&k->device->fallbacks, FALLBACK_HOST, d->entry->op, 1);
    return 0;
}

static void free_fallback(struct cuda_kernel *k)
{
    int n = k->digest->n_inputs + k->digest->n_outputs;

    if (k->falls_back)
        fallbacks_add(&k->device->fallbacks, FALLBACK_HOST, k->digest->entry->op, -1);
    if (k->unfused)
        fallbacks_add(&k->device->fallbacks, FALLBACK_UNFUSED, k->digest->entry->op, -1);
    for (int i = 0; k->host && i < n; i++)
        k->device->cuda->release(k->device->gpu, k->host[i], true);
    if (k->host)
        free(k->host[2 * n]);
    free(k->host);
}

/* The backend's entries ------------------------------------------------------------------- */

bool cuda_supports(const struct device *device, const struct graph *graph, int node)
{
    return device->reference->supports(device->reference_device, graph, node);
}

static bool is_narrow(const struct value_layout *layouts, int v)
{
    return layouts && v >= 0 && cuda_is_narrow(&layouts[v]);
}

static void find_narrow(struct cuda_kernel *k, const struct graph *graph, int node,
                        const struct value_layout *layouts)
{
    const struct node *n = &graph->nodes[node];

    k->narrow_operand = mem_new((size_t)(n->n_inputs + n->n_outputs), sizeof(bool));
    k->turned_operand = mem_new((size_t)(n->n_inputs + n->n_outputs), sizeof(bool));
    for (int i = 0; i < n->n_inputs + n->n_outputs; i++) {
        int v = i < n->n_inputs ? n->inputs[i] : n->outputs[i - n->n_inputs];

        k->narrow_operand[i] = is_narrow(layouts, v);
        k->turned_operand[i] = k->narrow_operand[i] && layouts[v].opaque == &cuda_turned_layout;
        k->places_last |= layouts && v >= 0 && layouts[v].opaque == &cuda_places_layout;
        k->places_by_library |= layouts && v >= 0 && layouts[v].opaque == &cuda_index_layout;
        if (k->narrow_operand[i]) {
            k->narrow = k->device->narrow;
            k->last = cuda_is_last(&layouts[v]);
        }
    }
}

struct kernel *cuda_kernel_new(struct device *device, const struct graph *graph, int node,
                               const struct value_layout *layouts, struct err *err)
{
    struct cuda_kernel *k = mem_new(1, sizeof(*k));
    const struct cuda_op *op;

    k->device = device;
    find_narrow(k, graph, node, layouts);
    k->digest = device->reference->kernel_new(device->reference_device, graph, node, layouts,
                                              err);
    if (!k->digest) {
        free(k->narrow_operand);
        free(k->turned_operand);
        free(k);
        return NULL;
    }
    op = cuda_op_of(k);
    k->err = err;
    if ((!op || op->make(k, graph, node)) && (k->failed || make_fallback(k, err))) {
        cuda_kernel_free((struct kernel *)k);
        return NULL;
    }
    k->err = NULL;
    return (struct kernel *)k;
}

void cuda_kernel_free(struct kernel *kernel)
{
    struct cuda_kernel *k = (struct cuda_kernel *)kernel;

    if (!k)
        return;
    free_fallback(k);
    for (int i = 0; i < CUDA_PRODUCTS; i++)
        if (k->products[i])
            k->device->cuda->matmul_free(k->products[i]);
    if (k->sdpa)
        k->device->cuda->sdpa_free(k->sdpa);
    if (k->image)
        k->device->cuda->image_free(k->image);
    if (k->convolution)
        k->device->cuda->conv_free(k->convolution);
    k->device->reference->kernel_free(k->digest);
    free(k->narrow_operand);
    free(k->turned_operand);
    free(k);
}

size_t cuda_kernel_workspace(const struct kernel *kernel)
{
    return ((const struct cuda_kernel *)kernel)->workspace;
}

bool cuda_kernel_accumulates(const struct kernel *kernel)
{
    return ((const struct cuda_kernel *)kernel)->accumulates;
}

/* What the host computes cannot be replayed by the GPU alone. */
bool cuda_kernel_records(const struct kernel *kernel)
{
    return ((const struct cuda_kernel *)kernel)->run != run_on_host;
}

int cuda_kernel_run(struct kernel *kernel, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    const struct cuda_kernel *k = (const struct cuda_kernel *)kernel;

    return k->run(k, stream, args, err);
}
