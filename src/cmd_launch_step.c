/* SPDX-License-Identifier: MIT */
/* Steps as child processes. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
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
#include "train/fate.h"

#define GRACE 30            /* seconds for which a rank may outlive the first that ended */
#define MOST_GRACE 90       /* the same of srun, which gives tasks KillWait, usually 30 */
#define LOOK_EVERY 5        /* seconds */

/* The step ----------------------------------------------------------------------------- */

static void add_nodes(struct launcher_words *words, const struct launcher *l)
{
    int64_t n = l->n_names ? l->n_names : l->nodes;
    char *list;

    launcher_add(words, mem_printf("--ntasks=%" PRId64, launcher_ranks(l)));
    if (l->order) {
        launcher_add(words, mem_strdup("--distribution=arbitrary"));
        return;
    }
    launcher_add(words, mem_printf("--nodes=%" PRId64, n));
    launcher_add(words, mem_printf("--ntasks-per-node=%" PRId64, l->tasks));
    list = launcher_list(l->n_names, l->names);
    if (l->n_names)
        launcher_add(words, mem_printf("--nodelist=%s", list));
    free(list);
}

/* Where their numbers differ Slurm 22.05 gives a step those of its tasks, and otherwise as many of each node
 * as of the smallest; and "closest" is all of them to a task that may run on all cores.
 */
static void add_gpus(struct launcher_words *words, const struct launcher *l)
{
    if (l->n_uneven) {
        launcher_add(words, mem_strdup("--gpus-per-task=1"));
        launcher_add(words, mem_strdup("--gpu-bind=closest"));
    } else if (l->gpus) {
        launcher_add(words, mem_printf("--gpus-per-node=%" PRId64, l->gpus));
    }
}

/* Of an option given twice the last counts: "--resume" stands behind what the user said. */
void launcher_add_training(struct launcher_words *words, const struct launcher *l, bool resume)
{
    int i = 0;

    launcher_add(words, mem_strdup(l->program));
    launcher_add(words, mem_strdup("train"));
    for (; l->words[i] && strcmp(l->words[i], "--") != 0; i++)
        launcher_add(words, mem_strdup(l->words[i]));
    if (resume)
        launcher_add(words, mem_strdup("--resume"));
    for (; l->words[i]; i++)
        launcher_add(words, mem_strdup(l->words[i]));
}

/* A step before it that was not seen to end has its share still: --overlap. */
static pid_t start_step(const struct launcher *l, bool resume)
{
    struct launcher_words words = { 0 };
    pid_t child;

    launcher_add(&words, mem_strdup("srun"));
    launcher_add(&words, mem_strdup("--mpi=pmix"));
    add_nodes(&words, l);
    if (l->bind)
        launcher_add(&words, mem_strdup("--cpu-bind=none"));
    else if (l->cpus)
        launcher_add(&words, mem_printf("--cpus-per-task=%" PRId64, l->cpus));
    add_gpus(&words, l);
    launcher_add(&words, mem_printf("--wait=%d", GRACE));
    launcher_add(&words, mem_strdup("--overlap"));
    launcher_add_training(&words, l, resume);
    child = launcher_start(l, &words, OUTPUT_SAME);
    return child;
}

static bool may_have_begun(const struct launcher *l)
{
    char *step = l->fate ? fate_step(l->fate) : NULL;
    bool begun = step || !l->fate || access(l->fate, F_OK) < 0;

    free(step);
    return begun;
}

/* SIGINT, of a terminal, is "end" to people; the second one "at once", for which srun takes two
 * of its own within a second. srun hands SIGUSR1 on, and at SIGTERM kills all ranks at once: that is
 * for a step which has none that could write a checkpoint.
 */
static void hand_on(struct launcher *l, pid_t child, int number)
{
    bool again = number == SIGINT && l->told == SIGINT;

    launcher_note_signal(l, number);
    if (again) {
        l->at_once = true;
        kill(child, SIGINT);
        launcher_next_signal(0.1);
        kill(child, SIGINT);
    } else {
        kill(child, number == SIGUSR1 || may_have_begun(l) ? SIGUSR1 : SIGTERM);
    }
}

/* The number of the step, where a rank left it; malloc'ed. */
static char *step_that_ended(const struct launcher *l)
{
    struct fate *fates;
    int n = l->fate ? fate_read(l->fate, &fates) : 0;
    char *step = n && fates[0].step[0] ? mem_strdup(fates[0].step) : NULL;

    if (n)
        fate_free(n, fates);
    return step;
}

/* Slurm ends what it reaches of a step whose srun does not come back. */
static void cancel(const struct launcher *l, const char *step)
{
    struct err err = { 0 };

    if (slurm_signal_step(l->job, step, SIGKILL, &err) < 0)
        log_warning("step %s.%s: %s", l->job, step, err.text);
}

/* Ranks have told how they ended, and srun waits for others: on a node that vanished. Was it killed,
 * then?
 */
static bool check_patience(const struct launcher *l, pid_t child, double *since)
{
    char *step = step_that_ended(l);
    bool over;

    if (step && *since <= 0)
        *since = clock_now();
    over = step && clock_now() - *since > MOST_GRACE;
    if (over) {
        log_warning("step %s.%s has not ended %d seconds after its first rank: killing srun",
                    l->job, step, MOST_GRACE);
        launcher_kill(child, SIGKILL);
        cancel(l, step);
    }
    free(step);
    return over;
}

/* srun was ended by a signal, or a rank was, and none has said why: without srun the step may go on, and
 * would beside the next one. Slurm knows best: that it is over is no news.
 */
static void end_orphan(const struct launcher *l)
{
    struct err err = { 0 };
    struct fate *fates;
    int n = fate_read(l->fate, &fates);
    char *step = n == 0 ? fate_step(l->fate) : NULL;

    if (n)
        fate_free(n, fates);
    if (step && slurm_signal_step(l->job, step, SIGKILL, &err) == 0)
        log_warning("step %s.%s went on without srun: ended", l->job, step);
    free(step);
}

int launcher_step(struct launcher *l, bool resume, struct err *err)
{
    pid_t child = start_step(l, resume);
    double look = clock_now() + LOOK_EVERY, since = 0;
    int code;

    if (child < 0)
        return err_set(err, "fork: %s", strerror(errno));
    while (!launcher_ended(child, &code)) {
        int number = launcher_next_signal(1);

        if (number && number != SIGCHLD)
            hand_on(l, child, number);
        if (clock_now() > look) {
            if (check_patience(l, child, &since))
                return 128 + SIGKILL;
            launcher_guard(l);
            if (!l->told && launcher_time_is_over(l)) {
                l->told = SIGUSR1;
                l->noticed = true;
                kill(child, SIGUSR1);
            }
            look = clock_now() + LOOK_EVERY;
        }
    }
    if (l->fate && code > 128)
        end_orphan(l);
    return code;
}
