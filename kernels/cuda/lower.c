/* SPDX-License-Identifier: MIT */
/* What a stage program becomes on a GPU: of all types pointwise operators become chains (chain.c).
 *
 * "cuda-bf16" and "cuda-fp16": which values of a stage program are narrow: bfloat16, or float16.
 *
 * Parameters, their gradients, statistics, losses, what a loss is scaled by and what crosses the stage's
 * border stay float32. What a product reads and makes is narrow, and what works on it element by element,
 * by rows, or only moves it, follows; sums over samples are float32 again. Where one form meets another a
 * Reorder is put; those of parameters run once per step.
 *
 * Kernels of convolutions for tensor cores want channels to be the last axis: those that have as many as
 * such kernels take at a time, in and out, have them so, as what follows them has. Gradients are in the
 * form of what they are of.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/chain.h"

const char cuda_narrow_layout = 'n', cuda_last_layout = 'l', cuda_places_layout = 'p';

enum dtype cuda_narrow_dtype(enum cuda_narrow narrow)
{
    return narrow == CUDA_FLOAT16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Bit i: operand i, of those from the 7th on the last bit. */
struct narrow_op {
    const char *name;
    unsigned inputs, outputs;
    bool always;                /* else where an input is narrow already */
    bool images;                /* their channels may be the last axis, of all that are narrow */
};

#define EVERY 0xffu
#define LAST_BIT 7

static const struct narrow_op narrow_ops[] = {
    { "MatMul", 3, 1, true, false },
    { "Gemm", 7, 1, true, false },
    { "Linear", 7, 3, true, false },
    { "LinearDgrad", 3, 1, true, false },
    { "LinearWgrad", 3, 0, true, false },
    { "Conv", 7, 1, true, true },
    { "ConvTranspose", 3, 1, true, true },
    { "ConvDgrad", 3, 1, true, true },
    { "ConvWgrad", 3, 0, true, true },
    { "Attention", 7, 1, true, false },
    { "AttentionGrad", 15 | 1 << CUDA_GRAD_Y, 7, true, false },
    { "LayerNormalization", 1, 1, false, false },
    { "GroupNormalization", 1, 1, false, false },
    { "RMSNormalization", 1, 1, false, false },
    { "AddLayerNorm", 3, 3, false, false },
    { "AddRmsNorm", 3, 3, false, false },
    { "LayerNormDgrad", 3, 1, false, false },
    { "GroupNormDgrad", 3, 1, false, false },
    { "RmsNormDgrad", 3, 1, false, false },
    { "LayerNormWgrad", 3, 0, false, false },
    { "GroupNormWgrad", 3, 0, false, false },
    { "RmsNormWgrad", 3, 0, false, false },
    { "BatchNormalization", 1, 1, false, true },
    { "BatchNormGrad", 3, 1, false, true },
    { "MaxPool", 1, 1, false, true },
    { "MaxPoolGrad", 1, 1, false, true },
    { "AveragePool", 1, 1, false, true },
    { "AveragePoolGrad", 1, 1, false, true },
    { "GlobalAveragePool", 1, 0, false, true },
    { "GlobalAveragePoolGrad", 1, 1, false, true },
    { "Softmax", 1, 1, false, false },
    { "LogSoftmax", 1, 1, false, false },
    { "SoftmaxGrad", 3, 1, false, false },
    { "LogSoftmaxGrad", 3, 1, false, false },
    { "CrossEntropySum", 1, 0, false, false },
    { "CrossEntropyGrad", 2, 1, false, false },
    { "BiasGrad", 1, 0, false, true },
    { "ReduceSumTo", 1, 0, false, false },
    { "ReduceSum", 1, 0, false, false },
    { "ReduceMean", 1, 0, false, false },
    { "Relu", EVERY, 1, false, true },
    { "ReluGrad", EVERY, 1, false, true },
    { "Tanh", EVERY, 1, false, true },
    { "TanhGrad", EVERY, 1, false, true },
    { "Sigmoid", EVERY, 1, false, true },
    { "SigmoidGrad", EVERY, 1, false, true },
    { "Gelu", EVERY, 1, false, true },
    { "GeluGrad", EVERY, 1, false, true },
    { "Swish", EVERY, 1, false, true },
    { "SwishGrad", EVERY, 1, false, true },
    { "Neg", EVERY, 1, false, true },
    { "Add", EVERY, 1, false, true },
    { "Sub", EVERY, 1, false, true },
    { "Mul", EVERY, 1, false, true },
    { "AddN", EVERY, 1, false, true },
    { "Dropout", 1, 1, false, false },
    { "DropoutGrad", 1, 1, false, false },
    { "Copy", EVERY, 1, false, true },
    { "Reshape", 1, 1, false, false },
    { "View", 1, 1, false, false },
    { "Transpose", 1, 1, false, false },
    { "Slice", 1, 1, false, false },
    { "SliceGrad", 1, 1, false, false },
    { "Expand", 1, 1, false, false },
    { "Concat", EVERY, 1, false, false },
    { "Split", 1, EVERY, false, false },
    { "Where", 6, 1, false, false },
};

