/* SPDX-License-Identifier: MIT */
/* The intermediate representation: values and nodes.
 *
 * A graph is made for one batch size: every shape is a list of numbers. Building the same
 * model at another batch size gives the same nodes, values and names in the same order with
 * other shapes, so that what is said about node 17 at batch 4 holds for node 17 at batch 3.
 *
 * Nodes stand in a topological order. Values and nodes are addressed by index; both arrays
 * only grow. Gradient nodes (see autodiff.h) are ordinary nodes appended to the same graph.
 */
#ifndef TASUKI_GRAPH_GRAPH_H
#define TASUKI_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/dtype.h"

struct arena;
struct err;
struct names;
struct op;

#define GRAPH_MAX_RANK 8

struct shape {
    int rank;                       /* 0: a scalar */
    int64_t dim[GRAPH_MAX_RANK];
};

/* Their product; INT64_MAX where it is more, which builders refuse. */
int64_t shape_elements(const struct shape *shape);
bool shape_equal(const struct shape *a, const struct shape *b);
/* "64x3x224x224" ("scalar" for rank 0) into 'text', which is returned. */
char *shape_text(const struct shape *shape, char *text, size_t size);

/* Where the samples are in a tensor. Flattened row-major, the tensor is [outer, b, inner]:
 * element (o, s, i) stands at (o*b + s)*inner + i and belongs to sample s of b. Reshapes do
 * not change that; transposes do. outer == 0 means the value does not depend on the sample
 * ("none"): it is sent whole and its gradients are summed.
 *
 * 'outer' and 'inner' do not depend on b. With b == 1 shapes alone cannot tell which axis holds
 * the batch: 'place', 1 + that axis, does, and is 0 where it is not known (after a reshape);
 * the rules then refuse nothing and guess, and model_build() takes all three from a twin built
 * at 2b.
 */
struct batch {
    int64_t outer, inner;
    int place;
};

enum value_kind {
    VALUE_NODE,     /* made by a node */
    VALUE_INPUT,    /* fed per micro-batch: model inputs and labels */
    VALUE_PARAM,    /* trained; initial bytes in 'data' */
    VALUE_STAT,     /* running statistics: state that the step updates, not by a gradient */
    VALUE_CONST     /* bytes in 'data' */
};

struct value {
    const char *name;       /* as in the ONNX file where it has one; unique */
    enum value_kind kind;
    enum dtype dtype;       /* of the run: float32 becomes float64 under --precision float64 */
    struct shape shape;
    struct batch batch;
    int producer;           /* node, or -1 */
    int n_consumers;
    int *consumers;         /* nodes, ascending; a node that reads it twice stands there once */
    const void *data;       /* PARAM, STAT, CONST: bytes of 'file_dtype', or NULL (no weights);
                             * may lie unaligned in a mapped file: memcpy() */
    enum dtype file_dtype;  /* of 'data'; float16 or float32 while dtype may be float64 */
    bool large;             /* one of model_large(): 'data' may be 0 in this process, and decide nothing */
    bool output;            /* an output of the ONNX model */
    bool frozen;            /* an initializer that could be trained, and is not to be */
    bool no_decay;          /* a parameter that weight decay leaves alone */
};

enum attr_type { ATTR_INT, ATTR_FLOAT, ATTR_STRING, ATTR_INTS, ATTR_FLOATS, ATTR_TENSOR };

struct attr {
    const char *name;
    enum attr_type type;
    int64_t i;
    double f;
    const char *s;
    int n;                  /* entries of ints or floats */
    const int64_t *ints;
    const double *floats;
    int tensor;             /* a VALUE_CONST of the graph, for ATTR_TENSOR */
};

/* Which part of an iteration a node belongs to. */
enum part {
    PART_PREPARE,   /* once per step, after parameters changed: depends on no sample */
    PART_FORWARD,   /* F, each micro-batch */
    PART_DGRAD,     /* B: gradients towards activations */
    PART_WGRAD,     /* W: gradients towards parameters */
    PART_COUNT
};

struct node {
    const char *name;       /* of the ONNX node; gradient nodes: "NAME/grad…"; unique */
    const struct op *op;
    int n_inputs, n_outputs;
    int *inputs, *outputs;  /* value ids; -1 for an optional one that is absent */
    int n_attrs;
    struct attr *attrs;
    enum part part;
    int source;             /* forward node this one is the gradient of, -1 for forward nodes */
    int block;              /* index into the plan's blocks; -1 before blocks are made */
    uint64_t key;           /* hash of the ONNX node's name, taken before fusion: Philox */
    const char *fusion;     /* the pattern that it stands for (fuse.h); NULL: none */
};

