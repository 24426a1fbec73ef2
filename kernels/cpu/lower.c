/* SPDX-License-Identifier: MIT */
/* Layouts of a stage program.
 *
 * oneDNN's convolutions are fastest with channels last and weights in blocks. So what a
 * convolution makes has channels last, and what works on it keeps that, up to where an
 * operator or the stage's border needs the plain form: a Reorder node is put there. Parameters
 * stay plain: what a convolution reads is made of them once per step, and its gradient is
 * brought back to the plain form where it is added.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/cpu.h"

struct lowering {
    struct device *device;
    struct program *program;
    struct graph *graph;
    const struct cpu_layout *last;
    int n_known; /* values there were before */
    bool *fixed; /* must stay plain: seen from outside */
    int *other;  /* the same value in the other layout; -1: not made yet */
    int n_weights;
    struct prepared *weights;
};

struct prepared {
    int param, value;
    const struct cpu_layout *layout;
};

static const struct value *value_of(const struct lowering *l, int v)
{
    return &l->graph->values[v];
}

static bool is_last(const struct lowering *l, int v)
{
    return v >= 0 && cpu_channels_last(l->program->values[v].layout.opaque);
}

static bool is_spatial(const struct lowering *l, int v)
{
    return cpu_spatial(&value_of(l, v)->shape);
}

static void fix(struct lowering *l, int v)
{
    if (v >= 0 && v < l->n_known)
        l->fixed[v] = l->fixed[l->program->values[v].root] = true;
}

static void find_fixed(struct lowering *l)
{
    const struct program *p = l->program;
    const struct autodiff *ad = p->autodiff;

    for (int v = 0; v < l->n_known; v++) {
        enum value_place place = p->values[v].place;

        if (value_of(l, v)->kind != VALUE_NODE ||
            (place != PLACE_SLOT && place != PLACE_SCRATCH))
            fix(l, v);
        if (p->values[v].root != v)
            fix(l, v);
    }
    for (int i = 0; i < ad->n_boundaries; i++) {
        fix(l, ad->boundaries[i].value);
        fix(l, ad->boundaries[i].gradient);
        fix(l, ad->boundaries[i].received);
    }
    for (int i = 0; i < l->graph->n_outputs; i++)
        fix(l, l->graph->outputs[i]);
    fix(l, l->graph->loss);
}

static int new_value(struct lowering *l, int like)
{
    struct value v = *value_of(l, like);
    char *name = mem_printf("%s/reordered", v.name);
    int id = graph_add_value(l->graph, name, VALUE_NODE, v.dtype, &v.shape, v.batch);

    free(name);
    return id;
}

/* program_insert() makes room for the new value; only then it can have a layout. */
static void set_layout(struct lowering *l, int v, const struct cpu_layout *layout)
{
    struct value_layout *to = &l->program->values[v].layout;

    to->opaque = layout;
    to->bytes = layout && layout->kind == CPU_WEIGHTS ? onednn_format_bytes(layout->format)
                                                      : value_bytes(value_of(l, v));
}

static void insert_reorder(struct lowering *l, int from, int to, enum part part, int where,
                           bool after)
{
    int node = graph_add_node(l->graph, NULL, op_find("Reorder"), 1, &from, 1, &to);

    l->graph->nodes[node].block = where < 0 ? -1 : l->graph->nodes[where].block;
    program_insert(l->program, part, where, after, node);
}

/* 'v' in the layout that it does not have, for a node that is about to read it. */
static int converted(struct lowering *l, int v, enum part part, int before)
{
    int id;

    if (l->other[v] >= 0)
        return l->other[v];
    id = new_value(l, v);
    insert_reorder(l, v, id, part, before, false);
    set_layout(l, id, is_last(l, v) ? NULL : l->last);
    l->other[v] = id;
    return id;
}

static void want_input(struct lowering *l, int node, int index, bool last, enum part part)
{
    int v = l->graph->nodes[node].inputs[index];

    if (v < 0 || !is_spatial(l, v) || is_last(l, v) == last)
        return;
    v = converted(l, v, part, node);
    l->graph->nodes[node].inputs[index] = v;
}

/* The node makes the output with channels last; where that is not allowed, beside it. */
static void want_output(struct lowering *l, int node, int index, enum part part)
{
    int v = index < l->graph->nodes[node].n_outputs ? l->graph->nodes[node].outputs[index] : -1;
    int id;

    if (v < 0 || !is_spatial(l, v))
        return;
    if (!l->fixed[v]) {
        set_layout(l, v, l->last);
        return;
    }
    id = new_value(l, v);
    l->graph->nodes[node].outputs[index] = id;
    l->graph->values[id].producer = node;
    insert_reorder(l, id, v, part, node, true);
    set_layout(l, id, l->last);
    l->other[v] = id;
}

