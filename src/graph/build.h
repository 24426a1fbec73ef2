/* SPDX-License-Identifier: MIT */
/* From ONNX nodes to graph nodes; model.c's own.
 *
 * Two graphs are built in step: the one asked for, at batch b, and its twin at 2b. What
 * differs between them is what depends on the batch: it tells shapes that hold the batch from
 * shapes that do not, checks where the rules say the samples are, and finds constants that are
 * as long as the batch. Values and nodes have the same ids in both.
 */
#ifndef TASUKI_GRAPH_BUILD_H
#define TASUKI_GRAPH_BUILD_H

#include "graph/fold.h"
#include "graph/freeze.h"
#include "graph/graph.h"
#include "graph/loss.h"
#include "graph/model.h"
#include "graph/onnx.h"

struct canon;
struct err;
struct memo;
struct names;

enum { BUILD_TWINS = 2 };

/* What became of a named value of the file. */
struct build_item {
    enum {
        ITEM_NONE, ITEM_VALUE, ITEM_CONST,
        ITEM_BROKEN                     /* what should make it is refused */
    } kind;
    int id;                             /* in the graphs; -1: a constant not needed there yet */
    struct tensor constant[BUILD_TWINS];
};

/* What is known of an operator, by its name. */
struct build_kind {
    const struct op *op;                /* NULL: there is none */
    const struct canon *canon;          /* how it is brought into form; NULL: as it is */
    bool folds;                         /* where its inputs are constants */
    bool known;                         /* may a file have it? */
};

/* A node that is refused. */
struct build_problem {
    const struct onnx_node *node;
    char *why;
    int code;                           /* enum exit_code */
};

/* Loops become at most so many nodes, inputs and outputs, iterations counted as nodes. */
#define BUILD_MAX_UNROLLED (1 << 17)

struct build {
    struct onnx *onnx;
    const struct model_options *options;
    struct graph *graph[BUILD_TWINS];
    struct fold fold[BUILD_TWINS];
    struct memo *memo;
    size_t n_folded;                    /* room for inputs and outputs of a fold */
    const struct tensor **fold_inputs;
    struct tensor *fold_outputs;
    struct names *consts;               /* constants of the graphs, by their memory */
    struct names *kind_names;
    int n_kinds;
    struct build_kind *kinds;           /* that were asked for */
    struct build_item *items;           /* one for each value of the file */
    enum freeze *freeze;                /* one for each initializer of the file */
    bool *no_decay;                     /* the same */
    int64_t file_batch;                 /* batch size of the export; 0: any */
    int n_problems;
    struct build_problem *problems;
    int loops, unrolled;                /* around the node at work; spent by all loops */
    int n_losses;
    struct loss_candidate *losses;      /* in-graph losses met on the way */
    /* Nodes in inference form that were brought into training form, and the first of each. */
    int n_norms, n_dropouts;
    int n_unmerged;                     /* running statistics that were one initializer */
    const char *first_norm, *first_dropout;
    void (*note)(void *user, const char *text);
    void *user;
};

/* Build both graphs up to the model's outputs. 'build' has the first two fields, note and
 * user; build_free() in any case. Where it fails and there are 'problems', these are why: all
 * nodes that are refused, but those that read what others should have made; else 'err' is.
 */
int build_run(struct build *build, struct err *err);
void build_free(struct build *build);
void build_note(struct build *build, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For control.c ----------------------------------------------------------------------- */

/* The live nodes of a body; what is refused goes to 'problems'. */
void build_nodes(struct build *build, const struct onnx_body *body);
/* Count what a loop makes. */
int build_unroll(struct build *build, size_t n, struct err *err);
/* Refuse the operators of a body that is not built which could not be. */
void build_list_unknown(struct build *build, const struct onnx_body *body);
/* Where it cannot be said what the node's subgraphs are for: refuse what could be no part of
 * the graph anyway.
 */
void build_not_entered(struct build *build, const struct onnx_node *node);
/* Let the node's outputs be none that could be read. */
void build_break(struct build *build, const struct onnx_node *node);

/* For canon.c ------------------------------------------------------------------------- */

/* The constant that value 'v' of the file is, in graph 'which'; NULL where it is none or v is
 * -1. Parameters are no constants.
 */
const struct tensor *build_const(struct build *build, int v, int which);
/* The same, and the elements of an initializer that would be a parameter: for inputs that are
 * numbers of the operator (a ratio, a bound). They are then taken as they stand in the file.
 */
const struct tensor *build_literal(struct build *build, int v, int which);
/* The graphs' value for it; constants and parameters are added when first asked for. -1 with
 * 'err'.
 */
int build_value(struct build *build, int v, struct err *err);
/* A new constant in both graphs. */
int build_add_const(struct build *build, const char *name,
                    const struct tensor constant[BUILD_TWINS], struct err *err);
/* Output 0 of the node is its input 'input' by another name. */
void build_alias(struct build *build, const struct onnx_node *node, int input);
/* A node in both graphs; its outputs are those of the file's node. */
int build_emit(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               const int *inputs, int n_outputs, struct err *err);
void build_set_int(struct build *build, int id, const char *name, int64_t value);
void build_set_float(struct build *build, int id, const char *name, double value);
void build_set_ints(struct build *build, int id, const char *name, int n,
                    const int64_t *values);
void build_set_string(struct build *build, int id, const char *name, const char *value);
/* Infer the node's outputs in both graphs and see where their samples are. */
int build_settle(struct build *build, int id, struct err *err);

/* Canon: bring one node of the file into the form that op.h describes. */
struct build_kind canon_kind(struct build *build, const char *op);
int canon_node(struct build *build, const struct onnx_node *node, struct err *err);

/* The complete shape for a Reshape of value 'id' in graph 'which' to the literal 'dims', with
 * a batch size of the export replaced (canon_shape.c). 'literal': the list does not follow the
 * batch by itself.
 */
int canon_reshape(const struct build *build, int id, int which, int n, const int64_t *dims,
                  bool literal, bool allow_zero, struct shape *result, struct err *err);
int canon_expand(const struct build *build, int id, int which, int n, const int64_t *dims,
                 bool literal, struct shape *result, struct err *err);

#endif
