/* SPDX-License-Identifier: MIT */
/* A stage program: what one stage runs for one share size.
 *
 * Taken from the whole training graph (forward + gradient nodes) by the stage of each node:
 * the parts P (prepare: once per step), F, B and W are lists of nodes in topological order.
 * A backend may then choose layouts and add nodes (backend.h, 'lower'); scheduler/memory.h
 * gives every value an offset.
 */
#ifndef TASUKI_GRAPH_PROGRAM_H
#define TASUKI_GRAPH_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "graph/autodiff.h"
#include "graph/graph.h"

struct err;

/* How a value lies in memory. Plain row-major has 'opaque' NULL. A backend may choose others
 * for values that never leave the stage program, and for others where all stages come to the same;
 * 'bytes' is the size either way.
 */
struct value_layout {
    const void *opaque;
    size_t bytes;
    char order;                 /* tells layouts of as many bytes apart, in keys of costs */
    bool crosses;               /* where its readers are other stages it is sent as it lies, not plain */
};

enum value_place {
    PLACE_NONE,         /* not of this stage */
    PLACE_PARAM,        /* parameters and statistics: offset in the parameter array */
    PLACE_GRADIENT,     /* gradients of parameters, contributions to statistics: accumulated
                         * over the micro-batches, summed over the replicas */
    PLACE_PREPARED,     /* constants and what P makes: one copy for the run */
    PLACE_SLOT,         /* one copy per micro-batch in flight: made in F, fed or received, and
                         * read in B or W, or sent */
    PLACE_SCRATCH       /* lives within one part: one copy */
};

struct program_value {
    enum value_place place;
    size_t offset;              /* within its place's arena; set by scheduler/memory.c */
    int root;                   /* the value whose bytes these are (views), else itself */
    struct value_layout layout;
    bool again;                 /* of a root: not kept from F, but made again before B */
};

struct program_list {
    int n;
    int *nodes;                 /* ids in the graph, in running order */
};

struct program {
    struct graph *graph;        /* the whole training graph; owned by the caller */
    bool shared;                /* by others that want it as it is, see program_own_graph() */
    const struct autodiff *autodiff;
    const int *stage_of;        /* of every node present when the program was made */
    int stage, n_stages;
    struct program_list list[PART_COUNT];
    struct program_list backward;   /* B and W merged: each W right after what it needs */
    struct program_list again;  /* nodes of F that are run again before B */
    int n_values;               /* entries in 'values' = graph->n_values */
    struct program_value *values;
    int n_inputs;               /* VALUE_INPUTs this stage reads, without the weight sum */
    int *inputs;
    /* Offsets and sizes below are zero until memory_place(). */
    size_t param_bytes, gradient_bytes, prepared_bytes, slot_bytes, scratch_bytes;
    size_t contributions, contribution_bytes;   /* offset in the gradient array, and size */
    size_t workspace_bytes;     /* largest of any kernel */
};

/* Everything plain; places and roots set. The graph must outlive the program. */
struct program *program_new(struct graph *graph, const struct autodiff *autodiff,
                            const int *stage_of, int stage, int n_stages, struct err *err);
/* The same of nodes that all are one stage's and all run, each in its part and in this order, and
 * that read and make neither parameters nor views: stage 'stage' of the boundaries.
 */
struct program *program_of_nodes(struct graph *graph, const struct autodiff *autodiff, int stage);
void program_free(struct program *program);
/* After 'lower': F is run again before B as far as B and W need it, from what is fed and received;
 * or, selective, from what recompute_keep() chooses.
 */
void program_recompute(struct program *program, bool selective);

/* For 'lower', before it changes the graph: a shared one is exchanged for a copy, which the caller
 * of program_new() owns, too.
 */
void program_own_graph(struct program *program);
/* For 'lower': append a node of this stage right before or after 'where' in the list of a
 * part (where == -1: at the start or end), after it was added to the graph; grows 'values'.
 */
void program_insert(struct program *program, enum part part, int where, bool after, int node);
/* For 'lower': nodes of a part that no longer run. */
void program_remove(struct program *program, enum part part, const bool *gone);
/* At the end of 'lower', when nodes read what was inserted: consumers, order and places anew. */
void program_relink(struct program *program);

#endif
