/* SPDX-License-Identifier: MIT */
#include "graph/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/ops/ops.h"

static const struct op *const families[] = {
    ops_pointwise, ops_curve, ops_compare, ops_matmul, ops_conv, ops_pool, ops_norm,
    ops_groupnorm, ops_attention, ops_softmax, ops_reduce, ops_layout, ops_index, ops_element,
    ops_loss, ops_constant,
};

const struct op *op_at(int index)
{
    size_t f;
    const struct op *op;

    for (f = 0; f < sizeof(families) / sizeof(families[0]); f++)
        for (op = families[f]; op->name; op++)
            if (index-- == 0)
                return op;
    return NULL;
}

const struct op *op_find(const char *name)
{
    const struct op *op;
    size_t f;

    for (f = 0; f < sizeof(families) / sizeof(families[0]); f++)
        for (op = families[f]; op->name; op++)
            if (names_same(op->name, name))
                return op;
    return NULL;
}

double op_flops(const struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];

    if (n->op->flags & (OP_VIEW | OP_FOLD))
        return 0;
    if (n->op->flops)
        return n->op->flops(graph, node);
    return n->outputs[0] < 0 ? 0
                             : (double)shape_elements(&graph->values[n->outputs[0]].shape);
}

int op_error(const struct graph *graph, int node, struct err *err, const char *format, ...)
{
    const struct node *n = &graph->nodes[node];
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return err_set(err, "node \"%s\" (%s): %s", n->name, n->op->name, text);
}

int op_check_counts(const struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];
    const struct op *op = n->op;
    int i;

    if (n->n_inputs < op->min_inputs || (op->max_inputs >= 0 && n->n_inputs > op->max_inputs))
        return op_error(graph, node, err, "%d inputs are not supported", n->n_inputs);
    if (n->n_outputs < op->min_outputs ||
        (op->max_outputs >= 0 && n->n_outputs > op->max_outputs))
        return op_error(graph, node, err, "%d outputs are not supported", n->n_outputs);
    for (i = 0; i < op->min_inputs; i++)
        if (n->inputs[i] < 0)
            return op_error(graph, node, err, "input %d is missing", i);
    return 0;
}

int op_infer(struct graph *graph, int node, struct err *err)
{
    const struct op *op = graph->nodes[node].op;

    if (op_check_counts(graph, node, err))
        return -1;
    return op->infer ? op->infer(graph, node, err) : 0;
}

int op_append(struct graph *graph, const char *name, const char *op, int n_inputs,
              const int *inputs, int n_outputs, struct err *err)
{
    const struct op *found = op_find(op);
    int node;

    if (!found)
        return err_set(err, "there is no operator \"%s\"", op);
    node = graph_add_node(graph, name, found, n_inputs, inputs, 0, NULL);
    while (graph->nodes[node].n_outputs < n_outputs)
        graph_add_output(graph, node);
    return op_infer(graph, node, err) ? -1 : node;
}
