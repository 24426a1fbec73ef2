/* SPDX-License-Identifier: MIT */
/* Steps as child processes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "train/fate.h"

#define GRACE 30            /* seconds for which a rank may outlive the first that ended */
#define MOST_GRACE 90       /* the same of srun, which gives tasks KillWait, usually 30 */
#define LOOK_EVERY 5        /* seconds */
#define PROBE_TIME 20

struct words {
    int n;
    char **list;
};

static void add(struct words *words, char *word)
{
    *(char **)mem_push((void **)&words->list, &words->n, sizeof(char *)) = word;
}

static void clear(struct words *words)
{
    for (int i = 0; i < words->n; i++)
        free(words->list[i]);
    free(words->list);
}

/* Signals ------------------------------------------------------------------------------ */

static void ending_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1);
}

static void on_child(int number)
{
    (void)number;
}

/* Blocked, they wait until they are asked for. SIGCHLD without a handler would be dropped. */
void launcher_take_signals(void)
{
    struct sigaction action = { .sa_handler = on_child };
    sigset_t set;

    sigemptyset(&action.sa_mask);
    sigaction(SIGCHLD, &action, NULL);
    ending_signals(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The next signal within so many seconds; 0: none. */
static int next_signal(double seconds)
{
    struct timespec time = { .tv_sec = (time_t)seconds };
    sigset_t set;
    int number;

    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    ending_signals(&set);
    sigaddset(&set, SIGCHLD);
    number = sigtimedwait(&set, NULL, &time);
    return number > 0 ? number : 0;
}

bool launcher_pause(struct launcher *l, double seconds)
{
    double end = clock_now() + seconds;

    for (double left = seconds; left > 0 && !l->told; left = end - clock_now()) {
        int number = next_signal(left);

        if (number && number != SIGCHLD)
            l->told = number;
    }
    return l->told != 0;
}

/* Children ----------------------------------------------------------------------------- */

/* Ranks are to share out the cores of their node, all of which they may use. */
static void let_bind(const struct launcher *l)
{
    static const char *const others[] = { "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
                                          "SLURM_HINT" };

    setenv("TASUKI_BIND", l->bind, 1);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        unsetenv(others[i]);
}

static void be_child(const struct launcher *l, char *const *words, bool quiet)
{
    int null = open("/dev/null", O_RDWR);
    sigset_t none;

    /* Keys that a terminal makes signals of are for the launcher, which hands them on. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(null, STDIN_FILENO);
    if (quiet) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (l->fate)
        setenv("TASUKI_FATE", l->fate, 1);
    if (l->order && !quiet) {
        setenv("SLURM_HOSTFILE", l->order, 1);
        setenv("TASUKI_ORDER", "plan", 1);
        /* srun would hold it against the list. */
        unsetenv("SLURM_NTASKS_PER_NODE");
    }
    if (l->bind && !quiet)
        let_bind(l);
    execvp(words[0], words);
    if (!quiet)
        log_say(LOG_ERROR, "%s: %s", words[0], strerror(errno));
    _exit(EXIT_USAGE);          /* to try again is of no use */
}

/* 'words' gets its NULL. */
static pid_t start(const struct launcher *l, struct words *words, bool quiet)
{
    pid_t child;

    add(words, NULL);
    fflush(stdout);
    child = fork();
    if (child == 0)
        be_child(l, words->list, quiet);
    return child;
}

/* Has it ended, and how? */
static bool ended(pid_t child, int *code)
{
    int status;

    if (waitpid(child, &status, WNOHANG) != child)
        return false;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

/* Probes ------------------------------------------------------------------------------- */

/* Beside whatever else runs there: a step that was not seen to end must not keep it waiting. */
static pid_t start_probe(const struct launcher *l, const char *name)
{
    struct words words = { 0 };
    pid_t child;

    add(&words, mem_strdup("srun"));
    add(&words, mem_strdup("--mpi=none"));
    add(&words, mem_strdup("--overlap"));
    add(&words, mem_strdup("--nodes=1"));
    add(&words, mem_strdup("--ntasks=1"));
    add(&words, mem_strdup("--ntasks-per-node=1"));
    add(&words, mem_printf("--nodelist=%s", name));
    add(&words, mem_strdup(l->program));
    add(&words, mem_strdup("--version"));
    child = start(l, &words, true);
    clear(&words);
    return child;
}

void launcher_probe(struct launcher *l, int n, char *const *names, bool *answers)
{
    double end = clock_now() + PROBE_TIME;
    pid_t *children = mem_new((size_t)n, sizeof(*children));
    int left = 0, code;

    for (int i = 0; i < n; i++) {
        answers[i] = false;
        children[i] = start_probe(l, names[i]);
        left += children[i] > 0;
    }
    while (left > 0 && clock_now() < end && !launcher_pause(l, 0.05)) {
        for (int i = 0; i < n; i++)
            if (children[i] > 0 && ended(children[i], &code)) {
                answers[i] = code == 0;
                children[i] = 0;
                left--;
            }
    }
    for (int i = 0; i < n; i++)
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], &code, 0);
        }
    free(children);
}

