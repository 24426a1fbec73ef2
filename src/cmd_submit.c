/* SPDX-License-Identifier: MIT */
/* tasuki submit: a batch script, kept, and submitted.
 *
 * Slurm's limits are asked from libslurm, but the script is submitted by sbatch, which takes
 * the place of this process. slurm_submit_batch_job() would be less than that: what a site's
 * SPANK plugins and cli_filter add, SBATCH_* variables, and the limits and variables of this
 * shell are sbatch's doing; no public function reads its options, which follow "--"; and a job
 * built from a struct would not be the one that "sbatch job.sh" gives, where the script is kept
 * for just that. The number of the job is what sbatch --parsable prints: nothing is parsed. Other
 * schedulers' commands are called alike.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_submit.h"
#include "commands.h"
#include "scheduler/slurm/facts.h"
#include "train/planning.h"

#define MOST_NODES (1 << 20)
#define MOST_TASKS 4096
#define CHECKPOINTS "checkpoints"
#define TASK_CHECKPOINTS CHECKPOINTS "-%a"
#define MOST_RUNS 10000     /* of one name in one folder */

/* Options -------------------------------------------------------------------------------- */

/* "N", "auto", "FIRST..LAST" */
static int read_nodes(struct submit *job, struct err *err)
{
    const char *text = option_string(job->options, "nodes", "1");
    long first, last;
    int end = 0;

    if (strcmp(text, "auto") == 0) {
        job->last = -1;
        return 0;
    }
    if (sscanf(text, "%7ld..%7ld%n", &first, &last, &end) == 2 && end && !text[end] &&
        first >= 1 && last >= first && last <= MOST_NODES) {
        job->first = first;
        job->last = last;
        return 0;
    }
    if (sscanf(text, "%7ld%n", &first, &end) == 1 && !text[end] && first >= 1 &&
        first <= MOST_NODES && isdigit((unsigned char)text[0])) {
        job->nodes = first;
        return 0;
    }
    return err_set_code(err, EXIT_USAGE, "--nodes: expected a number of nodes, auto, or "
                        "FIRST..LAST such as 1..16, got \"%s\"", text);
}

/* "D-" of Slurm's times, which changes what the rest means. */
static bool take_days(const char **text, long *days)
{
    char *end;

    long count = strtol(*text, &end, 10);

    if (end == *text || *end != '-')
        return false;
    *days = count;
    *text = end + 1;
    return true;
}

/* Slurm's: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; -1: none of them. */
static int64_t parse_time(const char *text)
{
    static const int64_t plain[3][3] = { { 60 }, { 60, 1 }, { 3600, 60, 1 } };
    static const int64_t after_days[3] = { 3600, 60, 1 };
    long days = 0;
    bool has_days = take_days(&text, &days);
    int64_t part[3], sum = 0;
    int n = 0;

    for (; n < 3; n++) {
        char *end;

        part[n] = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
        if (part[n] < 0 || part[n] > 1000000)
            return -1;
        text = end;
        if (*text != ':')
            break;
        text++;
    }
    if (*text || n == 3 || days < 0 || days > 10000)
        return -1;
    for (int i = 0; i <= n; i++)
        sum += part[i] * (has_days ? after_days[i] : plain[n][i]);
    return sum + days * 86400;
}

static int read_time(struct submit *job, struct err *err)
{
    const char *text = option_string(job->options, "time", NULL);

    job->time = text ? parse_time(text) : 0;
    if (job->time >= (text ? 1 : 0))
        return 0;
    return err_set_code(err, EXIT_USAGE, "--time: expected MINUTES, H:MM:SS, D-HH or "
                        "D-HH:MM:SS, got \"%s\"", text);
}

/* "resnet" for "models/resnet.onnx"; of a name that was given only what may be in a path. */
static char *plain_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    char *name = dot && dot > base ? strndup(base, (size_t)(dot - base)) : mem_strdup(base);

    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c))
            *c = '-';
    return name;
}

