/* SPDX-License-Identifier: MIT */
/* The time limit of the job: a checkpoint is asked for before it, where nobody else does. */
#include "config.h"

#include <inttypes.h>
#include <signal.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"
#include "train/job_limit.h"

void launcher_note_time(struct launcher *l, const struct slurm_facts *facts)
{
    l->notice = 0;
    /* Where nothing is left Slurm lets the job run on (OverTimeLimit). */
    if (facts->time_limit <= 0 || facts->time_left <= 0)
        return;
    l->before = job_limit_notice(facts->time_limit);
    l->notice = clock_now() + (double)(facts->time_left - l->before);
}

bool launcher_time_is_over(struct launcher *l)
{
    struct err err = { 0 };
    struct slurm_facts *facts;
    int64_t left;

    if (!l->checkpoint || l->notice <= 0 || clock_now() < l->notice)
        return false;
    /* It may have been changed since. */
    facts = slurm_ask_job(l->job, &err);
    if (!facts)
        return true;
    launcher_note_time(l, facts);
    left = facts->time_left;
    slurm_facts_free(facts);
    if (left != 0 && (l->notice <= 0 || clock_now() < l->notice))
        return false;
    log_info("%" PRId64 " seconds are left of the job's limit: a checkpoint is asked for", left);
    return true;
}
