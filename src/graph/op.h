/* SPDX-License-Identifier: MIT */
/* Operators: one entry in one table each.
 *
 * The table (op.c) is the list of what Tasuki can train. An entry says how shapes follow,
 * what it costs, and how its gradient is built; kernels are found by name in each backend's
 * own table, and a test checks that the reference backend has one for every entry.
 * The entries of a family and their rules stand in ops/FAMILY.c.
 *
 * Whatever the opset, model_build() hands every operator over in one form: floating types are
 * all graph->real, axes are >= 0, and what ONNX gives as constant shape-like inputs is an
 * attribute and no longer an input:
 *   Reshape(x)            shape: complete, without 0 and -1. Squeeze, Unsqueeze and Flatten
 *                         arrive as Reshape, too
 *                         shared (1): many read it, do not repeat it for each
 *   Expand(x)             shape: of the output; fixed (1: the same at any batch size)
 *   Transpose(x)          perm
 *   Slice(x)              starts, ends, axes, steps: same length; starts and ends clamped
 *                         (an end of -1 with a negative step: down to element 0)
 *   Gather(x, indices)    axis; indices int64, negative ones (constants only) made >= 0
 *   Concat(x…)  axis      Split(x)  axis, split (sizes)
 *   ReduceMean/ReduceSum/ReduceMax…(x)   axes (all of them where ONNX has none), keepdims
 *   Softmax/LogSoftmax(x) axis; Softmax: masked (1: a row that is -infinity all over gives 0)
 *   Einsum, Attention, RotaryEmbedding, LSTM, GRU and RNN arrive as what they are made of, the
 *   latter with nodes for each step; with fusion, Attention as the operator of ops/ops.h where
 *   that says all
 *   LayerNormalization(x, scale[, bias]) axis, epsilon; scale and bias of the shape of the axes
 *                         from there on; the mean and 1/deviation may be further outputs
 *   RMSNormalization(x, scale)           the same, one output
 *   GroupNormalization(x, scale, bias)   num_groups, epsilon; scale and bias for each channel.
 *                         InstanceNormalization arrives as this, too
 *   BatchNormalization(x, scale, bias, mean, var)  epsilon, momentum (as in ONNX); mean and var
 *                         are VALUE_STATs; one output
 *   Conv, MaxPool, AveragePool           kernel_shape, strides, pads, (dilations), group,
 *                         ceil_mode, count_include_pad; auto_pad is resolved
 *   ConvTranspose(x, w)   as Conv, output_shape (spatial); a bias is an Add
 *   Dropout(x)            ratio; what was kept, if anybody reads it, is a second output
 *   Clip(x)               min, max (absent: no bound)
 *   LeakyRelu, Elu, Celu, Selu, HardSigmoid, Swish(x)   alpha, beta (Selu's gamma), given
 *   Max, Min(a, b)        of two; Sum is Add
 *   Pad(x)                pads >= 0, two for each axis; value. Other modes arrive as Gather, a
 *                         negative pad as Slice, and Tile as Gather
 *   GatherElements(x, indices), ScatterElements(x, indices, updates)   axis, reduction
 *   GatherND(x, indices)  batch_dims      ScatterND(x, indices, updates)   reduction
 *   CumSum(x)             axis, exclusive, reverse
 *   ArgMax(x)             axis, keepdims, select_last_index, largest (0: an ArgMin)
 *   TopK(x)               k, axis, largest; two outputs, sorted
 *   Resize arrives as a Gather (nearest) or a MatMul with a constant matrix for each axis
 *   Trilu is a Where with a constant mask, OneHot an Equal and a Where
 *   Cast(x)               to: an enum dtype; casts between floating types are gone
 *   Gelu(x)               approximate: "none" or "tanh"
 * Identity, Constant, Shape, Range, ConstantOfShape and the like never reach a graph. Other
 * inputs that are constants (the exponent of Pow, a mask) are VALUE_CONSTs.
 *
 * Made by fusion: Linear(x, w[, bias]) = x w + bias, x of any rank >= 2, w 2-d [K, N] or with
 * transB=1 [N, K], bias [N]; activation: "none", "relu", "gelu", "gelu_tanh" or "silu".
 * MatMul gets transA, transB and alpha.
 */
#ifndef TASUKI_GRAPH_OP_H
#define TASUKI_GRAPH_OP_H

#include "graph/graph.h"

struct err;
struct grad;    /* autodiff.h */

enum op_flag {
    OP_VIEW = 1,        /* output 0 is input 0's bytes under another shape (Reshape, …) */
    OP_INPLACE = 2,     /* output 0 may overwrite input 0 of equal size once nobody reads it */
    OP_NO_GRAD = 4,     /* no gradient flows through (comparisons, shapes, casts to integer) */
    OP_INTERNAL = 8,    /* not an ONNX operator: made by fusion, loss or autodiff */
    OP_FOLD = 16,       /* must fold to a constant: no kernel (Shape, Range, …) */
    /* What a roofline knows of its speed (topology/efficiency.h); none: bytes moved */
    OP_MATMUL = 32, OP_CONV = 64, OP_ATTENTION = 128,
    OP_NORM = 256       /* normalises, or sums over what it reads before it writes */
};

struct op {
    const char *name;           /* "Conv", "ConvDgrad", … */
    unsigned flags;
    int min_inputs, max_inputs; /* max -1: any number */
    int min_outputs, max_outputs;
    /* Set dtype, shape and batch of every output from the inputs (whose shapes are known),
     * or fail naming the node. Constants may be read from value->data. NULL: made only by
     * code that sets them itself.
     */
    int (*infer)(struct graph *graph, int node, struct err *err);
    /* Floating-point operations of one run; NULL: one per output element. */
    double (*flops)(const struct graph *graph, int node);
    /* Append the gradient nodes (see autodiff.h); NULL with no OP_NO_GRAD: an error that says
     * the operator has no gradient.
     */
    int (*grad)(struct grad *grad, int node, struct err *err);
};

/* NULL where there is no such operator. */
const struct op *op_find(const char *name);
/* Every entry, in table order, for tests and reports: NULL past the end. */
const struct op *op_at(int index);

/* Check the numbers of inputs and outputs and run the op's rule. */
int op_infer(struct graph *graph, int node, struct err *err);

double op_flops(const struct graph *graph, int node);

/* Puts the node and operator before the text; the caller adds the file. Always -1. */
int op_error(const struct graph *graph, int node, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Append a node whose outputs are made and inferred here; 'name' is completed to be unique.
 * Returns the node, or -1. Outputs: graph->nodes[n].outputs[…].
 */
int op_append(struct graph *graph, const char *name, const char *op, int n_inputs,
              const int *inputs, int n_outputs, struct err *err);

#endif