const char *submit_tool(enum scheduler scheduler)
{
    static const char *const tools[] = { "sbatch", "pjsub", "qsub", "qsub" };

    return tools[scheduler];
}

/* Grid Engine and PBS have a command in common: the one sets SGE_ROOT. */
static enum scheduler detect(void)
{
    if (file_in_path("sbatch"))
        return SCHEDULER_SLURM;
    if (file_in_path("pjsub"))
        return SCHEDULER_PJM;
    if (file_in_path("qsub"))
        return getenv("SGE_ROOT") ? SCHEDULER_SGE : SCHEDULER_PBS;
    return SCHEDULER_SLURM;
}

static int read_scheduler(struct submit *job, struct err *err)
{
    int given;

    if (option_word(job->options, "scheduler", &given, err) < 0)
        return -1;
    job->scheduler = option_given(job->options, "scheduler") ? (enum scheduler)given : detect();
    job->has_tool = file_in_path(submit_tool(job->scheduler));
    if (job->dry_run || job->has_tool)
        return 0;
    if (!option_given(job->options, "scheduler"))
        return err_set(err, "there is no Slurm here, nor another scheduler: no sbatch, pjsub or "
                       "qsub in PATH; without one mpirun starts the ranks: mpirun -n N tasuki train "
                       "...; --dry-run prints the script");
    /* The script of another one may be carried to where it is. */
    return job->scheduler != SCHEDULER_SLURM
               ? 0 : err_set(err, "there is no sbatch here; --dry-run prints the script");
}

/* "--array=0-3", "--array 0-3", "-a0-3", as each scheduler calls it; PJM has two for it. */
int submit_array_words(enum scheduler scheduler, char *const *rest, int n)
{
    static const struct array_option {
        const char *name;
        bool alone;             /* no value follows */
    } names[][2] = { { { "--array", false }, { "-a", false } },
                     { { "--bulk", true }, { "--sparam", false } },
                     { { "-J", false }, { NULL, false } },
                     { { "-t", false }, { NULL, false } } };

    for (int k = 0; k < 2; k++) {
        const struct array_option *option = &names[scheduler][k];
        size_t length = option->name ? strlen(option->name) : 0;
        char next = length && strncmp(rest[0], option->name, length) == 0 ? rest[0][length] : 'x';

        if (!next)
            return option->alone || n == 1 ? 1 : 2;
        if (!option->alone &&
            (length > 2 ? next == '=' : isdigit((unsigned char)next)))
            return 1;
    }
    return 0;
}

static bool is_array(const struct submit *job)
{
    char *const *rest;
    int n = options_rest(job->options, &rest);

    for (int i = 0; i < n; i++)
        /* A step job of PJM has this one, too. */
        if (submit_array_words(job->scheduler, rest + i, n - i) &&
            strncmp(rest[i], "--sparam", strlen("--sparam")) != 0)
            return true;
    return false;
}

static int read_options(struct submit *job, struct err *err)
{
    const struct options *o = job->options;
    const char *kernels, *name;
    int64_t restarts;

    job->own_checkpoint = !option_given(o, "checkpoint");
    job->own_log = !option_given(o, "log");
    if (job->own_checkpoint)
        options_set(job->options, "checkpoint", CHECKPOINTS);
    /* What is wrong should not show after hours in a queue. */
    if (train_accepts(o, err) < 0 || planning_kernels(o, &kernels, err) < 0 ||
        option_int(o, "ntasks-per-node", 1, MOST_TASKS, 0, &job->tasks, err) < 0 ||
        option_int(o, "max-restarts", 0, 1 << 20, 3, &restarts, err) < 0)
        return -1;
    job->on_gpus = planning_on_gpu(kernels);
    job->dry_run = option_flag(o, "dry-run", false);
    job->partition = option_string(o, "partition", "");
    job->cluster = option_string(o, "cluster", NULL);
    name = option_string(o, "job-name", NULL);
    job->name = name && *name ? mem_strdup(name) : plain_name(options_operand(o, 0));
    if (!job->dry_run && access(options_operand(o, 0), R_OK))
        return err_set(err, "%s: %s", options_operand(o, 0), strerror(errno));
    if (read_nodes(job, err) || read_time(job, err) || read_scheduler(job, err))
        return -1;
    job->array = is_array(job);
    return 0;
}

