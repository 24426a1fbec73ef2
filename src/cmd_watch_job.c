/* SPDX-License-Identifier: MIT */
/* The log of a job, of which only the number is known. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/config_file.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "cmd_submit.h"
#include "cmd_watch.h"
#include "scheduler/slurm/facts.h"
#include "scheduler/slurm/slurm.h"
#include "train/job.h"

/* What is looked at where nobody says which file it is: entries of folders, folders in them, and of
 * the logs those that were written last.
 */
#define MOST_ENTRIES 20000
#define DEPTH 2
#define MOST_LOGS 100
#define SUFFIX ".jsonl"
/* How a log and its starts begin. */
#define HEAD "{\"event\":\""
#define START HEAD "start\""

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

/* The log that submit's settings name; '*user' is that. */
static int take_log(void *user, const char *path, int line, const char *key, const char *value,
                    struct err *err)
{
    char **log = user;

    (void)path;
    (void)line;
    (void)err;
    if (strcmp(key, "log") == 0) {
        free(*log);
        *log = mem_strdup(value);
    }
    return 0;
}

/* Of the job, or the task "12_3" of an array, whose own number is not known before it begins. */
static char *expand(const char *log, const char *job, const char *directory)
{
    const char *task = strchr(job, '_');
    char *array = mem_printf("%.*s", (int)strcspn(job, "_"), job), *name = NULL, *path = NULL;
    struct job_names names = { .job = task ? NULL : job, .array_job = task ? array : NULL,
                               .array_task = task ? task + 1 : NULL };
    struct err ignored = { 0 };

    if (job_path("log", log, &names, &name, &ignored) == 0)
        path = *name == '/' ? mem_strdup(name) : mem_printf("%s/%s", directory, name);
    free(name);
    free(array);
    return path;
}

static bool may_come_to_it(const struct slurm_facts *facts)
{
    static const char *const states[] = { "pending", "running", "suspended" };

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(facts->state, states[i]) == 0)
            return true;
    return false;
}

/* Which it will be, of a job of submit's that has not come to it yet. NULL: that is not known. */
static char *log_to_come(const struct slurm_facts *facts, const char *job)
{
    const char *slash = strrchr(facts->output, '/');
    char *settings, *log = NULL, *path = NULL;
    struct err ignored = { 0 };

    if (!may_come_to_it(facts) || !slash || !*facts->directory)
        return NULL;
    settings = mem_printf("%.*s/job.conf", (int)(slash - facts->output), facts->output);
    if (config_file_read(settings, take_log, &log, &ignored) == 0 && log)
        path = expand(log, job, facts->directory);
    free(settings);
    free(log);
    return path;
}

struct question {
    const char *job;        /* without the component of a heterogeneous one */
    const char *cluster;    /* "": not known */
    uid_t user;             /* whose job it is; -1: not known */
};

static bool is_text(const json_t *line, const char *key, const char *text)
{
    const char *own = json_string_value(json_object_get(line, key));

    return own && strcmp(own, text) == 0;
}

static bool names(const struct question *q, const json_t *line)
{
    if (json_object_get(line, "cluster") && *q->cluster && !is_text(line, "cluster", q->cluster))
        return false;
    return is_text(line, "job", q->job) || is_text(line, "array_task", q->job);
}

/* Whose job its last start names. */
enum owner { OWNER_UNKNOWN, OWNER_THIS, OWNER_OTHER };

static enum owner owner_by_lines(FILE *file, off_t bytes, const struct question *q)
{
    enum owner owner = OWNER_UNKNOWN;
    char *text = NULL;
    size_t room = 0;
    ssize_t length;

    /* A log grows. */
    while (bytes > 0 && (length = getline(&text, &room, file)) > 0) {
        json_t *line = NULL;

        bytes -= length;
        if (strncmp(text, START, strlen(START)) == 0)
            line = json_loadb(text, (size_t)length, 0, NULL);
        if (json_object_get(line, "job"))
            owner = names(q, line) ? OWNER_THIS : OWNER_OTHER;
        json_decref(line);
    }
    free(text);
    return owner;
}

/* Of what is no log of this user's nothing but the head is read. */
static enum owner owner_of(const char *path, const struct question *q)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    enum owner owner = OWNER_UNKNOWN;
    char head[sizeof(HEAD) - 1];
    struct stat st;

    if (!file) {
        if (fd >= 0)
            close(fd);
        return owner;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        (q->user == (uid_t)-1 || st.st_uid == q->user) &&
        fread(head, 1, sizeof(head), file) == sizeof(head) &&
        memcmp(head, HEAD, sizeof(head)) == 0 && fseek(file, 0, SEEK_SET) == 0)
        owner = owner_by_lines(file, st.st_size, q);
    fclose(file);
    return owner;
}

struct log {
    char *path;
    struct timespec changed;
};

