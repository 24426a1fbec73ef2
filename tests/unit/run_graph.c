/* SPDX-License-Identifier: MIT */
#include "run_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/cuda.h"

static int root_of(const struct graph *graph, int v)
{
    int producer = graph->values[v].producer;

    while (producer >= 0 && graph->nodes[producer].op->flags & OP_VIEW) {
        v = graph->nodes[producer].inputs[0];
        producer = graph->values[v].producer;
    }
    return v;
}

static int put(struct run_graph *run, void *to, const void *from, size_t bytes, struct err *err)
{
    return run->backend->copy(run->stream, to, bytes, from, bytes, bytes, 1, err) < 0
               ? -1
               : run->backend->stream_sync(run->stream, err);
}

static int make_buffers(struct run_graph *run, struct err *err)
{
    const struct graph *graph = run->graph;
    int v;

    for (v = 0; v < run->n_values; v++) {
        const struct value *value = &graph->values[v];

        if (root_of(graph, v) != v)
            continue;
        run->buffers[v] = run->backend->alloc(run->device, value_bytes(value), err);
        if (!run->buffers[v])
            return -1;
        if (value->kind == VALUE_CONST && value->data &&
            put(run, run->buffers[v], value->data, value_bytes(value), err) < 0)
            return -1;
    }
    for (v = 0; v < run->n_values; v++)
        run->buffers[v] = run->buffers[root_of(graph, v)];
    return 0;
}

static bool is_last(const struct run_graph *run, int node, int v)
{
    return run->last && run->graph->values[v].shape.rank == 4 && cuda_takes_last(run->graph, node);
}

static const char *layout_of(const struct run_graph *run, int node, int v)
{
    return is_last(run, node, v) ? &cuda_last_layout : &cuda_narrow_layout;
}

/* Where maxima were, as lowering would have it; -1: it is no MaxPool of images with channels last. */
static int places_of(const struct run_graph *run, int node)
{
    const struct node *n = &run->graph->nodes[node];

    if (n->inputs[0] < 0 || !is_last(run, node, n->inputs[0]))
        return -1;
    return strcmp(n->op->name, "MaxPool") == 0 && n->n_outputs > 1 ? n->outputs[1]
           : strcmp(n->op->name, "MaxPoolGrad") == 0               ? n->inputs[1]
                                                                   : -1;
}

static const char *places_layout(const struct run_graph *run, int places)
{
    return run->device->library_pools &&
                   cuda_pool_fits(run->device, run->graph, run->graph->values[places].producer)
               ? &cuda_index_layout : &cuda_places_layout;
}

/* NULL: all plain. */
static struct value_layout *layouts_for(const struct run_graph *run, int node)
{
    const struct node *n = &run->graph->nodes[node];
    struct value_layout *layouts;
    int places;

    if (!run->narrow)
        return NULL;
    layouts = mem_new((size_t)run->n_values, sizeof(*layouts));
    for (int i = 0; i < n->n_inputs; i++)
        if (cuda_narrows_input(run->graph, node, i))
            layouts[n->inputs[i]].opaque = layout_of(run, node, n->inputs[i]);
    for (int i = 0; i < n->n_outputs; i++)
        if (cuda_narrows_output(run->graph, node, i))
            layouts[n->outputs[i]].opaque = layout_of(run, node, n->outputs[i]);
    places = places_of(run, node);
    if (places >= 0)
        layouts[places].opaque = places_layout(run, places);
    return layouts;
}

static int make_kernels(struct run_graph *run, struct err *err)
{
    const struct backend *backend = run->backend;
    int n;

    for (n = 0; n < run->n_nodes; n++) {
        struct value_layout *layouts;
        size_t bytes;

        if (run->graph->nodes[n].op->flags & OP_VIEW)
            continue;
        layouts = layouts_for(run, n);
        run->kernels[n] = backend->kernel_new(run->device, run->graph, n, layouts, err);
        free(layouts);
        if (!run->kernels[n])
            return -1;
        bytes = backend->kernel_workspace(run->kernels[n]);
        if (bytes > run->workspace_bytes)
            run->workspace_bytes = bytes;
    }
    run->workspace = backend->alloc(run->device, run->workspace_bytes, err);
    return run->workspace ? 0 : -1;
}

static struct run_graph *new_run(const struct backend *backend, const struct graph *graph, bool last,
                                 struct err *err)
{
    struct run_graph *run = mem_new(1, sizeof(*run));

