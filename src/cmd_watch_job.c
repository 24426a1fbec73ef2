/* SPDX-License-Identifier: MIT */
/* The log of a job, of which only the number is known. */
#include "config.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/tail.h"
#include "cmd_submit.h"
#include "cmd_watch.h"
#include "scheduler/slurm/facts.h"
#include "scheduler/slurm/slurm.h"

/* What is looked at where nobody says which file it is: entries of folders, folders in them, and of
 * the logs those that were written last.
 */
#define MOST_ENTRIES 20000
#define DEPTH 2
#define MOST_LOGS 100
#define SUFFIX ".jsonl"

bool watch_is_job(const char *text)
{
    return text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789_+") == strlen(text) &&
           access(text, F_OK) != 0;
}

/* Beside what the job's script prints. NULL: there is none. */
static char *log_of_submit(const struct slurm_facts *facts, const char *job)
{
    const char *task = strchr(job, '_'), *slash = strrchr(facts->output, '/');
    int length = slash ? (int)(slash - facts->output) : 0;
    char *path = NULL;

    if (!slash)
        return NULL;
    /* SUBMIT_TASK_LOG */
    if (task)
        path = mem_printf("%.*s/log-%s.jsonl", length, facts->output, task + 1);
    /* Of a script that was made for no array, too. */
    if (!path || access(path, F_OK)) {
        free(path);
        path = mem_printf("%.*s/%s", length, facts->output, SUBMIT_LOG);
    }
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

struct log {
    char *path;
    struct timespec changed;
};

struct logs {
    struct log *items;
    int n, entries;         /* entries: that were looked at */
};

static void add_folder(struct logs *logs, const char *folder, int depth);

static void add_entry(struct logs *logs, const char *folder, const char *name, int depth)
{
    size_t length = strlen(name), end = strlen(SUFFIX);
    char *path = mem_printf("%s/%s", folder, name);
    struct stat st;

    logs->entries++;
    if (lstat(path, &st)) {
        free(path);
    } else if (S_ISREG(st.st_mode) && length > end && strcmp(name + length - end, SUFFIX) == 0) {
        *(struct log *)mem_push((void **)&logs->items, &logs->n, sizeof(struct log)) =
            (struct log){ path, st.st_mtim };
    } else {
        if (S_ISDIR(st.st_mode) && depth > 0)
            add_folder(logs, path, depth - 1);
        free(path);
    }
}

static void add_folder(struct logs *logs, const char *folder, int depth)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;

    while (directory && logs->entries < MOST_ENTRIES && (entry = readdir(directory)))
        if (entry->d_name[0] != '.')
            add_entry(logs, folder, entry->d_name, depth);
    if (directory)
        closedir(directory);
}

static int last_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct log *)a)->changed;
    const struct timespec *y = &((const struct log *)b)->changed;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return x->tv_nsec < y->tv_nsec ? 1 : x->tv_nsec > y->tv_nsec ? -1 : 0;
}

struct question {
    const char *job;
    bool is;                /* of the last start */
};

static bool names(const json_t *line, const char *key, const char *job)
{
    const char *text = json_string_value(json_object_get(line, key));

    return text && strcmp(text, job) == 0;
}

/* The text has no end of its own; what is in most lines is not parsed. */
static void take_line(void *context, const char *text, size_t length)
{
    static const char start[] = "\"start\"";
    struct question *question = context;
    const char *event;
    json_t *line;

    if (!text || !memmem(text, length, start, sizeof(start) - 1))
        return;
    line = json_loadb(text, length, 0, NULL);
    event = json_string_value(json_object_get(line, "event"));
    if (event && strcmp(event, "start") == 0)
        question->is = names(line, "job", question->job) ||
                       names(line, "array_task", question->job);
    json_decref(line);
}

static void take_restart(void *context)
{
    (void)context;
}

static bool is_of_job(const char *path, const char *job)
{
    struct question question = { .job = job };
    struct tail_reader reader = { take_line, take_restart, &question };
    struct tail *tail = tail_new(path, &reader);
    struct err ignored = { 0 };

    if (tail_poll(tail, &ignored) < 0)
        question.is = false;
    tail_free(tail);
    return question.is;
}

/* NULL: none says so. */
static char *log_that_says_so(const char *folder, const char *job)
{
    struct logs logs = { NULL, 0, 0 };
    char *found = NULL;

    add_folder(&logs, folder, DEPTH);
    if (logs.n > 1)
        qsort(logs.items, (size_t)logs.n, sizeof(*logs.items), last_first);
    for (int i = 0; i < logs.n && i < MOST_LOGS && !found; i++)
        if (is_of_job(logs.items[i].path, job))
            found = mem_strdup(logs.items[i].path);
    for (int i = 0; i < logs.n; i++)
        free(logs.items[i].path);
    free(logs.items);
    return found;
}

char *watch_log_of_job(const char *job, struct err *err)
{
    struct slurm_facts *facts = slurm_ask_job(job, err);
    char *path;

    if (!facts)
        return NULL;
    path = log_of_submit(facts, job);
    if (!path && *facts->directory)
        path = log_that_says_so(facts->directory, job);
    if (!path)
        err_set(err, "job %s: there is no %s beside its output%s%s, and below %s no *" SUFFIX
                " names it: give the file of its --log", job, SUBMIT_LOG,
                *facts->output ? " " : "", facts->output,
                *facts->directory ? facts->directory : "its working directory");
    slurm_facts_free(facts);
    return path;
}
