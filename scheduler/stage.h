/* SPDX-License-Identifier: MIT */
/* What a stage costs, and what stages exchange, from a cost file and its cuts. */
#ifndef TASUKI_SCHEDULER_STAGE_H
#define TASUKI_SCHEDULER_STAGE_H

#include <stdbool.h>

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"

struct err;

/* One replica of a stage at one share. Seconds and bytes. */
struct stage_cost {
    double forward, dgrad, wgrad, step;
    double parameters;      /* shared ones included, once */
    double activations;     /* kept per micro-batch in flight */
    /* Where it recomputes selectively: seconds that this adds, bytes of 'activations' it saves. */
    double again, dropped;
    double received;        /* values of earlier stages and inputs, the same */
    double workspace;
};

/* Of the blocks b with stage[b] == s. */
void stage_cost_get(const struct cost *cost, const int *stage, int s, double samples,
                    struct stage_cost *result);
/* Bytes of one device: parameters in so many versions, gradients, optimizer state of
 * 'state_bytes' for a 4-byte parameter, 'slots' micro-batches and the workspace.
 */
double stage_memory(const struct cost *cost, const struct stage_cost *stage, int slots,
                    int versions, double state_bytes);
/* Seconds of what is run again. */
static inline double recompute_seconds(enum plan_recompute recompute, double again, double forward)
{
    return recompute == PLAN_RECOMPUTE_NONE ? 0
         : recompute == PLAN_RECOMPUTE_FULL ? forward : again;
}

/* Bytes not kept. One block may keep more, so that another need not: alone it would not. */
static inline double recompute_bytes(enum plan_recompute recompute, double dropped,
                                     double activations)
{
    return recompute == PLAN_RECOMPUTE_NONE ? 0
         : recompute == PLAN_RECOMPUTE_FULL ? activations : dropped > 0 ? dropped : 0;
}

/* What is not kept is there for one micro-batch at a time. */
void stage_drop(struct stage_cost *stage, enum plan_recompute recompute);
/* The same of a block at so many samples, added to 'again' and 'dropped'. */
void block_selective(const struct cost *cost, const struct cost_block *block, double samples,
                     double *again, double *dropped);
/* Bytes of optimizer state for a 4-byte parameter; the cost file's where 'optimizer' is NULL. */
double stage_state_bytes(const struct cost *cost, const char *optimizer);
/* Bytes of gradients for so many bytes of parameters. */
double stage_gradient_bytes(const struct cost *cost, double parameters);

/* The values that one stage sends to another, each once. */
struct traffic {
    int from, to;
    int n_values;
    const struct cost_edge **values;    /* an edge that stands for each value */
    double **gradient_bytes;            /* the largest of its edges' lists, borrowed */
};

struct traffic_list {
    int n;
    struct traffic *items;              /* sorted by (from, to) */
};

/* 'stage[b]' for each block, not decreasing along edges. */
struct traffic_list *traffic_new(const struct cost *cost, const int *stage);
void traffic_free(struct traffic_list *list);
/* Bytes of so many samples. What has no batch axis is sent whole, where 'whole' is set. */
double traffic_bytes(const struct cost *cost, const struct traffic *t, double samples,
                     bool whole, bool gradient);
/* The schedule's edges, one for each entry of the list. */
void traffic_edges(const struct cost *cost, const struct traffic_list *list,
                   struct schedule_edge *edges);

/* The stage of each of 'n' blocks, allocated. Fails where the plan's blocks are not these, which
 * 'where' ("cost file") calls by its name.
 */
int *stage_by_name(const struct plan *plan, const char *const *names, int n, const char *where,
                   struct err *err);
/* The stage of each block of the cost file, allocated. Fails where the plan's blocks are not
 * the file's, or an edge runs backwards.
 */
int *stage_of_blocks(const struct plan *plan, const struct cost *cost, struct err *err);

#endif
