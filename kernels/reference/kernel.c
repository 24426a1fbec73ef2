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

bool ref_supports(const struct device *device, const struct graph *graph, int node)
{
    (void)device;
    return find_entry(graph, node) != NULL;
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
    free(kernel->taps);
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
