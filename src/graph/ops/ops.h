/* SPDX-License-Identifier: MIT */
/* The operator families: each array ends with an entry without a name.
 *
 * What is not ONNX, or differs from it (inputs → outputs; attributes; [ ] optional):
 *
 * Every op on weights
 *   MatMul(a, b → y; transA, transB, alpha)        as ONNX where the attributes are absent
 *   Linear(x[…,k], w, [bias] → y, [pre]; transB, activation)
 *       w is [k,n], or [n,k] with transB = 1; activation "none", "relu", "gelu", "gelu_tanh",
 *       "silu"; pre (the value before a gelu or silu) is added by the gradient rule
 *   LinearDgrad(dz, w → dx; transB), LinearWgrad(x, dz → dw; transB)
 *   BiasGrad(dz → db; axis)                        sums over all axes but one
 *   ConvDgrad(dy, w → dx; as Conv), ConvWgrad(x, dy → dw; as Conv)
 * Pooling
 *   MaxPool(x → y, [saved]; …)       saved: int32, the position of the maximum within its
 *       plane of the input; its meaning is the backend's own. Added by the gradient rule
 *   MaxPoolIndices(x → int64; as MaxPool, storage_order)     where in the whole of x they are
 *   MaxPoolGrad(dy, saved → dx), AveragePoolGrad(dy → dx; as AveragePool),
 *   GlobalAveragePoolGrad(dy → dx)
 * Normalisation
 *   BatchNormalization(x, scale, bias, running mean, running var →
 *                      y, mean part, var part, saved mean, saved invstd; epsilon, momentum)
 *       infer adds the four outputs after y. The parts are this share's weighted
 *       contributions to the running statistics (HACKING.md); saved are [groups, C]. Without
 *       step_state.training it normalises by the running statistics and the parts are zero
 *   BatchNormGrad(dy, x, scale, saved mean, saved invstd → dx, dscale, dbias)    dx may be -1
 *   LayerNormalization(x, scale, [bias] → y, [mean, invstd]; axis, epsilon)
 *   LayerNormDgrad(dy, x, scale, mean, invstd → dx; axis)
 *   LayerNormWgrad(dy, x, mean, invstd → dscale, [dbias]; axis)
 *   GroupNormalization(x, scale, bias → y, [mean, invstd]: [N, groups]; num_groups, epsilon)
 *   GroupNormDgrad(dy, x, scale, mean, invstd → dx), GroupNormWgrad(dy, x, mean, invstd →
 *   dscale, [dbias]; num_groups)
 *   RMSNormalization(x, scale → y, [1/rms]; axis, epsilon)
 *   RmsNormDgrad(dy, x, scale, 1/rms → dx; axis), RmsNormWgrad(dy, x, 1/rms → dscale; axis)
 *   Attention(q[…,h,m,d], k[…,g,n,d], v[…,g,n,e], [mask] → y[…,h,m,e], [log of the sums: …,h,m];
 *             scale, transK (k is […,d,n]), causal, past, masked, hide, fill)
 *       softmax(scale q k' + mask) v; g divides h, and h/g heads of queries in a row share keys. A
 *       mask of a floating type is added, broadcast to […,h,m,n]; where one of bool is "hide" (0:
 *       true shows, 1: true hides) the score is "fill" (absent: -infinity). causal: query i sees
 *       keys 0 … i + past. masked: a query that sees none gives 0 (and 0 for the logarithm)
 *   AttentionGrad(dy, q, k, v, log of the sums, [mask] → dq, dk, dv, [dmask]; as Attention)
 *   AddLayerNorm(a, b, scale, [bias] → y, a + b, [mean, invstd]; axis, epsilon), AddRmsNorm(a, b,
 *   scale → y, a + b, [1/rms]; axis, epsilon): a and b of one shape
 *   SoftmaxGrad(dy, y → dx; axis), LogSoftmaxGrad(dy, y → dx; axis)
 * Pointwise
 *   ReluGrad, TanhGrad, SigmoidGrad, SqrtGrad (dy, y), GeluGrad (dy, x; approximate),
 *   ErfGrad (dy, x), DivGrad (dy, y, b → gradient of b), PowGrad (dy, a, e → of a),
 *   PowExponentGrad (dy, a, y → of e), Dropout(x; ratio), DropoutGrad(dy; ratio),
 *   AbsGrad, SinGrad, CosGrad, LeakyReluGrad, EluGrad, CeluGrad, SeluGrad, SoftplusGrad,
 *   SoftsignGrad, HardSigmoidGrad, HardSwishGrad, SwishGrad, MishGrad, ClipGrad (dy, x; as the
 *   forward op), ReciprocalGrad (dy, y), MaxGrad, MinGrad (dy, a, b → of a),
 *   PReluGrad (dy, x, slope → of x), PReluSlopeGrad (dy, x → of the slope),
 *   AddN(x…), Copy(x), Reorder(x: to the layout of the output), Chain(x…: text, see kernels/cuda/chain.h)
 *       operands broadcast as in the forward op; ReduceSumTo brings the result back
 * Shapes
 *   View(x → the same bytes under another shape), ReduceSumTo(x → sum over broadcast axes),
 *   ReduceChoiceGrad(dy, x, y → equal parts to the elements that are y; axes),
 *   ReduceL2Grad(dy, x, y; axes), ReduceGrad(dy → broadcast over the reduced axes; axes,
 *   scale), SliceGrad(dy; starts, steps for every axis: scatter into zeros),
 *   GatherGrad, GatherElementsGrad(dy, indices → zeros + sums; axis),
 *   GatherNdGrad(dy, indices → the same; batch_dims),
 *   ClearElements, ClearNd(x, indices → x with zeros there; as the Scatter)
 * Losses: each divides by step_state.weight_sum. The input weight_sum only says so in the
 * graph; kernels read the state and the pointer may be NULL.
 *   CrossEntropySum(logits, labels, weight_sum, [class weights] → loss, [correct], [saved];
 *                   axis (of the classes), ignore_index (absent: none is ignored))
 *       loss = sum of w[label] * -log softmax(logits)[label] / weight_sum, labels int32 or
 *       int64; correct: number of labels (not ignored) that are the largest logit, as a real;
 *       saved: log of the sum of exponentials, of the labels' shape, added by the gradient rule
 *   CrossEntropyGrad(dloss, logits, labels, saved, [class weights] → dlogits; axis, …)
 *   MseSum(out, target, weight_sum → loss)         sum (out - target)^2 / weight_sum
 *   MseGrad(dloss, out, target → dout)
 *   DotSum(out, target, weight_sum → loss)         sum out * target / weight_sum
 *   DotGrad(dloss, target → dout)
 *   SumLoss(x, weight_sum → loss)                  sum x / weight_sum
 *   SumLossGrad(dloss → dx)
 * dloss, the gradient of the loss, is a scalar.
 */
#ifndef TASUKI_GRAPH_OPS_H
#define TASUKI_GRAPH_OPS_H

#include "graph/op.h"

extern const struct op ops_pointwise[], ops_curve[], ops_compare[], ops_matmul[], ops_conv[],
    ops_pool[], ops_norm[], ops_groupnorm[], ops_attention[], ops_softmax[], ops_reduce[],
    ops_layout[],
    ops_index[], ops_element[], ops_loss[], ops_constant[];

#endif