/* Folders, level by level, and the logs in them. */
struct walk {
    struct folder {
        char *path;
        int depth;
    } *folders;
    struct log *logs;
    int n_folders, n_logs, entries;     /* entries: that were looked at */
};

static void add_folder(struct walk *w, char *path, int depth)
{
    *(struct folder *)mem_push((void **)&w->folders, &w->n_folders, sizeof(struct folder)) =
        (struct folder){ path, depth };
}

/* Links are passed over. */
static void add_entry(struct walk *w, const struct folder *folder, const struct dirent *entry)
{
    bool deeper = folder->depth < DEPTH && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN);
    bool log = file_ends_in(entry->d_name, SUFFIX) &&
               (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN);
    struct stat st;
    char *path;

    if (entry->d_name[0] == '.' || !(deeper || log))
        return;
    path = mem_printf("%s/%s", folder->path, entry->d_name);
    if (lstat(path, &st)) {
        free(path);
    } else if (S_ISREG(st.st_mode) && log) {
        *(struct log *)mem_push((void **)&w->logs, &w->n_logs, sizeof(struct log)) =
            (struct log){ path, st.st_mtim };
    } else if (S_ISDIR(st.st_mode) && deeper) {
        add_folder(w, path, folder->depth + 1);
    } else {
        free(path);
    }
}

static void walk_through(struct walk *w, const char *folder)
{
    add_folder(w, mem_strdup(folder), 0);
    for (int i = 0; i < w->n_folders; i++) {
        struct folder own = w->folders[i];
        DIR *directory = own.depth ? file_opendir(own.path) : opendir(own.path);
        struct dirent *entry;

        while (directory && w->entries < MOST_ENTRIES && (entry = readdir(directory))) {
            w->entries++;
            add_entry(w, &own, entry);
        }
        if (directory)
            closedir(directory);
    }
}

static int last_first(const void *a, const void *b)
{
    const struct timespec *x = &((const struct log *)a)->changed;
    const struct timespec *y = &((const struct log *)b)->changed;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return x->tv_nsec < y->tv_nsec ? 1 : x->tv_nsec > y->tv_nsec ? -1 : 0;
}

/* The one that was written last; NULL: none names the job. */
static char *log_that_names(const char *folder, const struct question *q)
{
    struct walk w = { NULL };
    char *found = NULL;

    walk_through(&w, folder);
    if (w.n_logs > 1)
        qsort(w.logs, (size_t)w.n_logs, sizeof(*w.logs), last_first);
    for (int i = 0; i < w.n_logs && i < MOST_LOGS && !found; i++)
        if (owner_of(w.logs[i].path, q) == OWNER_THIS)
            found = mem_strdup(w.logs[i].path);
    for (int i = 0; i < w.n_logs; i++)
        free(w.logs[i].path);
    for (int i = 0; i < w.n_folders; i++)
        free(w.folders[i].path);
    free(w.logs);
    free(w.folders);
    return found;
}

/* A log of submit's that names another job may be one that this job, started again by hand, has not
 * come to yet; or another job's.
 */
static char *find_log(const struct slurm_facts *facts, const char *job, const struct question *q)
{
    char *path = log_of_submit(facts, job), *found;

    if ((path && owner_of(path, q) != OWNER_OTHER) || !*facts->directory)
        return path;
    found = log_that_names(facts->directory, q);
    if (!found)
        return path;
    free(path);
    return found;
}

static char *log_of_facts(const struct slurm_facts *facts, const char *job, struct err *err)
{
    struct passwd *user = getpwnam(facts->user);
    char *own = mem_printf("%.*s", (int)strcspn(job, "+"), job), *path;
    struct question question = { own, facts->cluster, user ? user->pw_uid : (uid_t)-1 };

    path = find_log(facts, job, &question);
    if (!path)
        path = log_to_come(facts, own);
    if (!path)
        err_set(err, "job %s (%s): there is no %s beside its output%s%s, and of the *" SUFFIX
                " below %s that were looked at none names it: give the file of its --log", job,
                facts->state, SUBMIT_LOG, *facts->output ? " " : "", facts->output,
                *facts->directory ? facts->directory : "its working directory");
    free(own);
    return path;
}

char *watch_log_of_job(const char *job, struct err *err)
{
    struct slurm_facts *facts = slurm_ask_job(job, err);
    char *path = NULL;

    if (facts && *facts->tasks && !strchr(job, '_'))
        err_set_code(err, EXIT_USAGE, "job %s (%s) is an array, of which tasks %.*s wait: name "
                     "one of its tasks, such as %s_%.*s", job, facts->state,
                     (int)strcspn(facts->tasks, "%"), facts->tasks, job,
                     (int)strspn(facts->tasks, "0123456789"), facts->tasks);
    else if (facts)
        path = log_of_facts(facts, job, err);
    slurm_facts_free(facts);
    return path;
}
