/* SPDX-License-Identifier: MIT */
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"
#include "graph/ops/window.h"

static int infer_conv(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *w = node_input(graph, node, 1);
    struct shape shape = { 0 }, bias = { 1, { w->shape.dim[0] } };
    struct batch_place place;
    struct window window;
    int i;

    if (infer_images(graph, node, &place, err) || need_float(graph, node, 1, err) ||
        window_of(graph, node, &x->shape, &w->shape, &window, err) ||
        need_shape(graph, node, 2, &bias, err))
        return -1;
    if (w->batch.outer > 0)
        return op_error(graph, node, err, "the weights depend on the sample");
    shape.rank = x->shape.rank;
    shape.dim[0] = window.images;
    shape.dim[1] = window.out_channels;
    for (i = 0; i < window.rank; i++)
        shape.dim[2 + i] = window.out[i];
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static double conv_work(const struct shape *w, const struct shape *y)
{
    return 2 * (double)shape_elements(w) * (double)shape_elements(y) / (double)w->dim[0];
}

static double flops_conv(const struct graph *graph, int node)
{
    return conv_work(&node_input(graph, node, 1)->shape, &node_output(graph, node, 0)->shape);
}

static double flops_dgrad(const struct graph *graph, int node)
{
    return conv_work(&node_input(graph, node, 1)->shape, &node_input(graph, node, 0)->shape);
}

static double flops_wgrad(const struct graph *graph, int node)
{
    return conv_work(&node_output(graph, node, 0)->shape, &node_input(graph, node, 1)->shape);
}

static int grad_conv(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), bias;

    (void)node;
    if (rule_add_like(grad, 0, "ConvDgrad", 2, (int[]){ dy, rule_input(grad, 1) }, NULL, err) ||
        rule_add_like(grad, 1, "ConvWgrad", 2, (int[]){ rule_input(grad, 0), dy }, NULL, err) ||
        rule_add_like(grad, 2, "BiasGrad", 1, &dy, &bias, err))
        return -1;
    if (bias >= 0)
        graph_set_int(grad->graph, bias, "axis", 1);
    return 0;
}

/* The gradient of a Conv from [images, w's channels in, output_shape] towards its input, as an
 * operator of its own.
 */
static int infer_conv_transpose(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *w = node_input(graph, node, 1);
    struct shape shape = x->shape;
    struct batch_place place;
    struct window window;
    int n, i;

    if (infer_images(graph, node, &place, err) || need_float(graph, node, 1, err) ||
        attr_ints(graph, node, "output_shape", WINDOW_MAX, shape.dim + 2, &n, err))
        return -1;
    if (n != shape.rank - 2 || w->shape.rank != shape.rank ||
        __builtin_mul_overflow(w->shape.dim[1], node_int(&graph->nodes[node], "group", 1),
                               &shape.dim[1]))
        return op_error(graph, node, err, "the weights do not fit the input");
    if (window_of(graph, node, &shape, &w->shape, &window, err))
        return -1;
    for (i = 0; i < n; i++)
        if (window.out[i] != x->shape.dim[2 + i])
            return op_error(graph, node, err, "its output would not have the shape that its "
                            "pads and strides say");
    if (x->shape.dim[1] != window.out_channels)
        return op_error(graph, node, err, "the weights' channels do not fit the input's");
    if (w->batch.outer > 0)
        return op_error(graph, node, err, "the weights depend on the sample");
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static int grad_conv_transpose(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    if (rule_add_like(grad, 0, "Conv", 2, (int[]){ dy, rule_input(grad, 1) }, NULL, err))
        return -1;
    return rule_add_like(grad, 1, "ConvWgrad", 2, (int[]){ dy, rule_input(grad, 0) }, NULL,
                         err);
}

const struct op ops_conv[] = {
    { "ConvTranspose", OP_CONV, 2, 2, 1, 1, infer_conv_transpose, flops_dgrad,
      grad_conv_transpose },
    { "Conv", OP_CONV, 2, 3, 1, 1, infer_conv, flops_conv, grad_conv },
    { "ConvDgrad", OP_INTERNAL | OP_CONV, 2, 2, 1, 1, NULL, flops_dgrad, NULL },
    { "ConvWgrad", OP_INTERNAL | OP_CONV, 2, 2, 1, 1, NULL, flops_wgrad, NULL },
    { .name = NULL },
};