/* Weights of convolutions ------------------------------------------------------------ */

static const struct cpu_layout *keep_layout(struct lowering *l, struct onednn_format *format,
                                            const struct onednn_conv_shape *shape)
{
    struct cpu_layout *layout = mem_new(1, sizeof(*layout));

    layout->kind = format ? CPU_WEIGHTS : CPU_CHANNELS_LAST;
    layout->format = format;
    if (shape)
        layout->shape = *shape;
    *(struct cpu_layout **)mem_push((void **)&l->device->layouts, &l->device->n_layouts,
                                    sizeof(layout)) = layout;
    return layout;
}

static int prepared_weights(struct lowering *l, int param, struct onednn_format *format,
                            const struct onednn_conv_shape *shape)
{
    struct prepared *p;
    int id;

    for (int i = 0; i < l->n_weights; i++)
        if (l->weights[i].param == param &&
            onednn_format_equal(l->weights[i].layout->format, format)) {
            onednn_format_free(format);
            return l->weights[i].value;
        }
    id = new_value(l, param);
    insert_reorder(l, param, id, PART_PREPARE, -1, true);
    p = mem_push((void **)&l->weights, &l->n_weights, sizeof(*p));
    *p = (struct prepared){param, id, keep_layout(l, format, shape)};
    set_layout(l, id, p->layout);
    return id;
}

static void lower_weights_gradient(struct lowering *l, int node, struct onednn_format *format,
                                   const struct onednn_conv_shape *shape, enum part part)
{
    int v = l->graph->nodes[node].outputs[0], id = new_value(l, v);

    l->graph->nodes[node].outputs[0] = id;
    l->graph->values[id].producer = node;
    insert_reorder(l, id, v, part, node, true);
    set_layout(l, id, keep_layout(l, format, shape));
}

static int lower_weights(struct lowering *l, int node, enum part part, struct err *err)
{
    const struct node *n = &l->graph->nodes[node];
    struct onednn_conv_shape shape;
    struct onednn_format *format;
    enum onednn_conv_kind kind;
    bool x_last, y_last;
    int x, y, w;

    if (cpu_conv_shape(l->graph, node, &shape, &kind, err))
        return -1;
    x = kind == CONV_DGRAD ? n->outputs[0] : n->inputs[0];
    y = kind == CONV_FORWARD ? n->outputs[0] : n->inputs[kind == CONV_WGRAD ? 1 : 0];
    x_last = is_last(l, x);
    y_last = is_last(l, y);
    cpu_conv_last(&value_of(l, x)->shape, &value_of(l, y)->shape, &x_last, &y_last);
    w = kind == CONV_WGRAD ? n->outputs[0] : n->inputs[1];
    if (kind != CONV_WGRAD && value_of(l, w)->kind != VALUE_PARAM &&
        value_of(l, w)->kind != VALUE_CONST)
        return 0;
    format = onednn_conv_format(l->device->onednn, &shape, kind, x_last, y_last);
    if (!format)
        return 0;
    if (kind == CONV_WGRAD) {
        lower_weights_gradient(l, node, format, &shape, part);
    } else {
        w = prepared_weights(l, w, format, &shape);
        l->graph->nodes[node].inputs[1] = w;
    }
    return 0;
}

/* Nodes ------------------------------------------------------------------------------- */

/* The layout in which a node of a spatial operator runs follows the value it is told by. */
static bool runs_last(const struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];
    const char *op = n->op->name;

    if (strncmp(op, "Conv", 4) == 0)
        return true;
    if (strstr(op, "AveragePoolGrad") || strcmp(op, "MaxPoolGrad") == 0)
        return n->source >= 0 && is_last(l, l->graph->nodes[n->source].inputs[0]);
    if (strcmp(op, "BatchNormGrad") == 0)
        return is_last(l, n->inputs[1]);
    return n->n_inputs > 0 && is_last(l, n->inputs[0]);
}

