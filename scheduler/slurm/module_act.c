/* SPDX-License-Identifier: MIT */
/* What is done to a job, and small questions of those who do it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/slurm/driver.h"
#include "scheduler/slurm/module_private.h"

/* Does the job run, as the start of it that this process was begun in? */
static bool is_ours(const slurm_job_info_t *job)
{
    const char *restart = getenv("SLURM_RESTART_COUNT");

    return (job->job_state & JOB_STATE_BASE) == JOB_RUNNING && !(job->job_state & JOB_COMPLETING) &&
           job->restart_cnt == (restart ? strtoul(restart, NULL, 10) : 0);
}

/* Of the record whose number this is: a task of an array has one of its own. Whoever asks from a node
 * that the job has no more, or of a job that does not run, or not as it did, learns nothing.
 */
static int look(const slurm_job_info_t *job, const char *node, bool *has, struct err *err)
{
    const char *own = getenv("SLURMD_NODENAME");
    bool here = !own;
    char **names;
    int n;

    *has = false;
    if (!is_ours(job) || !job->nodes || !*job->nodes)
        return err_set(err, "the job does not run as it did");
    if (module_expand(job->nodes, &n, &names))
        return err_set(err, "Slurm: \"%.200s\" is no list of nodes", job->nodes);
    for (int i = 0; i < n; i++) {
        *has |= strcmp(names[i], node) == 0;
        here |= own && strcmp(names[i], own) == 0;
        free(names[i]);
    }
    free(names);
    return here ? 0 : err_set(err, "node %s is not the job's any more", own);
}

int module_has_node(const struct slurm_job_id *id, const char *node, bool *has, struct err *err)
{
    job_info_msg_t *jobs = NULL;
    int status = -1;

    module_start();
    if (slurm_load_job(&jobs, id->job, SHOW_ALL))
        return module_refused(err, "the job");
    for (uint32_t i = 0; i < jobs->record_count && status < 0; i++)
        if (jobs->job_array[i].job_id == id->job) {
            status = look(&jobs->job_array[i], node, has, err);
            if (status)
                break;
        }
    slurm_free_job_info_msg(jobs);
    return status < 0 && !err->code ? module_no_job(err) : status;
}

int module_requeue(const struct slurm_job_id *id, struct err *err)
{
    module_start();
    if (slurm_requeue(id->job, 0) == 0)
        return 0;
    if (errno == ESLURM_DISABLED || errno == ESLURM_BATCH_ONLY)
        return err_set_code(err, EXIT_USAGE, "Slurm: the job may not be requeued");
    return module_refused(err, "requeueing the job");
}

int module_end_job(const struct slurm_job_id *id, struct err *err)
{
    module_start();
    return slurm_kill_job(id->job, SIGKILL, 0) ? module_refused(err, "ending the job") : 0;
}

int module_signal_step(const struct slurm_job_id *id, uint32_t step, int number, struct err *err)
{
    module_start();
    return slurm_kill_job_step(id->job, step, (uint16_t)number)
               ? module_refused(err, "sending the step a signal")
               : 0;
}
