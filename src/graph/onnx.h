/* SPDX-License-Identifier: MIT */
/* An ONNX file, read and checked: nodes in a topological order, names resolved to values,
 * functions of the file written out where they are called.
 *
 * Nothing is known yet of shapes or of what the operators mean, but that If and Loop have
 * subgraphs. Weights stay in the mapped file, or in the mapped files that hold external data.
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
#define ONNX_MAX_OPSET 28

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

/* Limits of what a file may say. ONNX_MAX_WRITTEN: nodes, inputs, outputs and attributes that
 * functions come to, written out; their names have at most ONNX_MAX_NAMES characters.
 */
#define ONNX_MAX_WRITTEN (1 << 20)
#define ONNX_MAX_NAMES ((size_t)1 << 26)
#define ONNX_MAX_CALLS 64       /* subgraphs and functions within each other */

enum onnx_kind { ONNX_INPUT, ONNX_INITIALIZER, ONNX_OUTPUT, ONNX_FORMAL };

/* A named value. Those of a function have the name of the call before theirs. */
struct onnx_value {
    const char *name;
    enum onnx_kind kind;        /* ONNX_OUTPUT: of a node; ONNX_FORMAL: input of a subgraph */
    int index;                  /* of the input, the initializer or the node in its body */
    int readers;                /* inputs of nodes and outputs of bodies that name it */
    const struct onnx_body *body;   /* where it is made */
};

/* A model input. Dimensions that are not fixed are -1. */
struct onnx_input {
    const char *name;
    int value;
    const char *type;           /* of its elements, for messages; NULL: no tensor */
    enum dtype dtype;           /* DTYPE_NONE: not one that is supported */
    struct shape shape;
    bool has_shape;
};

struct onnx_node {
    const OnnxFile__Node *proto;
    const char *name;           /* made up from the first output where the file has none */
    const char *scope;          /* where it stands: main/If "x"/then_branch, main/f "call" */
    int64_t opset;              /* version of its operator's domain there, 0: not imported */
    int *inputs, *outputs;      /* value indices, -1: left out */
    bool live;                  /* an output of its body depends on it */
    int n_captured, *captured;  /* what its subgraphs read of the bodies around them */
    struct onnx_body *bodies[2];    /* If: then, else; Loop: the body. NULL: none */
};

/* Nodes that are run together: those of the model's graph, or of a subgraph. */
struct onnx_body {
    int n_nodes, n_inputs, n_outputs;
    struct onnx_node *nodes;    /* topologically sorted, otherwise in the order of the file */
    int *inputs;                /* of a subgraph: its ONNX_FORMAL values */
    int *outputs;               /* value indices */
    const OnnxFile__Graph *proto;
};

struct onnx {
    char *path;
    struct file_map map;
    OnnxFile__Model *model;
    struct arena *arena;
    struct external *external;
    int64_t opset;
    int n_values, n_inputs, n_initializers;
    struct onnx_value *values;
    struct onnx_input *inputs;
    struct onnx_tensor *initializers;   /* of the main graph, then of subgraphs */
    bool *large;                /* weights that other processes may get later (onnx_pack.c) */
    int *copy_of;               /* initializer that each is a transposed copy of, -1: none */
    bool *constant;             /* the exporter says: a buffer or a constant, no parameter */
    const char **origin;        /* the one parameter it was computed from; NULL: not known */
    const char **computed;      /* a parameter that it was computed from with other values */
    struct onnx_body main;
    struct names *names;        /* of the main graph's values */
    char hash[17];              /* of the graph without weight data */
};

/* Errors start with the path. */
struct onnx *onnx_open(const char *path, struct err *err);
void onnx_close(struct onnx *onnx);
/* What another process needs to open it without its files, for free(): not the large weights. */
void *onnx_pack(const struct onnx *onnx, size_t *size);
/* The large weights are 0 then, at addresses of their own. */
struct onnx *onnx_unpack(const char *path, const void *packed, size_t size, struct err *err);
/* file_map_drop() of the file that has it. */
void onnx_drop(const struct onnx *onnx, const void *data, size_t bytes);

int onnx_find(const struct onnx *onnx, const char *name);   /* value index, -1 */

/* Enter a value; its index, -1 with 'err'. 'names' may not have it yet. */
int onnx_add_value(struct onnx *onnx, struct names *names, const char *name,
                   struct onnx_value value, struct err *err);
/* Read the nodes of the model's graph, and all that they contain, into 'main' (onnx_nodes.c). */
int onnx_read_nodes(struct onnx *onnx, struct err *err);
/* Sort a body's nodes, which free() is for and the arena's are then, and see which are live
 * (onnx_sort.c).
 */
int onnx_sort(struct onnx *onnx, struct onnx_body *body, struct err *err);
/* The version in which a list of imports has 'domain', 0: it has it not. */
int64_t onnx_import(size_t n, OnnxFile__OperatorSet *const *sets, const char *domain);
/* "ai.onnx" is "", and NULL is. */
const char *onnx_domain(const char *domain);
/* A name, "" where there is none. */
const char *onnx_text(const char *text);

/* The last step of opening; errors start with the path. */
int onnx_read(struct onnx *onnx, struct err *err);
/* Nothing is read yet. */
struct onnx *onnx_new(const char *path);
/* Are there infinities among its first numbers? So masks are known. */
bool onnx_is_mask(const struct onnx_tensor *tensor);
/* Or what float16 does not have? A mask may have -1e9. */
bool onnx_exceeds_half(const struct onnx_tensor *tensor);
/* Fill 'large' (onnx_pack.c): floating matrices and more whose numbers no reader looks at. */
void onnx_find_large(struct onnx *onnx);
/* Fill 'copy_of' (onnx_copy.c). */
void onnx_find_copies(struct onnx *onnx);
/* Fill 'constant', 'origin' and 'computed' (onnx_constant.c). torch.export describes each
 * initializer: a parameter, a buffer or a constant of the module, or what the exporter's optimizer
 * computed from such. What was computed from a parameter stays one. Other exporters say nothing.
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
