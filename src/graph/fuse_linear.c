/* SPDX-License-Identifier: MIT */
#include "graph/fuse.h"

#include <string.h>

#include "graph/op.h"

/* x w (+ bias): a product with a matrix that depends on no sample. */
struct linear {
    int x, w, bias, last;
    bool transposed;
};

static bool is_matrix(const struct graph *graph, int v)
{
    const struct value *value = &graph->values[v];

    return value->shape.rank == 2 && value->batch.outer == 0 && dtype_is_float(value->dtype);
}

static bool is_bias(const struct graph *graph, int v, int64_t width)
{
    const struct value *value = &graph->values[v];

    return value->shape.rank == 1 && value->shape.dim[0] == width && value->batch.outer == 0;
}

static bool match_matmul(const struct graph *graph, int node, struct linear *m)
{
    const struct node *n = &graph->nodes[node];
    int swap, add, width_axis;

    if (n->n_inputs != 2 || n->n_attrs || !is_matrix(graph, n->inputs[1]) ||
        graph->values[n->inputs[0]].shape.rank < 2 ||
        graph->values[n->inputs[0]].batch.outer == 0)
        return false;
    *m = (struct linear){ n->inputs[0], n->inputs[1], -1, node, false };
    swap = fuse_producer(graph, node, 1, "Transpose");
    if (swap >= 0) {
        m->w = graph->nodes[swap].inputs[0];
        m->transposed = true;
    }
    width_axis = graph->values[n->outputs[0]].shape.rank - 1;
    add = fuse_reader(graph, n->outputs[0], "Add");
    if (add >= 0) {
        const int *ids = graph->nodes[add].inputs;
        int other = ids[0] == n->outputs[0] ? ids[1] : ids[0];

        if (is_bias(graph, other, graph->values[n->outputs[0]].shape.dim[width_axis])) {
            m->bias = other;
            m->last = add;
        }
    }
    return true;
}

static bool match_gemm(const struct graph *graph, int node, struct linear *m)
{
    const struct node *n = &graph->nodes[node];
    bool biased = n->n_inputs > 2 && n->inputs[2] >= 0;

    if (node_int(n, "transA", 0) || node_float(n, "alpha", 1) != 1 ||
        !is_matrix(graph, n->inputs[1]) || graph->values[n->inputs[0]].batch.outer == 0)
        return false;
    if (biased && (node_float(n, "beta", 1) != 1 ||
                   !is_bias(graph, n->inputs[2], graph->values[n->outputs[0]].shape.dim[1])))
        return false;
    *m = (struct linear){ n->inputs[0], n->inputs[1], biased ? n->inputs[2] : -1, node,
                          node_int(n, "transB", 0) != 0 };
    return true;
}

int fuse_linear(struct graph *graph, int node, struct err *err)
{
    struct linear m;
    int ids[3];

    if (!(fuse_is(graph, node, "MatMul") && match_matmul(graph, node, &m)) &&
        !(fuse_is(graph, node, "Gemm") && match_gemm(graph, node, &m)))
        return 0;
    ids[0] = m.x;
    ids[1] = m.w;
    ids[2] = m.bias;
    if (fuse_rewrite(graph, m.last, m.bias < 0 ? "linear" : "linear+bias", "Linear",
                     m.bias < 0 ? 2 : 3, ids, err))
        return -1;
    graph_set_int(graph, m.last, "transB", m.transposed);
    graph_set_string(graph, m.last, "activation", "none");
    return fuse_check(graph, m.last, err);
}

struct activation {
    const char *name, *fusion, *with_bias;
};

/* What a Linear calls the activation that a node is; NULL: none of its own. */
static const struct activation *activation_of(const struct graph *graph, int node)
{
    static const struct activation relu = { "relu", "linear+relu", "linear+bias+relu" };
    static const struct activation gelu = { "gelu", "linear+gelu", "linear+bias+gelu" };
    static const struct activation tanh_gelu = { "gelu_tanh", "linear+gelu",
                                                 "linear+bias+gelu" };
    static const struct activation silu = { "silu", "linear+silu", "linear+bias+silu" };
    const struct node *n = &graph->nodes[node];

    if (fuse_is(graph, node, "Relu"))
        return &relu;
    if (fuse_is(graph, node, "Gelu"))
        return strcmp(node_string(n, "approximate", "none"), "tanh") == 0 ? &tanh_gelu : &gelu;
    return fuse_is(graph, node, "Swish") && node_float(n, "alpha", 1) == 1 ? &silu : NULL;
}