/* How the runtime knows weight_sum before a step (see loss.h). */
enum loss_weight {
    LOSS_WEIGHT_ONE,        /* 1 */
    LOSS_WEIGHT_SAMPLES,    /* samples of the global batch * per_sample */
    LOSS_WEIGHT_LABELS      /* over the labels of the global batch: sum of their class weights
                             * (1 where there are none), 0 for ignored ones */
};

struct loss_rule {
    enum loss_weight weight;
    double per_sample;      /* terms of one sample (its labels, or elements of its target) */
    int labels;             /* value id of the labels or targets, -1: none */
    bool classify;          /* labels must lie in 0 … classes-1 or be 'ignore_index' */
    int64_t classes;
    bool ignores;
    int64_t ignore_index;
    int class_weights;      /* VALUE_CONST of 'classes' floats, -1: none */
    const char *text;       /* "cross-entropy of \"logits\" and \"labels\"" */
};

struct graph {
    struct arena *arena;    /* owns names, arrays, attributes and folded constants */
    int n_values, n_nodes;
    struct value *values;
    struct node *nodes;
    int64_t batch;          /* b: samples in one micro-batch share */
    enum dtype real;        /* DTYPE_F32 or DTYPE_F64: the floating type of the run */
    int n_inputs, n_outputs;
    int *inputs, *outputs;  /* value ids in the order of the model */
    int loss;               /* value id of the scalar loss, -1 while there is none */
    int weight_sum;         /* VALUE_INPUT scalar: sum of the *global* batch's weights; -1 */
    struct loss_rule loss_rule;
    int correct;            /* scalar count of right predictions, -1 where not classification */
    int64_t batchnorm_samples;  /* G; 0: the whole share is one group */
    struct names *value_names, *node_names;     /* graph.c's own */
    unsigned next_number;       /* graph.c's own: to complete the next name that is taken, with its id, too */
    const struct graph *twin;   /* graph.c's own: whose names it has; NULL: its own */
    bool rewired;               /* fuse.c's own: some nodes may be dead */
};

struct graph *graph_new(int64_t batch, enum dtype real);
/* One that is built in step behind another, with the same ids: it has the other's names while
 * that is there, and finds nothing by them.
 */
struct graph *graph_new_twin(const struct graph *graph, int64_t batch);
/* A graph of its own, but for names, attributes' values and constants: the original must outlive
 * it.
 */
struct graph *graph_copy(const struct graph *graph);
void graph_free(struct graph *graph);

/* Append; ids are returned. Names are copied into the arena; one that is taken is completed by
 * a number, NULL has one made up. graph_add_node() sets producer and consumers, part
 * PART_FORWARD, source and block -1 and the key from the name. The op is looked up by the
 * caller (op.h). Pointers into 'values' and 'nodes' do not survive these calls.
 */
int graph_add_value(struct graph *graph, const char *name, enum value_kind kind,
                    enum dtype dtype, const struct shape *shape, struct batch batch);
int graph_add_node(struct graph *graph, const char *name, const struct op *op, int n_inputs,
                   const int *inputs, int n_outputs, const int *outputs);
/* A constant with a copy of 'data' ('elements' of 'dtype'). */
int graph_add_const(struct graph *graph, const char *name, enum dtype dtype,
                    const struct shape *shape, const void *data);
int graph_find_value(const struct graph *graph, const char *name);  /* -1 if not there */
void graph_rename_value(struct graph *graph, int value, const char *name);
/* Give the node one more output, an unnamed value without type; returns the value. */
int graph_add_output(struct graph *graph, int node);
uint64_t graph_key(const char *name);   /* a node's key: FNV-1a of its name */

/* Attributes. The getters give 'def' where the node lacks the attribute. */
void graph_set_int(struct graph *graph, int node, const char *name, int64_t value);
void graph_set_float(struct graph *graph, int node, const char *name, double value);
void graph_set_ints(struct graph *graph, int node, const char *name, int n,
                    const int64_t *values);
void graph_set_string(struct graph *graph, int node, const char *name, const char *value);
void graph_copy_attrs(struct graph *graph, int to, int from);
const struct attr *node_attr(const struct node *node, const char *name);    /* NULL: absent */
int64_t node_int(const struct node *node, const char *name, int64_t def);
double node_float(const struct node *node, const char *name, double def);
const char *node_string(const struct node *node, const char *name, const char *def);

/* Bytes of a value as plain row-major elements. */
size_t value_bytes(const struct value *value);

/* Recompute the consumer lists after nodes were rewired. */
void graph_relink(struct graph *graph);

/* Producer before consumer, ids in range, unique names, shapes inferred: used by tests. */
int graph_check(const struct graph *graph, struct err *err);

#endif
