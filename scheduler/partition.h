/* SPDX-License-Identifier: MIT */
/* The planner: cost + cluster + global batch → plan. */
#ifndef TASUKI_SCHEDULER_PARTITION_H
#define TASUKI_SCHEDULER_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "topology/cluster.h"

struct err;
struct memory_use;
struct schedule;

/* A node of the network, by its ONNX name, and the block that it is in. */
struct plan_node {
    const char *name, *block;
};

/* How a plan was run: pipelines side by side, each of so many stages, and in which order. */
struct plan_shape {
    int pipelines, stages;
    int devices;                /* of a pipeline: replicas of all its stages */
    int schedule;               /* enum schedule_kind; -1: a list of its own */
    int64_t micro_batches;
    /* [stages] of each; NULL: not known, or a device has several stages. What plan_order() said of it. */
    int *blocks, *replicas;
    char order[17];
};

/* A hash of the names of the blocks, stage by stage, or in the order of the cost file. */
void plan_order(const struct plan *plan, char order[17]);
void plan_order_of(const struct cost *cost, char order[17]);

/* free()s the arrays of 'n', and themselves. */
void plan_shapes_free(struct plan_shape *shapes, int n);

struct plan_request {
    int64_t global_batch;
    /* Pins; 0 or NULL: the planner decides. A pin is honoured or refused with the reason. */
    int pipelines;
    int stages;
    int given_stages;           /* partition()'s own: as they were given, without other pins */
    int n_replicas;             /* of each pipeline, where those are pinned */
    int *replicas;
    int n_pins;                 /* "PATTERN=STAGE": of blocks, and of these nodes */
    const char *const *pins;
    int n_nodes;
    const struct plan_node *nodes;
    const int *block_stage;     /* partition()'s own: of each block, -1: any */
    int64_t micro_batches, micro_batch;
    const char *schedule;
    /* Instructions, for the stages and micro-batches pinned. */
    const struct schedule *list;
    const struct plan_listed *listed;   /* partition()'s own: that, where 'schedule' makes it */
    int chunks;                 /* of interleaved: stages of each device; 0: 2 */
    double schedule_memory;     /* of zb, see schedule_slots(); 0: any that fits */
    enum plan_zero zero;        /* any: where that is faster, or memory demands it */
    bool offload;               /* the optimizer's state lies in memory of the host */
    const char *recompute;      /* "none", "selective", "full"; NULL: where it must */
    double memory;              /* bytes per device; 0: as the cluster says */
    int64_t batchnorm_samples;  /* shares must be multiples of it; 0: no BatchNorm */
    bool unexplained;           /* where there is no plan nobody asks why */
    bool batchnorm_chosen;      /* by default, not by who asks */
    const char *policy;         /* see policy.h; NULL: the search */
    const char *optimizer;      /* its state decides the bytes per parameter */
    enum cluster_factors factors;       /* by which figure of the devices the plan's peak is */
    bool unknown_peak;          /* by none: float64 */
    bool exhaustive;            /* simulate every plan; refused where there is too much */
    /* What real steps have shown, the fastest first: of what is found, and of these, cut as they were,
     * the first that is like one of these, in order or else in all but its order, is taken; unless
     * another one, of which nobody knows more than the forecast, is faster though it took 'doubt'
     * times as long.
     */
    int n_tried;
    const struct plan_shape *tried;
    double doubt;
    /* Exact memory of a stage of 'plan', from the compiled stage program; NULL: the sums of the
     * cost file are used.
     */
    int (*memory_of)(void *user, const struct plan *plan, int stage, struct memory_use *use,
                     struct err *err);
    void *user;
    /* Room for so many more plans that fit: the best that differ in pipelines or stages, then in
     * schedules, then in micro-batches, the fastest first; come zeroed, and stay so where there
     * are no more, as with pinned blocks but without 'stages'.
     */
    int n_others;
    struct plan **others;
};

/* Stages of each device under the schedule that is asked for. */
int request_chunks(const struct plan_request *request);

/* The reasons, in words, are left in '*why' (malloc'ed lines; may be NULL). */
struct plan *partition(const struct cost *cost, const struct cluster *cluster,
                       const struct plan_request *request, char **why, struct err *err);

#endif
