/* SPDX-License-Identifier: MIT */
/* What canon.c and canon_*.c share. */
#ifndef TASUKI_GRAPH_CANON_H
#define TASUKI_GRAPH_CANON_H

#include "graph/build.h"

const struct shape *canon_shape_of(const struct build *build, int id, int which);
/* Value of input 'index', which must be there. */
int canon_input(struct build *build, const struct onnx_node *node, int index, struct err *err);
/* The same for numbers that are not trained (a table of angles, weights of classes): where an
 * initializer is first read like this, it is a constant.
 */
int canon_constant(struct build *build, const struct onnx_node *node, int index,
                   struct err *err);
/* How many read output 'output'. */
int canon_read(const struct build *build, const struct onnx_node *node, int output);
/* A short list of integers from a constant input, or where that is absent an attribute: its
 * length, -1 where neither is there, -2 with 'err'.
 */
int canon_ints(struct build *build, const struct onnx_node *node, int input, const char *attr,
               int which, const int64_t **values, struct err *err);
/* A node with one output and the first 'n_inputs' (at most 4) inputs of the file's node. */
int canon_emit(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               struct err *err);

/* An operator that becomes several: nodes in both graphs with one output that no name of the
 * file stands for. canon_new() gives the node, for attributes, and canon_settle() its value;
 * canon_step() does both where there are none. -1 with 'err'.
 */
int canon_new(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
              const int *inputs, struct err *err);
int canon_settle(struct build *build, int id, struct err *err);
int canon_step(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               const int *inputs, struct err *err);
/* Let the node's output be this value, which such a step made. Always 0. */
int canon_result(struct build *build, const struct onnx_node *node, int output, int value);

/* A reduction over these axes; its value. */
int canon_reduce_step(struct build *build, const struct onnx_node *node, const char *op,
                      int input, int n, const int64_t *axes, int64_t keepdims,
                      struct err *err);
/* A constant of one element. */
int canon_scalar(struct build *build, enum dtype dtype, double value, struct err *err);

/* Element i along 'axis' is element index[t].i[i] of x, in graph t. */
int canon_take(struct build *build, const struct onnx_node *node, int x, int axis,
               const struct tensor index[BUILD_TWINS], struct err *err);

/* Of a Gather along axis 0 or a GatherND of x whose indices, a constant, name in each row the
 * sample that the row stands for: the indices inside that sample (canon_pick.c). 0 with the
 * node built, 1 where the indices are others, -1 with 'err'.
 */
int canon_pick(struct build *build, const struct onnx_node *node, int x, struct err *err);

/* Moves (canon_step.c), each a node unless it changes nothing: another type, another shape of as
 * many elements, other places of the axes, a Concat, elements start … end-1 of one axis.
 */
int canon_typed(struct build *build, const struct onnx_node *node, int x, enum dtype dtype,
                struct err *err);
int canon_shaped(struct build *build, const struct onnx_node *node, int x,
                 const struct shape shapes[BUILD_TWINS], struct err *err);
int canon_permuted(struct build *build, const struct onnx_node *node, int x,
                   const int64_t *perm, struct err *err);
int canon_joined(struct build *build, const struct onnx_node *node, int n, const int *parts,
                 int axis, struct err *err);
int canon_cut(struct build *build, const struct onnx_node *node, int x, int64_t axis,
              int64_t start, int64_t end, int64_t step, struct err *err);

/* Is this node the end of the file's loss: an output that nothing else reads? */
bool canon_is_final(const struct build *build, const struct onnx_node *node);
/* The node 'id' makes a loss, as the file has it; labels and class weights are none yet. */
struct loss_candidate *canon_new_loss(struct build *build, const struct onnx_node *node,
                                      int id);
int canon_weight_sum(struct build *build);

/* Handlers (canon_*.c, control.c) */
int control_if(struct build *build, const struct onnx_node *node, struct err *err);
int control_loop(struct build *build, const struct onnx_node *node, struct err *err);
int canon_row_norm(struct build *build, const struct onnx_node *node, struct err *err);
int canon_group_norm(struct build *build, const struct onnx_node *node, struct err *err);
int canon_curve(struct build *build, const struct onnx_node *node, struct err *err);
int canon_tile(struct build *build, const struct onnx_node *node, struct err *err);
int canon_pad(struct build *build, const struct onnx_node *node, struct err *err);
int canon_element(struct build *build, const struct onnx_node *node, struct err *err);
int canon_cumsum(struct build *build, const struct onnx_node *node, struct err *err);
int canon_argmax(struct build *build, const struct onnx_node *node, struct err *err);
int canon_topk(struct build *build, const struct onnx_node *node, struct err *err);
int canon_trilu(struct build *build, const struct onnx_node *node, struct err *err);
int canon_one_hot(struct build *build, const struct onnx_node *node, struct err *err);
int canon_einsum(struct build *build, const struct onnx_node *node, struct err *err);
int canon_recurrent(struct build *build, const struct onnx_node *node, struct err *err);
int canon_attention(struct build *build, const struct onnx_node *node, struct err *err);
int canon_rotary(struct build *build, const struct onnx_node *node, struct err *err);
int canon_resize(struct build *build, const struct onnx_node *node, struct err *err);
int canon_chain(struct build *build, const struct onnx_node *node, struct err *err);
int canon_mod(struct build *build, const struct onnx_node *node, struct err *err);
int canon_clip(struct build *build, const struct onnx_node *node, struct err *err);
int canon_window(struct build *build, const struct onnx_node *node, struct err *err);
int canon_batch_norm(struct build *build, const struct onnx_node *node, struct err *err);
int canon_slice(struct build *build, const struct onnx_node *node, struct err *err);
int canon_split(struct build *build, const struct onnx_node *node, struct err *err);
int canon_reduce_of(struct build *build, const struct onnx_node *node, struct err *err);
int canon_log_sum_exp(struct build *build, const struct onnx_node *node, struct err *err);
int canon_conv_transpose(struct build *build, const struct onnx_node *node, struct err *err);
int canon_global_max_pool(struct build *build, const struct onnx_node *node, struct err *err);
int canon_reduce(struct build *build, const struct onnx_node *node, struct err *err);
int canon_cross_entropy(struct build *build, const struct onnx_node *node, struct err *err);

#endif
