/* SPDX-License-Identifier: MIT */
/* Spelled out: (x - mean) / sqrt(variance + epsilon) * scale + bias, and
 * x / sqrt(mean square + epsilon) * scale.
 */
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

/* The node that takes the root of a sum, if value 'v' is 1 over that root; else -1. */
static int inverse_root(const struct graph *graph, int v)
{
    int node = graph->values[v].producer;
    double x;

    if (fuse_is(graph, node, "Reciprocal"))
        return fuse_producer(graph, node, 0, "Sqrt");
    if (fuse_is(graph, node, "Div"))
        return fuse_scalar(graph, graph->nodes[node].inputs[0], &x) && x == 1
                   ? fuse_producer(graph, node, 1, "Sqrt") : -1;
    return fuse_is(graph, node, "Pow") &&
                   fuse_scalar(graph, graph->nodes[node].inputs[1], &x) && x == -0.5
               ? node : -1;
}

/* The node divides value 'd' by a root, in either way; -1: it does not. */
static int divides(const struct graph *graph, int node, int side, int *d)
{
    const struct node *n = &graph->nodes[node];

    *d = n->inputs[side];
    if (fuse_is(graph, node, "Mul"))
        return inverse_root(graph, n->inputs[1 - side]);
    return fuse_is(graph, node, "Div") && side == 0 ? fuse_producer(graph, node, 1, "Sqrt")
                                                    : -1;
}

/* sqrt(mean(d * d) + epsilon) */
static bool match_deviation(const struct graph *graph, int root, int d, struct norm *m)
{
    int add = fuse_producer(graph, root, 0, "Add"), side, mean;

    for (side = 0; add >= 0 && side < 2; side++) {
        mean = fuse_producer(graph, add, side, "ReduceMean");
        if (mean < 0)
            continue;
        m->axis = trailing_mean(graph, mean);
        if (m->axis >= 0 &&
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

/* d / sqrt(mean(d * d) + epsilon), and a scale where one follows. */
static bool match_quotient(const struct graph *graph, int node, struct norm *m)
{
    const struct node *n = &graph->nodes[node];
    int side, root, next;

    if (!fuse_is(graph, node, "Div") && !fuse_is(graph, node, "Mul"))
        return false;
    for (side = 0; side < 2; side++) {
        *m = (struct norm){ -1, -1, -1, node, -1, 0 };
        root = divides(graph, node, side, &m->x);
        if (root >= 0 && match_deviation(graph, root, m->x, m))
            break;
    }
    if (side == 2)
        return false;
    next = fuse_reader(graph, n->outputs[0], "Mul");
    m->scale = next < 0 ? -1 : trailing_operand(graph, next, n->outputs[0], m->axis);
    if (m->scale >= 0)
        m->last = next;
    return true;
}

static bool match_norm(const struct graph *graph, int node, struct norm *m)
{
    int sub, mean, next;

    if (!match_quotient(graph, node, m))
        return false;
    sub = graph->values[m->x].producer;
    mean = fuse_is(graph, sub, "Sub") ? fuse_producer(graph, sub, 1, "ReduceMean") : -1;
    if (mean < 0 || graph->nodes[mean].inputs[0] != graph->nodes[sub].inputs[0] ||
        trailing_mean(graph, mean) != m->axis)
        return false;
    m->x = graph->nodes[sub].inputs[0];
    if (m->scale < 0)
        return true;
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

    if (!match_norm(graph, node, &m))
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

/* After fuse_layer_norm(), whose patterns have this one inside. */
int fuse_rms_norm(struct graph *graph, int node, struct err *err)
{
    struct norm m;
    int ids[2];

    if (!match_quotient(graph, node, &m))
        return 0;
    ids[0] = m.x;
    ids[1] = m.scale < 0 ? add_ones(graph, &m) : m.scale;
    if (fuse_rewrite(graph, m.last, "rms-norm", "RMSNormalization", 2, ids, err))
        return -1;
    graph_set_int(graph, m.last, "axis", m.axis);
    graph_set_float(graph, m.last, "epsilon", m.epsilon);
    return fuse_check(graph, m.last, err);
}

/* The sum that a norm alone reads becomes part of it. */
int fuse_residual_norm(struct graph *graph, int node, struct err *err)
{
    bool layer = fuse_is(graph, node, "LayerNormalization");
    const struct node *n = &graph->nodes[node];
    const struct value *a, *b;
    int add, ids[4];
    double epsilon;
    int64_t axis;

    if ((!layer && !fuse_is(graph, node, "RMSNormalization")) || n->n_outputs > 1)
        return 0;
    add = fuse_producer(graph, node, 0, "Add");
    if (add < 0 || fuse_reader(graph, n->inputs[0], n->op->name) != node)
        return 0;
    a = &graph->values[graph->nodes[add].inputs[0]];
    b = &graph->values[graph->nodes[add].inputs[1]];
    if (!shape_equal(&a->shape, &b->shape) || a->batch.outer == 0 || b->batch.outer == 0 ||
        a->batch.place != b->batch.place || n->n_inputs > 3)
        return 0;
    ids[0] = graph->nodes[add].inputs[0];
    ids[1] = graph->nodes[add].inputs[1];
    ids[2] = n->inputs[1];
    ids[3] = n->n_inputs > 2 ? n->inputs[2] : -1;
    axis = node_int(n, "axis", -1);
    epsilon = node_float(n, "epsilon", 1e-5);
    if (fuse_rewrite(graph, node, layer ? "residual+layer-norm" : "residual+rms-norm",
                     layer ? "AddLayerNorm" : "AddRmsNorm", ids[3] < 0 ? 3 : 4, ids, err))
        return -1;
    graph_add_output(graph, node);
    graph_set_int(graph, node, "axis", axis);
    graph_set_float(graph, node, "epsilon", epsilon);
    return fuse_check(graph, node, err);
}
