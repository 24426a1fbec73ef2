/* SPDX-License-Identifier: MIT */
/* An ONNX file, and the graph built from it at one batch size.
 *
 *   struct model *m = model_open("net.onnx", &err);
 *   struct graph *g = model_build(m, &options, &err);
 *
 * model_open() maps the file, scans the wire format (nesting <= 64, element counts, < 2 GiB),
 * unpacks it and checks names, types, shapes and external data (mapped; paths that leave the
 * model's directory are refused). model_build() may be called many times, at any batch sizes.
 *
 * Building: fix the inputs' batch dimension; infer shapes and fold constants and shape
 * arithmetic; refuse what is not supported, all of it at once; recognise ties (Identity of a
 * parameter); BatchNormalization in inference form becomes training form (said in 'notes');
 * remove what nobody reads; fuse (unless options say no); append the loss. Initializers that
 * options freeze, and those of which the exporter says that they are no parameters, are
 * constants in the end.
 */
#ifndef TASUKI_GRAPH_MODEL_H
#define TASUKI_GRAPH_MODEL_H

#include "graph/graph.h"

struct model;

struct model_options {
    int64_t batch;          /* samples in one micro-batch share, >= 1 */
    enum dtype real;        /* DTYPE_F32 or DTYPE_F64 */
    bool fuse;
    const char *loss;       /* --loss, NULL: choose (see loss.h) */
    double label_smoothing; /* of a cross-entropy; an error where the loss is none */
    int64_t batchnorm_samples;
    bool no_loss;           /* stop at the model's outputs */
    bool no_batch;          /* inputs hold no samples, their shapes are the file's: batch 1 */
    int n_freeze;           /* initializers that are not trained: patterns (freeze.h) */
    const char *const *freeze;
    int n_no_decay;         /* parameters that weight decay leaves alone: patterns, too */
    const char *const *no_decay;
    /* Tensors of the data file, by which labels are known and inputs are checked; may be
     * empty (inspect, plan without data). Shapes are without the leading sample dimension,
     * but with no_batch.
     */
    int n_tensors;
    const struct model_tensor {
        const char *name;
        enum dtype dtype;
        struct shape shape;
    } *tensors;
};

struct model *model_open(const char *path, struct err *err);
void model_close(struct model *model);
/* The same in a process that has none of its files: from what another one packed, which is for
 * free(). Large weights, most of a model, are not in there: they are 0.
 */
void *model_pack(const struct model *model, size_t *size);
struct model *model_unpack(const char *path, const void *packed, size_t size, struct err *err);
/* Bytes of the initializer 'index' if it is such a weight, else NULL; in every process the same
 * ones, model_initializers() of which there may be. 'data' of a graph's values points to them.
 */
int model_initializers(const struct model *model);
const void *model_large(const struct model *model, int index, size_t *bytes);
/* The index of those at 'data', -1: it is none. */
int model_find_large(const struct model *model, const void *data);
/* Weights that were read, where a file has them, need not stay in this process' memory. */
void model_drop(const struct model *model, const void *data, size_t bytes);
/* Where nodes are refused 'err' names as many as fit; all of them are in model_unsupported()
 * until the next build. Not among them are nodes that read what others should have made.
 * The graph borrows the model's mapped weights: free graphs before the model. */
struct graph *model_build(struct model *model, const struct model_options *options,
                          struct err *err);

/* Nodes of the last build that are not supported, in topological order. */
struct model_unsupported {
    const char *node, *op, *domain;     /* domain "" is ai.onnx */
    const char *scope;                  /* main/If "x"/then_branch, main/f "call" */
    int64_t opset;                      /* of the domain, 0: not imported */
    char *why;
};
int model_unsupported(const struct model *model, const struct model_unsupported **list);

/* The index-th input as the file declares it: the shape of one sample, -1 where a dimension is
 * open, rank -1 where no shape is known. False past the last.
 */
bool model_input(const struct model *model, int index, struct model_tensor *input);

const char *model_path(const struct model *model);
/* XXH3 of the graph without weight data, 16 hex digits ("" without xxhash). */
const char *model_hash(const struct model *model);
int64_t model_opset(const struct model *model);
/* What was undone, assumed or chosen by the last build ("loss: cross-entropy of …"). */
int model_notes(const struct model *model);
const char *model_note(const struct model *model, int index);

/* Is it an initializer of the file? */
bool model_has(const struct model *model, const char *name);

/* Do two lists of patterns freeze the same initializers? What matches nothing is ignored. */
bool model_freezes_alike(const struct model *model, int n, const char *const *a, int m,
                         const char *const *b);
/* The floating initializers that stay as they are in the file, for free(); '*n' of them. */
struct model_tensor_data {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    const void *data;       /* perhaps unaligned, as long as the model; NULL: no weights */
};
struct model_tensor_data *model_frozen(const struct model *model, int n_freeze,
                                       const char *const *freeze, int *n);

/* Write the model with new parameter and statistics values to 'path' (one file, written
 * whole). 'get' fills 'data' with the current bytes of the named initializer in the file's
 * type, or returns 1 for "unchanged". Nothing else in the file changes.
 */
int model_export(struct model *model, const char *path,
                 int (*get)(void *user, const char *name, enum dtype dtype, size_t elements,
                            void *data, struct err *err),
                 void *user, struct err *err);

#endif