static const struct narrow_op *find(const char *op)
{
    for (size_t i = 0; i < sizeof(narrow_ops) / sizeof(narrow_ops[0]); i++)
        if (strcmp(narrow_ops[i].name, op) == 0)
            return &narrow_ops[i];
    return NULL;
}

static bool has_bit(unsigned bits, int i)
{
    return bits >> (i < LAST_BIT ? i : LAST_BIT) & 1;
}

/* A value of float32, in a place that this operator takes as narrow. */
static bool may_be(const struct graph *graph, unsigned bits, int i, int v)
{
    return v >= 0 && has_bit(bits, i) && graph->values[v].dtype == DTYPE_F32;
}

bool cuda_narrows_input(const struct graph *graph, int node, int i)
{
    const struct node *n = &graph->nodes[node];
    const struct narrow_op *op = find(n->op->name);

    return op && may_be(graph, op->inputs, i, n->inputs[i]);
}

bool cuda_narrows_output(const struct graph *graph, int node, int i)
{
    const struct node *n = &graph->nodes[node];
    const struct narrow_op *op = find(n->op->name);

    return op && may_be(graph, op->outputs, i, n->outputs[i]);
}

static bool is_image(const struct graph *graph, int v)
{
    return graph->values[v].shape.rank == 4;
}

/* Of several images that an operator reads element by element all are of one shape. */
bool cuda_takes_last(const struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];
    const struct narrow_op *op = find(n->op->name);
    bool conv = n->op->flags & OP_CONV;
    int first = -1;

    if (!op || !op->images || n->n_inputs > CUDA_TERMS ||
        (strcmp(op->name, "BiasGrad") == 0 && node_int(n, "axis", -1) != 1))
        return false;
    for (int i = 0; i < n->n_inputs; i++) {
        int v = n->inputs[i];

        if (!may_be(graph, op->inputs, i, v) || (conv && i == 2))
            continue;
        if (!is_image(graph, v))
            return false;
        if (first >= 0 && !conv && !shape_equal(&graph->values[first].shape, &graph->values[v].shape))
            return false;
        first = v;
    }
    for (int i = 0; i < n->n_outputs; i++)
        if (may_be(graph, op->outputs, i, n->outputs[i]) && !is_image(graph, n->outputs[i]))
            return false;
    return first >= 0;
}

/* Lowering ------------------------------------------------------------------------------- */

enum form { WIDE, NARROW, LAST, FORMS };

struct lowering {
    struct device *device;
    struct program *program;
    struct graph *graph;
    int n_known;                /* values there were before */
    bool *fixed;                /* stays float32: seen from outside */
    int *origin;                /* of a copy that was made here: what there was before */
    int (*copies)[FORMS];       /* of what there was before; -1: not made yet */
    bool last;                  /* may channels be the last axis? */
    bool *ran_last;             /* of nodes that there were before */
};

