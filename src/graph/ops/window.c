/* SPDX-License-Identifier: MIT */
#include "graph/ops/window.h"

#include <string.h>

#include "graph/ops/infer.h"

#define MAX_EXTENT ((int64_t)1 << 31)

static int read_list(const struct graph *graph, int node, const char *name, int n, int64_t def,
                     int64_t min, int64_t *values, struct err *err)
{
    int i, count;

    for (i = 0; i < n; i++)
        values[i] = def;
    if (attr_ints(graph, node, name, n, values, &count, err))
        return -1;
    if (count >= 0 && count != n)
        return op_error(graph, node, err, "attribute \"%s\" has %d entries, expected %d", name,
                        count, n);
    for (i = 0; i < n; i++)
        if (values[i] < min || values[i] > MAX_EXTENT)
            return op_error(graph, node, err, "attribute \"%s\" is out of range", name);
    return 0;
}

static int read_padding(const struct graph *graph, int node, struct window *w, struct err *err)
{
    int64_t pads[2 * WINDOW_MAX];
    int i;

    if (read_list(graph, node, "pads", 2 * w->rank, 0, 0, pads, err))
        return -1;
    for (i = 0; i < w->rank; i++) {
        w->before[i] = pads[i];
        w->after[i] = pads[w->rank + i];
    }
    return 0;
}

static int slide(const struct graph *graph, int node, struct window *w, struct err *err)
{
    bool ceiling = node_int(&graph->nodes[node], "ceil_mode", 0) != 0;
    int64_t room;
    int i;

    for (i = 0; i < w->rank; i++) {
        room = w->in[i] + w->before[i] + w->after[i] - (w->kernel[i] - 1) * w->dilation[i] - 1;
        /* A last window that begins inside may reach beyond, the only one too. */
        if (room < 0 && (!ceiling || room <= -w->stride[i]))
            return op_error(graph, node, err, "the window is larger than its input");
        w->out[i] = (room + (ceiling ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
        if (ceiling && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->before[i])
            w->out[i]--;
    }
    return 0;
}

static int read_kernel(const struct graph *graph, int node, const struct shape *weights,
                       struct window *w, struct err *err)
{
    int i;

    if (!weights && !node_attr(&graph->nodes[node], "kernel_shape"))
        return op_error(graph, node, err, "attribute \"kernel_shape\" is missing");
    if (read_list(graph, node, "kernel_shape", w->rank, 1, 1, w->kernel, err))
        return -1;
    for (i = 0; weights && i < w->rank; i++) {
        if (node_attr(&graph->nodes[node], "kernel_shape") &&
            w->kernel[i] != weights->dim[2 + i])
            return op_error(graph, node, err, "kernel_shape is not that of the weights");
        w->kernel[i] = weights->dim[2 + i];
        if (w->kernel[i] < 1)
            return op_error(graph, node, err, "the weights are empty");
    }
    return 0;
}

static int check_channels(const struct graph *graph, int node, const struct shape *weights,
                          struct window *w, struct err *err)
{
    w->groups = node_int(&graph->nodes[node], "group", 1);
    w->out_channels = weights->dim[0];
    if (w->groups < 1 || w->in_channels % w->groups || w->out_channels % w->groups ||
        weights->dim[1] != w->in_channels / w->groups)
        return op_error(graph, node, err, "the weights' channels do not fit the input's");
    return 0;
}

int window_of(const struct graph *graph, int node, const struct shape *x,
              const struct shape *weights, struct window *w, struct err *err)
{
    int i;

    memset(w, 0, sizeof(*w));
    w->rank = x->rank - 2;
    if (w->rank < 1 || w->rank > WINDOW_MAX || (weights && weights->rank != x->rank))
        return op_error(graph, node, err, "1 to %d spatial axes are supported", WINDOW_MAX);
    w->images = x->dim[0];
    w->in_channels = w->out_channels = x->dim[1];
    w->groups = 1;
    for (i = 0; i < w->rank; i++) {
        w->in[i] = x->dim[2 + i];
        if (w->in[i] < 1 || w->in[i] > MAX_EXTENT)
            return op_error(graph, node, err, "the input is empty or too large");
    }
    w->count_padding = node_int(&graph->nodes[node], "count_include_pad", 0) != 0;
    if (weights && check_channels(graph, node, weights, w, err))
        return -1;
    if (read_kernel(graph, node, weights, w, err) ||
        read_list(graph, node, "strides", w->rank, 1, 1, w->stride, err) ||
        read_list(graph, node, "dilations", w->rank, 1, 1, w->dilation, err) ||
        read_padding(graph, node, w, err))
        return -1;
    for (i = 0; !weights && i < w->rank; i++)
        if (w->before[i] >= (w->kernel[i] - 1) * w->dilation[i] + 1 ||
            w->after[i] >= (w->kernel[i] - 1) * w->dilation[i] + 1)
            return op_error(graph, node, err, "the padding is larger than the window");
    return slide(graph, node, w, err);
}
