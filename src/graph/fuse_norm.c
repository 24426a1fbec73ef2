/* SPDX-License-Identifier: MIT */
/* (x - mean) / sqrt(variance + epsilon) * scale + bias, spelled out. */
#include "graph/fuse.h"

#include <string.h>

#include "base/mem.h"
#include "graph/op.h"

struct norm {
    int x, scale, bias, last, axis;
    double epsilon;
};

/* A mean over the trailing axes that keeps them; the first of these axes, else -1. */
static int trailing_mean(const struct graph *graph, int node)
{
    const struct attr *axes;
    int rank, i;

    if (!fuse_is(graph, node, "ReduceMean") || !node_int(&graph->nodes[node], "keepdims", 1))
        return -1;
    axes = node_attr(&graph->nodes[node], "axes");
    rank = graph->values[graph->nodes[node].inputs[0]].shape.rank;
    if (!axes || axes->n < 1)
        return -1;
    for (i = 0; i < axes->n; i++)
        if (axes->ints[i] != rank - axes->n + i)
            return -1;
    return (int)axes->ints[0];
}

/* Is value 'v' the square of 'd'? */
static bool is_square(const struct graph *graph, int v, int d)
{
    int node = graph->values[v].producer;
    const struct node *n = node < 0 ? NULL : &graph->nodes[node];
    double exponent;

    if (fuse_is(graph, node, "Pow"))
        return n->inputs[0] == d && fuse_scalar(graph, n->inputs[1], &exponent) &&
               exponent == 2;
    return fuse_is(graph, node, "Mul") && n->inputs[0] == d && n->inputs[1] == d;
}

/* sqrt(mean(d * d) + epsilon) */
static bool match_deviation(const struct graph *graph, int root, int d, struct norm *m)
{
    int add = fuse_producer(graph, root, 0, "Add"), side, mean;

    for (side = 0; add >= 0 && side < 2; side++) {
        mean = fuse_producer(graph, add, side, "ReduceMean");
        if (mean >= 0 && trailing_mean(graph, mean) == m->axis &&
            fuse_scalar(graph, graph->nodes[add].inputs[1 - side], &m->epsilon) &&
            is_square(graph, graph->nodes[mean].inputs[0], d))
            return true;
    }
    return false;
}

/* The value that 'op' combines 'v' with, if it has the shape of the trailing axes. */
static int trailing_operand(const struct graph *graph, int node, int v, int axis)
{
    const int *ids = graph->nodes[node].inputs;
    int other = ids[0] == v ? ids[1] : ids[0], i;
    const struct value *value = &graph->values[other], *x = &graph->values[v];

    if (value->batch.outer || value->shape.rank != x->shape.rank - axis)
        return -1;
    for (i = axis; i < x->shape.rank; i++)
        if (value->shape.dim[i - axis] != x->shape.dim[i])
            return -1;
    return other;
}

static bool match_norm(const struct graph *graph, int node, struct norm *m)
{
    const struct node *n = &graph->nodes[node];
    int sub = fuse_producer(graph, node, 0, "Sub");
    int root = fuse_producer(graph, node, 1, "Sqrt");
    int mean = sub < 0 ? -1 : fuse_producer(graph, sub, 1, "ReduceMean"), next;

    if (root < 0 || mean < 0 || graph->nodes[mean].inputs[0] != graph->nodes[sub].inputs[0])
        return false;
    *m = (struct norm){ graph->nodes[sub].inputs[0], -1, -1, node, trailing_mean(graph, mean),
                        0 };
    if (m->axis < 0 || !match_deviation(graph, root, n->inputs[0], m))
        return false;
    next = fuse_reader(graph, n->outputs[0], "Mul");
    m->scale = next < 0 ? -1 : trailing_operand(graph, next, n->outputs[0], m->axis);
    if (m->scale < 0)
        return true;
    m->last = next;
    next = fuse_reader(graph, graph->nodes[m->last].outputs[0], "Add");
    m->bias = next < 0 ? -1 : trailing_operand(graph, next, graph->nodes[m->last].outputs[0],
                                               m->axis);
    if (m->bias >= 0)
        m->last = next;
    return true;
}

/* A scale of ones, for a normalisation without one. */
static int add_ones(struct graph *graph, const struct norm *m)
{
    const struct shape *x = &graph->values[m->x].shape;
    struct shape shape = { .rank = x->rank - m->axis };
    int64_t n, i;
    void *ones;
    int id;

    memcpy(shape.dim, x->dim + m->axis, (size_t)shape.rank * sizeof(*shape.dim));
    n = shape_elements(&shape);
    ones = arena_alloc(graph->arena, (size_t)n + 1, sizeof(double));
    for (i = 0; i < n; i++)
        if (graph->real == DTYPE_F32)
            ((float *)ones)[i] = 1;
        else
            ((double *)ones)[i] = 1;
    id = graph_add_value(graph, NULL, VALUE_CONST, graph->real, &shape, (struct batch){ 0 });
    graph->values[id].data = ones;
    return id;
}

int fuse_layer_norm(struct graph *graph, int node, struct err *err)
{
    struct norm m;
    int ids[3];

    if (!fuse_is(graph, node, "Div") || !match_norm(graph, node, &m))
        return 0;
    ids[0] = m.x;
    ids[1] = m.scale < 0 ? add_ones(graph, &m) : m.scale;
    ids[2] = m.bias;
    if (fuse_rewrite(graph, m.last, "layer-norm", "LayerNormalization", m.bias < 0 ? 2 : 3,
                     ids, err))
        return -1;
    graph_set_int(graph, m.last, "axis", m.axis);
    graph_set_float(graph, m.last, "epsilon", m.epsilon);
    return fuse_check(graph, m.last, err);
}
