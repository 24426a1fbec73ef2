/* SPDX-License-Identifier: MIT */
/* Slurm's controller may be away for a while, or this node cut off from it: that says nothing of the
 * job, nor of its nodes, and is waited for.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

#define PATIENCE 300        /* seconds for a controller that is restarted */
#define ASK_EVERY 2         /* libslurm itself tries for about 10 */
#define SETTLING 10         /* after which one that has just started knows its nodes, too */

/* Who has had an answer before will have one again, whatever is wrong now. */
static bool may_pass(const struct launcher *l, const struct err *err)
{
    return l->n_names > 0 ? !slurm_no_job(err) : slurm_is_away(err);
}

static void note_home(struct launcher *l, const struct slurm_facts *facts)
{
    const char *node = getenv("SLURMD_NODENAME");

    if (!l->home && node && strcmp(node, facts->batch_host) == 0)
        l->home = mem_strdup(node);
}

/* Has Slurm taken the node on which this process runs out of the job? */
static bool is_lost(const struct launcher *l, const struct slurm_facts *facts)
{
    if (!l->home || strcmp(facts->batch_host, l->home) != 0)
        return false;
    for (int i = 0; i < facts->n_nodes; i++)
        if (strcmp(facts->nodes[i].name, l->home) == 0)
            return false;
    return true;
}

struct slurm_facts *launcher_ask_job(struct launcher *l, struct err *err)
{
    double end = clock_now() + PATIENCE;
    struct slurm_facts *facts;
    bool said = false;

    while (!(facts = slurm_ask_job(l->job, err)) && may_pass(l, err) && clock_now() < end) {
        if (!said)
            log_warning("%s; it is asked again, for up to %d seconds", err->text, PATIENCE);
        said = true;
        if (launcher_pause(l, ASK_EVERY))
            break;
        *err = (struct err){ 0 };
    }
    if (facts)
        note_home(l, facts);
    if (facts && said && !is_lost(l, facts))
        launcher_pause(l, SETTLING);
    if (!facts && l->told && may_pass(l, err))
        err->code = EXIT_REQUEUE;
    return facts;
}

int launcher_is_ours(struct launcher *l, const struct slurm_facts *facts, struct err *err)
{
    bool is_running = strcmp(facts->state, "running") == 0;
    bool is_elsewhere = l->home && *facts->batch_host && strcmp(facts->batch_host, l->home) != 0;
    bool lost = is_running && is_lost(l, facts);
    struct err refused = { 0 };

    l->replaced = !is_running || is_elsewhere || lost;
    /* Slurm is about to kill this process, and where no guard was there yet nobody else does it. */
    if (lost && slurm_start_again(l->job, &refused))
        return err_set(err, "job %s is over on this node, which was cut off and is taken from the job: %s",
                       l->job, refused.text);
    if (!is_running)
        return err_set(err, "job %s is over: Slurm says %s", l->job, facts->state);
    if (is_elsewhere)
        /* Which was cut off from it for a while. */
        return err_set(err, "job %s is over on this node: Slurm has started it again on %s", l->job,
                       facts->batch_host);
    if (lost)
        return err_set(err, "job %s is over on this node, which was cut off and is taken from the job: "
                       "Slurm is asked to start it again", l->job);
    return 0;
}

int launcher_await_controller(struct launcher *l, struct err *err)
{
    struct slurm_facts *facts = launcher_ask_job(l, err);
    int bad = facts ? launcher_is_ours(l, facts, err) : -1;

    l->replaced = l->replaced || !facts;
    slurm_facts_free(facts);
    return bad;
}
