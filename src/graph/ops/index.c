/* SPDX-License-Identifier: MIT */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int gather_place(const struct graph *graph, int node, int axis,
                        struct batch_place *place, struct err *err)
{
    const struct value *data = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place from_index;

    if (batch_find(graph, node, data, place, err) ||
        batch_find(graph, node, index, &from_index, err) ||
        refuse_batch_axis(graph, node, *place, axis, "gathers along", err))
        return -1;
    if (place->axis >= 0 && from_index.axis >= 0 && graph->batch > 1)
        return op_error(graph, node, err, "both inputs depend on the sample");
    if (place->axis > axis)
        place->axis += index->shape.rank - 1;
    if (from_index.axis >= 0 && (graph->batch > 1 || place->axis < 0)) {
        *place = from_index;
        place->axis += axis;
    }
    return 0;
}

static int infer_gather(struct graph *graph, int node, struct err *err)
{
    const struct value *data = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place place;
    struct shape shape = { 0 };
    int axis, i;

    if (need_integer(graph, node, 1, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), data->shape.rank,
                    &axis, err) ||
        gather_place(graph, node, axis, &place, err))
        return -1;
    if (data->shape.rank + index->shape.rank - 1 > GRAPH_MAX_RANK)
        return op_error(graph, node, err, "the result has too many axes");
    for (i = 0; i < axis; i++)
        shape.dim[shape.rank++] = data->shape.dim[i];
    for (i = 0; i < index->shape.rank; i++)
        shape.dim[shape.rank++] = index->shape.dim[i];
    for (i = axis + 1; i < data->shape.rank; i++)
        shape.dim[shape.rank++] = data->shape.dim[i];
    return set_output(graph, node, 0, data->dtype, &shape, batch_at(&shape, place), err);
}

static int grad_gather(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "GatherGrad", 2, (int[]){ dy, rule_input(grad, 1) }, NULL,
                         err);
}

const struct op ops_index[] = {
    { "Gather", 0, 2, 2, 1, 1, infer_gather, NULL, grad_gather },
    { "GatherGrad", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { .name = NULL },
};
