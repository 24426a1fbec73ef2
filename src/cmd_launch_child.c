/* SPDX-License-Identifier: MIT */
/* Child processes of the launcher, and the signals that end them and it. */
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

/* Signals ------------------------------------------------------------------------------ */

static void ending_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
}

static void on_child(int number)
{
    (void)number;
}

/* Blocked, they wait until they are asked for. SIGCHLD without a handler would be dropped; SIGHUP,
 * where nohup has it ignored, is to be; SIGUSR1, where submit's script has, not.
 */
void launcher_take_signals(void)
{
    struct sigaction action = { .sa_handler = on_child }, hangup;
    sigset_t set;

    sigemptyset(&action.sa_mask);
    sigaction(SIGCHLD, &action, NULL);
    ending_signals(&set);
    sigaddset(&set, SIGCHLD);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
        sigdelset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, SIG_DFL);
    /* Whoever reads what it says may leave. */
    signal(SIGPIPE, SIG_IGN);
}

int launcher_next_signal(double seconds)
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

void launcher_note_signal(struct launcher *l, int number)
{
    l->told = number;
    l->noticed = l->noticed || number == SIGUSR1;
}

bool launcher_pause(struct launcher *l, double seconds)
{
    double end = clock_now() + seconds;

    for (double left = seconds; left > 0 && !l->told; left = end - clock_now()) {
        int number = launcher_next_signal(left);

        if (number && number != SIGCHLD)
            launcher_note_signal(l, number);
    }
    return l->told != 0;
}

/* Children ----------------------------------------------------------------------------- */

void launcher_add(struct launcher_words *words, char *word)
{
    *(char **)mem_push((void **)&words->list, &words->n, sizeof(char *)) = word;
}

static void clear(struct launcher_words *words)
{
    for (int i = 0; i < words->n; i++)
        free(words->list[i]);
    free(words->list);
}

static void forget(const char *const *variables)
{
    for (; *variables; variables++)
        unsetenv(*variables);
}

/* Ranks are to share out the cores of their node, all of which they may use. */
static void let_bind(const struct launcher *l)
{
    static const char *const others[] = { "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
                                          "SLURM_HINT", NULL };

    setenv("TASUKI_BIND", l->bind, 1);
    forget(others);
}

char *launcher_list(int n, char *const *names)
{
    char *list = mem_strdup("");

    for (int i = 0; i < n; i++) {
        char *more = mem_printf("%s%s%s", list, i ? "," : "", names[i]);

        free(list);
        list = more;
    }
    return list;
}

/* Slurm's PMIx takes the number of a node within the step for that within the job when it asks for
 * a rank's data: it would ask nodes that are left out, and wait for them.
 */
static void tell_nodes(const struct launcher *l)
{
    char *list = launcher_list(l->n_names, l->names);

    if (l->n_names && l->n_names < l->nodes)
        setenv("SLURM_JOB_NODELIST", list, 1);
    free(list);
}

/* How long before the limit a checkpoint is asked for; 0: it is not. */
static void tell_notice(const struct launcher *l)
{
    char *seconds = mem_printf("%" PRId64, l->notice > 0 ? l->before : 0);

    setenv("TASUKI_JOB_NOTICE", seconds, 1);
    free(seconds);
}

/* All tasks of a node are to see all GPUs that the job has there, whatever sbatch was told. Not by
 * --gpu-bind=none: with that Slurm 22.05 does not tell them which ones are the job's.
 */
static void share_gpus(void)
{
    static const char *const others[] = { "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU",
                                          "SLURM_GPU_BIND", "SLURM_GPUS", "SLURM_TRES_PER_TASK",
                                          "SLURM_TRES_BIND", "SLURM_GPUS_PER_SOCKET", NULL };

    forget(others);
}

/* What a task says is read. */
static void let_answer(void)
{
    static const char *const others[] = { "SLURM_HOSTFILE", "SLURM_LABELIO", "SLURM_STDOUTMODE",
                                          "SLURM_STDERRMODE", NULL };

    forget(others);
}

static void let_train(const struct launcher *l)
{
    char no_step[16];

    snprintf(no_step, sizeof(no_step), "%d", LAUNCHER_NO_STEP);
    if (l->fate)
        setenv("TASUKI_FATE", l->fate, 1);
    setenv("TASUKI_STARTED_BY", l->tag, 1);
    setenv("SLURM_EXIT_ERROR", no_step, 1);
    tell_nodes(l);
    tell_notice(l);
    if (l->order) {
        setenv("SLURM_HOSTFILE", l->order, 1);
        setenv("TASUKI_ORDER", "plan", 1);
        /* srun would hold it against the list. */
        unsetenv("SLURM_NTASKS_PER_NODE");
    }
    if (l->bind)
        let_bind(l);
}

/* What a task is told by its environment reaches it, whatever sbatch was told of that: a question to a
 * node that does not would be a training there.
 */
static void give_environment(const struct launcher_words *words)
{
    setenv("SLURM_EXPORT_ENV", "ALL", 1);
    unsetenv("SRUN_EXPORT_ENV");
    if (words->variable)
        setenv(words->variable, words->value, 1);
}

static void be_child(const struct launcher *l, const struct launcher_words *words, int output)
{
    int null = open("/dev/null", O_RDWR);
    sigset_t none;

    /* Keys that a terminal makes signals of are for the launcher, which hands them on. */
    setpgid(0, 0);
    if (!words->outlives)
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(null, STDIN_FILENO);
    if (output != OUTPUT_SAME) {
        dup2(output < 0 ? null : output, STDOUT_FILENO);
        dup2(output < 0 ? null : output, STDERR_FILENO);
    }
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    share_gpus();
    if (output == OUTPUT_SAME)
        let_train(l);
    else
        let_answer();
    give_environment(words);
    execvp(words->list[0], words->list);
    if (output != OUTPUT_NOWHERE)
        log_say(LOG_ERROR, "%s: %s", words->list[0], strerror(errno));
    _exit(EXIT_USAGE);          /* to try again is of no use */
}

pid_t launcher_start(const struct launcher *l, struct launcher_words *words, int output)
{
    pid_t child;

    launcher_add(words, NULL);
    fflush(stdout);
    child = fork();
    if (child == 0)
        be_child(l, words, output);
    clear(words);
    return child;
}

bool launcher_kill(pid_t child, int number)
{
    kill(child, number);
    return launcher_await(child, clock_now() + LAUNCHER_DYING);
}

bool launcher_await(pid_t child, double end)
{
    const struct timespec moment = { .tv_nsec = 10000000 };
    int code;

    while (!launcher_ended(child, &code)) {
        if (clock_now() > end)
            return false;
        nanosleep(&moment, NULL);
    }
    return true;
}

bool launcher_ended(pid_t child, int *code)
{
    int status;

    if (waitpid(child, &status, WNOHANG) != child)
        return false;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}
