/* SPDX-License-Identifier: MIT */
/* Runs a rank's instruction list, step after step: each instruction by the executor of its
 * chunk.
 */
#ifndef TASUKI_TRAIN_RUNNER_H
#define TASUKI_TRAIN_RUNNER_H

#include "train/executor.h"
#include "train/guard.h"
#include "train/loss_scale.h"

struct runner;

struct runner_options {
    struct executor_options executor;   /* but 'compiled' */
    int n_chunks;
    struct compiled *const *compiled;   /* [n_chunks] of the rank's list */
    double clip;                /* largest norm of all gradients; 0: any */
    struct guard guard;         /* policy and spike */
    struct loss_scale scale;    /* to begin with */
    uint64_t delay_seed;        /* tests: before each instruction wait a random time … */
    int delay_max;              /* … of at most so many microseconds; 0: never */
};

/* Everything but what needs others; parameters are loaded from the model. */
struct runner *runner_new(const struct runner_options *options, struct err *err);
/* Collective over the ranks of the plan, once all have theirs: the groups that reduce. */
int runner_connect(struct runner *runner, struct err *err);
void runner_free(struct runner *runner);
/* Of chunk 'c'. */
struct executor *runner_executor(struct runner *runner, int c);

/* Forward, backward, reduce, step. Where the schedule is not flushed, forwards of the 'next'
 * batch, with which the next call must go on, are run, too; NULL: the pipeline runs empty.
 */
int runner_step(struct runner *runner, const struct batch_args *args,
                const struct batch_args *next, struct batch_result *result, struct err *err);
/* What was bad in this step on this rank, which result->bad says; NULL: nothing. Steps are kept until
 * the next but one.
 */
const struct guard_find *runner_found(const struct runner *runner, int64_t step);
/* As it is after the last step; the same on all ranks of the plan. */
struct loss_scale runner_loss_scale(const struct runner *runner);
/* Forward only, as in use: no dropout, running statistics. */
int runner_evaluate(struct runner *runner, const struct batch_args *args,
                    struct batch_result *result, struct err *err);
/* Until the next call with 'false' the averages stand in the parameters' place. */
int runner_average(struct runner *runner, bool averages, struct err *err);
/* Nothing of this rank is under way any more. */
int runner_drain(struct runner *runner, struct err *err);

#endif
