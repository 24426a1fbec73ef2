/* SPDX-License-Identifier: MIT */
/* From a node to its kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "graph/names.h"
#include "graph/op.h"

static const struct cpu_op ops[] = {
    {"MatMul", CPU_PLAIN, cpu_make_matmul},
    {"Linear", CPU_PLAIN, cpu_make_linear},
    {"LinearDgrad", CPU_PLAIN, cpu_make_linear_dgrad},
    {"LinearWgrad", CPU_PLAIN, cpu_make_linear_wgrad},
    {"BiasGrad", CPU_SPATIAL, cpu_make_bias_grad},
    {"Conv", CPU_SPATIAL, cpu_make_conv},
    {"ConvTranspose", CPU_SPATIAL, cpu_make_conv},
    {"ConvDgrad", CPU_SPATIAL, cpu_make_conv},
    {"ConvWgrad", CPU_SPATIAL, cpu_make_conv},
    {"Reorder", CPU_SPATIAL, cpu_make_reorder},
    {"BatchNormalization", CPU_SPATIAL, cpu_make_batchnorm},
    {"BatchNormGrad", CPU_SPATIAL, cpu_make_batchnorm_grad},
    {"MaxPool", CPU_SPATIAL, cpu_make_pool},
    {"AveragePool", CPU_SPATIAL, cpu_make_pool},
    {"MaxPoolGrad", CPU_SPATIAL, cpu_make_pool_grad},
    {"AveragePoolGrad", CPU_SPATIAL, cpu_make_pool_grad},
    {"GlobalAveragePool", CPU_SPATIAL, cpu_make_global_pool},
    {"GlobalAveragePoolGrad", CPU_SPATIAL, cpu_make_global_pool_grad},
    {"LayerNormalization", CPU_PLAIN, cpu_make_layernorm},
    {"LayerNormDgrad", CPU_PLAIN, cpu_make_layernorm_dgrad},
    {"LayerNormWgrad", CPU_PLAIN, cpu_make_layernorm_wgrad},
    {"RMSNormalization", CPU_PLAIN, cpu_make_rmsnorm},
    {"RmsNormDgrad", CPU_PLAIN, cpu_make_rmsnorm_dgrad},
    {"RmsNormWgrad", CPU_PLAIN, cpu_make_rmsnorm_wgrad},
    {"AddLayerNorm", CPU_PLAIN, cpu_make_layernorm},
    {"AddRmsNorm", CPU_PLAIN, cpu_make_rmsnorm},
    {"Attention", CPU_PLAIN, cpu_make_attention},
    {"AttentionGrad", CPU_PLAIN, cpu_make_attention_grad},
    {"Softmax", CPU_PLAIN, cpu_make_softmax},
    {"SoftmaxGrad", CPU_PLAIN, cpu_make_softmax_grad},
    {"Relu", CPU_FLAT, cpu_make_unary},
    {"Neg", CPU_FLAT, cpu_make_unary},
    {"Sqrt", CPU_FLAT, cpu_make_unary},
    {"Reciprocal", CPU_FLAT, cpu_make_unary},
    {"Exp", CPU_FLAT, cpu_make_unary},
    {"Tanh", CPU_FLAT, cpu_make_unary},
    {"Sigmoid", CPU_FLAT, cpu_make_unary},
    {"Gelu", CPU_FLAT, cpu_make_unary},
    {"Copy", CPU_FLAT, cpu_make_unary},
    {"Add", CPU_FLAT, cpu_make_binary},
    {"Sub", CPU_FLAT, cpu_make_binary},
    {"Mul", CPU_FLAT, cpu_make_binary},
    {"Div", CPU_FLAT, cpu_make_binary},
    {"AddN", CPU_FLAT, cpu_make_sum_of},
    {"ReluGrad", CPU_FLAT, cpu_make_slope},
    {"TanhGrad", CPU_FLAT, cpu_make_slope},
    {"SigmoidGrad", CPU_FLAT, cpu_make_slope},
    {"GeluGrad", CPU_FLAT, cpu_make_slope},
    {"Abs", CPU_FLAT, cpu_make_curve},
    {"Clip", CPU_FLAT, cpu_make_curve},
    {"LeakyRelu", CPU_FLAT, cpu_make_curve},
    {"HardSigmoid", CPU_FLAT, cpu_make_curve},
    {"HardSwish", CPU_FLAT, cpu_make_curve},
    {"Swish", CPU_FLAT, cpu_make_curve},
    {"AbsGrad", CPU_FLAT, cpu_make_curve},
    {"ClipGrad", CPU_FLAT, cpu_make_curve},
    {"LeakyReluGrad", CPU_FLAT, cpu_make_curve},
    {"HardSigmoidGrad", CPU_FLAT, cpu_make_curve},
    {"HardSwishGrad", CPU_FLAT, cpu_make_curve},
    {"SwishGrad", CPU_FLAT, cpu_make_curve},
    {"Dropout", CPU_PLAIN, cpu_make_dropout},
    {"DropoutGrad", CPU_PLAIN, cpu_make_dropout},
    {"ReduceSumTo", CPU_PLAIN, cpu_make_reduce_to},
    {"Transpose", CPU_PLAIN, cpu_make_transpose},
    {"Concat", CPU_PLAIN, cpu_make_pieces},
    {"Split", CPU_PLAIN, cpu_make_pieces},
    {"Gather", CPU_PLAIN, cpu_make_gather},
    {"GatherGrad", CPU_PLAIN, cpu_make_gather_grad},
    {"CrossEntropySum", CPU_PLAIN, cpu_make_cross_entropy},
    {"CrossEntropyGrad", CPU_PLAIN, cpu_make_cross_entropy_grad},
    {"MseSum", CPU_PLAIN, cpu_make_pair_loss},
    {"DotSum", CPU_PLAIN, cpu_make_pair_loss},
    {"MseGrad", CPU_PLAIN, cpu_make_pair_grad},
    {"DotGrad", CPU_PLAIN, cpu_make_pair_grad},
};

const struct cpu_op *cpu_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (names_same(ops[i].name, name))
            return &ops[i];
    return NULL;
}

const struct node *cpu_node(const struct cpu_build *build)
{
    return &build->graph->nodes[build->node];
}

static int id_at(const int *ids, int n, int index)
{
    return index < n ? ids[index] : -1;
}

static const struct value *value_of(const struct cpu_build *build, int id)
{
    return id < 0 ? NULL : &build->graph->values[id];
}

static const struct cpu_layout *layout_of(const struct cpu_build *build, int id)
{
    return id < 0 || !build->layouts ? NULL : build->layouts[id].opaque;
}

const struct value *cpu_input(const struct cpu_build *build, int index)
{
    return value_of(build, id_at(cpu_node(build)->inputs, cpu_node(build)->n_inputs, index));
}

const struct value *cpu_output(const struct cpu_build *build, int index)
{
    return value_of(build, id_at(cpu_node(build)->outputs, cpu_node(build)->n_outputs, index));
}

const struct cpu_layout *cpu_input_layout(const struct cpu_build *build, int index)
{
    return layout_of(build, id_at(cpu_node(build)->inputs, cpu_node(build)->n_inputs, index));
}

const struct cpu_layout *cpu_output_layout(const struct cpu_build *build, int index)
{
    return layout_of(build, id_at(cpu_node(build)->outputs, cpu_node(build)->n_outputs, index));
}

bool cpu_channels_last(const struct cpu_layout *layout)
{
    return layout && layout->kind == CPU_CHANNELS_LAST;
}

bool cpu_spatial(const struct shape *shape)
{
    int64_t space = 1;

    for (int i = 2; i < shape->rank; i++)
        space *= shape->dim[i];
    return shape->rank >= 3 && shape->rank <= 2 + ONEDNN_SPATIAL && shape->dim[1] > 1 &&
           space > 1;
}

bool cpu_lies(const struct value *value, const struct cpu_layout *layout, bool last)
{
    return !value || !cpu_spatial(&value->shape) || cpu_channels_last(layout) == last;
}

bool cpu_is_f32(const struct cpu_build *build)
{
    const struct value *value;

    for (int i = 0; i < cpu_node(build)->n_inputs; i++)
        if ((value = cpu_input(build, i)) && dtype_is_float(value->dtype) &&
            value->dtype != DTYPE_F32)
            return false;
    for (int i = 0; i < cpu_node(build)->n_outputs; i++)
        if ((value = cpu_output(build, i)) && dtype_is_float(value->dtype) &&
            value->dtype != DTYPE_F32)
            return false;
    return true;
}

bool cpu_all_plain(const struct cpu_build *build)
{
    for (int i = 0; i < cpu_node(build)->n_inputs; i++)
        if (cpu_input_layout(build, i))
            return false;
    for (int i = 0; i < cpu_node(build)->n_outputs; i++)
        if (cpu_output_layout(build, i))
            return false;
    return true;
}

void *cpu_kernel_new(const struct cpu_build *build, size_t size,
                     int (*run)(struct kernel *, const struct kernel_args *, struct err *))
{
    struct kernel *kernel = mem_new(1, size);

    kernel->device = build->device;
    kernel->run = run;
    return kernel;
}

/* The reference kernel as one of ours ---------------------------------------------------- */

