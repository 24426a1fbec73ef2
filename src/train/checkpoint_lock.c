/* SPDX-License-Identifier: MIT */
#include "train/checkpoint_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/job.h"
#include "train/step_facts.h"

#define TOUCHED 30      /* seconds between two signs of life */
#define QUIET 75        /* seconds without any, of another process of the same job: it is gone */
#define STALE 300       /* of any other */
#define LEAVING 10      /* seconds that a process of the same job is given to end */
#define TRIES 5

struct checkpoint_lock {
    char *path;
    int fd;                 /* of our file, whatever stands under its name */
    pthread_t thread;       /* which touches it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool ends;
};

/* Who --------------------------------------------------------------------------------- */

static void set_text(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text ? text : "");
}

static void read_boot(char *boot, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file && fgets(boot, (int)size, file))
        boot[strcspn(boot, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* When a process started; -1: none is seen. */
static int64_t started(int64_t pid)
{
    char path[64], line[1024] = "";
    const char *at;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    file = fopen(path, "re");
    if (!file || !fgets(line, sizeof(line), file))
        line[0] = '\0';
    if (file)
        fclose(file);
    /* The name, in brackets, may have anything in it; the start is the 22nd field. */
    at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : -1;
}

struct lock_owner lock_owner_self(const struct job_names *job)
{
    struct lock_owner o = { .pid = getpid() };
    time_t now = time(NULL);
    struct tm tm;
    struct stat st;

    if (gethostname(o.host, sizeof(o.host) - 1) < 0)
        o.host[0] = '\0';
    read_boot(o.boot, sizeof(o.boot));
    o.started = started(o.pid);
    o.space = stat("/proc/self/ns/pid", &st) == 0 ? (int64_t)st.st_ino : 0;
    set_text(o.cluster, sizeof(o.cluster), job->cluster);
    set_text(o.job, sizeof(o.job), job->job);
    set_text(o.array_job, sizeof(o.array_job), job->array_job);
    set_text(o.array_task, sizeof(o.array_task), job->array_task);
    set_text(o.restart, sizeof(o.restart), job->restart);
    set_text(o.launcher, sizeof(o.launcher), job->launcher);
    strftime(o.since, sizeof(o.since), "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &tm));
    return o;
}

/* "job 12 (task 3 of array 10), process 4711 on n1, since 2026-11-24T10:00:00+0000". */
static char *describe(const struct lock_owner *o)
{
    char *job = NULL, *text;

    if (o->job[0] && o->array_task[0])
        job = mem_printf("job %s (task %s of array %s), ", o->job, o->array_task, o->array_job);
    else if (o->job[0])
        job = mem_printf("job %s, ", o->job);
    text = mem_printf("%sprocess %lld on %s, since %s", job ? job : "", (long long)o->pid, o->host,
                      o->since);
    free(job);
    return text;
}

static bool same_job(const struct lock_owner *a, const struct lock_owner *b)
{
    return a->job[0] && strcmp(a->job, b->job) == 0 && strcmp(a->cluster, b->cluster) == 0 &&
           strcmp(a->array_task, b->array_task) == 0;
}

static bool same_launcher(const struct lock_owner *a, const struct lock_owner *b)
{
    return a->launcher[0] && strcmp(a->launcher, b->launcher) == 0;
}

/* Would its process be seen here? */
static bool is_here(const struct lock_owner *holder, const struct lock_owner *self)
{
    return strcmp(holder->host, self->host) == 0 && holder->space == self->space;
}

const char *lock_stale(const struct lock_owner *holder, const struct lock_owner *self,
                       enum lock_process process, double age)
{
    bool here = is_here(holder, self);
    bool job = same_job(holder, self);

    if (job && strcmp(holder->restart, self->restart) != 0)
        return "this job was requeued since";
    if (here && strcmp(holder->boot, self->boot) != 0)
        return "this machine was started again since";
    if (here && process != LOCK_HIDDEN)
        return process == LOCK_LIVES ? NULL : "that process is gone";
    if (job && same_launcher(holder, self))
        return "it is an earlier step of this run";
    /* Steps of one job may run side by side. */
    if (job && age > QUIET)
        return "it is an earlier run of this job";
    return age > STALE ? "it has not been touched for minutes" : NULL;
}

/* The file ---------------------------------------------------------------------------- */

static char *owner_text(const struct lock_owner *o)
{
    json_t *top = json_pack("{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, "
                            "s:s}", "schema", "tasuki-lock", "version", 1, "host", o->host, "boot",
                            o->boot, "pid", (json_int_t)o->pid, "started",
                            (json_int_t)o->started, "space", (json_int_t)o->space, "cluster",
                            o->cluster, "job", o->job, "array_job", o->array_job, "array_task",
                            o->array_task, "restart", o->restart, "launcher", o->launcher, "since",
                            o->since);
    char *text = json_dumps(top, JSON_INDENT(1)), *line;

    json_decref(top);
    line = mem_printf("%s\n", text ? text : "");
    free(text);
    return line;
}

static int read_text(struct json_reader *r, const char *key, char *to, size_t size,
                     struct err *err)
{
    const char *text;

    if (json_get_string(r, key, true, NULL, &text, err) < 0)
        return -1;
    set_text(to, size, text);
    return 0;
}

static int read_owner(const char *path, struct lock_owner *o, struct err *err)
{
    json_t *top = json_load(path, err);
    struct json_reader r;
    int bad = !top || json_reader_top(&r, path, top, "tasuki-lock", 1, err) < 0 ||
              read_text(&r, "host", o->host, sizeof(o->host), err) < 0 ||
              read_text(&r, "boot", o->boot, sizeof(o->boot), err) < 0 ||
              json_get_int(&r, "pid", 0, INT64_MAX, NULL, &o->pid, err) < 0 ||
              json_get_int(&r, "started", -1, INT64_MAX, NULL, &o->started, err) < 0 ||
              json_get_int(&r, "space", 0, INT64_MAX, NULL, &o->space, err) < 0 ||
              read_text(&r, "cluster", o->cluster, sizeof(o->cluster), err) < 0 ||
              read_text(&r, "job", o->job, sizeof(o->job), err) < 0 ||
              read_text(&r, "array_job", o->array_job, sizeof(o->array_job), err) < 0 ||
              read_text(&r, "array_task", o->array_task, sizeof(o->array_task), err) < 0 ||
              read_text(&r, "restart", o->restart, sizeof(o->restart), err) < 0 ||
              read_text(&r, "launcher", o->launcher, sizeof(o->launcher), err) < 0 ||
              read_text(&r, "since", o->since, sizeof(o->since), err) < 0 ||
              json_reader_end(&r, err) < 0;

    json_decref(top);
    return bad ? -1 : 0;
}

/* Our file under a name of its own; '*now' is the file system's time. */
static int write_own(const char *own, const struct lock_owner *self, time_t *now,
                     struct err *err)
{
    char *text = owner_text(self);
    int fd = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600), bad;
    struct stat st;

    bad = fd < 0 ? err_set(err, "%s: %s", own, strerror(errno))
                 : file_write_all(fd, own, text, strlen(text), err);
    free(text);
    if (fd >= 0 && !bad && (fsync(fd) < 0 || fstat(fd, &st) < 0))
        bad = err_set(err, "%s: %s", own, strerror(errno));
    if (!bad)
        *now = st.st_mtim.tv_sec;
    if (fd >= 0)
        close(fd);
    /* What is open for writing keeps a file system from becoming read-only. */
    fd = bad ? -1 : open(own, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (!bad && fd < 0)
        err_set(err, "%s: %s", own, strerror(errno));
    if (fd < 0)
        unlink(own);
    return fd;
}

/* Where a file system has no links the name itself is made once only. */
static int put(const char *own, const char *path)
{
    if (link(own, path) == 0)
        return 0;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK)
        return -1;
    return renameat2(AT_FDCWD, own, AT_FDCWD, path, RENAME_NOREPLACE);
}

/* Out of the way, unless it is no longer the file that was judged. */
static void take_away(const char *path, const char *aside, const struct stat *judged)
{
    struct stat st;

    if (rename(path, aside) < 0)
        return;
    if (stat(aside, &st) == 0 && (st.st_ino != judged->st_ino || st.st_dev != judged->st_dev))
        (void)!link(aside, path);
    unlink(aside);
}

static enum lock_process look_for(const struct lock_owner *holder)
{
    int64_t start = started(holder->pid);

    if (start >= 0 && holder->started >= 0)
        return start == holder->started ? LOCK_LIVES : LOCK_GONE;
    /* 0 and less are groups of processes. */
    if (holder->pid < 1 || holder->pid > INT_MAX)
        return LOCK_GONE;
    return kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH ? LOCK_GONE : LOCK_HIDDEN;
}

/* A step that ends may outlive the start of the next one of its job by a little. */
static enum lock_process wait_for(const struct lock_owner *holder, const struct lock_owner *self)
{
    const struct timespec moment = { .tv_nsec = 100000000 };
    enum lock_process process = look_for(holder);

    if (!same_job(holder, self) || strcmp(holder->host, self->host) != 0)
        return process;
    for (int i = 1; i < LEAVING * 10 && process != LOCK_GONE; i++) {
        nanosleep(&moment, NULL);
        process = look_for(holder);
    }
    return process;
}

/* One of this job that is not seen, on another host, is given time for a sign of life. Its age by
 * then; 0 where there was one.
 */
static double wait_for_sign(const char *path, const struct lock_owner *holder,
                            const struct lock_owner *self, const struct stat *judged, double age)
{
    const struct timespec second = { .tv_sec = 1 };

    if (!same_job(holder, self) || is_here(holder, self) || same_launcher(holder, self) ||
        strcmp(holder->restart, self->restart) != 0)
        return age;
    for (; age <= QUIET; age++) {
        struct stat st;

        if (stat(path, &st) < 0 || st.st_mtim.tv_sec != judged->st_mtim.tv_sec ||
            st.st_ino != judged->st_ino)
            return 0;
        nanosleep(&second, NULL);
    }
    return age;
}

/* Does Slurm say so of the holder's job, another one of this cluster? Slurm may hide the jobs of
 * other users (PrivateData): that it knows of none says something of the own ones only.
 */
static bool job_is_over(const struct lock_owner *holder, const struct lock_owner *self, int asker,
                        const struct stat *st)
{
    enum other_job fate;

    if (!holder->job[0] || !holder->cluster[0] || strcmp(holder->cluster, self->cluster) != 0 ||
        same_job(holder, self))
        return false;
    fate = step_facts_other_job(asker, holder->job);
    return fate == OTHER_JOB_OVER || (fate == OTHER_JOB_UNKNOWN && st->st_uid == geteuid());
}

static const char *weigh(const struct lock_owner *holder, const struct lock_owner *self, double age,
                         int asker, const struct stat *st)
{
    enum lock_process process = wait_for(holder, self);
    const char *why = lock_stale(holder, self, process, age);

    if (why || (process == LOCK_LIVES && is_here(holder, self)))
        return why;
    return job_is_over(holder, self, asker, st) ? "its job is over, as Slurm says" : NULL;
}

/* Whose it is: another run's, which is an error, or nobody's, which then is noted. */
static int judge(const char *path, const char *directory, const struct lock_owner *self,
                 int asker, time_t now, const struct stat *st, char **note, struct err *err)
{
    struct lock_owner holder = { 0 };
    double age = difftime(now, st->st_mtim.tv_sec);
    struct err unread = { 0 };
    const char *why;
    char *who;

    if (read_owner(path, &holder, &unread) < 0) {
        if (access(path, F_OK) < 0)     /* released just now */
            return 0;
        if (age <= STALE)
            return err_set(err, "%s; if no run writes there, remove it", unread.text);
        free(*note);
        *note = mem_printf("%s: cannot be read and is old: taken over", path);
        return 0;
    }
    age = wait_for_sign(path, &holder, self, st, age);
    if (access(path, F_OK) < 0)         /* released while it was waited for */
        return 0;
    why = weigh(&holder, self, age, asker, st);
    who = describe(&holder);
    if (why) {
        free(*note);
        *note = mem_printf("%s: was of %s: %s: taken over", path, who, why);
    } else {
        err_set(err, "%s: another run writes checkpoints here: %s; if it is no more, remove %s",
                directory, who, path);
    }
    free(who);
    return why ? 0 : -1;
}

static int take(const char *directory, const char *path, const char *own,
                const struct lock_owner *self, int asker, time_t now, char **note,
                struct err *err)
{
    char *aside = mem_printf("%s.old", own);
    int bad = -1;

    for (int i = 0; i < TRIES; i++) {
        struct stat st;

        bad = put(own, path);
        if (bad == 0)
            break;
        if (errno != EEXIST) {
            err_set(err, "%s: %s", path, strerror(errno));
            break;
        }
        if (lstat(path, &st) < 0)       /* released just now */
            continue;
        bad = judge(path, directory, self, asker, now, &st, note, err);
        if (bad)
            break;
        take_away(path, aside, &st);
        bad = -1;
        err_set(err, "%s: another run takes it at the same time", path);
    }
    free(aside);
    return bad;
}

/* Signs of life ----------------------------------------------------------------------- */

static void *touch(void *argument)
{
    struct checkpoint_lock *lock = argument;

    pthread_mutex_lock(&lock->mutex);
    while (!lock->ends) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += TOUCHED;
        pthread_cond_timedwait(&lock->wake, &lock->mutex, &until);
        if (!lock->ends) {
            pthread_mutex_unlock(&lock->mutex);
            (void)futimens(lock->fd, NULL);
            pthread_mutex_lock(&lock->mutex);
        }
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

static int start(struct checkpoint_lock *lock, struct err *err)
{
    sigset_t all, before;
    int bad;

    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bad = pthread_create(&lock->thread, NULL, touch, lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!bad)
        return 0;
    pthread_cond_destroy(&lock->wake);
    pthread_mutex_destroy(&lock->mutex);
    return err_set(err, "%s: a thread cannot be started: %s", lock->path, strerror(bad));
}

struct checkpoint_lock *checkpoint_lock(const char *directory, const struct lock_owner *self,
                                        int asker, char **note, struct err *err)
{
    struct checkpoint_lock *lock = mem_new(1, sizeof(*lock));
    char *own = mem_printf("%s/.lock.%s.%lld", directory, self->host, (long long)self->pid);
    struct err unset = { 0 };
    time_t now = 0;
    int bad;

    *note = NULL;
    lock->path = mem_printf("%s/lock", directory);
    unlink(own);        /* of a process of the same number, long ago */
    lock->fd = write_own(own, self, &now, err);
    bad = lock->fd < 0;
    if (!bad) {
        bad = take(directory, lock->path, own, self, asker, now, note, &unset);
        unlink(own);
        if (bad)
            *err = unset;
        else if ((bad = start(lock, err)))
            unlink(lock->path);
    }
    free(own);
    if (!bad)
        return lock;
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock->path);
    free(lock);
    free(*note);
    *note = NULL;
    return NULL;
}

int checkpoint_lock_check(const struct checkpoint_lock *lock, struct err *err)
{
    struct stat ours, there;

    if (fstat(lock->fd, &ours) == 0 && stat(lock->path, &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
        return 0;
    return err_set(err, "%s: is no longer of this run: another one took it over, or it was "
                   "removed", lock->path);
}

void checkpoint_unlock(struct checkpoint_lock *lock)
{
    struct err ignored = { 0 };

    if (!lock)
        return;
    pthread_mutex_lock(&lock->mutex);
    lock->ends = true;
    pthread_cond_signal(&lock->wake);
    pthread_mutex_unlock(&lock->mutex);
    pthread_join(lock->thread, NULL);
    if (checkpoint_lock_check(lock, &ignored) == 0)
        unlink(lock->path);
    pthread_cond_destroy(&lock->wake);
    pthread_mutex_destroy(&lock->mutex);
    close(lock->fd);
    free(lock->path);
    free(lock);
}
