/* SPDX-License-Identifier: MIT */
/* A stage made ready to run: graph at the share's batch size, gradients, stage program,
 * schedule, kernels, memory placed. The planner's exact memory forecast takes the same way.
 */
#ifndef TASUKI_TRAIN_COMPILE_H
#define TASUKI_TRAIN_COMPILE_H

#include "graph/autodiff.h"
#include "graph/model.h"
#include "graph/program.h"
#include "kernels/backend.h"
#include "scheduler/memory.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"
#include "train/built.h"

struct compile_options {
    struct model *model;
    struct model_options model_options;     /* 'batch' is set to the share */
    /* Of them; NULL: build the graph anew. What is compiled refers to what it keeps for the
     * plan: see built_differentiated().
     */
    struct built *built;
    const struct plan *plan;
    const struct backend *backend;
    struct device *device;
    int optimizer_states;                   /* arrays per parameter, in the device's memory */
};

struct compiled {
    const struct backend *backend;
    struct graph *graph;
    bool shared;                /* the graph is one that compile_options.built keeps */
    struct autodiff autodiff;
    const int *stage_of;        /* of each node before lowering */
    int stage, replica;
    bool sharded;               /* ZeRO-1 */
    int n_edges;
    struct schedule_edge *edges;    /* which stages exchange what */
    struct schedule *schedule;
    struct program *program;    /* memory placed */
    struct kernel **kernels;    /* by node; NULL where nothing is to run (views, others) */
    int n_kernels;
    size_t state_bytes;         /* of one array of optimizer state */
    size_t sum_bytes;           /* scratch of sums over ranks */
    struct memory_use memory;
};

/* Replica 'replica' of stage 'stage'. Nodes for which the backend has no kernel are listed in
 * the error, all at once.
 */
struct compiled *compile_stage(const struct compile_options *options, int stage, int replica,
                               struct err *err);
void compiled_free(struct compiled *compiled);

/* Is there nothing to run, since output 0 is input 0's bytes? */
bool compiled_is_view(const struct compiled *compiled, int node);
/* Is this output of a node accumulated over the micro-batches? */
bool compiled_is_gradient(const struct compiled *compiled, int value);
/* Bytes of what a node accumulates. */
size_t compile_gradient_bytes(const struct program *program, int node);
/* Bytes for that, where its kernel cannot add, or it is run 'again'. */
size_t compiled_spare(const struct compiled *compiled, int node, bool again);

#endif
