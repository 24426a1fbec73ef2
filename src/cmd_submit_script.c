/* SPDX-License-Identifier: MIT */
/* The script of a job: a template of etc/schedulers, filled in. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/option.h"
#include "cmd_submit.h"
#include "train/job_limit.h"

/* What a template may have between two '@'; NULL: not known. */
struct word {
    const char *name;
    char *value;
};

struct words {
    const char *bad;            /* a value that would end its line */
    int n;
    struct word *list;
};

/* 'value' is the list's. */
static void add(struct words *words, const char *name, char *value)
{
    for (const char *c = value; c && *c && !words->bad; c++)
        if (iscntrl((unsigned char)*c))
            words->bad = name;
    *(struct word *)mem_push((void **)&words->list, &words->n, sizeof(*words->list)) =
        (struct word){ name, value };
}

static void clear(struct words *words)
{
    for (int i = 0; i < words->n; i++)
        free(words->list[i].value);
    free(words->list);
}

static void add_number(struct words *words, const char *name, int64_t value)
{
    add(words, name, value > 0 ? mem_printf("%" PRId64, value) : NULL);
}

static void add_text(struct words *words, const char *name, const char *value)
{
    add(words, name, value && *value ? options_quote(value) : NULL);
}

static char *time_text(int64_t seconds)
{
    return mem_printf("%" PRId64 ":%02d:%02d", seconds / 3600, (int)(seconds / 60 % 60),
                      (int)(seconds % 60));
}

static char *select_text(const struct submit *job)
{
    char *gpus = job->gpus ? mem_printf(":ngpus=%" PRId64, job->gpus) : mem_strdup("");
    int64_t cpus = job->tasks * (job->cpus ? job->cpus : 1);
    char *text = mem_printf("select=%" PRId64 ":ncpus=%" PRId64 ":mpiprocs=%" PRId64 "%s",
                            job->nodes, cpus, job->tasks, gpus);

    free(gpus);
    return text;
}

char *submit_program(void)
{
    char *folder = module_program_folder();
    char *path = folder ? mem_printf("%s/tasuki", folder) : mem_strdup("tasuki");

    free(folder);
    if (access(path, X_OK) == 0)
        return path;
    free(path);
    return mem_strdup("tasuki");
}

/* Without what makes an array: a task of it goes on alone. */
static char *rest_text(const struct submit *job)
{
    char *const *rest, *text = mem_strdup("");
    int n = options_rest(job->options, &rest);

    for (int i = 0, skip; i < n; i += skip ? skip : 1) {
        char *word, *more;

        skip = job->array ? submit_array_words(job->scheduler, rest + i, n - i) : 0;
        if (skip)
            continue;
        word = options_quote(rest[i]);
        more = mem_printf("%s%s%s", text, *text ? " " : "", word);
        free(word);
        free(text);
        text = more;
    }
    return text;
}

/* Where the job's output goes, unless it is said. */
static const char *output_name(const struct submit *job)
{
    static const char *const plain[] = { "job-%j.out", "job.out", "job.out", "job.out" };
    static const char *const of_tasks[] = { "job-%A_%a.out", "job.out", "job-^array_index^.out",
                                            "job-$TASK_ID.out" };

    return job->array ? of_tasks[job->scheduler] : plain[job->scheduler];
}

static void add_files(struct words *words, const struct submit *job)
{
    char *script = submit_path(job, "job.sh"), *config = submit_path(job, "job.conf");
    char *output = submit_path(job, output_name(job));
    char *tasuki = submit_program(), *folder = getcwd(NULL, 0);

    add_text(words, "SCRIPT", script);
    add_text(words, "CONFIG", config);
    add_text(words, "OUTPUT", option_string(job->options, "output", output));
    add_text(words, "TASUKI", tasuki);
    add_text(words, "FOLDER", folder ? folder : ".");
    free(script);
    free(config);
    free(output);
    free(tasuki);
    free(folder);
}

static void add_all(struct words *words, const struct submit *job)
{
    add(words, "COMMAND", mem_strdup(job->command));
    add_text(words, "NAME", job->name);
    add_number(words, "NODES", job->nodes);
    add_number(words, "TASKS", job->tasks);
    add_number(words, "ALL", job->nodes * job->tasks);
    add_number(words, "CPUS", job->cpus);
    add_number(words, "GPUS", job->gpus);
    add_text(words, "PARTITION", job->partition);
    add(words, "TIME", job->time ? time_text(job->time) : NULL);
    add_number(words, "BEFORE", job_limit_notice(job->time));
    add_number(words, "LIMIT", job->time);
    add(words, "SELECT", select_text(job));
    add(words, "REST", rest_text(job));
    add_text(words, "HINT", job->one_thread ? "nomultithread" : NULL);
    add_files(words, job);
}

/* "@NAME@" at 'at': its length and its entry; 0: no such word. */
static size_t find(const struct words *words, const char *at, const struct word **found)
{
    size_t n = *at == '@' ? strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") : 0;

    for (int i = 0; n && at[n + 1] == '@' && i < words->n; i++)
        if (strlen(words->list[i].name) == n && memcmp(words->list[i].name, at + 1, n) == 0) {
            *found = &words->list[i];
            return n + 2;
        }
    return 0;
}

/* A paragraph with its end; nothing where a word of it is not known. */
static void fill(const struct words *words, const char *at, const char *end, FILE *out)
{
    const struct word *word;
    size_t n;

    for (const char *look = at; look < end; look++)
        if (find(words, look, &word) && !word->value)
            return;
    while (at < end) {
        n = find(words, at, &word);
        if (n)
            fputs(word->value, out);
        else
            fputc(*at, out);
        at += n ? n : 1;
    }
}

static char *fill_all(const struct words *words, const char *template)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    while (out && *template) {
        const char *gap = strstr(template, "\n\n");
        const char *end = gap ? gap + 2 : template + strlen(template);

        fill(words, template, end, out);
        template = end;
    }
    if (out)
        fclose(out);
    return text;
}

/* malloc'ed. */
static char *read_template(enum scheduler scheduler, struct err *err)
{
    static const char *const names[] = { "slurm", "pjm", "pbs", "sge" };
    char *in_tree = mem_printf("etc/schedulers/%s.sh.in", names[scheduler]);
    char *compiled = mem_printf("%s/schedulers/%s.sh.in", PKGDATADIR, names[scheduler]);
    char *path = module_file(in_tree, compiled), *text = NULL;
    struct file_map map;

    free(in_tree);
    free(compiled);
    if (file_map_open(path, &map, err) == 0) {
        text = map.data ? strndup((const char *)map.data, map.size) : mem_strdup("");
        file_map_close(&map);
    }
    free(path);
    return text;
}

char *submit_script(const struct submit *job, struct err *err)
{
    char *template = read_template(job->scheduler, err), *text;
    struct words words = { 0 };

    if (!template)
        return NULL;
    add_all(&words, job);
    text = words.bad ? NULL : fill_all(&words, template);
    clear(&words);
    free(template);
    if (!text && words.bad)
        err_set_code(err, EXIT_USAGE, "submit: control characters cannot be in a script: %s",
                     words.bad);
    else if (!text)
        err_set(err, "out of memory");
    return text;
}
