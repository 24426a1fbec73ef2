/* SPDX-License-Identifier: MIT */
/* What was folded before: layers of a network repeat the same arithmetic, and that of a mask is
 * large. A result is known by operator, attributes and inputs: short ones by their elements, others
 * by being the same memory.
 */
#ifndef TASUKI_GRAPH_MEMO_H
#define TASUKI_GRAPH_MEMO_H

#include <stdbool.h>

#include "graph/fold.h"

struct memo;

struct memo *memo_new(void);
void memo_free(struct memo *memo);

/* The outputs of an equal call, if there was one; else remember, by memo_put(), what this call
 * gave. The results live as long as the arenas of the folds.
 */
bool memo_find(struct memo *memo, const OnnxFile__Node *node, int n_inputs,
               const struct tensor *const *inputs, int n_outputs, struct tensor *outputs);
/* The same for the tensor that an attribute carries: its elements stand in one place of the file,
 * wherever a function is called or a loop unrolled.
 */
bool memo_find_tensor(struct memo *memo, const OnnxFile__Attribute *attribute,
                      struct tensor *tensor);
void memo_put(struct memo *memo, int n_outputs, const struct tensor *outputs);

#endif
