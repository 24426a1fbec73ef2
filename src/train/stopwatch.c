/* SPDX-License-Identifier: MIT */
#include "train/stopwatch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"

#define MAX_RUNS 15
#define ENOUGH 0.02         /* seconds spent on one operator */
#define UPDATE_BYTES ((size_t)1 << 20)

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is measured: anything that can be run again and again. */
struct subject {
    int (*run)(struct subject *subject, struct err *err);
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    struct kernel *kernel;
    struct kernel_args args;
    const struct optimizer_args *optimizer;
    void *update[4];
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static int measure(struct subject *s, struct measured *result, struct err *err)
{
    double times[MAX_RUNS], begun, spent = 0;
    int n = 0;

    begun = now();
    if (s->run(s, err) < 0)
        return -1;
    times[0] = now() - begun;
    /* A first run that long is not about warming up. */
    if (times[0] > 10 * ENOUGH)
        n = 1;
    while (n < MAX_RUNS && (n == 0 || spent < ENOUGH) && times[0] <= 10 * ENOUGH) {
        begun = now();
        if (s->run(s, err) < 0)
            return -1;
        times[n] = now() - begun;
        spent += times[n++];
    }
    qsort(times, (size_t)n, sizeof(times[0]), by_value);
    result->runs = n;
    result->seconds = times[n / 2];
    result->spread = times[n / 2] > 0 ? (times[n * 3 / 4] - times[n / 4]) / times[n / 2] : 0;
    return 0;
}

/* Buffers of a node -------------------------------------------------------------------- */

struct buffers {
    int n;
    void **memory;
    size_t *bytes;
};

static size_t bytes_of(const struct graph *graph, const struct value_layout *layouts, int value)
{
    size_t bytes;

    if (value < 0)
        return 0;
    bytes = layouts ? layouts[value].bytes : value_bytes(&graph->values[value]);
    return bytes ? bytes : 1;
}

/* Integers are 0, a valid index or label; floats lie between 0.5 and 1. */
static int fill(const struct subject *s, enum dtype dtype, void *memory, size_t bytes,
                struct err *err)
{
    char *host;
    int bad;

    if (!dtype_is_float(dtype))
        return s->backend->fill_zero(s->stream, memory, bytes, err);
    host = mem_new(bytes, 1);
    for (size_t i = 0; i < bytes / dtype_size(dtype); i++) {
        double d = 0.5 + (double)(i * 7919 % 1000) / 2000;
        float f = (float)d;

        memcpy(host + i * dtype_size(dtype), dtype == DTYPE_F32 ? (void *)&f : (void *)&d,
               dtype_size(dtype));
    }
    bad = s->backend->copy(s->stream, memory, bytes, host, bytes, bytes, 1, err);
    if (!bad)
        bad = s->backend->stream_sync(s->stream, err);
    free(host);
    return bad;
}

static int take(const struct subject *s, struct buffers *b, const struct graph *graph,
                const struct value_layout *layouts, int value, struct err *err)
{
    size_t bytes = bytes_of(graph, layouts, value);
    int i = b->n++;

    b->bytes[i] = bytes;
    if (bytes == 0)
        return 0;
    b->memory[i] = s->backend->alloc(s->device, bytes, err);
    if (!b->memory[i])
        return -1;
    return fill(s, graph->values[value].dtype, b->memory[i], bytes, err);
}

static int run_kernel(struct subject *s, struct err *err)
{
    if (s->backend->kernel_run(s->kernel, s->stream, &s->args, err) < 0)
        return -1;
    return s->backend->stream_sync(s->stream, err);
}

static int measure_kernel(struct subject *s, struct buffers *b, const struct graph *graph,
                          const struct node *node, const struct value_layout *layouts,
                          struct measured *result, struct err *err)
{
    size_t workspace = s->backend->kernel_workspace(s->kernel);
    struct step_state state = { .global_batch = graph->batch, .samples = graph->batch,
                                .weight_sum = 1, .training = true };
    int bad = 0;

    for (int i = 0; i < node->n_inputs && !bad; i++)
        bad = take(s, b, graph, layouts, node->inputs[i], err);
    for (int i = 0; i < node->n_outputs && !bad; i++)
        bad = take(s, b, graph, layouts, node->outputs[i], err);
    if (bad)
        return -1;
    if (workspace) {
        b->bytes[b->n] = workspace;
        b->memory[b->n] = s->backend->alloc(s->device, workspace, err);
        if (!b->memory[b->n++])
            return -1;
    }
    s->args = (struct kernel_args){
        .inputs = (const void *const *)b->memory, .outputs = b->memory + node->n_inputs,
        .workspace = workspace ? b->memory[b->n - 1] : NULL, .state = &state,
    };
    return measure(s, result, err);
}

int stopwatch_node(const struct backend *backend, struct device *device,
                 const struct graph *graph, int node, const struct value_layout *layouts,
                 struct measured *result, struct err *err)
{
    const struct node *n = &graph->nodes[node];
    size_t most = (size_t)n->n_inputs + (size_t)n->n_outputs + 1;
    struct subject s = { .run = run_kernel, .backend = backend, .device = device };
    struct buffers b = { .memory = mem_new(most, sizeof(void *)),
                         .bytes = mem_new(most, sizeof(size_t)) };
    int bad = -1;

    s.stream = backend->stream_new(device, err);
    s.kernel = s.stream ? backend->kernel_new(device, graph, node, layouts, err) : NULL;
    if (s.kernel)
        bad = measure_kernel(&s, &b, graph, n, layouts, result, err);
    for (int i = 0; i < b.n; i++)
        if (b.memory[i])
            backend->release(device, b.memory[i], b.bytes[i]);
    if (s.kernel)
        backend->kernel_free(s.kernel);
    if (s.stream)
        backend->stream_free(s.stream);
    free(b.memory);
    free(b.bytes);
    return bad;
}

/* The optimizer ------------------------------------------------------------------------ */

static int run_update(struct subject *s, struct err *err)
{
    if (s->backend->optimize(s->stream, s->optimizer,
                             UPDATE_BYTES / dtype_size(s->optimizer->dtype), s->update[0],
                             s->update[1], 1, s->update[2], s->update[3], err) < 0)
        return -1;
    return s->backend->stream_sync(s->stream, err);
}

int stopwatch_update(const struct backend *backend, struct device *device,
                   const struct optimizer_args *args, struct measured *result,
                   struct err *err)
{
    struct subject s = { .run = run_update, .backend = backend, .device = device,
                         .optimizer = args };
    int bad;

    s.stream = backend->stream_new(device, err);
    bad = s.stream ? 0 : -1;
    for (int i = 0; i < 4 && !bad; i++) {
        s.update[i] = backend->alloc(device, UPDATE_BYTES, err);
        bad = s.update[i] ? backend->fill_zero(s.stream, s.update[i], UPDATE_BYTES, err) : -1;
    }
    if (!bad)
        bad = measure(&s, result, err);
    for (int i = 0; i < 4; i++)
        if (s.update[i])
            backend->release(device, s.update[i], UPDATE_BYTES);
    if (s.stream)
        backend->stream_free(s.stream);
    return bad;
}
