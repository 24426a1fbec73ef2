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
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

extern char **environ;

#define LIMIT 60        /* seconds, unless the site says another number */
#define GRACE 5         /* for an srun that has nothing to wait for any more */
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

/* Which file it is: tasuki puts a new one, that is whole, in the place of another. */
static ino_t number_of(const char *file)
{
    struct stat status;

    return stat(file, &status) == 0 && S_ISREG(status.st_mode) ? status.st_ino : 0;
}

/* Its exit status, or -1 where it had to be ended. The srun of a heterogeneous step may wait for
 * ever for tasks that have ended (seen with 22.05): once the file is another than 'before' it is
 * ended, too, and that is 0.
 */
static int wait_for(pid_t process, const char *file, ino_t before)
{
    const struct timespec pause = { .tv_nsec = 20000000 };
    struct timespec now;
    bool written = false;
    ino_t there;
    time_t end;
    int status;

    clock_gettime(CLOCK_MONOTONIC, &now);
    end = now.tv_sec + report.limit;
    while (waitpid(process, &status, WNOHANG) == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        there = written ? 0 : number_of(file);
        if (there && there != before) {
            written = true;
            end = now.tv_sec + GRACE;
        }
        if (now.tv_sec > end) {
            kill(-process, SIGKILL);
            waitpid(process, &status, 0);
            return written ? 0 : -1;
        }
        nanosleep(&pause, NULL);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Of a batch job, where that is a file; malloc'ed, NULL: there is none. */
static char *output_of(uint32_t job)
{
    job_info_msg_t *message;
    char path[PATH_MAX] = "";
    struct stat status;

    if (slurm_load_job(&message, job, 0))
        return NULL;
    for (uint32_t i = 0; i < message->record_count; i++)
        if (message->job_array[i].job_id == job && message->job_array[i].batch_flag)
            slurm_get_job_stdout(path, sizeof(path), &message->job_array[i]);
    slurm_free_job_info_msg(message);
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) ? strdup(path) : NULL;
}

/* Beside the job's output, else in the working directory. */
static void name_report(char *path, size_t size, uint32_t job, uint32_t step)
{
    char *output = output_of(job), *slash = output ? strrchr(output, '/') : NULL;
    int folder = slash ? (int)(slash + 1 - output) : 0;

    snprintf(path, size, "%.*stasuki-report-%u.%u.txt", folder, output ? output : "", job, step);
    free(output);
}

/* What the step that waits has of a job: of one component of a heterogeneous one, or of all. */
struct part {
    int group;              /* -1: the job has no components */
    char *nodes;
    int count;
};

#define MOST_PARTS 32
#define PART_WORDS 10

static int load_step(uint32_t job, uint32_t step, job_step_info_response_msg_t **message)
{
#ifdef SLURM_STEPS_BY_ID
    slurm_step_id_t id = { .job_id = job, .step_id = step, .step_het_comp = NO_VAL };

    return slurm_get_job_steps(&id, message, SHOW_ALL);
#else
    return slurm_get_job_steps(0, job, step, message, SHOW_ALL);
#endif
}

static bool find_part(uint32_t job, uint32_t step, struct part *part)
{
    job_step_info_response_msg_t *message;
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
    hostlist_t list = NULL;         /* a pointer, behind the type's name */
#else
    hostlist_t *list = NULL;
#endif

    part->nodes = NULL;
    if (load_step(job, step, &message))
        return false;
    if (message->job_step_count > 0 && message->job_steps[0].nodes)
        part->nodes = strdup(message->job_steps[0].nodes);
    slurm_free_job_step_info_response_msg(message);
    if (part->nodes)
        list = slurm_hostlist_create(part->nodes);
    part->count = list ? slurm_hostlist_count(list) : 0;
    if (list)
        slurm_hostlist_destroy(list);
    return part->count > 0;
}

/* A component that takes no part in the step has no step of that number. */
static int find_parts(uint32_t leader, uint32_t step, struct part parts[MOST_PARTS])
{
    job_info_msg_t *message;
    int n = 0;

    if (slurm_load_job(&message, leader, SHOW_ALL))
        return 0;
    for (uint32_t i = 0; i < message->record_count && n < MOST_PARTS; i++) {
        const slurm_job_info_t *info = &message->job_array[i];
        bool component = info->het_job_id != 0 && info->het_job_id == leader;

        if (!component && info->job_id != leader)
            continue;
        parts[n].group = component ? (int)info->het_job_offset : -1;
        n += find_part(info->job_id, step, &parts[n]);
    }
    slurm_free_job_info_msg(message);
    return n;
}

/* Of a component of a heterogeneous job the first one, by which srun knows all. */
static uint32_t leader_of(uint32_t job)
{
    job_info_msg_t *message;
    uint32_t leader = job;

    if (slurm_load_job(&message, job, SHOW_ALL))
        return job;
    for (uint32_t i = 0; i < message->record_count; i++)
        if (message->job_array[i].job_id == job && message->job_array[i].het_job_id)
            leader = message->job_array[i].het_job_id;
    slurm_free_job_info_msg(message);
    return leader;
}

struct words {
    int n;
    char *list[MOST_PARTS * PART_WORDS + 8];
};

static void add(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One that is not there ends the list. */
static void add(struct words *words, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&word, format, arguments) < 0)
        word = NULL;
    va_end(arguments);
    words->list[words->n++] = word;
}

