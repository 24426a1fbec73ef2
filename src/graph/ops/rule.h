/* SPDX-License-Identifier: MIT */
/* What gradient rules share (see autodiff.h). */
#ifndef TASUKI_GRAPH_RULE_H
#define TASUKI_GRAPH_RULE_H

#include "graph/autodiff.h"
#include "graph/op.h"

/* Inputs and outputs of the node whose rule is running: value ids, -1 where absent. */
int rule_input(const struct grad *grad, int index);
int rule_output(const struct grad *grad, int index);

/* Output 'index' of the node; it and those before it are added where the node lacks them. */
int rule_want_output(struct grad *grad, int index, struct err *err);

/* Sum 'gradient' over the axes along which input 'index' was broadcast, and add it. */
int rule_add_reduced(struct grad *grad, int index, int gradient, struct err *err);

/* Append 'op' on values that have the shape of the node's broadcast result, and add what it
 * gives to the gradient of input 'index'. Nothing where nobody wants that gradient.
 */
int rule_add_op(struct grad *grad, int index, const char *op, int n_inputs, const int *inputs,
                struct err *err);

/* The same for an op whose result has the shape of input 'index'; the node is left in '*node'
 * (may be NULL) for attributes, -1 where nobody wants the gradient.
 */
int rule_add_like(struct grad *grad, int index, const char *op, int n_inputs,
                  const int *inputs, int *node, struct err *err);

/* 'value' under another shape of as many elements: the same bytes. -1 on error. */
int rule_view(struct grad *grad, int value, const struct shape *shape, struct err *err);

#endif