/* An activation after a Linear that nothing else reads. */
int fuse_activation(struct graph *graph, int node, struct err *err)
{
    const struct activation *activation = activation_of(graph, node);
    int linear = activation ? fuse_producer(graph, node, 0, "Linear") : -1;
    int64_t transposed;
    bool biased;

    if (linear < 0 || fuse_reader(graph, graph->nodes[linear].outputs[0],
                                  graph->nodes[node].op->name) != node)
        return 0;
    if (strcmp(node_string(&graph->nodes[linear], "activation", "none"), "none") != 0)
        return 0;
    biased = graph->nodes[linear].n_inputs > 2;
    transposed = node_int(&graph->nodes[linear], "transB", 0);
    if (fuse_rewrite(graph, node, biased ? activation->with_bias : activation->fusion, "Linear",
                     graph->nodes[linear].n_inputs, graph->nodes[linear].inputs, err))
        return -1;
    graph_set_int(graph, node, "transB", transposed);
    graph_set_string(graph, node, "activation", activation->name);
    return fuse_check(graph, node, err);
}

/* x sigmoid(x), or of a multiple of x. */
int fuse_silu(struct graph *graph, int node, struct err *err)
{
    const int *ids = graph->nodes[node].inputs;
    int side, sigmoid, scaled, x, k;
    double alpha;

    for (side = 0; side < 2 && fuse_is(graph, node, "Mul"); side++) {
        sigmoid = fuse_producer(graph, node, side, "Sigmoid");
        x = ids[1 - side];
        if (sigmoid < 0 || fuse_reader(graph, ids[side], "Mul") != node ||
            !shape_equal(&graph->values[x].shape, &graph->values[ids[side]].shape))
            continue;
        alpha = 1;
        scaled = fuse_producer(graph, sigmoid, 0, "Mul");
        for (k = 0; scaled >= 0 && k < 2; k++)
            if (graph->nodes[scaled].inputs[k] == x &&
                fuse_scalar(graph, graph->nodes[scaled].inputs[1 - k], &alpha))
                break;
        if (graph->nodes[sigmoid].inputs[0] != x && (scaled < 0 || k == 2))
            continue;
        if (fuse_rewrite(graph, node, "silu", "Swish", 1, &x, err))
            return -1;
        graph_set_float(graph, node, "alpha", alpha);
        return fuse_check(graph, node, err);
    }
    return 0;
}

int fuse_log_softmax(struct graph *graph, int node, struct err *err)
{
    int softmax = fuse_is(graph, node, "Log") ? fuse_producer(graph, node, 0, "Softmax") : -1;
    int64_t axis;

    if (softmax < 0 || fuse_reader(graph, graph->nodes[node].inputs[0], "Log") != node ||
        node_int(&graph->nodes[softmax], "masked", 0))
        return 0;
    axis = node_int(&graph->nodes[softmax], "axis", -1);
    if (fuse_rewrite(graph, node, "log-softmax", "LogSoftmax", 1, graph->nodes[softmax].inputs,
                     err))
        return -1;
    graph_set_int(graph, node, "axis", axis);
    return fuse_check(graph, node, err);
}

/* A log-softmax right before a cross-entropy over the same classes changes nothing. */
int fuse_cross_entropy(struct graph *graph, int node, struct err *err)
{
    int softmax;

    (void)err;
    if (!fuse_is(graph, node, "CrossEntropySum"))
        return 0;
    softmax = fuse_producer(graph, node, 0, "LogSoftmax");
    if (softmax >= 0 && node_int(&graph->nodes[softmax], "axis", -1) ==
                            node_int(&graph->nodes[node], "axis", 1)) {
        graph->rewired = true;
        graph->nodes[node].inputs[0] = graph->nodes[softmax].inputs[0];
        graph->nodes[node].fusion = "softmax+cross-entropy";
    }
    return 0;
}
