/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/narrow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"

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

/* With any number of samples. */
static bool same_images(const struct value *a, const struct value *b)
{
    return shape_equal(&a->shape, &b->shape) && (a->batch.outer != 0) == (b->batch.outer != 0);
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
        if (first >= 0 && !conv && !same_images(&graph->values[first], &graph->values[v]))
            return false;
        first = v;
    }
    for (int i = 0; i < n->n_outputs; i++)
        if (may_be(graph, op->outputs, i, n->outputs[i]) && !is_image(graph, n->outputs[i]))
            return false;
    return first >= 0;
}

/* Forms ---------------------------------------------------------------------------------- */

/* Convolutions in groups lie between others, and are as fast with channels that are not last. */
static bool has_groups(const struct graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op->flags & OP_CONV && node_int(&graph->nodes[n], "group", 1) > 1)
            return true;
    return false;
}

void cuda_forms_start(struct cuda_forms *forms, const struct graph *graph, struct device *device,
                      enum cuda_narrow narrow, int seed)
{
    size_t n = (size_t)graph->n_values + 1;

    *forms = (struct cuda_forms){ .graph = graph, .device = device, .narrow = narrow, .seed = seed };
    forms->fixed = mem_new(n, sizeof(*forms->fixed));
    forms->form = mem_new(n, sizeof(*forms->form));
    forms->copies = mem_new(n, sizeof(*forms->copies));
    forms->ran_last = mem_new((size_t)graph->n_nodes + 1, sizeof(*forms->ran_last));
    forms->last = !has_groups(graph);
}

void cuda_forms_clear(struct cuda_forms *forms)
{
    free(forms->ran_last);
    free(forms->copies);
    free(forms->form);
    free(forms->fixed);
}

/* Is there the same value in this form? */
static bool has_form(const struct cuda_forms *f, int v, enum cuda_form form)
{
    return f->form[v] == form || f->copies[v] >> form & 1;
}

/* Is it more than rounded? Numbers such as the -1e9 of a mask are not to become infinite, nor a small
 * factor 0; of many numbers some are always small.
 */
static bool is_lost(const struct cuda_forms *f, int v)
{
    const struct value *value = &f->graph->values[v];
    int64_t n = shape_elements(&value->shape);
    bool lost = false, one = n == 1 && value->batch.outer == 0;

    if (f->narrow != CUDA_FLOAT16 || value->kind != VALUE_CONST || value->large || !value->data)
        return false;
    for (int64_t i = 0; i < n && !lost; i++) {
        double size = fabs(dtype_real(value->file_dtype, value->data, i));

        lost = isfinite(size) && (size >= DTYPE_F16_END || (one && size != 0 && size < 0x1p-14));
    }
    return lost;
}

#define STEP 8                  /* channels that kernels for tensor cores take at a time; the few of a picture
                                 * cuDNN fills up */

static bool has_convolution(const struct cuda_forms *f, int node, bool last)
{
    return f->device ? cuda_conv_fits(f->device, f->graph, node, last)
                     : is_image(f->graph, f->graph->nodes[node].inputs[0]);
}

static bool suits_last(const struct cuda_forms *f, int node)
{
    const struct node *n = &f->graph->nodes[node];
    int w = strcmp(n->op->name, "ConvWgrad") == 0 ? n->outputs[0] : n->inputs[1];
    const struct shape *shape = &f->graph->values[w].shape;

    return shape->dim[0] % STEP == 0 && (shape->dim[1] % STEP == 0 || shape->dim[1] < STEP) &&
           has_convolution(f, node, true);
}

static bool runs_last(const struct cuda_forms *f, int node)
{
    const struct node *n = &f->graph->nodes[node];
    bool any = false;

    if (!f->last || !cuda_takes_last(f->graph, node))
        return false;
    if (n->op->flags & OP_CONV)
        return suits_last(f, node);
    if (n->source >= 0 && strcmp(n->op->name, "AddN") != 0)
        return f->ran_last[n->source];
    for (int i = 0; i < n->n_inputs; i++)
        any = any || (n->inputs[i] >= 0 && has_form(f, n->inputs[i], CUDA_LAST));
    return any;
}

static bool runs_narrow(const struct cuda_forms *f, int node, const struct narrow_op *op, bool last)
{
    const struct node *n = &f->graph->nodes[node];
    bool any = op->always;

    /* A view of what stays float32 is one itself. */
    if (n->op->flags & OP_VIEW && n->outputs[0] >= 0 && f->fixed[n->outputs[0]])
        return false;
    if (n->op->flags & OP_CONV && !last && !has_convolution(f, node, false))
        return false;
    for (int i = 0; i < n->n_inputs; i++) {
        int v = n->inputs[i];

        if (v < 0 || !has_bit(op->inputs, i))
            continue;
        /* What the loss is scaled by is not known before the step. */
        if (f->graph->values[v].dtype != DTYPE_F32 || is_lost(f, v) || (v > 0 && v == f->seed))
            return false;
        any = any || has_form(f, v, CUDA_ROWS) || has_form(f, v, CUDA_LAST);
    }
    return any;
}

struct cuda_way cuda_forms_way(struct cuda_forms *forms, int node)
{
    const struct narrow_op *op = find(forms->graph->nodes[node].op->name);
    bool last = op && runs_last(forms, node), narrow = op && runs_narrow(forms, node, op, last);

    forms->ran_last[node] = last && narrow;
    return (struct cuda_way){ narrow, last && narrow };
}

enum cuda_form cuda_form_for(const struct graph *graph, int v, struct cuda_way way)
{
    return way.last && is_image(graph, v) ? CUDA_LAST : CUDA_ROWS;
}