    run->backend = backend;
    run->graph = graph;
    run->last = last;
    run->narrow = strcmp(backend->name, "cuda-bf16") == 0   ? DTYPE_BF16
                  : strcmp(backend->name, "cuda-fp16") == 0 ? DTYPE_F16
                                                            : DTYPE_NONE;
    run->n_nodes = graph->n_nodes;
    run->n_values = graph->n_values;
    run->kernels = mem_new((size_t)graph->n_nodes, sizeof(*run->kernels));
    run->buffers = mem_new((size_t)graph->n_values, sizeof(*run->buffers));
    run->state = (struct step_state){ .seed = 1, .global_batch = graph->batch,
                                      .samples = graph->batch, .weight_sum = 1,
                                      .training = true };
    run->device = backend->device_open(1, NULL, err);
    if (run->device)
        run->stream = backend->stream_new(run->device, err);
    if (run->stream)
        run->device_state = backend->alloc_aside(run->device, sizeof(run->state), false, err);
    if (!run->device_state || make_buffers(run, err) || make_kernels(run, err)) {
        run_graph_free(run);
        return NULL;
    }
    return run;
}

struct run_graph *run_graph_new(const struct backend *backend, const struct graph *graph,
                                struct err *err)
{
    return new_run(backend, graph, false, err);
}

struct run_graph *run_graph_new_last(const struct backend *backend, const struct graph *graph,
                                     struct err *err)
{
    return new_run(backend, graph, true, err);
}

void run_graph_free(struct run_graph *run)
{
    int i;

    if (!run)
        return;
    for (i = 0; i < run->n_nodes; i++)
        if (run->kernels[i])
            run->backend->kernel_free(run->kernels[i]);
    for (i = 0; i < run->n_values; i++)
        if (root_of(run->graph, i) == i && run->buffers[i])
            run->backend->release(run->device, run->buffers[i],
                                  value_bytes(&run->graph->values[i]));
    if (run->workspace)
        run->backend->release(run->device, run->workspace, run->workspace_bytes);
    if (run->device_state)
        run->backend->release_aside(run->device, run->device_state, false);
    if (run->stream)
        run->backend->stream_free(run->stream);
    if (run->device)
        run->backend->device_close(run->device);
    free(run->kernels);
    free(run->buffers);
    free(run);
}

void run_graph_set(struct run_graph *run, int value, const double *data)
{
    const struct value *v = &run->graph->values[value];
    void *here = mem_new(value_bytes(v) + 1, 1);
    struct err err = { 0 };

    dtype_convert(DTYPE_F64, data, v->dtype, here, (size_t)shape_elements(&v->shape));
    if (put(run, run->buffers[value], here, value_bytes(v), &err) < 0)
        abort();
    free(here);
}

void run_graph_get(const struct run_graph *run, int value, double *data)
{
    const struct value *v = &run->graph->values[value];
    void *here = mem_new(value_bytes(v) + 1, 1);
    struct err err = { 0 };

    if (put((struct run_graph *)run, here, run->buffers[value], value_bytes(v), &err) < 0)
        abort();
    dtype_convert(v->dtype, here, DTYPE_F64, data, (size_t)shape_elements(&v->shape));
    free(here);
}

/* Whoever reads what nobody wrote finds NaN. */
static int poison(struct run_graph *run, void *to, size_t bytes, struct err *err)
{
    void *bad = memset(mem_new(bytes + 1, 1), 0xff, bytes + 1);
    int status = put(run, to, bad, bytes, err);

    free(bad);
    return status;
}

/* Elements of a value in the other form, of 'from' or 'to' in memory of the backend. */
static int convert(struct run_graph *run, int v, const void *from, enum dtype is, void *to,
                   enum dtype becomes, struct err *err)
{
    size_t n = (size_t)shape_elements(&run->graph->values[v].shape);
    char *x = mem_new(n + 1, 2 * sizeof(float)), *y = x + n * sizeof(float);
    int status = put(run, x, from, n * dtype_size(is), err);

    dtype_convert(is, x, becomes, y, n);
    status = status ? status : put(run, to, y, n * dtype_size(becomes), err);
    free(x);
    return status;
}

/* Elements of 16 bits of an image, with the channels last or back. */
static void turn(const struct shape *shape, uint16_t *x, bool back)
{
    int64_t channels = shape->dim[1], space = shape->dim[2] * shape->dim[3];
    size_t n = (size_t)shape_elements(shape);
    uint16_t *from = memcpy(mem_new(n + 1, sizeof(*from)), x, n * sizeof(*x));

    for (int64_t i = 0; i < (int64_t)n; i++) {
        int64_t c = i / space % channels;
        int64_t other = (i / space / channels * space + i % space) * channels + c;

        x[back ? i : other] = from[back ? other : i];
    }
    free(from);
}

/* Of a copy on the device. */
static void turn_copy(struct run_graph *run, int v, void *copy, bool back, struct err *err)
{
    const struct shape *shape = &run->graph->values[v].shape;
    size_t bytes = CUDA_NARROW_BYTES * (size_t)shape_elements(shape);
    uint16_t *x = mem_new(bytes + 1, 1);

    if (put(run, x, copy, bytes, err))
        abort();
    turn(shape, x, back);
    if (put(run, copy, x, bytes, err))
        abort();
    free(x);
}

static size_t narrow_bytes(const struct run_graph *run, int v)
{
    return CUDA_NARROW_BYTES * (size_t)shape_elements(&run->graph->values[v].shape) + 1;
}