/* Files ---------------------------------------------------------------------------------- */

char *submit_path(const struct submit *job, const char *file)
{
    /* No option of whoever is given it. */
    return mem_printf("%s%s/%s", job->directory[0] == '-' ? "./" : "", job->directory, file);
}

/* Make it, or where nothing is written see that it could be. */
static bool take(const char *path, bool dry_run)
{
    struct stat status;

    return dry_run ? stat(path, &status) != 0 : mkdir(path, 0777) == 0;
}

/* A directory of the run's own: the first NAME-N that is not there, or the given one. */
static int make_directory(struct submit *job, struct err *err)
{
    const char *given = option_string(job->options, "directory", NULL);
    char *name;

    if (given && strchr(given, '%'))
        return err_set_code(err, EXIT_USAGE, "--directory %s: %% begins a pattern of Slurm's: choose "
                            "another name", given);
    if (given) {
        job->directory = mem_strdup(given);
        job->made = !job->dry_run && access(given, F_OK) != 0;
        if (job->made)
            file_mkdirs(given);
        return file_check_link(given, err);
    }
    name = plain_name(option_given(job->options, "job-name")
                          ? job->name : options_operand(job->options, 0));
    for (int i = 1; i < MOST_RUNS; i++) {
        char *path = mem_printf("%s-%d", name, i);

        if (take(path, job->dry_run)) {
            job->directory = path;
            job->made = !job->dry_run;
            break;
        }
        err_set(err, "%s: %s", path, strerror(errno));
        free(path);
        if (!job->dry_run && errno != EEXIST)
            break;
    }
    free(name);
    if (!job->directory)
        return -1;
    *err = (struct err){ 0 };
    return 0;
}

static void set_path(const struct submit *job, const char *option, const char *file)
{
    char *path = submit_path(job, file);

    options_set(job->options, option, path);
    free(path);
}

/* A job file for train: what is long is easier to read, and to change, there than in the
 * script's srun line, and train, plan and inspect take it by hand, too.
 */
static int write_job_text(struct submit *job, struct err *err)
{
    static const char *const ours[] = { "nodes", "ntasks-per-node", "time", "partition",
                                        "scheduler", "cluster" };
    size_t size;
    FILE *out = open_memstream(&job->job_file, &size);

    if (!out)
        return err_set(err, "out of memory");
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        options_forget(job->options, ours[i]);
    /* Of a new directory that means: from the start, unless the script was run before. */
    if (job->own_checkpoint && !option_given(job->options, "resume"))
        options_set(job->options, "resume", "yes");
    if (job->own_checkpoint)
        set_path(job, "checkpoint", job->array ? TASK_CHECKPOINTS : CHECKPOINTS);
    if (job->own_log)
        set_path(job, "log", job->array ? SUBMIT_TASK_LOG : SUBMIT_LOG);
    fprintf(out, "# Settings of this run for \"tasuki train\".\n");
    options_print_config(job->options, out);
    fclose(out);
    return 0;
}

static void remove_file(const struct submit *job, const char *file)
{
    char *path = submit_path(job, file);

    unlink(path);
    free(path);
}

