/* SPDX-License-Identifier: MIT */
/* "cuda-bf16" and "cuda-fp16": which values of a stage program are narrow: bfloat16, or float16.
 *
 * Parameters, their gradients, statistics, losses, what a loss is scaled by and what crosses the stage's
 * border stay float32. What a product reads and makes is narrow, and what works on it element by element,
 * by rows, or only moves it, follows; sums over samples are float32 again. Where one form meets the other a
 * Reorder is put; those of parameters run once per step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/cuda.h"

const char cuda_narrow_layout = 'n';

enum dtype cuda_narrow_dtype(enum cuda_narrow narrow)
{
    return narrow == CUDA_FLOAT16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Bit i: operand i, of those from the 7th on the last bit. */
struct narrow_op {
    const char *name;
    unsigned inputs, outputs;
    bool always;                /* else where an input is narrow already */
};

#define EVERY 0xffu
#define LAST_BIT 7

static const struct narrow_op narrow_ops[] = {
    { "MatMul", 3, 1, true },
    { "Gemm", 7, 1, true },
    { "Linear", 7, 3, true },
    { "LinearDgrad", 3, 1, true },
    { "LinearWgrad", 3, 0, true },
    { "Conv", 7, 1, true },
    { "ConvTranspose", 3, 1, true },
    { "ConvDgrad", 3, 1, true },
    { "ConvWgrad", 3, 0, true },
    { "Attention", 7, 1, true },
    { "AttentionGrad", 15 | 1 << CUDA_GRAD_Y, 7, true },
    { "LayerNormalization", 1, 1, false },
    { "GroupNormalization", 1, 1, false },
    { "RMSNormalization", 1, 1, false },
    { "AddLayerNorm", 3, 3, false },
    { "AddRmsNorm", 3, 3, false },
    { "LayerNormDgrad", 3, 1, false },
    { "GroupNormDgrad", 3, 1, false },
    { "RmsNormDgrad", 3, 1, false },
    { "LayerNormWgrad", 3, 0, false },
    { "GroupNormWgrad", 3, 0, false },
    { "RmsNormWgrad", 3, 0, false },
    { "BatchNormalization", 1, 1, false },
    { "BatchNormGrad", 3, 1, false },
    { "MaxPool", 1, 1, false },
    { "MaxPoolGrad", 1, 1, false },
    { "AveragePool", 1, 1, false },
    { "AveragePoolGrad", 1, 1, false },
    { "GlobalAveragePool", 1, 0, false },
    { "GlobalAveragePoolGrad", 1, 1, false },
    { "Softmax", 1, 1, false },
    { "LogSoftmax", 1, 1, false },
    { "SoftmaxGrad", 3, 1, false },
    { "LogSoftmaxGrad", 3, 1, false },
    { "CrossEntropySum", 1, 0, false },
    { "CrossEntropyGrad", 2, 1, false },
    { "BiasGrad", 1, 0, false },
    { "ReduceSumTo", 1, 0, false },
    { "ReduceSum", 1, 0, false },
    { "ReduceMean", 1, 0, false },
    { "Relu", EVERY, 1, false },
    { "ReluGrad", EVERY, 1, false },
    { "Tanh", EVERY, 1, false },
    { "TanhGrad", EVERY, 1, false },
    { "Sigmoid", EVERY, 1, false },
    { "SigmoidGrad", EVERY, 1, false },
    { "Gelu", EVERY, 1, false },
    { "GeluGrad", EVERY, 1, false },
    { "Swish", EVERY, 1, false },
    { "SwishGrad", EVERY, 1, false },
    { "Neg", EVERY, 1, false },
    { "Add", EVERY, 1, false },
    { "Sub", EVERY, 1, false },
    { "Mul", EVERY, 1, false },
    { "AddN", EVERY, 1, false },
    { "Dropout", 1, 1, false },
    { "DropoutGrad", 1, 1, false },
    { "Copy", EVERY, 1, false },
    { "Reshape", 1, 1, false },
    { "View", 1, 1, false },
    { "Transpose", 1, 1, false },
    { "Slice", 1, 1, false },
    { "SliceGrad", 1, 1, false },
    { "Expand", 1, 1, false },
    { "Concat", EVERY, 1, false },
    { "Split", 1, EVERY, false },
    { "Where", 6, 1, false },
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

/* Lowering ------------------------------------------------------------------------------- */

struct lowering {
    struct device *device;
    struct program *program;
    struct graph *graph;
    int n_known;                /* values there were before */
    bool *fixed;                /* stays float32: seen from outside */
    int *other;                 /* the same value in the other form; -1: not made yet */
};

static enum dtype narrow_type(const struct lowering *l)
{
    return cuda_narrow_dtype(l->device->narrow);
}

static bool is_narrow(const struct lowering *l, int v)
{
    return v >= 0 && cuda_is_narrow(&l->program->values[v].layout);
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

static void make_narrow(struct lowering *l, int v)
{
    l->program->values[v].layout = (struct value_layout){
        &cuda_narrow_layout, CUDA_NARROW_BYTES * (size_t)shape_elements(&l->graph->values[v].shape)
    };
}

static int new_value(struct lowering *l, int like, const char *form)
{
    struct value v = l->graph->values[like];
    char *name = mem_printf("%s/%s", v.name, form);
    int id = graph_add_value(l->graph, name, VALUE_NODE, v.dtype, &v.shape, v.batch);

    free(name);
    l->other = mem_resize(l->other, (size_t)id + 1, sizeof(*l->other));
    l->other[id] = like;
    l->other[like] = id;
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

/* 'v' in the form that it does not have, for a node that is about to read it. */
static int converted(struct lowering *l, int v, enum part part, int node)
{
    enum value_place place = l->program->values[v].place;
    bool once = place == PLACE_PARAM || place == PLACE_PREPARED, narrow = is_narrow(l, v);
    int id;

    if (l->other[v] >= 0)
        return l->other[v];
    id = new_value(l, v, dtype_name(narrow ? DTYPE_F32 : narrow_type(l)));
    insert_reorder(l, v, id, once ? PART_PREPARE : part, once ? -1 : node, once);
    if (!narrow)
        make_narrow(l, id);
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

static bool runs_narrow(const struct lowering *l, int node, const struct narrow_op *op)
{
    const struct node *n = &l->graph->nodes[node];
    bool any = op->always;

    /* A view of what stays float32 is one itself. */
    if (n->op->flags & OP_VIEW && n->outputs[0] >= 0 && l->fixed[n->outputs[0]])
        return false;
    if (n->op->flags & OP_CONV && !cuda_conv_fits(l->device, l->graph, node))
        return false;
    for (int i = 0; i < n->n_inputs; i++) {
        int v = n->inputs[i];

        if (v < 0 || !has_bit(op->inputs, i))
            continue;
        /* What the loss is scaled by is not known before the step. */
        if (l->graph->values[v].dtype != DTYPE_F32 || is_lost(l, v) ||
            (v > 0 && v == l->program->autodiff->seed))
            return false;
        any = any || is_narrow(l, v) || is_narrow(l, l->other[v]);
    }
    return any;
}

/* Products are summed in float32, and those that nothing is added to can be left so: what is a
 * gradient of weights loses nothing.
 */
static bool can_stay_single(const struct node *n)
{
    return (strcmp(n->op->name, "MatMul") == 0 || strcmp(n->op->name, "Gemm") == 0) &&
           (n->n_inputs < 3 || n->inputs[2] < 0);
}

static void lower_output(struct lowering *l, int node, int i, enum part part)
{
    int v = l->graph->nodes[node].outputs[i], id;

    if (!l->fixed[v]) {
        make_narrow(l, v);
        return;
    }
    if (can_stay_single(&l->graph->nodes[node]))
        return;
    id = new_value(l, v, dtype_name(narrow_type(l)));
    l->graph->nodes[node].outputs[i] = id;
    l->graph->values[id].producer = node;
    insert_reorder(l, id, v, part, node, true);
    make_narrow(l, id);
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

static void lower_node(struct lowering *l, int node, enum part part)
{
    const struct narrow_op *op = find(l->graph->nodes[node].op->name);
    bool narrow = op && runs_narrow(l, node, op);
    int n_inputs, n_outputs = l->graph->nodes[node].n_outputs;

    if (narrow)
        lower_attention(l, node);
    n_inputs = l->graph->nodes[node].n_inputs;
    for (int i = 0; i < n_inputs; i++) {
        int v = l->graph->nodes[node].inputs[i];
        bool wanted = narrow && may_be(l->graph, op->inputs, i, v);

        if (v >= 0 && is_narrow(l, v) != wanted) {
            v = converted(l, v, part, node);
            l->graph->nodes[node].inputs[i] = v;
        }
    }
    for (int i = 0; narrow && i < n_outputs; i++)
        if (may_be(l->graph, op->outputs, i, l->graph->nodes[node].outputs[i]))
            lower_output(l, node, i, part);
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

int cuda_lower(struct device *device, struct program *program, struct err *err)
{
    struct lowering l = { .device = device, .program = program, .n_known = program->n_values };

    (void)err;
    program_own_graph(program);
    l.graph = program->graph;
    l.fixed = mem_new((size_t)l.n_known, sizeof(*l.fixed));
    l.other = mem_new((size_t)l.n_known, sizeof(*l.other));
    for (int v = 0; v < l.n_known; v++)
        l.other[v] = -1;
    find_fixed(&l);
    lower_part(&l, PART_FORWARD);
    lower_part(&l, PART_DGRAD);
    lower_part(&l, PART_WGRAD);
    program_relink(program);
    free(l.other);
    free(l.fixed);
    return 0;
}
