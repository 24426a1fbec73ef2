/* SPDX-License-Identifier: MIT */
/* A batch job whose run is to go on in another allocation: Slurm is asked to start it again. */
#include "config.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

#define PATIENCE 300        /* seconds for a controller that is away */
#define ASK_EVERY 3
#define MOST_REFUSALS 2     /* by one that has just come back, too */

/* Of a run without checkpoints nothing would be left, unless it had no step yet. */
static bool is_wanted(const struct launcher *l, int code)
{
    if (code != EXIT_REQUEUE || (l->told == SIGINT && !l->noticed))
        return false;
    return l->checkpoint || l->steps == 0;
}

/* Is it a batch job, as this process was begun in, that may be started again? One that has just run
 * into its limit may, one that was cancelled not. SIGTERM comes from Slurm, of a job that it has ended,
 * or from someone who wants this node, of one that runs: only Slurm knows which.
 */
static int ask(const struct launcher *l, const char *node, bool *may, struct err *err)
{
    struct slurm_facts *facts = slurm_ask_job(l->job, err);
    bool is_running, is_late;

    if (!facts)
        return -1;
    is_running = strcmp(facts->state, "running") == 0;
    is_late = strcmp(facts->state, "timed out") == 0;
    *may = facts->requeue > 0 && strcmp(facts->batch_host, node) == 0 && (is_running || is_late);
    slurm_facts_free(facts);
    return *may && is_running ? slurm_has_node(l->job, node, may, err) : 0;
}

/* Until SIGTERM or SIGINT; that the limit is near is known. */
static bool is_ended(struct launcher *l, double seconds)
{
    l->told = 0;
    return launcher_pause(l, seconds) && l->told != SIGUSR1;
}

static bool is_over(const struct err *err, int *refusals, double end)
{
    *refusals += !slurm_is_away(err);
    return *refusals >= MOST_REFUSALS || clock_now() > end;
}

void launcher_requeue(struct launcher *l, int code)
{
    const char *node = getenv("SLURMD_NODENAME");
    double end = clock_now() + PATIENCE;
    bool counts = l->told == SIGTERM && !l->noticed, said = false;
    int refusals = 0;

    if (!node || !is_wanted(l, code))
        return;
    for (;;) {
        struct err err = { 0 };
        bool may = false;
        int bad = ask(l, node, &may, &err);

        if (!bad && !may)
            return;
        if (!bad && counts && !launcher_may_start_again(l)) {
            log_warning("job %s is not started again: %" PRId64 " restarts brought no new checkpoint "
                        "(--max-restarts)", l->job, l->tries.vain);
            return;
        }
        counts = counts && bad;
        if (!bad && slurm_start_again(l->job, &err) == 0) {
            log_info("job %s: to be continued; Slurm is asked to start it again", l->job);
            return;
        }
        if (is_over(&err, &refusals, end)) {
            log_warning("job %s is not started again: %s", l->job, err.text);
            return;
        }
        if (!said)
            log_warning("%s; it is asked again, for up to %d seconds", err.text, PATIENCE);
        said = true;
        if (is_ended(l, ASK_EVERY))
            return;
    }
}
