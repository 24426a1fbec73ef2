/* SPDX-License-Identifier: MIT */
/* When the job that a run is part of ends.
 *
 * TASUKI_JOB_END, seconds since 1970, tells a run the limit of its job under any scheduler: the
 * scripts of "tasuki submit" for PJM, PBS and Grid Engine, whose environments hold no limit, export
 * it. In Slurm the launcher looks after the limit, sends a signal, and says how long before by
 * TASUKI_JOB_NOTICE; of a step without a launcher libslurm knows it (step_facts.h).
 */
#ifndef TASUKI_TRAIN_JOB_LIMIT_H
#define TASUKI_TRAIN_JOB_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct step_facts;

struct job_limit {
    double end;         /* seconds since 1970; 0: not known, or not the ranks' to look after */
    double notice;      /* seconds before it, at least, at which a checkpoint is begun */
    int asker;          /* by which Slurm is asked again for the end (step_facts.h); 0: none */
    double launcher;    /* seconds before it at which the launcher asks for one; 0: it does not */
};

/* What the environment says, or else what is known of the step. An error where that is no number,
 * or an end more than a day ago.
 */
int job_limit_read(struct job_limit *limit, const struct step_facts *known, struct err *err);

/* Seconds before a limit of so many, 0: none, at which a checkpoint is asked for. */
int64_t job_limit_notice(int64_t limit);

#endif
