/* SPDX-License-Identifier: MIT */
/* A Relu right behind the BatchNorm of images whose channels are the last axis is done by it, and the
 * gradient of the Relu by that of the BatchNorm: what is between them is neither written nor read. The
 * gradient makes anew what was cut off, by the weights that it then reads, too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/cuda.h"

struct finder {
    struct program *program;
    struct graph *graph;
    bool *gone;
};

static bool is_last(const struct finder *f, int v)
{
    return v >= 0 && v < f->program->n_values && cuda_is_last(&f->program->values[v].layout);
}

static const struct node *node_at(const struct finder *f, int node)
{
    return &f->graph->nodes[node];
}

/* The node of this operator that reads the value as its first input, alone; -1: there is none. */
static int only_reader(const struct finder *f, int v, const char *op)
{
    const struct value *value = &f->graph->values[v];
    const struct node *n;

    if (!is_last(f, v) || value->n_consumers != 1)
        return -1;
    n = node_at(f, value->consumers[0]);
    return strcmp(n->op->name, op) == 0 && n->inputs[0] == v ? value->consumers[0] : -1;
}

static void take_out(const struct finder *f, int node)
{
    f->graph->nodes[node].n_inputs = 0;
    f->gone[node] = true;
}

/* What a Relu makes of the BatchNorm's output is the BatchNorm's output. */
static void join(const struct finder *f, int norm, int relu)
{
    f->graph->nodes[norm].outputs[0] = node_at(f, relu)->outputs[0];
    graph_set_int(f->graph, norm, "relu", 1);
    take_out(f, relu);
}

/* dz takes the place of dy, and the bias comes last. */
static void join_gradients(const struct finder *f, int norm, int relu_grad, int norm_grad)
{
    int *inputs = arena_alloc(f->graph->arena, CUDA_NORM_BIAS + 1, sizeof(*inputs));

    memcpy(inputs, node_at(f, norm_grad)->inputs, CUDA_NORM_BIAS * sizeof(*inputs));
    inputs[0] = node_at(f, relu_grad)->inputs[0];
    inputs[CUDA_NORM_BIAS] = node_at(f, norm)->inputs[2];
    f->graph->nodes[norm_grad].inputs = inputs;
    f->graph->nodes[norm_grad].n_inputs = CUDA_NORM_BIAS + 1;
    graph_set_int(f->graph, norm_grad, "relu", 1);
    take_out(f, relu_grad);
}

/* Of the Relu that made z, where nothing but this BatchNorm's gradient reads what it makes. */
static void look_back(const struct finder *f, int norm, int z)
{
    const struct value *value = &f->graph->values[z];

    for (int i = 0; i < value->n_consumers; i++) {
        int relu_grad = value->consumers[i], norm_grad;
        const struct node *n = node_at(f, relu_grad);

        if (strcmp(n->op->name, "ReluGrad") != 0 || n->n_inputs < 2 || n->inputs[1] != z ||
            !is_last(f, n->inputs[0]))
            continue;
        norm_grad = only_reader(f, n->outputs[0], "BatchNormGrad");
        if (norm_grad >= 0 && node_at(f, norm_grad)->source == norm &&
            node_at(f, norm_grad)->n_inputs == CUDA_NORM_BIAS)
            join_gradients(f, norm, relu_grad, norm_grad);
    }
}

void cuda_join_relus(struct program *program)
{
    struct finder f = { .program = program, .graph = program->graph };
    const struct program_list *list = &program->list[PART_FORWARD];

    f.gone = mem_new((size_t)f.graph->n_nodes + 1, sizeof(*f.gone));
    for (int i = 0; i < list->n; i++) {
        int norm = list->nodes[i], relu, z;

        if (strcmp(node_at(&f, norm)->op->name, "BatchNormalization") != 0)
            continue;
        relu = only_reader(&f, node_at(&f, norm)->outputs[0], "Relu");
        z = relu < 0 ? -1 : node_at(&f, relu)->outputs[0];
        if (!is_last(&f, z) || f.graph->values[z].shape.dim[1] % CUDA_NARROW_WIDTH)
            continue;
        look_back(&f, norm, z);
        join(&f, norm, relu);
    }
    program_remove(program, PART_FORWARD, f.gone);
    program_remove(program, PART_DGRAD, f.gone);
    program_remove(program, PART_WGRAD, f.gone);
    free(f.gone);
}