static void lower_spatial(struct lowering *l, int node, enum part part)
{
    bool last = runs_last(l, node);
    int n_inputs = l->graph->nodes[node].n_inputs, n_outputs = l->graph->nodes[node].n_outputs;

    bool conv = strncmp(l->graph->nodes[node].op->name, "Conv", 4) == 0;
    bool wgrad = strcmp(l->graph->nodes[node].op->name, "ConvWgrad") == 0;

    for (int i = 0; i < n_inputs; i++)
        if (!conv || i == 0 || (wgrad && i == 1))
            want_input(l, node, i, last, part);
    for (int i = 0; last && i < n_outputs; i++)
        if (!wgrad)
            want_output(l, node, i, part);
}

/* Element by element: all alike, and channels last as soon as one operand is. */
static void lower_flat(struct lowering *l, int node, enum part part)
{
    const struct node *n = &l->graph->nodes[node];
    int y = n->n_outputs > 0 ? n->outputs[0] : -1, n_inputs = n->n_inputs;
    bool same = y >= 0 && n->n_outputs == 1, last = false;

    for (int i = 0; i < n_inputs; i++) {
        same = same && n->inputs[i] >= 0 &&
               shape_equal(&value_of(l, n->inputs[i])->shape, &value_of(l, y)->shape);
        last = last || is_last(l, n->inputs[i]);
    }
    last = last && same;
    for (int i = 0; i < n_inputs; i++)
        want_input(l, node, i, last, part);
    if (last)
        want_output(l, node, 0, part);
}

static bool is_f32(const struct lowering *l, int node)
{
    struct cpu_build build = {l->device, l->graph, node, NULL};

    return cpu_is_f32(&build);
}

/* Cases that the kernels leave to the reference ones. */
static enum cpu_layout_rule rule_of(const struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];
    const struct cpu_op *op = cpu_op_find(n->op->name);
    bool pool =
        strncmp(n->op->name, "MaxPool", 7) == 0 || strncmp(n->op->name, "AveragePool", 11) == 0;

    if (!op || (pool && value_of(l, n->inputs[0])->shape.rank > 4))
        return CPU_PLAIN;
    if (strcmp(n->op->name, "BiasGrad") == 0 && node_int(n, "axis", -1) != 1)
        return CPU_PLAIN;
    return op->layout;
}

static int lower_node(struct lowering *l, int node, enum part part, struct err *err)
{
    const char *name = l->graph->nodes[node].op->name;
    enum cpu_layout_rule rule = rule_of(l, node);

    if (strcmp(name, "Reorder") == 0)
        return 0;
    if (rule == CPU_SPATIAL && is_f32(l, node)) {
        lower_spatial(l, node, part);
        return strncmp(name, "Conv", 4) == 0 ? lower_weights(l, node, part, err) : 0;
    }
    if (rule == CPU_FLAT && is_f32(l, node)) {
        lower_flat(l, node, part);
        return 0;
    }
    for (int i = 0; i < l->graph->nodes[node].n_inputs; i++)
        want_input(l, node, i, false, part);
    return 0;
}

static int lower_part(struct lowering *l, enum part part, struct err *err)
{
    int n = l->program->list[part].n, rc = 0;
    int *nodes = mem_new((size_t)n + 1, sizeof(*nodes));

    /* The list grows while nodes are put into it. */
    if (n > 0)
        memcpy(nodes, l->program->list[part].nodes, (size_t)n * sizeof(*nodes));
    for (int i = 0; i < n && rc == 0; i++)
        rc = lower_node(l, nodes[i], part, err);
    free(nodes);
    return rc;
}

static bool has_convolution(const struct program *program)
{
    for (int part = 0; part < PART_COUNT; part++)
        for (int i = 0; i < program->list[part].n; i++) {
            int node = program->list[part].nodes[i];

            if (strncmp(program->graph->nodes[node].op->name, "Conv", 4) == 0)
                return true;
        }
    return false;
}

int cpu_lower(struct device *device, struct program *program, struct err *err)
{
    static const enum part order[] = {PART_FORWARD, PART_DGRAD, PART_WGRAD};
    struct lowering l = {.device = device, .program = program, .n_known = program->n_values};
    int rc = 0;

    if (program->graph->real != DTYPE_F32 || !has_convolution(program))
        return 0;
    program_own_graph(program);
    l.graph = program->graph;
    l.last = keep_layout(&l, NULL, NULL);
    l.fixed = mem_new((size_t)l.n_known, sizeof(*l.fixed));
    l.other = mem_new((size_t)l.n_known, sizeof(*l.other));
    for (int v = 0; v < l.n_known; v++)
        l.other[v] = -1;
    find_fixed(&l);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && rc == 0; i++)
        rc = lower_part(&l, order[i], err);
    program_relink(program);
    free(l.weights);
    free(l.other);
    free(l.fixed);
    return rc;
}
