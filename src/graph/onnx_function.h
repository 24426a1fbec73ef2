/* SPDX-License-Identifier: MIT */
/* Functions of a file: found by name, and their nodes as they are in a call. */
#ifndef TASUKI_GRAPH_ONNX_FUNCTION_H
#define TASUKI_GRAPH_ONNX_FUNCTION_H

#include "graph/onnx.h"

struct err;
struct names;

/* The model's functions by domain, name and overload, for names_free(). */
struct names *onnx_function_list(struct onnx *onnx, struct err *err);
/* The function that a node calls, NULL: none of the file. */
const OnnxFile__Function *onnx_function_find(const struct onnx *onnx,
                                             const struct names *functions,
                                             const OnnxFile__Node *node);
/* A node of 'function' as it is where 'call' calls that: attributes that refer to those of the
 * function are filled in, from the call or by their default, or left out. Without a function
 * (NULL) no attribute may refer.
 */
const OnnxFile__Node *onnx_function_node(struct onnx *onnx, const OnnxFile__Function *function,
                                         const OnnxFile__Node *call, const OnnxFile__Node *node,
                                         struct err *err);

#endif