/* A file that is there belongs to another run. */
static int write_new(const struct submit *job, const char *file, mode_t mode, const char *text,
                     struct err *err)
{
    char *path = submit_path(job, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    int bad = fd < 0 ? err_set(err, "%s: %s", path, errno == EEXIST ? "another run's: choose "
                               "another --directory" : strerror(errno))
                     : file_write_all(fd, path, text, strlen(text), err);

    if (fd >= 0 && close(fd) && !bad)
        bad = err_set(err, "%s: %s", path, strerror(errno));
    if (fd >= 0 && bad)
        unlink(path);
    free(path);
    return bad;
}

/* Both or none. */
static int write_files(const struct submit *job, const char *script, struct err *err)
{
    if (write_new(job, "job.conf", 0666, job->job_file, err))
        return -1;
    if (write_new(job, "job.sh", 0777, script, err) == 0)
        return 0;
    remove_file(job, "job.conf");
    return -1;
}

/* Submitting ----------------------------------------------------------------------------- */

/* By which the job's number is all that is printed; NULL: there is no such option. */
static const char *terse(enum scheduler scheduler)
{
    static const char *const words[] = { "--parsable", NULL, NULL, "-terse" };

    return words[scheduler];
}

/* Only an error comes back. */
static int become_tool(const struct submit *job, const char *script, struct err *err)
{
    char *const *rest;
    int n = options_rest(job->options, &rest), at = 0;
    const char **words = mem_new((size_t)n + 4, sizeof(*words));

    words[at++] = submit_tool(job->scheduler);
    if (terse(job->scheduler))
        words[at++] = terse(job->scheduler);
    for (int i = 0; i < n; i++)
        words[at++] = rest[i];
    words[at] = script;
    fflush(stdout);
    execvp(words[0], (char *const *)words);
    err_set(err, "%s: %s", words[0], strerror(errno));
    free(words);
    return -1;
}

/* For where there is that command. */
static void print_line(const struct submit *job, const char *script)
{
    char *quoted = options_quote(script), *const *rest;
    int n = options_rest(job->options, &rest);

    log_warning("there is no %s here; where there is one, submit the script by:",
                submit_tool(job->scheduler));
    printf("%s", submit_tool(job->scheduler));
    for (int i = 0; i < n; i++) {
        char *word = options_quote(rest[i]);

        printf(" %s", word);
        free(word);
    }
    printf(" %s\n", quoted);
    free(quoted);
}

static int hand_over(const struct submit *job, struct err *err)
{
    char *script = submit_path(job, "job.sh");
    int bad = 0;

    log_info("%s: %" PRId64 " node%s of %" PRId64 " rank%s", script, job->nodes,
             job->nodes == 1 ? "" : "s", job->tasks, job->tasks == 1 ? "" : "s");
    if (job->has_tool)
        bad = become_tool(job, script, err);
    else
        print_line(job, script);
    free(script);
    return bad;
}

static int finish(struct submit *job, struct err *err)
{
    char *script = submit_script(job, err);
    int bad = script ? 0 : -1;

    if (!bad && job->dry_run)
        fputs(script, stdout);
    else if (!bad)
        bad = write_files(job, script, err) || hand_over(job, err) ? -1 : 0;
    free(script);
    return bad;
}

static int run(struct submit *job, struct err *err)
{
    char *partition, *cluster;
    int bad;

    if (read_options(job, err))
        return -1;
    /* Of settings that are forgotten below. */
    partition = mem_strdup(job->partition);
    job->partition = partition;
    job->cluster = cluster = job->cluster ? mem_strdup(job->cluster) : NULL;
    bad = submit_ask(job, err) || submit_check(job, err) || make_directory(job, err) ||
          write_job_text(job, err) || submit_choose_nodes(job, err) ||
          submit_choose_tasks(job, err) || finish(job, err) ? -1 : 0;
    /* Only where nothing is in it. */
    if (bad && job->made)
        rmdir(job->directory);
    free(partition);
    free(cluster);
    return bad;
}

int cmd_submit(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_SUBMIT, argc, argv, 1, err);
    struct submit job = { .options = options };
    int bad;

    if (!options)
        return (int)err->code;
    job.command = options_command_line(argc, argv);
    bad = run(&job, err);
    slurm_facts_free(job.facts);
    free(job.command);
    free(job.name);
    free(job.directory);
    free(job.job_file);
    options_free(options);
    return bad ? (int)err->code : EXIT_OK;
}
