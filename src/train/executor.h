/* SPDX-License-Identifier: MIT */
/* Runs the instructions of one stage, as runner.h hands them out. Everything is allocated when it
 * is made.
 */
#ifndef TASUKI_TRAIN_EXECUTOR_H
#define TASUKI_TRAIN_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "train/compile.h"
#include "train/data.h"
#include "train/nccl.h"
#include "train/placement.h"
#include "train/prefetch.h"
#include "train/store.h"
#include "train/trace.h"
#include "train/update.h"

struct err;
struct executor;

struct executor_options {
    const struct plan *plan;
    const struct placement *placement;  /* this rank has the stage */
    const struct compiled *compiled;
    struct device *device;
    struct comm *comm;
    struct nccl *nccl;          /* NULL: all goes through the hosts */
    struct optimizer_args optimizer;
    double ema;                 /* of the averages; 0: none are kept */
    uint64_t seed;
    const struct initial *initial;  /* of what the model has no values for; may be NULL */
    bool deterministic;
    bool recorded;              /* tapes are, where the backend can: CUDA graphs */
    struct passage **passages;  /* those of all chunks of the rank: see passage_init() */
    struct trace *trace;        /* NULL: none */
};

/* One global batch. */
struct batch_args {
    struct data_reader *reader;
    /* For each chunk of the rank: what reads ahead what 'reader' would read, NULL where none does;
     * see executor_bind().
     */
    struct prefetch *const *prefetch;
    int *const *tensors;
    const int64_t *samples;     /* global batch, in order */
    int64_t step, epoch;
    double weight_sum;
    double rate;                /* what the learning rate is multiplied by */
    int version;                /* of the weights, see store.h */
};

/* What this rank contributed, and where its time went. */
struct batch_result {
    double loss, correct;       /* sums over its micro-batches; 0 where it has no loss */
    double norm;                /* of the gradients, on the plan's first rank where clipped */
    double loss_scale;          /* see loss_scale.h; on the plan's first rank */
    bool skipped;               /* gradients overflowed; the same */
    /* Seconds: computing; in receives, and of these waiting for messages; in sends; waiting for
     * the all-reduce when nothing else is left to do.
     */
    double compute, receive, idle, send, reduce;
    bool bad;                   /* see guard.h */
};

/* Everything but what needs others; parameters are loaded from the model. */
struct executor *executor_new(const struct executor_options *options, struct err *err);
/* Collective over the replicas of the stage, and over those of all stages that share a parameter
 * where none of the ranks has two: the groups that reduce.
 */
int executor_connect(struct executor *executor, struct err *err);
void executor_free(struct executor *executor);

/* Which tensors of a data file feed this stage: '*tensors' is malloc'ed, one for each input. */
int executor_bind(const struct executor *executor, const struct data *data, int **tensors,
                  struct err *err);
/* Run P, for each version: needed after parameters were changed from outside. */
int executor_prepare(struct executor *executor, struct err *err);
/* Under ZeRO-1, collective: the store has all gradients of the step, not this rank's part. */
int executor_gather_gradients(struct executor *executor, struct err *err);

/* Begin a step, which has no gradients yet, or an evaluation. */
void executor_begin(struct executor *executor, bool training);
/* What the loss of a batch with this version of the weights is scaled by, before its backwards. */
int executor_scale_loss(struct executor *executor, double factor, int version, struct err *err);
/* Begin a global batch; receives are posted. 'follows': the one before is still under way. */
int executor_start(struct executor *executor, const struct batch_args *args, bool training,
                   bool follows, struct err *err);
/* Instruction 'index' of the rank's list, which is of this chunk, for a batch of 'args'. */
int executor_run(struct executor *executor, const struct batch_args *args, int index,
                 struct batch_result *result, struct err *err);
/* Forward only, as in use: no dropout, running statistics. Sends what F makes. */
int executor_evaluate(struct executor *executor, const struct batch_args *args, int micro,
                      struct batch_result *result, struct err *err);
/* Wait until the replicas' gradients are summed. */
int executor_reduce(struct executor *executor, const struct batch_args *args,
                    struct batch_result *result, struct err *err);
/* Squares of the gradients that count here are to be summed up: the stage's of its first replica; all,
 * each its slices, under ZeRO-1. And what they have come to, for which it waits; what is handed over in
 * between need not be done then.
 */
int executor_sum(struct executor *executor, struct err *err);
int executor_squares(struct executor *executor, double *squares, struct err *err);
/* Of the gradients that count here the first one, as they became final, that is not finite: how
 * manieth it is, and its parameter's name; -1: all are.
 */
int executor_first_bad(struct executor *executor, int *order, const char **name, struct err *err);
/* What this rank has of the loss of the batch of 'args', before executor_finish(). */
int executor_loss(struct executor *executor, const struct batch_args *args, double *loss,
                  struct err *err);
/* No step is taken: the weights stay, also where there are two versions of them. */
int executor_skip(struct executor *executor, struct err *err);
/* The optimizer's step, and P. */
int executor_update(struct executor *executor, const struct update_step *step, struct err *err);
/* End a batch, whose update may still be under way: add what it lost, and what it had right. */
int executor_finish(struct executor *executor, const struct batch_args *args,
                    struct batch_result *result, struct err *err);

/* Until the next call with 'false' the averages stand in the parameters' place. */
int executor_average(struct executor *executor, bool averages, struct err *err);
/* Nothing of this rank is under way any more. */
int executor_drain(struct executor *executor, struct err *err);
struct store *executor_store(struct executor *executor);

#endif
