/* SPDX-License-Identifier: MIT */
/* What a stage costs, and what stages exchange, from a cost file and its cuts. */
#ifndef TASUKI_SCHEDULER_STAGE_H
#define TASUKI_SCHEDULER_STAGE_H

#include <math.h>
#include <stdbool.h>

#include "scheduler/cost.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"

struct err;

/* One replica of a stage at one share. Seconds and bytes. */
struct stage_cost {
    double forward, dgrad, wgrad, step;
    double parameters;      /* shared ones included, once */
    double prepared;        /* made of these once per step */
    double activations;     /* kept per micro-batch in flight */
    /* Where it recomputes selectively: seconds that this adds, bytes of 'activations' it saves. */
    double again, dropped;
    double made_again;      /* bytes of what that runs again for the backward */
    /* The most that is there while a block runs, with the activations of the blocks up to it, or
     * with what these run again selectively.
     */
    double peak, peak_again;
    double behind;          /* the most that is there beside activations, with what waits for W */
    double left;            /* of what is sent, what no backward reads */
    double delayed;         /* more than these where W is put off, if above 0 */
    double turn;            /* the same at its most, as gradients come block by block */
    double held;            /* gradients that W needs, of one micro-batch */
    double rest;            /* of the workspace, without the block's part of these */
    double received;        /* values of earlier stages and inputs, the same */
    double fed;             /* of such, what is not kept */
    double workspace;
    double ahead;           /* of it, in the forward */
    double kernels;         /* the most that one asks for */
    /* Of values in another layout: what it receives and sends; where it does, with the
     * workspace, or as in 'peak'; what it receives or is fed.
     */
    double copies, border, border_peak;
    double copied;
    double values, gradients;   /* of messages from earlier stages, and back */
    double sent;            /* to later ones */
};

/* Of no blocks; more are added one behind the other. */
struct stage_cost stage_none(void);
/* Until all are there 'turn' and 'behind' are less by 'delayed'. */
void stage_add_block(const struct cost *cost, const struct cost_block *block, double samples,
                     struct stage_cost *stage);
/* Of the same, what of it is seconds. */
struct stage_seconds {
    double forward, dgrad, wgrad, step, again;
};

/* Of the blocks b with stage[b] == s. */
struct stage_seconds stage_seconds(const struct cost *cost, const int *stage, int s,
                                   double samples);
void stage_cost_get(const struct cost *cost, const int *stage, int s, double samples,
                    struct stage_cost *result);
/* Bytes of one device, of what stage_backward() left: parameters, and what is made of them, in so
 * many versions, gradients, optimizer state of 'state_bytes' for a 4-byte parameter, 'slots'
 * micro-batches and the workspace.
 */
double stage_memory(const struct cost *cost, const struct stage_cost *stage, int slots,
                    int versions, double state_bytes);
/* Of these the parameters, what is made of them, gradients and optimizer state. */
double stage_fixed(const struct cost *cost, double parameters, double prepared, int versions,
                   double state_bytes);
/* Bytes of the buffers that messages with neighbours have besides, so many for each where slots and
 * micro-batches are as many: a receive is posted ahead of its use, and sends may be under way.
 */
double stage_message_bytes(const struct stage_cost *stage, double buffers, int64_t micro_batches,
                           int slots);
/* Bytes of scratch for the sums of so many bytes of gradients over so many devices (sums.h), where
 * buffers are counted at all.
 */
double stage_sum_bytes(double gradients, double buffers, int copies);
/* Seconds of what is run again. */
static inline double recompute_seconds(enum plan_recompute recompute, double again, double forward)
{
    return recompute == PLAN_RECOMPUTE_NONE ? 0
         : recompute == PLAN_RECOMPUTE_FULL ? forward : again;
}

/* Leave in these what is there where the backward has this form: gradients that W needs, whether
 * they wait in a slot or not, and what is run again for one micro-batch at a time.
 */
void stage_backward(struct stage_cost *stage, enum backward_form form,
                    enum plan_recompute recompute, int slots);
/* The same of a block at so many samples, added to 'again' and 'dropped'. */
void block_selective(const struct cost *cost, const struct cost_block *block, double samples,
                     double *again, double *dropped);
/* Bytes of what it runs again for its backward. */
double block_made_again(const struct cost *cost, const struct cost_block *block, double samples);
/* Of its activations, what is kept wherever the stage ends. */
double block_kept(const struct cost *cost, const struct cost_block *block, double samples);
/* Bytes of optimizer state that a device has for a 4-byte parameter; the cost file's where
 * 'optimizer' is NULL. 'offload': the host has them.
 */
double stage_state_bytes(const struct cost *cost, const char *optimizer, bool offload);
/* Bytes of gradients for so many bytes of parameters. */
double stage_gradient_bytes(const struct cost *cost, double parameters);
/* Gradients are summed in buckets, neighbours in the order in which they become final: a bucket
 * takes what comes next as long as it has no more bytes than this, of so many in the stage; what
 * is larger than that is one on its own.
 */
double stage_bucket_bytes(double gradients);

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
    const struct cost_edge **values;    /* of all items */
    double **gradient_bytes;
};

/* 'stage[b]' for each block, not decreasing along edges. */
struct traffic_list *traffic_new(const struct cost *cost, const int *stage);
void traffic_free(struct traffic_list *list);
/* Bytes of so many samples. What has no batch axis is sent whole, where 'whole' is set. */
double traffic_bytes(const struct cost *cost, const struct traffic *t, double samples,
                     bool whole, bool gradient);
/* stage_message_bytes() where all stages are known: what is sent to several is sent to each, by as
 * many buffers for each stage on the way, and no more than the earlier one has 'slots' [stages].
 */
double traffic_buffer_bytes(const struct cost *cost, const struct traffic_list *list, int s,
                            double samples, int64_t micro_batches, const int *slots);
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
