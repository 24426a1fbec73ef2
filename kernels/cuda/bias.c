/* SPDX-License-Identifier: MIT */
/* The gradient of a Linear's bias is the sum of dz's rows: the product that makes the gradient of
 * its weights reads them, too, and makes that beside where cuBLASLt can. Such a LinearWgrad has it
 * as its output 1. Of 16 bits alone: in float32 the cuBLASLt of CUDA 11.6 has ended programs so, and
 * little is to be had.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/cuda.h"

struct finder {
    struct device *device;
    struct program *program;
    struct graph *graph;
    struct value_layout *layouts;
    bool *runs, *gone;          /* nodes of PART_WGRAD */
};

static bool is_gradient(const struct finder *f, int v)
{
    const struct program_value *values = f->program->values;

    return v >= 0 && values[values[v].root].place == PLACE_GRADIENT;
}

/* The one that sums up the rows of dz; -1: there is none. */
static int find_sum(const struct finder *f, int dz)
{
    const struct value *value = &f->graph->values[dz];

    for (int i = 0; i < value->n_consumers; i++) {
        const struct node *n = &f->graph->nodes[value->consumers[i]];

        if (strcmp(n->op->name, "BiasGrad") == 0 && f->runs[value->consumers[i]] &&
            !f->gone[value->consumers[i]] && is_gradient(f, n->outputs[0]) &&
            node_int(n, "axis", -1) == value->shape.rank - 1)
            return value->consumers[i];
    }
    return -1;
}

static bool is_made(const struct finder *f, int node)
{
    struct err err = { 0 };
    struct kernel *kernel = cuda_kernel_new(f->device, f->graph, node, f->layouts, &err);

    if (!kernel)
        log_debug("cuda: the gradient of a bias is made by itself: %s", err.text);
    cuda_kernel_free(kernel);
    return kernel != NULL;
}

static void join(const struct finder *f, int wgrad, int sum)
{
    struct node *n = &f->graph->nodes[wgrad];
    int *outputs = arena_alloc(f->graph->arena, 2, sizeof(*outputs));

    outputs[0] = n->outputs[0];
    outputs[1] = f->graph->nodes[sum].outputs[0];
    n->outputs = outputs;
    n->n_outputs = 2;
    if (!is_made(f, wgrad)) {
        n->n_outputs = 1;
        return;
    }
    f->graph->nodes[sum].n_inputs = f->graph->nodes[sum].n_outputs = 0;
    f->gone[sum] = true;
    f->device->n_sums++;
}

static void start(struct finder *f)
{
    const struct program *p = f->program;
    const struct program_list *list = &p->list[PART_WGRAD];

    f->graph = p->graph;
    f->layouts = mem_new((size_t)p->n_values + 1, sizeof(*f->layouts));
    for (int v = 0; v < p->n_values; v++)
        f->layouts[v] = p->values[v].layout;
    f->runs = mem_new((size_t)f->graph->n_nodes + 1, sizeof(*f->runs));
    f->gone = mem_new((size_t)f->graph->n_nodes + 1, sizeof(*f->gone));
    for (int i = 0; i < list->n; i++)
        f->runs[list->nodes[i]] = true;
}

/* Both are added up, or none is. */
void cuda_join_biases(struct device *device, struct program *program)
{
    struct finder f = { .device = device, .program = program };
    const struct program_list *list = &program->list[PART_WGRAD];

    start(&f);
    for (int i = 0; i < list->n; i++) {
        const struct node *n = &f.graph->nodes[list->nodes[i]];
        int sum;

        if (strcmp(n->op->name, "LinearWgrad") != 0 || !is_gradient(&f, n->outputs[0]) ||
            !cuda_is_narrow(&f.layouts[n->inputs[1]]))
            continue;
        sum = find_sum(&f, n->inputs[1]);
        if (sum >= 0)
            join(&f, list->nodes[i], sum);
    }
    program_remove(program, PART_WGRAD, f.gone);
    free(f.gone);
    free(f.runs);
    free(f.layouts);
}
