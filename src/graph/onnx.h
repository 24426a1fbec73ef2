/* SPDX-License-Identifier: MIT */
/* An ONNX file, read and checked: nodes in a topological order, names resolved to values.
 *
 * Nothing is known yet of shapes or of what the operators mean. Weights stay in the mapped
 * file, or in the mapped files that hold external data.
 */
#ifndef TASUKI_GRAPH_ONNX_H
#define TASUKI_GRAPH_ONNX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "graph/graph.h"
#include "graph/onnx.pb-c.h"

struct err;
struct external;

#define ONNX_MIN_OPSET 9
#define ONNX_MAX_OPSET 23

/* Tensor data, checked: 'size' bytes of row-major elements of 'dtype' at 'data'. A file without
 * weights says of floating tensors that their external data are "absent": 'data' is NULL.
 */
struct onnx_tensor {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    const unsigned char *data;  /* in a mapping, perhaps unaligned; or decoded */
    size_t size;
    bool in_file;               /* 'data' lies in the model's own mapping */
};

enum onnx_kind { ONNX_INPUT, ONNX_INITIALIZER, ONNX_OUTPUT };

/* A named value. */
struct onnx_value {
    const char *name;
    enum onnx_kind kind;        /* ONNX_OUTPUT: of a node */
    int index;                  /* of the input, the initializer or the node */
    int readers;                /* nodes' inputs and model outputs that name it */
};

/* A model input. Dimensions that are not fixed are -1. */
struct onnx_input {
    const char *name;
    int value;
    enum dtype dtype;           /* DTYPE_NONE: no tensor of a known type */
    struct shape shape;
    bool has_shape;
};

struct onnx_node {
    const OnnxFile__Node *proto;
    const char *name;           /* made up from the first output where the file has none */
    int *inputs, *outputs;      /* value indices, -1: left out */
};

struct onnx {
    char *path;
    struct file_map map;
    OnnxFile__Model *model;
    struct arena *arena;
    struct external *external;
    int64_t opset;
    int n_values, n_inputs, n_initializers, n_nodes, n_outputs;
    struct onnx_value *values;
    struct onnx_input *inputs;
    struct onnx_tensor *initializers;
    int *copy_of;               /* initializer that each is a transposed copy of, -1: none */
    bool *constant;             /* the exporter says: a buffer or a constant, no parameter */
    const char **origin;        /* the one parameter it was computed from; NULL: not known */
    struct onnx_node *nodes;    /* topologically sorted, otherwise in the order of the file */
    int *outputs;               /* value indices */
    struct names *names;
    char hash[17];              /* of the graph without weight data */
};

/* Errors start with the path. */
struct onnx *onnx_open(const char *path, struct err *err);
void onnx_close(struct onnx *onnx);

int onnx_find(const struct onnx *onnx, const char *name);   /* value index, -1 */

/* Fill 'copy_of' (onnx_copy.c). */
void onnx_find_copies(struct onnx *onnx);
/* Fill 'constant' and 'origin' (onnx_constant.c). torch.export describes each initializer: a parameter, a
 * buffer or a constant of the module, or what the exporter's optimizer computed from such. What
 * was computed from a parameter stays one. Other exporters say nothing.
 */
void onnx_find_constants(struct onnx *onnx);

/* ONNX's number of a type as ours; DTYPE_NONE where it is not supported. */
enum dtype onnx_dtype(int32_t data_type);
/* "float16", "string", … for messages. */
const char *onnx_dtype_name(int32_t data_type);

/* Check a tensor of the file (an initializer or an attribute) and find its data; what must be
 * decoded goes to the arena of 'onnx'. Errors name the tensor.
 */
int onnx_tensor_read(struct onnx *onnx, const OnnxFile__Tensor *proto,
                     struct onnx_tensor *tensor, struct err *err);

/* Attributes of a node; the getters give 'def' where it is absent. */
const OnnxFile__Attribute *onnx_attr(const OnnxFile__Node *node, const char *name);
int64_t onnx_int(const OnnxFile__Node *node, const char *name, int64_t def);
double onnx_float(const OnnxFile__Node *node, const char *name, double def);
/* Number of ints, -1 where absent. */
int onnx_ints(const OnnxFile__Node *node, const char *name, const int64_t **values);
bool onnx_string_is(const OnnxFile__Node *node, const char *name, const char *text,
                    bool if_absent);

#endif
