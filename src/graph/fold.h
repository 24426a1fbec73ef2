/* SPDX-License-Identifier: MIT */
/* Constants, and the operators on them: what shape arithmetic, masks and position ids in an
 * exported model come down to.
 *
 * Elements are held wide: int64_t for integers and bool, double for floating types, rounded
 * after each operation to what the type can hold.
 */
#ifndef TASUKI_GRAPH_FOLD_H
#define TASUKI_GRAPH_FOLD_H

#include "graph/graph.h"
#include "graph/onnx.h"

struct arena;
struct err;

struct tensor {
    enum dtype dtype;
    struct shape shape;
    int64_t n;
    int64_t *i;         /* integers and bool */
    double *f;          /* floating types */
};

#define FOLD_MAX_ELEMENTS ((int64_t)1 << 24)

struct fold {
    struct arena *arena;    /* results live here */
    enum dtype real;        /* the floating type */
    int64_t budget;         /* elements that may still be made */
};

/* A tensor with zeroed elements. */
int fold_new(struct fold *fold, enum dtype dtype, const struct shape *shape,
             struct tensor *tensor, struct err *err);
/* The file's tensor as a constant: floating types become fold->real. */
int fold_load(struct fold *fold, const struct onnx_tensor *from, struct tensor *tensor,
              struct err *err);
/* Packed elements of tensor->dtype, allocated in 'arena'. */
const void *fold_bytes(const struct tensor *tensor, struct arena *arena);
double fold_number(const struct tensor *tensor, int64_t index);     /* of any type */
bool fold_equal(const struct tensor *a, const struct tensor *b);

bool fold_knows(const char *op);
/* Run a node of the given operator; 'inputs' follow the node's, NULL where left out.
 * 'n_outputs' tensors are written (Split has several).
 */
int fold_run(struct fold *fold, const OnnxFile__Node *node, int n_inputs,
             const struct tensor *const *inputs, int n_outputs, struct tensor *outputs,
             struct err *err);

/* For the families (fold_math.c, fold_layout.c, fold_index.c) ------------------------- */

struct fold_call {
    struct fold *fold;
    const OnnxFile__Node *node;
    int n_inputs;
    const struct tensor *const *inputs;
    int n_outputs;
    struct tensor *outputs;
    int kind;               /* of the table entry */
};

struct fold_op {
    const char *name;
    int min_inputs;
    int (*run)(const struct fold_call *call, struct err *err);
    int kind;
};

/* Each ends with a NULL name. */
extern const struct fold_op fold_math[], fold_layout[], fold_index[];

/* Round 'x' to what 'dtype' holds; dtype_wrap() does so for integers. */
double fold_round(enum dtype dtype, double x);
/* Copy element 'from' of 'a' to element 'to' of 'b', of the same type. */
void fold_copy(const struct tensor *a, int64_t from, struct tensor *b, int64_t to);
/* A list of integers from input 'index', or from the attribute where there is none. -1: neither
 * is there; -2 with 'err': not a list of integers.
 */
int fold_ints(const struct fold_call *call, int index, const char *attr,
              const int64_t **values, struct err *err);

/* Offset of the element of a tensor of shape 'in' that is broadcast to element 'index' of a
 * tensor of shape 'out'.
 */
int64_t fold_source(const struct shape *in, const struct shape *out, int64_t index);

#endif
