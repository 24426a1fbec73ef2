/* SPDX-License-Identifier: MIT */
/* tasuki_spank.so: srun --tasuki-report[=FILE] writes what "tasuki topo" says of the nodes of a step
 * before its tasks start.
 *
 * A line of plugstack.conf loads it:
 *
 *     optional /PREFIX/lib/tasuki/tasuki_spank.so [tasuki=PROGRAM] [mpi=TYPE] [limit=SECONDS]
 *
 * It does something in srun alone, as the user who asks for it, in processes of their own: a step that
 * shares the nodes with the one about to start. Whatever fails is a line on standard error, and the
 * step starts.
 */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

extern char **environ;

#define LIMIT 60        /* seconds, unless the site says another number */
#define INNER "TASUKI_REPORT_STEP"      /* is set in the step that makes the report */

SPANK_PLUGIN(tasuki, 1)

static struct {
    bool asked;
    char *file;
    const char *program, *mpi;      /* arguments of the plugin, which outlive it */
    int limit;
} report = { .program = BINDIR "/tasuki", .mpi = "pmix", .limit = LIMIT };

static int be_asked(int value, const char *argument, int remote)
{
    (void)value;
    if (remote)
        return 0;
    report.asked = true;
    free(report.file);
    report.file = argument && *argument ? strdup(argument) : NULL;
    return 0;
}

static int read_argument(const char *argument)
{
    char *end;
    long limit;

    if (!strncmp(argument, "tasuki=", 7) && argument[7] == '/') {
        report.program = argument + 7;
    } else if (!strncmp(argument, "mpi=", 4) && argument[4]) {
        report.mpi = argument + 4;
    } else if (!strncmp(argument, "limit=", 6)) {
        limit = strtol(argument + 6, &end, 10);
        if (*end || end == argument + 6 || limit < 1 || limit > 3600)
            return -1;
        report.limit = (int)limit;
    } else {
        return -1;
    }
    return 0;
}

int slurm_spank_init(spank_t spank, int n, char **arguments)
{
    static struct spank_option option = {
        .name = "tasuki-report",
        .arginfo = "[FILE]",
        .usage = "write a report of the nodes' topology before the step starts",
        .has_arg = 2,
        .cb = be_asked,
    };

    if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_REMOTE)
        return 0;
    for (int i = 0; i < n; i++)
        if (read_argument(arguments[i]))
            slurm_error("tasuki_spank: plugstack.conf: \"%.99s\": expected tasuki=/PROGRAM, "
                        "mpi=TYPE or limit=SECONDS (1 to 3600)", arguments[i]);
    spank_option_register(spank, &option);
    return 0;
}

/* What srun was told of the step that it starts is not meant for the other one. */
static char **environment(void)
{
    static char inner[] = INNER "=1";
    size_t n = 0, kept = 0;
    char **result;

    while (environ[n])
        n++;
    result = calloc(n + 2, sizeof(*result));
    for (size_t i = 0; result && i < n; i++)
        if (!strncmp(environ[i], "SLURM_CONF=", 11) ||
            (strncmp(environ[i], "SLURM_", 6) && strncmp(environ[i], "PMI", 3) &&
             strncmp(environ[i], "_SLURM_SPANK_", 13)))
            result[kept++] = environ[i];
    if (result)
        result[kept] = inner;
    return result;
}

/* In a group of its own, which a signal to the job's srun does not reach. 0: 'process' runs. */
static int start(char **words, pid_t *process)
{
    char **variables = environment();
    posix_spawnattr_t attributes;
    sigset_t none;
    int code;

    if (!variables)
        return ENOMEM;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    code = posix_spawnp(process, words[0], NULL, &attributes, words, variables);
    posix_spawnattr_destroy(&attributes);
    free(variables);
    return code;
}

/* Its exit status, or -1 where it had to be ended. */
static int wait_for(pid_t process)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    struct timespec now;
    time_t end;
    int status;

    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec + report.limit;
    while (waitpid(process, &status, WNOHANG) == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > end) {
            kill(-process, SIGKILL);
            waitpid(process, &status, 0);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_report(uint32_t job, uint32_t step, uint32_t nodes)
{
    char jobid[32], count[32], mpi[128], own[64];
    char *file = report.file ? report.file : own;
    char *words[] = { "srun", jobid, "--overlap", "--input=none", "--quiet", "--ntasks-per-node=1",
                      count, mpi, (char *)report.program, "topo", "--quiet", "--output", file,
                      NULL };
    pid_t process;
    int code;

    snprintf(jobid, sizeof(jobid), "--jobid=%u", job);
    snprintf(count, sizeof(count), "--nodes=%u", nodes);
    snprintf(mpi, sizeof(mpi), "--mpi=%.100s", report.mpi);
    snprintf(own, sizeof(own), "tasuki-report-%u.%u.txt", job, step);
    code = start(words, &process);
    if (code) {
        slurm_error("--tasuki-report: srun cannot be started: %s", strerror(code));
        return;
    }
    code = wait_for(process);
    if (code < 0)
        slurm_error("--tasuki-report: not there after %d s; the step starts without", report.limit);
    else if (code > 0)
        slurm_error("--tasuki-report: %s: exit status %d; the step starts without", report.program,
                    code);
    else
        slurm_info("--tasuki-report: %s", file);
}

int slurm_spank_local_user_init(spank_t spank, int n, char **arguments)
{
    uint32_t job, step, nodes;

    (void)n;
    (void)arguments;
    if (!report.asked || getenv(INNER))
        return 0;
    if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_STEPID, &step) ||
        spank_get_item(spank, S_JOB_NNODES, &nodes) || nodes == 0)
        slurm_error("--tasuki-report: Slurm does not tell the number of nodes");
    else
        write_report(job, step, nodes);
    return 0;
}

int slurm_spank_exit(spank_t spank, int n, char **arguments)
{
    (void)spank;
    (void)n;
    (void)arguments;
    free(report.file);
    report.file = NULL;
    return 0;
}