struct borrowed {
    struct kernel base;
    struct kernel *inner;
};

static int borrowed_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    struct borrowed *b = (struct borrowed *)kernel;
    struct device *device = kernel->device;

    return device->reference->kernel_run(b->inner, device->reference_stream, args, err);
}

static void borrowed_free(struct kernel *kernel)
{
    struct borrowed *b = (struct borrowed *)kernel;

    kernel->device->reference->kernel_free(b->inner);
    free(b);
}

int cpu_make_reference(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct cpu_op *op = cpu_op_find(cpu_node(build)->op->name);
    struct device *device = build->device;
    struct kernel *inner;
    struct borrowed *b;

    /* What works element by element does not see the layout; lower() keeps them alike. */
    if (!cpu_all_plain(build) && !(op && op->layout == CPU_FLAT))
        return op_error(build->graph, build->node, err, "a layout that its kernel cannot read");
    inner = device->reference->kernel_new(device->reference_device, build->graph, build->node,
                                          NULL, err);
    if (!inner)
        return -1;
    b = cpu_kernel_new(build, sizeof(*b), borrowed_run);
    b->base.free = borrowed_free;
    b->base.workspace = device->reference->kernel_workspace(inner);
    b->base.accumulates = device->reference->kernel_accumulates(inner);
    b->inner = inner;
    log_debug("%s \"%s\": reference kernel", cpu_node(build)->op->name, cpu_node(build)->name);
    *kernel = &b->base;
    return 0;
}

