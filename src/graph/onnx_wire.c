/* SPDX-License-Identifier: MIT */
#include "graph/onnx_wire.h"

static const struct wire_message entry = { "StringStringEntry", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 2, WIRE_TEXT, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message tensor = { "Tensor", (const struct wire_field[]){
    { 1, WIRE_VARINT, .repeated = true },
    { 2, WIRE_VARINT, .repeated = false },
    { 3, WIRE_REFUSED, .why = "tensors in segments are not supported" },
    { 4, WIRE_DATA, .repeated = false },
    { 5, WIRE_DATA, .repeated = false },
    { 7, WIRE_DATA, .repeated = false },
    { 8, WIRE_TEXT, .repeated = false },
    { 9, WIRE_DATA, .repeated = false },
    { 10, WIRE_DATA, .repeated = false },
    { 11, WIRE_DATA, .repeated = false },
    { 13, WIRE_MESSAGE, .repeated = true, .message = &entry },
    { 14, WIRE_VARINT, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message dimension = { "Dimension", (const struct wire_field[]){
    { 1, WIRE_VARINT, .repeated = false },
    { 2, WIRE_TEXT, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message shape = { "TensorShape", (const struct wire_field[]){
    { 1, WIRE_MESSAGE, .repeated = true, .message = &dimension },
    { .number = 0 },
} };

static const struct wire_message tensor_type = { "Type.Tensor", (const struct wire_field[]){
    { 1, WIRE_VARINT, .repeated = false },
    { 2, WIRE_MESSAGE, .repeated = false, .message = &shape },
    { .number = 0 },
} };

static const struct wire_message type = { "Type", (const struct wire_field[]){
    { 1, WIRE_MESSAGE, .repeated = false, .message = &tensor_type },
    { .number = 0 },
} };

static const struct wire_message value_info = { "ValueInfo", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 2, WIRE_MESSAGE, .repeated = false, .message = &type },
    { .number = 0 },
} };

static const struct wire_message property = { "StringStringEntry", (const struct wire_field[]){
    { 1, WIRE_BYTES, .repeated = false },
    { 2, WIRE_BYTES, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message described = { "ValueInfo", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 4, WIRE_MESSAGE, .repeated = true, .message = &property },
    { .number = 0 },
} };

static const struct wire_message graph;

/* Lists of subgraphs are checked, but not kept: no operator has them. */
static const struct wire_message attribute = { "Attribute", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 2, WIRE_FLOAT, .repeated = false },
    { 3, WIRE_VARINT, .repeated = false },
    { 4, WIRE_BYTES, .repeated = false },
    { 5, WIRE_MESSAGE, .repeated = false, .message = &tensor },
    { 6, WIRE_MESSAGE, .repeated = false, .message = &graph },
    { 7, WIRE_FLOAT, .repeated = true },
    { 8, WIRE_VARINT, .repeated = true },
    { 9, WIRE_BYTES, .repeated = true },
    { 11, WIRE_HIDDEN, .repeated = true, .message = &graph },
    { 20, WIRE_VARINT, .repeated = false },
    { 21, WIRE_TEXT, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message node = { "Node", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = true },
    { 2, WIRE_TEXT, .repeated = true },
    { 3, WIRE_TEXT, .repeated = false },
    { 4, WIRE_TEXT, .repeated = false },
    { 5, WIRE_MESSAGE, .repeated = true, .message = &attribute },
    { 7, WIRE_TEXT, .repeated = false },
    { 8, WIRE_TEXT, .repeated = false },
    { .number = 0 },
} };

#define GRAPH_FIELDS                                                                  \
    { ONNX_GRAPH_INITIALIZER, WIRE_MESSAGE, .repeated = true, .message = &tensor },   \
    { 1, WIRE_MESSAGE, .repeated = true, .message = &node },                          \
    { 2, WIRE_TEXT, .repeated = false },                                              \
    { 11, WIRE_MESSAGE, .repeated = true, .message = &value_info },                   \
    { 12, WIRE_MESSAGE, .repeated = true, .message = &value_info },                   \
    { 14, WIRE_REFUSED, .why = "quantized models cannot be trained" },                \
    { 15, WIRE_REFUSED, .why = "sparse initializers are not supported" }

static const struct wire_message graph = { "Graph", (const struct wire_field[]){
    GRAPH_FIELDS,
    { .number = 0 },
} };

static const struct wire_message described_graph = { "Graph", (const struct wire_field[]){
    GRAPH_FIELDS,
    { 13, WIRE_MESSAGE, .repeated = true, .message = &described },
    { 16, WIRE_MESSAGE, .repeated = true, .message = &property },
    { .number = 0 },
} };

static const struct wire_message operator_set = { "OperatorSet", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 2, WIRE_VARINT, .repeated = false },
    { .number = 0 },
} };

static const struct wire_message function = { "Function", (const struct wire_field[]){
    { 1, WIRE_TEXT, .repeated = false },
    { 4, WIRE_TEXT, .repeated = true },
    { 5, WIRE_TEXT, .repeated = true },
    { 6, WIRE_TEXT, .repeated = true },
    { 7, WIRE_MESSAGE, .repeated = true, .message = &node },
    { 9, WIRE_MESSAGE, .repeated = true, .message = &operator_set },
    { 10, WIRE_TEXT, .repeated = false },
    { 11, WIRE_MESSAGE, .repeated = true, .message = &attribute },
    { 13, WIRE_TEXT, .repeated = false },
    { .number = 0 },
} };

#define MODEL_FIELDS(graph)                                                           \
    { 1, WIRE_VARINT, .repeated = false },                                            \
    { 2, WIRE_TEXT, .repeated = false },                                              \
    { ONNX_MODEL_GRAPH, WIRE_MESSAGE, .repeated = false, .message = &(graph) },       \
    { 8, WIRE_MESSAGE, .repeated = true, .message = &operator_set },                  \
    { 25, WIRE_MESSAGE, .repeated = true, .message = &function },                     \
    { .number = 0 },

const struct wire_message onnx_wire_model = { "Model", (const struct wire_field[]){
    MODEL_FIELDS(described_graph)
} };

const struct wire_message onnx_wire_hashed = { "Model", (const struct wire_field[]){
    MODEL_FIELDS(graph)
} };
