/* SPDX-License-Identifier: MIT */
/* The fields of ONNX that are kept, checked or refused before unpacking. */
#ifndef TASUKI_GRAPH_ONNX_WIRE_H
#define TASUKI_GRAPH_ONNX_WIRE_H

#include "graph/wire.h"

extern const struct wire_message onnx_wire_model;
/* The same without what exporters say about it. */
extern const struct wire_message onnx_wire_hashed;

/* Field numbers on the way to an initializer's data. */
enum { ONNX_MODEL_GRAPH = 7, ONNX_GRAPH_INITIALIZER = 5 };

#endif