bool cpu_supports(const struct device *device, const struct graph *graph, int node)
{
    return cpu_op_find(graph->nodes[node].op->name) ||
           device->reference->supports(device->reference_device, graph, node);
}

struct kernel *cpu_kernel_make(struct device *device, const struct graph *graph, int node,
                               const struct value_layout *layouts, struct err *err)
{
    struct cpu_build build = {device, graph, node, layouts};
    const struct cpu_op *op = cpu_op_find(graph->nodes[node].op->name);
    struct kernel *kernel = NULL;

    if (op && cpu_is_f32(&build) && op->make(&build, &kernel, err))
        return NULL;
    if (!kernel && cpu_make_reference(&build, &kernel, err))
        return NULL;
    return kernel;
}

void cpu_kernel_free(struct kernel *kernel)
{
    if (kernel && kernel->free)
        kernel->free(kernel);
    else
        free(kernel);
}

size_t cpu_kernel_workspace(const struct kernel *kernel)
{
    return kernel->workspace;
}

bool cpu_kernel_accumulates(const struct kernel *kernel)
{
    return kernel->accumulates;
}

int cpu_kernel_run(struct kernel *kernel, struct stream *stream, const struct kernel_args *args,
                   struct err *err)
{
    (void)stream;
    return kernel->run(kernel, args, err);
}