/* The step ----------------------------------------------------------------------------- */

static void add_nodes(struct words *words, const struct launcher *l)
{
    int64_t n = l->n_names ? l->n_names : l->nodes;
    char *list = mem_strdup("--nodelist=");

    add(words, mem_printf("--ntasks=%" PRId64, n * l->tasks));
    if (l->order) {
        add(words, mem_strdup("--distribution=arbitrary"));
        free(list);
        return;
    }
    add(words, mem_printf("--nodes=%" PRId64, n));
    add(words, mem_printf("--ntasks-per-node=%" PRId64, l->tasks));
    for (int i = 0; i < l->n_names; i++) {
        char *more = mem_printf("%s%s%s", list, i ? "," : "", l->names[i]);

        free(list);
        list = more;
    }
    if (l->n_names)
        add(words, list);
    else
        free(list);
}

/* Of an option given twice the last counts: "--resume" stands behind what the user said. */
static void add_training(struct words *words, const struct launcher *l, bool resume)
{
    int i = 0;

    add(words, mem_strdup(l->program));
    add(words, mem_strdup("train"));
    for (; l->words[i] && strcmp(l->words[i], "--") != 0; i++)
        add(words, mem_strdup(l->words[i]));
    if (resume)
        add(words, mem_strdup("--resume"));
    for (; l->words[i]; i++)
        add(words, mem_strdup(l->words[i]));
}

/* A step before it that was not seen to end has its share still: --overlap. */
static pid_t start_step(const struct launcher *l, bool resume)
{
    struct words words = { 0 };
    pid_t child;

    add(&words, mem_strdup("srun"));
    add(&words, mem_strdup("--mpi=pmix"));
    add_nodes(&words, l);
    if (l->bind)
        add(&words, mem_strdup("--cpu-bind=none"));
    else if (l->cpus)
        add(&words, mem_printf("--cpus-per-task=%" PRId64, l->cpus));
    if (l->gpus)
        add(&words, mem_printf("--gpus-per-node=%" PRId64, l->gpus));
    add(&words, mem_printf("--wait=%d", GRACE));
    add(&words, mem_strdup("--overlap"));
    add_training(&words, l, resume);
    child = start(l, &words, false);
    clear(&words);
    return child;
}

/* SIGINT, of a terminal, is "end" to people; the second one "at once", for which srun takes two
 * of its own within a second.
 */
static void hand_on(struct launcher *l, pid_t child, int number)
{
    bool again = number == SIGINT && l->told == SIGINT;

    l->told = number;
    if (number != SIGINT) {
        kill(child, number);
    } else if (!again) {
        kill(child, SIGTERM);
    } else {
        kill(child, SIGINT);
        next_signal(0.1);
        kill(child, SIGINT);
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
    struct words words = { 0 };
    pid_t child;
    int code;

    add(&words, mem_strdup("scancel"));
    add(&words, mem_strdup("--signal=KILL"));
    add(&words, mem_printf("%s.%s", l->job, step));
    child = start(l, &words, true);
    for (double end = clock_now() + PROBE_TIME; child > 0 && !ended(child, &code);) {
        next_signal(0.1);
        if (clock_now() > end)
            kill(child, SIGKILL);
    }
    clear(&words);
}

/* Ranks have told how they ended, and srun waits for others: on a node that vanished. */
static void check_patience(struct launcher *l, pid_t child, double *since)
{
    char *step = step_that_ended(l);

    if (step && *since <= 0)
        *since = clock_now();
    if (step && clock_now() - *since > MOST_GRACE) {
        log_warning("step %s.%s has not ended %d seconds after its first rank: killing srun",
                    l->job, step, MOST_GRACE);
        kill(child, SIGKILL);
        cancel(l, step);
        *since = clock_now();
    }
    free(step);
}

int launcher_step(struct launcher *l, bool resume, struct err *err)
{
    pid_t child = start_step(l, resume);
    double look = clock_now() + LOOK_EVERY, since = 0;
    int code;

    if (child < 0)
        return err_set(err, "fork: %s", strerror(errno));
    while (!ended(child, &code)) {
        int number = next_signal(1);

        if (number && number != SIGCHLD)
            hand_on(l, child, number);
        if (clock_now() > look) {
            check_patience(l, child, &since);
            look = clock_now() + LOOK_EVERY;
        }
    }
    return code;
}