static void *narrow_copy(struct run_graph *run, int node, int v, struct err *err)
{
    void *copy = run->backend->alloc(run->device, narrow_bytes(run, v), err);

    if (!copy || convert(run, v, run->buffers[v], DTYPE_F32, copy, run->narrow, err))
        abort();
    if (is_last(run, node, v))
        turn_copy(run, v, copy, false, err);
    return copy;
}

/* Takes the places of operands that are narrow. */
static void lend_narrow(struct run_graph *run, int node, const void **inputs, void **outputs,
                        struct err *err)
{
    const struct node *n = &run->graph->nodes[node];

    for (int i = 0; i < n->n_inputs; i++)
        if (cuda_narrows_input(run->graph, node, i))
            inputs[i] = narrow_copy(run, node, n->inputs[i], err);
    for (int i = 0; i < n->n_outputs; i++)
        if (cuda_narrows_output(run->graph, node, i))
            outputs[i] = narrow_copy(run, node, n->outputs[i], err);
}

static int take_narrow(struct run_graph *run, int node, const void **inputs, void **outputs,
                       struct err *err)
{
    const struct node *n = &run->graph->nodes[node];
    int status = run->backend->stream_sync(run->stream, err);

    for (int i = 0; i < n->n_inputs; i++)
        if (cuda_narrows_input(run->graph, node, i))
            run->backend->release(run->device, (void *)(uintptr_t)inputs[i],
                                  narrow_bytes(run, n->inputs[i]));
    for (int i = 0; i < n->n_outputs; i++) {
        int v = n->outputs[i];

        if (!cuda_narrows_output(run->graph, node, i))
            continue;
        if (!status && is_last(run, node, v))
            turn_copy(run, v, outputs[i], true, err);
        if (!status)
            status = convert(run, v, outputs[i], run->narrow, run->buffers[v], DTYPE_F32, err);
        run->backend->release(run->device, outputs[i], narrow_bytes(run, v));
    }
    return status;
}

void run_graph_round_inputs(struct run_graph *run, int node, enum dtype narrow)
{
    const struct node *n = &run->graph->nodes[node];
    struct err err = { 0 };

    for (int i = 0; i < n->n_inputs; i++) {
        const struct value *value = n->inputs[i] < 0 ? NULL : &run->graph->values[n->inputs[i]];
        uint16_t *rounded;
        size_t elements;

        if (!cuda_narrows_input(run->graph, node, i))
            continue;
        elements = (size_t)shape_elements(&value->shape);
        rounded = mem_new(elements + 1, sizeof(*rounded));
        if (convert(run, n->inputs[i], run->buffers[n->inputs[i]], DTYPE_F32, rounded, narrow,
                    &err) ||
            convert(run, n->inputs[i], rounded, narrow, run->buffers[n->inputs[i]], DTYPE_F32,
                    &err))
            abort();
        free(rounded);
    }
}

static int run_node(struct run_graph *run, int n, enum accumulate accumulate, struct err *err)
{
    const struct node *node = &run->graph->nodes[n];
    const void **inputs = mem_new((size_t)node->n_inputs, sizeof(*inputs));
    void **outputs = mem_new((size_t)node->n_outputs, sizeof(*outputs));
    struct kernel_args args = { .inputs = inputs, .outputs = outputs,
                                .workspace = run->workspace, .state = run->device_state,
                                .accumulate = accumulate };
    int i, result = put(run, run->device_state, &run->state, sizeof(run->state), err);

    for (i = 0; i < node->n_inputs; i++)
        inputs[i] = node->inputs[i] < 0 ? NULL : run->buffers[node->inputs[i]];
    for (i = 0; i < node->n_outputs; i++) {
        outputs[i] = node->outputs[i] < 0 ? NULL : run->buffers[node->outputs[i]];
        if (outputs[i] && !result && !accumulate)
            result = poison(run, outputs[i], value_bytes(&run->graph->values[node->outputs[i]]),
                            err);
    }
    if (run->workspace_bytes && !result)
        result = poison(run, run->workspace, run->workspace_bytes, err);
    if (run->narrow)
        lend_narrow(run, n, inputs, outputs, err);
    if (!result)
        result = run->backend->kernel_run(run->kernels[n], run->stream, &args, err);
    if (run->narrow && take_narrow(run, n, inputs, outputs, err))
        result = -1;
    free(inputs);
    free(outputs);
    return result;
}

int run_graph_nodes(struct run_graph *run, int first, int end, struct err *err)
{
    int n;

    for (n = first; n < end; n++)
        if (run->kernels[n] && run_node(run, n, ACCUMULATE_NO, err))
            return -1;
    return run->backend->stream_sync(run->stream, err);
}

int run_graph_add(struct run_graph *run, int node, struct err *err)
{
    return run_node(run, node, ACCUMULATE_YES, err)
               ? -1
               : run->backend->stream_sync(run->stream, err);
}