static enum dtype narrow_type(const struct lowering *l)
{
    return cuda_narrow_dtype(l->device->narrow);
}

static enum form form_of(const struct lowering *l, int v)
{
    const struct value_layout *layout = &l->program->values[v].layout;

    return cuda_is_last(layout) ? LAST : cuda_is_narrow(layout) ? NARROW : WIDE;
}

/* Is there the same value in this form? */
static bool has_form(const struct lowering *l, int v, enum form form)
{
    return form_of(l, l->origin[v]) == form || l->copies[l->origin[v]][form] >= 0;
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

        if (l->graph->values[v].kind != VALUE_NODE ||
            (place != PLACE_SLOT && place != PLACE_SCRATCH))
            fix(l, v);
    }
    for (int i = 0; i < ad->n_boundaries; i++) {
        fix(l, ad->boundaries[i].value);
        fix(l, ad->boundaries[i].gradient);
        fix(l, ad->boundaries[i].received);
    }
    fix(l, l->graph->loss);
    fix(l, l->graph->correct);
}

static void set_form(struct lowering *l, int v, enum form form)
{
    size_t elements = (size_t)shape_elements(&l->graph->values[v].shape);

    if (form != WIDE)
        l->program->values[v].layout = (struct value_layout){
            form == LAST ? &cuda_last_layout : &cuda_narrow_layout, CUDA_NARROW_BYTES * elements,
            form == LAST ? cuda_last_layout : 0
        };
}

static int new_copy(struct lowering *l, int origin, enum form form)
{
    struct value v = l->graph->values[origin];
    char *name = mem_printf("%s/%s%s", v.name, dtype_name(form == WIDE ? DTYPE_F32 : narrow_type(l)),
                            form == LAST ? "/last" : "");
    int id = graph_add_value(l->graph, name, VALUE_NODE, v.dtype, &v.shape, v.batch);

    free(name);
    l->origin = mem_resize(l->origin, (size_t)id + 1, sizeof(*l->origin));
    l->origin[id] = origin;
    l->copies[origin][form] = id;
    return id;
}

/* program_insert() makes room for the new value; only then it can have a layout. */
static void insert_reorder(struct lowering *l, int from, int to, enum part part, int where,
                           bool after)
{
    int node = graph_add_node(l->graph, NULL, op_find("Reorder"), 1, &from, 1, &to);

    l->graph->nodes[node].block = where < 0 ? -1 : l->graph->nodes[where].block;
    program_insert(l->program, part, where, after, node);
}

/* 'v' in that form, for a node that is about to read it. */
static int in_form(struct lowering *l, int v, enum form form, enum part part, int node)
{
    int origin = l->origin[v], narrow = l->copies[origin][NARROW], from = narrow >= 0 ? narrow : origin;
    enum value_place place = l->program->values[from].place;
    bool once = place == PLACE_PARAM || place == PLACE_PREPARED;
    int id;

    if (form_of(l, origin) == form)
        return origin;
    if (l->copies[origin][form] >= 0)
        return l->copies[origin][form];
    id = new_copy(l, origin, form);
    insert_reorder(l, from, id, once ? PART_PREPARE : part, once ? -1 : node, once);
    set_form(l, id, form);
    return id;
}

/* Is it more than rounded? Numbers such as the -1e9 of a mask are not to become infinite, nor a small
 * factor 0; of many numbers some are always small.
 */
static bool is_lost(const struct lowering *l, int v)
{
    const struct value *value = &l->graph->values[v];
    int64_t n = shape_elements(&value->shape);
    bool lost = false;

    if (l->device->narrow != CUDA_FLOAT16 || value->kind != VALUE_CONST || !value->data)
        return false;
    for (int64_t i = 0; i < n && !lost; i++) {
        double size = fabs(dtype_real(value->dtype, value->data, i));

        lost = isfinite(size) && (size >= 65520 || (n == 1 && size != 0 && size < 0x1p-14));
    }
    return lost;
}

