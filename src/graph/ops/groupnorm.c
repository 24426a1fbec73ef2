/* SPDX-License-Identifier: MIT */
/* Normalisation within one sample: over groups of channels, and by the root mean square. */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int infer_groupnorm(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int64_t groups = node_int(&graph->nodes[node], "num_groups", 1);
    struct shape channels = { 1, { 0 } }, saved = { 2, { 0 } };
    struct batch_place place;
    int i;

    if (infer_images(graph, node, &place, err))
        return -1;
    channels.dim[0] = x->shape.dim[1];
    if (groups < 1 || channels.dim[0] % groups)
        return op_error(graph, node, err, "%d channels do not make %d groups",
                        (int)channels.dim[0], (int)groups);
    for (i = 1; i < 3; i++) {
        if (need_shape(graph, node, i, &channels, err))
            return -1;
        if (node_input(graph, node, i)->batch.outer > 0)
            return op_error(graph, node, err, "input %d depends on the sample", i);
    }
    saved.dim[0] = x->shape.dim[0];
    saved.dim[1] = groups;
    if (set_output_like(graph, node, 0, 0, err))
        return -1;
    for (i = 1; i < 3; i++)
        if (set_output(graph, node, i, x->dtype, &saved, batch_at(&saved, place), err))
            return -1;
    return 0;
}

static int infer_groupnorm_wgrad(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 1);
    struct shape channels = { 1, { x->shape.dim[1] } };

    if (set_output(graph, node, 0, x->dtype, &channels, batch_none, err))
        return -1;
    return set_output(graph, node, 1, x->dtype, &channels, batch_none, err);
}

/* The axes that are normalised over: 'normal'; and x with those of length 1: 'rows'. */
static int split_axes(const struct graph *graph, int node, const struct value *x,
                      struct shape *normal, struct shape *rows, int *axis, struct err *err)
{
    int i;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", -1), x->shape.rank, axis,
                    err))
        return -1;
    normal->rank = 0;
    *rows = x->shape;
    for (i = *axis; i < x->shape.rank; i++) {
        normal->dim[normal->rank++] = x->shape.dim[i];
        rows->dim[i] = 1;
    }
    return 0;
}

static int infer_rmsnorm(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct shape normal, rows;
    struct batch_place place;
    int axis;

    if (need_float(graph, node, 0, err) || batch_find(graph, node, x, &place, err) ||
        split_axes(graph, node, x, &normal, &rows, &axis, err))
        return -1;
    if (place.axis >= axis && graph->batch > 1)
        return refuse_batch_axis(graph, node, place, place.axis, "normalises over", err);
    if (need_shape(graph, node, 1, &normal, err))
        return -1;
    if (node_input(graph, node, 1)->batch.outer > 0)
        return op_error(graph, node, err, "the scale depends on the sample");
    if (set_output_like(graph, node, 0, 0, err))
        return -1;
    return set_output(graph, node, 1, x->dtype, &rows, batch_at(&rows, place), err);
}

static int infer_rmsnorm_wgrad(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 1);
    struct shape normal, rows;
    int axis;

    if (split_axes(graph, node, x, &normal, &rows, &axis, err))
        return -1;
    return set_output(graph, node, 0, x->dtype, &normal, batch_none, err);
}

static int infer_second(struct graph *graph, int node, struct err *err)
{
    return set_output_like(graph, node, 0, 1, err);
}

static double flops_norm(const struct graph *graph, int node)
{
    return 8 * (double)shape_elements(&node_input(graph, node, 0)->shape);
}

static int grad_groupnorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), x = rule_input(grad, 0), parts, result;
    int invstd = rule_want_output(grad, 2, err), mean = rule_output(grad, 1);

    (void)node;
    if (invstd < 0 ||
        rule_add_like(grad, 0, "GroupNormDgrad", 5,
                      (int[]){ dy, x, rule_input(grad, 1), mean, invstd }, NULL, err))
        return -1;
    if (!grad_wanted(grad, 1) && !grad_wanted(grad, 2))
        return 0;
    parts = grad_wanted(grad, 2) ? 2 : 1;
    result = grad_node(grad, "GroupNormWgrad", 4, (int[]){ dy, x, mean, invstd }, parts, err);
    for (int i = 0; result >= 0 && i < parts; i++)
        if (grad_wanted(grad, 1 + i))
            grad_add(grad, 1 + i, grad->graph->nodes[result].outputs[i]);
    return result < 0 ? -1 : 0;
}

static int grad_rmsnorm(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), x = rule_input(grad, 0);
    int saved = rule_want_output(grad, 1, err);

    (void)node;
    if (saved < 0 ||
        rule_add_like(grad, 0, "RmsNormDgrad", 4,
                      (int[]){ dy, x, rule_input(grad, 1), saved }, NULL, err))
        return -1;
    return rule_add_like(grad, 1, "RmsNormWgrad", 3, (int[]){ dy, x, saved }, NULL, err);
}

const struct op ops_groupnorm[] = {
    { "GroupNormalization", OP_NORM, 3, 3, 1, 3, infer_groupnorm, flops_norm, grad_groupnorm },
    { "GroupNormDgrad", OP_INTERNAL | OP_NORM, 5, 5, 1, 1, infer_second, flops_norm, NULL },
    { "GroupNormWgrad", OP_INTERNAL | OP_NORM, 4, 4, 1, 2, infer_groupnorm_wgrad, flops_norm,
      NULL },
    { "RMSNormalization", OP_NORM, 2, 2, 1, 2, infer_rmsnorm, flops_norm, grad_rmsnorm },
    { "RmsNormDgrad", OP_INTERNAL | OP_NORM, 4, 4, 1, 1, infer_second, flops_norm, NULL },
    { "RmsNormWgrad", OP_INTERNAL | OP_NORM, 3, 3, 1, 1, infer_rmsnorm_wgrad, flops_norm,
      NULL },
    { .name = NULL },
};
