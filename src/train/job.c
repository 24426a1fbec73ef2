/* SPDX-License-Identifier: MIT */
#include "train/job.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct job_names job_names(void)
{
    return (struct job_names){
        .cluster = getenv("SLURM_CLUSTER_NAME"), .job = getenv("SLURM_JOB_ID"),
        .array_job = getenv("SLURM_ARRAY_JOB_ID"), .array_task = getenv("SLURM_ARRAY_TASK_ID"),
        .restart = getenv("SLURM_RESTART_COUNT"),
    };
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
            bad = err_set_code(err, EXIT_USAGE, "--%s %s: %%a: this is no task of an array "
                               "(SLURM_ARRAY_TASK_ID is not set)", option, text);
        else
            bad = err_set_code(err, EXIT_USAGE, "--%s %s: %%%c: this is no job (SLURM_JOB_ID is "
                               "not set)", option, text, at[1]);
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
