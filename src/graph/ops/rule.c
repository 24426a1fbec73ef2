/* SPDX-License-Identifier: MIT */
#include "graph/ops/rule.h"

int rule_input(const struct grad *grad, int index)
{
    const struct node *node = &grad->graph->nodes[grad->node];

    return index < node->n_inputs ? node->inputs[index] : -1;
}

int rule_output(const struct grad *grad, int index)
{
    const struct node *node = &grad->graph->nodes[grad->node];

    return index < node->n_outputs ? node->outputs[index] : -1;
}

int rule_want_output(struct grad *grad, int index, struct err *err)
{
    bool added = false;

    while (grad->graph->nodes[grad->node].n_outputs <= index) {
        graph_add_output(grad->graph, grad->node);
        added = true;
    }
    if (added && op_infer(grad->graph, grad->node, err))
        return -1;
    return rule_output(grad, index);
}

/* Of one shape whatever the batch: with one sample, a value of samples and one that all
 * samples share may look alike, and the nodes must be those of other batches.
 */
static bool alike(const struct value *a, const struct value *b)
{
    return shape_equal(&a->shape, &b->shape) && (a->batch.outer > 0) == (b->batch.outer > 0);
}

int rule_add_reduced(struct grad *grad, int index, int gradient, struct err *err)
{
    const struct value *values = grad->graph->values;

    if (!alike(&values[gradient], &values[rule_input(grad, index)]))
        gradient = grad_emit(grad, "ReduceSumTo", 1, &gradient, index, err);
    if (gradient < 0)
        return -1;
    grad_add(grad, index, gradient);
    return 0;
}

int rule_add_op(struct grad *grad, int index, const char *op, int n_inputs, const int *inputs,
                struct err *err)
{
    const struct graph *graph = grad->graph;
    int node;

    if (!grad_wanted(grad, index))
        return 0;
    if (alike(&graph->values[rule_input(grad, index)], &graph->values[rule_output(grad, 0)]))
        return rule_add_like(grad, index, op, n_inputs, inputs, NULL, err);
    node = grad_node(grad, op, n_inputs, inputs, 1, err);
    return node < 0 ? -1 : rule_add_reduced(grad, index, graph->nodes[node].outputs[0], err);
}

int rule_add_like(struct grad *grad, int index, const char *op, int n_inputs,
                  const int *inputs, int *node, struct err *err)
{
    int gradient;

    if (node)
        *node = -1;
    if (!grad_wanted(grad, index))
        return 0;
    gradient = grad_emit(grad, op, n_inputs, inputs, index, err);
    if (gradient < 0)
        return -1;
    if (node)
        *node = grad->graph->values[gradient].producer;
    grad_add(grad, index, gradient);
    return 0;
}

int rule_view(struct grad *grad, int value, const struct shape *shape, struct err *err)
{
    const struct shape own = *shape;    /* it may be that of a value, which will move */
    struct graph *graph = grad->graph;
    int node = grad_node(grad, "View", 1, &value, 1, err), view;

    if (node < 0)
        return -1;
    view = graph->nodes[node].outputs[0];
    graph->values[view].dtype = graph->values[view].file_dtype = graph->values[value].dtype;
    graph->values[view].shape = own;
    graph->values[view].batch = graph->values[value].batch;
    graph->values[view].batch.place = 0;
    return view;
}