#define STEP 8                  /* channels that kernels for tensor cores take at a time; the few of a picture
                                 * cuDNN fills up */

static bool suits_last(const struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];
    int w = strcmp(n->op->name, "ConvWgrad") == 0 ? n->outputs[0] : n->inputs[1];
    const struct shape *shape = &l->graph->values[w].shape;

    return shape->dim[0] % STEP == 0 && (shape->dim[1] % STEP == 0 || shape->dim[1] < STEP) &&
           cuda_conv_fits(l->device, l->graph, node, true);
}

static bool runs_last(const struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];
    bool any = false;

    if (!l->last || !cuda_takes_last(l->graph, node))
        return false;
    if (n->op->flags & OP_CONV)
        return suits_last(l, node);
    if (n->source >= 0 && strcmp(n->op->name, "AddN") != 0)
        return l->ran_last[n->source];
    for (int i = 0; i < n->n_inputs; i++)
        any = any || (n->inputs[i] >= 0 && has_form(l, n->inputs[i], LAST));
    return any;
}

static bool runs_narrow(const struct lowering *l, int node, const struct narrow_op *op, bool last)
{
    const struct node *n = &l->graph->nodes[node];
    bool any = op->always;

    /* A view of what stays float32 is one itself. */
    if (n->op->flags & OP_VIEW && n->outputs[0] >= 0 && l->fixed[n->outputs[0]])
        return false;
    if (n->op->flags & OP_CONV && !last && !cuda_conv_fits(l->device, l->graph, node, false))
        return false;
    for (int i = 0; i < n->n_inputs; i++) {
        int v = n->inputs[i];

        if (v < 0 || !has_bit(op->inputs, i))
            continue;
        /* What the loss is scaled by is not known before the step. */
        if (l->graph->values[v].dtype != DTYPE_F32 || is_lost(l, v) ||
            (v > 0 && v == l->program->autodiff->seed))
            return false;
        any = any || has_form(l, v, NARROW) || has_form(l, v, LAST);
    }
    return any;
}

/* Convolutions in groups lie between others, and are as fast with channels that are not last. */
static bool has_groups(const struct graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op->flags & OP_CONV && node_int(&graph->nodes[n], "group", 1) > 1)
            return true;
    return false;
}

/* Products are summed in float32, and those that nothing is added to can be left so: what is a
 * gradient of weights loses nothing.
 */
static bool can_stay_single(const struct node *n)
{
    return (strcmp(n->op->name, "MatMul") == 0 || strcmp(n->op->name, "Gemm") == 0) &&
           (n->n_inputs < 3 || n->inputs[2] < 0);
}

static void lower_output(struct lowering *l, int node, int i, enum form form, enum part part)
{
    int v = l->graph->nodes[node].outputs[i], id;

    if (!l->fixed[v]) {
        set_form(l, v, form);
        return;
    }
    if (can_stay_single(&l->graph->nodes[node]))
        return;
    id = new_copy(l, v, form);
    l->graph->nodes[node].outputs[i] = id;
    l->graph->values[id].producer = node;
    insert_reorder(l, id, v, part, node, true);
    set_form(l, id, form);
}

void cuda_give_output(struct graph *graph, int node)
{
    struct node *n = &graph->nodes[node];
    int *inputs = arena_alloc(graph->arena, CUDA_GRAD_Y + 1, sizeof(*inputs));

    for (int i = 0; i < CUDA_GRAD_Y; i++)
        inputs[i] = i < n->n_inputs ? n->inputs[i] : -1;
    inputs[CUDA_GRAD_Y] = graph->nodes[n->source].outputs[0];
    n->inputs = inputs;
    n->n_inputs = CUDA_GRAD_Y + 1;
}

/* Then y is kept for the gradient, but no scores. */
static void lower_attention(struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];

    if (strcmp(n->op->name, "AttentionGrad") == 0 && n->n_inputs <= CUDA_GRAD_Y && n->source >= 0 &&
        cuda_attention_fused(l->device, l->graph, node))
        cuda_give_output(l->graph, node);
}

