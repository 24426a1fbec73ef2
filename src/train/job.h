/* SPDX-License-Identifier: MIT */
/* The job of a scheduler that a run is part of. */
#ifndef TASUKI_TRAIN_JOB_H
#define TASUKI_TRAIN_JOB_H

struct err;

/* Of the environment that Slurm, PJM, PBS or Grid Engine made, which owns them; NULL where there is
 * none. All tasks of an array have one job with PJM and Grid Engine, each its own with the others.
 */
struct job_names {
    const char *cluster, *job;
    const char *array_job, *array_task;     /* of a task of an array */
    const char *restart;                    /* how often it was requeued; Slurm's */
    const char *launcher;                   /* of ours, that started this step; it ends one first */
};

struct job_names job_names(void);

/* A path in which %j stands for the job, %A for the job of the array (without one, for the job),
 * %a for the task in it, and %% for %; other words stay. '*path' is malloc'ed. Where there is no
 * job or array the error names 'option'.
 */
int job_path(const char *option, const char *text, const struct job_names *job, char **path,
             struct err *err);

#endif
