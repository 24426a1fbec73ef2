/* SPDX-License-Identifier: MIT */
#include "train/job.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Grid Engine's JOB_ID could be anybody's: a job of it has SGE_TASK_ID, too. */
static const struct scheduler_names {
    const char *mark, *cluster, *job, *array_job, *array_task, *restart;
} schedulers[] = {
    { "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID",
      "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT" },
    { "PJM_JOBID", NULL, "PJM_JOBID", "PJM_JOBID", "PJM_BULKNUM", NULL },
    { "PBS_JOBID", NULL, "PBS_JOBID", "PBS_ARRAY_ID", "PBS_ARRAY_INDEX", NULL },
    { "SGE_TASK_ID", "SGE_CLUSTER_NAME", "JOB_ID", "JOB_ID", "SGE_TASK_ID", NULL },
};

static const char *variable(const char *name)
{
    const char *value = name ? getenv(name) : NULL;

    /* So says Grid Engine of what is no task. */
    return value && *value && strcmp(value, "undefined") != 0 ? value : NULL;
}

static struct job_names names_of(const struct scheduler_names *s)
{
    struct job_names names = {
        .cluster = variable(s->cluster), .job = variable(s->job),
        .array_task = variable(s->array_task), .restart = variable(s->restart),
        .launcher = variable("TASUKI_STARTED_BY"),
    };

    names.array_job = names.array_task ? variable(s->array_job) : NULL;
    return names;
}

struct job_names job_names(void)
{
    for (size_t i = 0; i < sizeof(schedulers) / sizeof(schedulers[0]); i++)
        if (getenv(schedulers[i].mark) && variable(schedulers[i].job))
            return names_of(&schedulers[i]);
    return (struct job_names){ NULL };
}

/* What %LETTER stands for; 'known' is false for another letter, whose text stays. */
static const char *word(char letter, const struct job_names *job, bool *known)
{
    *known = true;
    switch (letter) {
    case '%':
        return "%";
    case 'j':
        return job->job;
    case 'A':
        return job->array_job ? job->array_job : job->job;
    case 'a':
        return job->array_task;
    default:
        *known = false;
        return NULL;
    }
}

int job_path(const char *option, const char *text, const struct job_names *job, char **path,
             struct err *err)
{
    char *made = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&made, &size);
    int bad = 0;

    for (const char *at = text; out && *at && !bad; at++) {
        bool known = false;
        const char *name = *at == '%' ? word(at[1], job, &known) : NULL;

        if (!known)
            fputc(*at, out);
        else if (name)
            fputs(name, out);
        else if (at[1] == 'a')
            bad = err_set_code(err, EXIT_USAGE, "--%s %s: %%a: this is no task of an array",
                               option, text);
        else
            bad = err_set_code(err, EXIT_USAGE, "--%s %s: %%%c: this is no job of Slurm, PJM, "
                               "PBS or Grid Engine", option, text, at[1]);
        at += known;
    }
    if (!out || fclose(out) != 0)
        bad = bad ? bad : err_set(err, "no memory for a path");
    if (bad)
        free(made);
    else
        *path = made;
    return bad;
}
