/* SPDX-License-Identifier: MIT */
/* When the job that a run is part of ends, and what a signal at its limit leaves.
 *
 * TASUKI_JOB_END, seconds since 1970, tells a run the limit of its job under any scheduler: the
 * scripts of "tasuki submit" for PJM, PBS and Grid Engine, whose environments hold no limit, export
 * it. In Slurm the launcher looks after the limit, sends a signal, and says how long before by
 * TASUKI_JOB_NOTICE.
 */
#ifndef TASUKI_TRAIN_JOB_LIMIT_H
#define TASUKI_TRAIN_JOB_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct job_limit {
    double end;         /* seconds since 1970; 0: not known, or not the ranks' to look after */
    double notice;      /* seconds before it, at least, at which a checkpoint is begun */
    double left;        /* seconds from a signal at the limit to the kill; 0: not known */
    bool by_launcher;   /* it sends that signal, else Slurm */
};

/* What the environment says. An error where that is no number, or an end more than a day ago. */
int job_limit_read(struct job_limit *limit, struct err *err);
/* What Slurm leaves a step after SIGTERM at the time limit, KillWait, for the step's first task to
 * know; 0: there is no limit, or it is not known, or the launcher's to look after. Asks libslurm:
 * call it before other libraries start threads.
 */
double job_limit_kill_wait(void);

/* Seconds before a limit of so many, 0: none, at which a checkpoint is asked for. */
int64_t job_limit_notice(int64_t limit);

#endif