static enum form form_for(const struct lowering *l, int v, bool last)
{
    return last && is_image(l->graph, v) ? LAST : NARROW;
}

/* Its gradient, in whatever form, sees it by the layout. */
static void lower_places(struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];
    int v = n->n_outputs > 1 ? n->outputs[1] : -1;

    if (strcmp(n->op->name, "MaxPool") == 0 && v >= 0 && !l->fixed[v])
        l->program->values[v].layout = (struct value_layout){
            &cuda_places_layout, (size_t)shape_elements(&l->graph->values[v].shape) * sizeof(int32_t),
            cuda_places_layout
        };
}

static void lower_node(struct lowering *l, int node, enum part part)
{
    const struct narrow_op *op = find(l->graph->nodes[node].op->name);
    bool last = op && runs_last(l, node), narrow = op && runs_narrow(l, node, op, last);
    int n_inputs, n_outputs = l->graph->nodes[node].n_outputs;

    l->ran_last[node] = last = last && narrow;
    if (narrow)
        lower_attention(l, node);
    if (last)
        lower_places(l, node);
    n_inputs = l->graph->nodes[node].n_inputs;
    for (int i = 0; i < n_inputs; i++) {
        int v = l->graph->nodes[node].inputs[i];
        bool wanted = narrow && may_be(l->graph, op->inputs, i, v);

        /* The graph may move while a copy is made. */
        if (v >= 0) {
            v = in_form(l, v, wanted ? form_for(l, v, last) : WIDE, part, node);
            l->graph->nodes[node].inputs[i] = v;
        }
    }
    for (int i = 0; narrow && i < n_outputs; i++) {
        int v = l->graph->nodes[node].outputs[i];

        if (may_be(l->graph, op->outputs, i, v))
            lower_output(l, node, i, form_for(l, v, last), part);
    }
}

static void lower_part(struct lowering *l, enum part part)
{
    int n = l->program->list[part].n;
    int *nodes = mem_new((size_t)n + 1, sizeof(*nodes));

    /* The list grows while nodes are put into it. */
    if (n > 0)
        memcpy(nodes, l->program->list[part].nodes, (size_t)n * sizeof(*nodes));
    for (int i = 0; i < n; i++)
        lower_node(l, nodes[i], part);
    free(nodes);
}

static void start(struct lowering *l)
{
    size_t n = (size_t)l->n_known;

    l->graph = l->program->graph;
    l->fixed = mem_new(n, sizeof(*l->fixed));
    l->origin = mem_new(n, sizeof(*l->origin));
    l->copies = mem_new(n, sizeof(*l->copies));
    l->ran_last = mem_new((size_t)l->graph->n_nodes + 1, sizeof(*l->ran_last));
    l->last = !has_groups(l->graph);
    for (int v = 0; v < l->n_known; v++) {
        l->origin[v] = v;
        for (int form = 0; form < FORMS; form++)
            l->copies[v][form] = -1;
    }
    find_fixed(l);
}

static void make_narrow(struct device *device, struct program *program)
{
    struct lowering l = { .device = device, .program = program, .n_known = program->n_values };

    start(&l);
    lower_part(&l, PART_FORWARD);
    lower_part(&l, PART_DGRAD);
    lower_part(&l, PART_WGRAD);
    cuda_turn_attentions(device, program);
    free(l.ran_last);
    free(l.copies);
    free(l.origin);
    free(l.fixed);
}

int cuda_lower(struct device *device, struct program *program, struct err *err)
{
    (void)err;
    program_own_graph(program);
    if (device->narrow)
        make_narrow(device, program);
    program_relink(program);
    if (device->narrow && !device->no_chains) {
        cuda_join_relus(program);
        program_relink(program);
    }
    cuda_join_biases(device, program);
    program_relink(program);
    cuda_form_chains(device, program);
    program_relink(program);
    return 0;
}
