/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/reference/reference.h"

static const struct ref_entry *find_in(const struct ref_entry *entries, const char *op)
{
    for (; entries->op; entries++)
        if (strcmp(entries->op, op) == 0)
            return entries;
    return NULL;
}

/* The floating inputs and outputs of a node must all be of the run's type. */
static const struct ref_entry *find_entry(const struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];
    const struct ref_entry *entry = find_in(ref_entries_any, n->op->name);
    int v = n->n_inputs > 0 ? n->inputs[0] : -1;

    if (!entry)
        entry = find_in(ref_entries_tests, n->op->name);
    if (!entry)
        entry = find_in(ref_entries_element, n->op->name);
    if (entry || v < 0)
        return entry;
    if (graph->values[v].dtype == DTYPE_F32)
        return find_in(ref_entries_f32, n->op->name);
    if (graph->values[v].dtype == DTYPE_F64)
        return find_in(ref_entries_f64, n->op->name);
    return find_in(ref_entries_whole, n->op->name);
}

double ref_number(const struct ref_tensor *t, const void *data, int64_t i)
{
    switch (t->dtype) {
    case DTYPE_F32:
        return (double)((const float *)data)[i];
    case DTYPE_F64:
        return ((const double *)data)[i];
    case DTYPE_I32:
    case DTYPE_I64:
        return (double)ref_int(t, data, i);
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

/* What C leaves undefined becomes the nearest integer. */
static int64_t nearest(double x)
{
    return x != x ? 0 : x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

int64_t ref_whole(const struct ref_tensor *t, const void *data, int64_t i)
{
    return t->dtype == DTYPE_I32 || t->dtype == DTYPE_I64 ? ref_int(t, data, i)
                                                          : nearest(ref_number(t, data, i));
}

bool ref_supports(const struct device *device, const struct graph *graph, int node)
{
    (void)device;
    return find_entry(graph, node) != NULL;
}

void ref_store_whole(const struct ref_tensor *t, void *data, int64_t i, int64_t value)
{
    if (t->dtype == DTYPE_I64)
        ((int64_t *)data)[i] = value;
    else if (t->dtype == DTYPE_I32)
        ((int32_t *)data)[i] = (int32_t)(uint32_t)(uint64_t)value;
    else
        ((uint8_t *)data)[i] = t->dtype == DTYPE_BOOL ? value != 0
                                                      : (uint8_t)(uint64_t)value;
}

void ref_store(const struct ref_tensor *t, void *data, int64_t i, double x)
{
    if (t->dtype == DTYPE_F32)
        ((float *)data)[i] = (float)x;
    else if (t->dtype == DTYPE_F64)
        ((double *)data)[i] = x;
    else if (t->dtype == DTYPE_BOOL)
        ((uint8_t *)data)[i] = x != 0;
    else
        ref_store_whole(t, data, i, nearest(x));
}

static struct ref_tensor *describe(const struct graph *graph, int n, const int *ids)
{
    struct ref_tensor *list = mem_new((size_t)n, sizeof(*list));
    int i;

    for (i = 0; i < n; i++) {
        list[i].elements = -1;
        if (ids[i] < 0)
            continue;
        list[i].dtype = graph->values[ids[i]].dtype;
        list[i].shape = graph->values[ids[i]].shape;
        list[i].batch = graph->values[ids[i]].batch;
        list[i].elements = shape_elements(&list[i].shape);
    }
    return list;
}

struct kernel *ref_kernel_new(struct device *device, const struct graph *graph, int node,
                              const struct value_layout *layouts, struct err *err)
{
    const struct node *n = &graph->nodes[node];
    const struct ref_entry *entry = find_entry(graph, node);
    struct kernel *k;

    (void)device, (void)layouts;
    if (!entry) {
        op_error(graph, node, err, "the reference backend has no such kernel");
        return NULL;
    }
    k = mem_new(1, sizeof(*k));
    k->entry = entry;
    k->name = mem_strdup(n->name);
    k->n_inputs = n->n_inputs;
    k->n_outputs = n->n_outputs;
    k->in = describe(graph, n->n_inputs, n->inputs);
    k->out = describe(graph, n->n_outputs, n->outputs);
    k->key = n->key;
    k->batch = graph->batch;
    k->group = graph->batchnorm_samples ? graph->batchnorm_samples : graph->batch;
    k->unary = entry->unary;
    k->binary = entry->binary;
    if (entry->setup(k, graph, node, err)) {
        ref_kernel_free(k);
        return NULL;
    }
    return k;
}

void ref_kernel_free(struct kernel *kernel)
{
    if (!kernel)
        return;
    free(kernel->name);
    free(kernel->in);
    free(kernel->out);
    free(kernel);
}

size_t ref_kernel_workspace(const struct kernel *kernel)
{
    return kernel->workspace;
}

bool ref_kernel_accumulates(const struct kernel *kernel)
{
    (void)kernel;
    return false;
}

int ref_kernel_run(struct kernel *kernel, struct stream *stream,
                   const struct kernel_args *args, struct err *err)
{
    (void)stream;
    return kernel->entry->run(kernel, args, err);
}
