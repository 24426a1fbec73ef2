/* SPDX-License-Identifier: MIT */
/* A batch job whose run is to go on in another allocation: Slurm is asked to start it again. */
#include "config.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

#define PATIENCE 300        /* seconds for a controller that is away */
#define ASK_EVERY 3
#define MOST_REFUSALS 2     /* by one that has just come back, too */
#define PATIENCE_OF_COMMAND 60      /* whether it was refused it does not tell */

static void say_given_up(const struct launcher *l, const char *why)
{
    log_warning("job %s is not started again: %s", l->job, why);
}

/* Of a run without checkpoints nothing would be left, unless it had no step yet. */
static bool is_wanted(const struct launcher *l, int code)
{
    if (code != EXIT_REQUEUE || (!l->checkpoint && l->steps > 0))
        return false;
    if (l->told != SIGINT || l->noticed)
        return true;
    if (l->checkpoint)
        say_given_up(l, "it was ended by SIGINT; from its last checkpoint goes on who submits its "
                     "script again");
    return false;
}

/* Is it a batch job, as this process was begun in, that may be started again? One that has just run
 * into its limit may, one that was cancelled not. SIGTERM comes from Slurm, of a job that it has ended,
 * or from someone who wants this node, of one that runs: only Slurm knows which.
 */
static int ask(const struct launcher *l, const char *node, bool *may, struct err *err)
{
    struct slurm_facts *facts = slurm_ask_job(l->job, err);
    bool is_running, is_late, is_here, is_allowed;

    if (!facts)
        return -1;
    is_running = strcmp(facts->state, "running") == 0;
    is_late = strcmp(facts->state, "timed out") == 0;
    is_here = strcmp(facts->batch_host, node) == 0 && (is_running || is_late);
    is_allowed = facts->requeue > 0;
    slurm_facts_free(facts);
    if (is_here && !is_allowed)
        say_given_up(l, "it may not be requeued (--no-requeue, or JobRequeue=0 of slurm.conf); from its "
                     "last checkpoint goes on who submits its script again");
    *may = is_here && is_allowed;
    return *may && is_running ? slurm_has_node(l->job, node, may, err) : 0;
}

/* Is it to end without another allocation? That the limit is near is known. */
static bool is_told(const struct launcher *l)
{
    return l->told && l->told != SIGUSR1;
}

static bool is_ended(struct launcher *l, double seconds)
{
    l->told = 0;
    launcher_pause(l, seconds);
    return is_told(l);
}

static void say_asked(const struct launcher *l)
{
    log_info("job %s: to be continued; Slurm is asked to start it again", l->job);
}

/* Its exit code; EXIT_USAGE where it cannot be started. */
static int run_scontrol(struct launcher *l)
{
    struct launcher_words words = { 0 };
    double end = clock_now() + PATIENCE_OF_COMMAND;
    int code = EXIT_FAILED, number;
    pid_t child;

    launcher_add(&words, mem_strdup("scontrol"));
    launcher_add(&words, mem_strdup("requeue"));
    launcher_add(&words, mem_strdup(l->job));
    child = launcher_start(l, &words, STDERR_FILENO);
    while (child > 0 && !launcher_ended(child, &code)) {
        if (clock_now() > end) {
            launcher_kill(child, SIGKILL);
            return EXIT_FAILED;
        }
        number = launcher_next_signal(0.1);
        if (number && number != SIGCHLD)
            launcher_note_signal(l, number);
    }
    return code;
}

/* Without libslurm: by Slurm's own command, which says why where it fails. That Slurm is asked is
 * said first: when it starts the job again it ends what is left of it, that command and this process
 * among them, and nobody hears what came of it.
 */
static void requeue_by_command(struct launcher *l, const char *why)
{
    double end = clock_now() + PATIENCE_OF_COMMAND;
    int code;

    if (l->told == SIGTERM && !l->noticed) {
        log_warning("job %s is not started again: was it Slurm that ended it? %s", l->job, why);
        return;
    }
    l->told = 0;
    say_asked(l);
    while ((code = run_scontrol(l)) != EXIT_OK)
        if (code == EXIT_USAGE || is_told(l) || clock_now() > end || is_ended(l, ASK_EVERY)) {
            if (is_told(l) && code > 128)
                log_warning("job %s: a signal to end came while scontrol asked: it is not known "
                            "whether Slurm starts the job again", l->job);
            else
                say_given_up(l, "scontrol could not have that done");
            return;
        }
}

static bool is_over(const struct err *err, int *refusals, double end)
{
    *refusals += !slurm_is_away(err);
    return *refusals >= MOST_REFUSALS || clock_now() > end;
}

int launcher_requeue(struct launcher *l, int code)
{
    const char *node = getenv("SLURMD_NODENAME");
    double end = clock_now() + PATIENCE;
    bool counts = l->told == SIGTERM && !l->noticed, said = false;
    int refusals = 0;

    if (!node || !is_wanted(l, code))
        return code;
    for (;;) {
        struct err err = { 0 };
        bool may = false;
        int bad = ask(l, node, &may, &err);

        if (!bad && !may)
            return code;
        if (!bad && counts && !launcher_may_start_again(l)) {
            log_warning("job %s is not started again: %" PRId64 " restarts brought no new "
                        "checkpoint (--max-restarts)", l->job, l->tries.vain);
            return EXIT_FAILED;
        }
        counts = counts && bad;
        if (!bad && slurm_start_again(l->job, &err) == 0) {
            say_asked(l);
            return code;
        }
        if (slurm_is_absent(&err)) {
            requeue_by_command(l, err.text);
            return code;
        }
        if (is_over(&err, &refusals, end)) {
            say_given_up(l, err.text);
            return code;
        }
        if (!said)
            log_warning("%s; it is asked again, for up to %d seconds", err.text,
                        slurm_is_away(&err) ? PATIENCE : ASK_EVERY);
        said = true;
        if (is_ended(l, ASK_EVERY)) {
            say_given_up(l, "a signal to end came first");
            return code;
        }
    }
}
