/* SPDX-License-Identifier: MIT */
/* The end of the job: a checkpoint is written before it. */
#include <math.h>
#include <time.h>

#include "base/err.h"
#include "base/log.h"
#include "train/session.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is posted now is read a step later, perhaps after an evaluation, and the checkpoint begun
 * after that step, when one that is being written is complete.
 */
static double seconds_to_save(const struct session *s, double step_seconds)
{
    int checkpoints = s->saving.checkpoint ? 2 : 1;

    return 2 * step_seconds + s->evaluated + checkpoints * s->saved.written;
}

bool session_ends_soon(struct session *session, double step_seconds)
{
    struct session *s = session;
    const struct job_limit *limit = &s->settings.limit;
    double need = 1.5 * seconds_to_save(s, step_seconds), left;

    if (s->rank != 0 || limit->end <= 0 || !s->settings.checkpoint)
        return false;
    left = limit->end - now();
    if (left > fmax(limit->notice, need))
        return false;
    if (!s->limit_told)
        log_info("%.0f seconds are left of the job's limit: a checkpoint is asked for", left);
    s->limit_told = true;
    return true;
}

void session_weigh_limit(struct session *session, double step_seconds)
{
    struct session *s = session;
    double before = s->settings.limit.launcher, need = step_seconds + s->saved.written;
    double earlier = 10 * ceil(need / 5);

    if (s->rank != 0 || !s->settings.checkpoint || before <= 0 || need <= before || s->limit_told)
        return;
    s->limit_told = true;
    /* What --signal was given to Slurm is not known here. */
    log_warning("a step and a checkpoint take %.3g s, and are asked for %.3g s before the time "
                "limit: unless SIGUSR1 comes %.0f s before it already, let it, by "
                "--signal=USR1@%.0f of sbatch, salloc or srun", need, before, earlier, earlier);
}
