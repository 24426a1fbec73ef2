/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "cmd_submit.h"
#include "comm/comm.h"
#include "train/checkpoint.h"
#include "train/fate.h"
#include "train/job.h"

#define PAUSE 1             /* second between steps */
#define FATE ".fate-"
#define LONG_AGO 3600       /* seconds in which a launcher that lives has its run locked */

bool launcher_wanted(const struct options *options, const struct launch *launch,
                     struct err *err)
{
    const char *job = getenv("SLURM_JOB_ID");
    int never;

    if (option_word(options, "launcher", &never, err) < 0)
        return true;
    return !never && job && *job && launch->kind == LAUNCH_ALONE && !launch->slurm_step &&
           !launch->pmix && !launch->pmi && launch->size == 0 &&
           !option_given(options, "ranks-in-process");
}

/* What a step came to ------------------------------------------------------------------ */

enum outcome { OUTCOME_DONE, OUTCOME_MORE, OUTCOME_FAILED, OUTCOME_LOST, OUTCOME_NONE };

/* Of all ranks, as they said together, or as srun's code has it. */
static enum outcome of_code(int code)
{
    if (code == EXIT_OK)
        return OUTCOME_DONE;
    return code == EXIT_REQUEUE ? OUTCOME_MORE : OUTCOME_FAILED;
}

static void note_energy(struct launcher *l, double kwh)
{
    if (!isfinite(kwh))
        return;
    l->kwh += kwh;
    l->told_kwh++;
}

/* Could the ranks say how they ended? Where not, they have said why on the terminal. */
static bool could_tell(const struct launcher *l)
{
    struct err err = { 0 };

    if (fate_check(l->fate, &err) == 0)
        return true;
    log_warning("%s: nothing is tried again where checkpoints cannot be written", err.text);
    return false;
}

/* '*code', srun's, becomes that of the run; '*why' of what was lost is malloc'ed. */
static enum outcome judge(struct launcher *l, int *code, char **why)
{
    struct fate *fates;
    int n = l->fate ? fate_read(l->fate, &fates) : 0;
    bool none = *code == LAUNCHER_NO_STEP && n == 0;
    enum outcome outcome;

    if (*code == LAUNCHER_NO_STEP)
        *code = EXIT_FAILED;
    outcome = none ? OUTCOME_NONE : of_code(*code);
    if (none)
        *why = mem_strdup("srun could not start the step");
    if (l->fate && n == 0 && outcome == OUTCOME_FAILED && *code != EXIT_USAGE && could_tell(l)) {
        outcome = OUTCOME_LOST;
        *why = mem_printf("the step ended with %d, and no rank said why", *code);
    }
    for (int i = 0; i < n && !*why; i++)
        if (!fates[i].agreed) {
            outcome = OUTCOME_LOST;
            *why = mem_strdup(fates[i].text[0] ? fates[i].text : "a rank failed");
        }
    for (int i = 0; i < n; i++)
        if (fates[i].agreed) {
            *code = fates[i].code;
            outcome = of_code(*code);
            note_energy(l, fates[i].kwh);
        }
    if (n)
        fate_free(n, fates);
    return outcome;
}

/* Checkpoints -------------------------------------------------------------------------- */