static void add_part(struct words *words, const struct part *part, const char *file)
{
    if (part->group >= 0)
        add(words, "--het-group=%d", part->group);
    add(words, "--nodes=%d", part->count);
    add(words, "--nodelist=%s", part->nodes);
    add(words, "--ntasks-per-node=1");
    add(words, "%s", report.program);
    add(words, "topo");
    add(words, "--quiet");
    add(words, "--output");
    add(words, "%s", file);
}

static void run_report(struct words *words, const char *file)
{
    ino_t before = number_of(file);
    pid_t process;
    int code = start(words->list, &process);

    if (code) {
        slurm_error("--tasuki-report: srun cannot be started: %s", strerror(code));
        return;
    }
    code = wait_for(process, file, before);
    if (code < 0)
        slurm_error("--tasuki-report: not there after %d s; the step starts without", report.limit);
    else if (code > 0)
        slurm_error("--tasuki-report: %s: exit status %d; the step starts without", report.program,
                    code);
    else
        slurm_info("--tasuki-report: %s", file);
}

static void write_report(uint32_t job, uint32_t step)
{
    uint32_t leader = leader_of(job);
    struct part parts[MOST_PARTS];
    int n = find_parts(leader, step, parts);
    char own[PATH_MAX], *file = report.file ? report.file : own;
    struct words words = { 0 };

    if (!report.file)
        name_report(own, sizeof(own), job, step);
    add(&words, "srun");
    add(&words, "--jobid=%u", leader);
    add(&words, "--overlap");
    add(&words, "--input=none");
    add(&words, "--quiet");
    add(&words, "--mpi=%.100s", report.mpi);
    for (int i = 0; i < n; i++) {
        if (i)
            add(&words, ":");
        add_part(&words, &parts[i], file);
    }
    if (n)
        run_report(&words, file);
    else
        slurm_error("--tasuki-report: Slurm does not tell the nodes of step %u.%u", job, step);
    for (int i = 0; i < words.n; i++)
        free(words.list[i]);
    for (int i = 0; i < n; i++)
        free(parts[i].nodes);
}

int slurm_spank_local_user_init(spank_t spank, int n, char **arguments)
{
    uint32_t job, step;

    (void)n;
    (void)arguments;
    if (!report.asked || getenv(INNER))
        return 0;
    if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_STEPID, &step))
        slurm_error("--tasuki-report: Slurm does not tell the number of the step");
    else
        write_report(job, step);
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
