/* SPDX-License-Identifier: MIT */
/* A guard over the node on which a batch job's script runs, and with it the launcher.
 *
 * With --no-kill Slurm takes a lost node out of the job, also that one: then nobody is left to end
 * the job, which would hold its other nodes idle until its time limit (seen with 22.05). So a
 * process on another node asks now and then whether that one is still the job's, and if it is not
 * has the job start again. It goes by Slurm's verdict alone: a launcher that is merely cut off from
 * the guard goes on. A guard that is cut off from Slurm can do nothing, and nobody can end it: it
 * leaves, and the launcher has another one.
 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "scheduler/slurm/slurm.h"

/* Seconds: Slurm itself takes SlurmdTimeout, usually 300. */
#define LOOK_EVERY 30
#define LOOK_AGAIN 5        /* where there was no answer */
#define LEAVE_AFTER 60      /* without an answer */
/* Seconds from one guard to the next: twice as many for each that ended soon. */
#define LEAST_PAUSE 5
#define MOST_PAUSE 300

/* The launcher's side -------------------------------------------------------------------- */

/* The last one, and after a guard there that ended the one before it. */
static const char *other_node(const struct launcher *l)
{
    for (int i = 0; i < l->n_names; i++) {
        int turn = (l->guards + i) % l->n_names;
        const char *name = l->names[l->n_names - 1 - turn];

        if (strcmp(name, l->home) != 0)
            return name;
    }
    return NULL;
}

static bool is_left(const struct launcher *l, const char *node)
{
    for (int i = 0; i < l->n_names; i++)
        if (strcmp(l->names[i], node) == 0)
            return true;
    return false;
}

/* Is there one, on a node that still counts? */
static bool has_guard(struct launcher *l)
{
    double lived = clock_now() - l->guard_start;
    int code;

    if (l->guard <= 0)
        return false;
    if (!launcher_ended(l->guard, &code)) {
        if (is_left(l, l->guard_node))
            return true;
        launcher_end_guard(l);
        return false;
    }
    l->guard = 0;
    l->guard_pause = lived > MOST_PAUSE ? LEAST_PAUSE : 2 * l->guard_pause;
    if (l->guard_pause > MOST_PAUSE)
        l->guard_pause = MOST_PAUSE;
    return false;
}

bool launcher_is_script(void)
{
    const char *pid = getenv("SLURM_TASK_PID");

    return pid && strtol(pid, NULL, 10) == (long)getpid();
}

void launcher_guard(struct launcher *l)
{
    struct launcher_words words = { .variable = "TASUKI_GUARD", .value = l->home,
                                    .outlives = launcher_is_script() };
    const char *node;

    if (!l->home || has_guard(l))
        return;
    if (l->guards && clock_now() < l->guard_start + l->guard_pause)
        return;
    node = other_node(l);
    if (!node)
        return;
    l->guards++;
    l->guard_start = clock_now();
    l->guard_pause = l->guard_pause > 0 ? l->guard_pause : LEAST_PAUSE;
    free(l->guard_node);
    l->guard_node = mem_strdup(node);
    launcher_add(&words, mem_strdup("srun"));
    launcher_add(&words, mem_strdup("--mpi=none"));
    launcher_add(&words, mem_strdup("--overlap"));
    launcher_add(&words, mem_strdup("--nodes=1"));
    launcher_add(&words, mem_strdup("--ntasks=1"));
    launcher_add(&words, mem_strdup("--ntasks-per-node=1"));
    /* Else Slurm may want all GPUs of the job for it. */
    launcher_add(&words, mem_strdup("--gres=none"));
    launcher_add(&words, mem_printf("--nodelist=%s", node));
    launcher_add_training(&words, l, false);
    l->guard = launcher_start(l, &words, OUTPUT_NOWHERE);
}

void launcher_end_guard(struct launcher *l)
{
    if (l->guard > 0 && !launcher_kill(l->guard, SIGTERM))
        launcher_kill(l->guard, SIGKILL);
    l->guard = 0;
}

/* The guard ------------------------------------------------------------------------------ */

bool launcher_is_guard(void)
{
    return getenv("TASUKI_GUARD") && getenv("SLURM_STEP_ID");
}

/* What it says goes to the job's output, as the launcher's words did: srun is gone. */
static void speak_there(const char *job)
{
    struct err ignored = { 0 };
    struct slurm_facts *facts = slurm_ask_job(job, &ignored);
    int fd = facts && *facts->output ? open(facts->output, O_WRONLY | O_APPEND | O_NOFOLLOW |
                                                               O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
                                     : -1;

    if (fd >= 0)
        dup2(fd, STDERR_FILENO);
    slurm_facts_free(facts);
}

int launcher_keep_guard(struct err *err)
{
    const char *job = getenv("SLURM_JOB_ID"), *node = getenv("TASUKI_GUARD");
    double answered = clock_now();
    bool said = false;

    (void)err;
    if (!job)
        return EXIT_FAILED;
    while (clock_now() < answered + LEAVE_AFTER) {
        struct err ignored = { 0 };
        bool has = true;

        /* A controller that does not answer now may do so later. */
        if (slurm_has_node(job, node, &has, &ignored) < 0) {
            sleep(LOOK_AGAIN);
            continue;
        }
        answered = clock_now();
        if (has) {
            sleep(LOOK_EVERY);
            continue;
        }
        if (!said) {
            speak_there(job);
            log_warning("node %s, on which the script of job %s ran, is lost: Slurm is asked to "
                        "start the job again", node, job);
        }
        said = true;
        if (slurm_start_again(job, &ignored) == 0)
            return EXIT_OK;
        sleep(LOOK_AGAIN);
    }
    return EXIT_FAILED;
}