/* "step-00000008", "the start"; malloc'ed. */
static char *where(const struct launcher *l, bool resume)
{
    struct err ignored = { 0 };
    char *path = NULL, *text;

    if (!resume || checkpoint_latest(l->checkpoint, &path, &ignored) < 0 || !path)
        return mem_strdup("the start");
    text = mem_strdup(strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    free(path);
    return text;
}

/* The loop ----------------------------------------------------------------------------- */

/* A step was lost, or not started: is there to be another one? 0, else -1 with 'err'. */
static int go_on(struct launcher *l, const char *why, bool counts, struct err *err)
{
    const struct launcher_tries *tries = &l->tries;
    char *from;

    log_warning("%s", why);
    if (launcher_pause(l, PAUSE) || launcher_look_again(l, err) || l->told)
        return err->code ? -1 : err_set_code(err, EXIT_REQUEUE, "ended before the next step");
    /* What became of a step of a job that goes on elsewhere is not counted. */
    if (!counts)
        return 0;
    if (launcher_try_again(l, err) < 0)
        return -1;
    from = where(l, tries->resume);
    log_warning("going on from %s with %" PRId64 " nodes, restart %" PRId64 " of at most %"
                PRId64 " without a new checkpoint", from,
                l->n_names ? (int64_t)l->n_names : l->nodes, tries->vain, tries->most);
    free(from);
    return 0;
}

/* As it was told to, if in another way. */
static int end_lost(const struct launcher *l, const char *why, struct err *err)
{
    if (l->at_once)
        return err_set(err, "job %s: ended at once, by a second SIGINT; there is no checkpoint of its "
                       "last steps", l->job);
    return err_set_code(err, EXIT_REQUEUE, "%s", why);
}

/* A directory for each step: ranks of the one before, where the network is cut, are late. Another
 * launcher of this job, which is to find the checkpoints locked, has its own.
 */
static int make_fate(struct launcher *l, int64_t step, struct err *err)
{
    struct stat st;

    if (!l->checkpoint)
        return 0;
    if (file_check_link(l->checkpoint, err) < 0)
        return -1;
    file_mkdirs(l->checkpoint);
    if (l->fate)
        fate_forget(l->fate);
    free(l->fate);
    l->fate = mem_printf("%s/" FATE "%s-%.*s-%d-%" PRId64, l->checkpoint, l->job,
                         (int)strcspn(l->tag, " "), l->tag, (int)getpid(), step);
    if (fate_make(l->fate, err) < 0)
        return -1;
    if (!l->since && stat(l->fate, &st) == 0)
        l->since = st.st_mtime;
    return 0;
}

/* Those of launchers before this one that were killed, too, where nobody else runs there now. */
static void forget_fates(const struct launcher *l)
{
    char *lock = l->fate ? mem_printf("%s/lock", l->checkpoint) : NULL;

    if (l->fate)
        fate_forget(l->fate);
    if (lock && access(lock, F_OK) < 0)
        fate_forget_old(l->checkpoint, FATE, l->since - LONG_AGO);
    free(lock);
}

static int run_step(struct launcher *l, bool resume, struct err *err)
{
    double start = clock_now(), hours, nodes;
    int code = launcher_step(l, resume, err);

    if (code == LAUNCHER_NO_STEP)
        return code;
    hours = (clock_now() - start) / 3600;
    nodes = l->n_names ? (double)l->n_names : (double)l->nodes;
    l->steps++;
    l->node_hours += hours * nodes;
    l->gpu_hours += hours * (l->n_uneven ? (double)launcher_ranks(l) : nodes * (double)l->gpus);
    return code;
}

/* Ranks say it of their own step, unless the first of them is lost; counters are read at the end of
 * those alone that are not.
 */
static void say_usage(const struct launcher *l, int code)
{
    char kwh[64] = "energy not collected";

    if (l->steps == 0 || (l->steps == 1 && code == EXIT_OK))
        return;
    if (l->told_kwh > 0)
        snprintf(kwh, sizeof(kwh), "%.4g kWh in %d of them", l->kwh, l->told_kwh);
    log_info("job %s: %d step%s, %.4g node-hours, %.4g GPU-hours, %s", l->job, l->steps,
             l->steps == 1 ? "" : "s", l->node_hours, l->gpu_hours, kwh);
}

/* A step that srun cannot start is no failure of the run's: the controller may be away. But it answers
 * before the next one: two of them have another cause.
 */
static bool is_free(const struct launcher *l, bool before, enum outcome *outcome)
{
    bool none = *outcome == OUTCOME_NONE;

    if (none && before)
        *outcome = l->fate ? OUTCOME_LOST : OUTCOME_FAILED;
    return none && !before;
}

static int run_steps(struct launcher *l, struct err *err)
{
    bool free_one = false;
    int code;

    for (int64_t step = 0;; step++) {
        enum outcome outcome;
        char *why = NULL;
        int bad = make_fate(l, step, err) || launcher_order(l, err);

        launcher_guard(l);
        code = bad ? -1 : run_step(l, l->tries.resume, err);
        if (code < 0)
            return (int)err->code;
        outcome = judge(l, &code, &why);
        free_one = is_free(l, free_one, &outcome);
        if (outcome == OUTCOME_LOST && l->told)
            bad = end_lost(l, why, err);
        else if (outcome == OUTCOME_LOST || free_one)
            bad = go_on(l, why, !free_one, err);
        free(why);
        /* What failed for good the ranks have said, or srun. */
        if (outcome != OUTCOME_LOST && !free_one)
            return code;
        if (bad)
            return (int)err->code;
    }
}

/* A signal that came while the nodes were asked is meant for what would come now. */
static int is_over(const struct launcher *l, struct err *err)
{
    return l->told ? err_set_code(err, EXIT_REQUEUE, "job %s: ended by a signal before its first step",
                                  l->job)
                   : 0;
}

static int set_paths(struct launcher *l, struct err *err)
{
    const char *given = option_string(l->options, "checkpoint", NULL);
    const struct job_names names = job_names();
    char *here, *path = NULL, host[256] = "";

    l->program = submit_program();
    if (gethostname(host, sizeof(host) - 1) < 0)
        host[0] = '\0';
    l->tag = mem_printf("%s %d %" PRId64, host, (int)getpid(), (int64_t)time(NULL));
    if (!given || option_flag(l->options, "dry-run", false))
        return 0;
    if (job_path("checkpoint", given, &names, &path, err) < 0)
        return -1;
    here = getcwd(NULL, 0);
    l->checkpoint = *path == '/' || !here ? mem_strdup(path) : mem_printf("%s/%s", here, path);
    free(here);
    free(path);
    return 0;
}

static void say_ranks(const struct launcher *l)
{
    int n = l->n_names ? l->n_names : (int)l->nodes;

    if (l->n_uneven)
        log_info("job %s: %d nodes, %" PRId64 " ranks, one for each GPU", l->job, n,
                 launcher_ranks(l));
    else
        log_info("job %s: %d node%s, %" PRId64 " rank%s on each", l->job, n,
                 l->nodes == 1 ? "" : "s", l->tasks, l->tasks == 1 ? "" : "s");
}

static int check_job(const struct launcher *l, struct err *err)
{
    const char *parts = getenv("SLURM_HET_SIZE");

    if (parts && atoi(parts) > 1) {
        err_set_code(err, EXIT_USAGE, "job %s: is a heterogeneous one, of %s parts, which train alone "
                     "does not start ranks in", l->job, parts);
        err_hint(err, "srun --mpi=pmix --het-group=0-%d tasuki train ...", atoi(parts) - 1);
        return -1;
    }
    if (!file_in_path("srun"))
        return err_set_code(err, EXIT_USAGE, "job %s: srun, which is to start the ranks, is not in PATH",
                            l->job);
    return 0;
}

int launcher_run(const struct options *options, char *const *words, struct err *err)
{
    struct launcher l = { .options = options, .words = words, .job = getenv("SLURM_JOB_ID") };
    int code;

    launcher_take_signals();
    if (check_job(&l, err) == 0 && set_paths(&l, err) == 0 && launcher_begin_tries(&l, err) == 0 &&
        launcher_first_look(&l, err) == 0 && is_over(&l, err) == 0) {
        say_ranks(&l);
        code = run_steps(&l, err);
        say_usage(&l, code);
    } else {
        code = (int)err->code;
    }
    code = launcher_end_tries(&l, code, err);
    /* Before what becomes of the job. */
    if (code == EXIT_REQUEUE && err->text[0]) {
        log_warning("%s", err->text);
        *err = (struct err){ 0 };
    }
    code = launcher_requeue(&l, code);
    /* A node may be lost before Slurm knows that its script is over, which ends the guard, too. */
    if (!launcher_is_script())
        launcher_end_guard(&l);
    forget_fates(&l);
    launcher_forget_order(&l);
    for (int i = 0; i < l.n_names; i++)
        free(l.names[i]);
    free(l.names);
    for (int i = 0; i < l.n_uneven; i++)
        free(l.uneven[i].node);
    free(l.uneven);
    for (int i = 0; i < l.n_memories; i++)
        free(l.memories[i].node);
    free(l.memories);
    free(l.bind);
    free(l.home);
    free(l.guard_node);
    free(l.tag);
    free(l.program);
    free(l.checkpoint);
    free(l.fate);
    return code;
}
