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

static bool is_near(const struct job_limit *limit, double need)
{
    return limit->end > 0 && limit->end - now() <= fmax(limit->notice, need);
}

bool session_ends_soon(struct session *session, double step_seconds)
{
    struct session *s = session;
    struct job_limit *limit = &s->settings.limit;
    double need = 1.5 * seconds_to_save(s, step_seconds);

    if (s->rank != 0 || !s->settings.checkpoint || !is_near(limit, need))
        return false;
    if (s->limit_told)
        return true;
    /* A limit may be extended, and a job suspended for a while. */
    step_facts_ask_again(limit->asker, &limit->end);
    if (!is_near(limit, need))
        return false;
    log_info("%.0f seconds are left of the job's limit: a checkpoint is asked for",
             limit->end - now());
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
