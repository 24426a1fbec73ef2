/* SPDX-License-Identifier: MIT */
/* Restarts that brought no new checkpoint: counted over the steps of a job, and over its
 * allocations by a file beside the checkpoints, so that a crash loop has an end, and a run that
 * gets on has none.
 */
#include "config.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"

#define SCHEMA "tasuki-restarts"

/* How often Slurm has started the job again. */
static int starts_before(void)
{
    const char *count = getenv("SLURM_RESTART_COUNT");

    return count ? atoi(count) : 0;
}

/* Marks -------------------------------------------------------------------------------- */

struct launcher_mark launcher_newest(const struct launcher *l)
{
    char *path = mem_printf("%s/latest", l->checkpoint);
    struct launcher_mark mark = { 0 };
    struct stat status;

    if (stat(path, &status) == 0)
        mark = (struct launcher_mark){ (int64_t)status.st_ino, (int64_t)status.st_mtim.tv_sec,
                                       (int64_t)status.st_mtim.tv_nsec };
    free(path);
    return mark;
}

bool launcher_same_mark(const struct launcher_mark *a, const struct launcher_mark *b)
{
    return a->inode == b->inode && a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

/* The file ----------------------------------------------------------------------------- */

static char *path_of(const struct launcher *l)
{
    return mem_printf("%s/.restarts", l->checkpoint);
}

/* Whose it is: a job that was cut off from Slurm has a second launcher, elsewhere, and by hand
 * another job may be started on the same directory.
 */
enum whose { NOBODYS, OF_OTHER_JOB, OF_THIS_JOB, OF_THIS_LAUNCHER };

/* What it says is read where it is this job's. */
static enum whose read_file(const struct launcher *l, struct launcher_tries *tries)
{
    const int64_t no_number = 0;
    struct launcher_mark *first = &tries->first, *mark = &tries->last;
    struct err ignored = { 0 };
    char *path = path_of(l);
    json_t *json = access(path, F_OK) == 0 ? json_load(path, &ignored) : NULL;
    struct json_reader r;
    const char *job = "", *launcher = "";
    enum whose whose = NOBODYS;
    bool is_whole = json && json_reader_top(&r, path, json, SCHEMA, 1, &ignored) == 0 &&
                   json_get_string(&r, "job", true, NULL, &job, &ignored) == 0 &&
                   json_get_string(&r, "launcher", false, "", &launcher, &ignored) == 0 &&
                   json_get_int(&r, "inode", INT64_MIN, INT64_MAX, NULL, &mark->inode,
                                &ignored) == 0 &&
                   json_get_int(&r, "seconds", INT64_MIN, INT64_MAX, NULL, &mark->seconds,
                                &ignored) == 0 &&
                   json_get_int(&r, "nanoseconds", 0, 999999999, NULL, &mark->nanoseconds,
                                &ignored) == 0 &&
                   json_get_int(&r, "restart", 0, INT64_MAX, &tries->restart, &tries->restart,
                                &ignored) == 0 &&
                   json_get_int(&r, "vain", -1, 1 << 20, NULL, &tries->vain, &ignored) == 0 &&
                   json_get_int(&r, "first_inode", INT64_MIN, INT64_MAX, &no_number, &first->inode,
                                &ignored) == 0 &&
                   json_get_int(&r, "first_seconds", INT64_MIN, INT64_MAX, &no_number,
                                &first->seconds, &ignored) == 0 &&
                   json_get_int(&r, "first_nanoseconds", 0, 999999999, &no_number,
                                &first->nanoseconds, &ignored) == 0;

    if (is_whole)
        whose = strcmp(job, l->job) != 0         ? OF_OTHER_JOB
                : strcmp(launcher, l->tag) != 0 ? OF_THIS_JOB
                                                : OF_THIS_LAUNCHER;
    json_decref(json);
    free(path);
    return whose;
}

static enum whose whose_file(const struct launcher *l)
{
    struct launcher_tries tries = { 0 };

    return read_file(l, &tries);
}

/* Without it the next allocation counts from 0. */
static void write_file(const struct launcher *l, const struct launcher_tries *tries)
{
    const struct launcher_mark *mark = &tries->last, *first = &tries->first;
    struct err err = { 0 };
    char *path = path_of(l), *text;
    json_t *json = json_pack("{s:s, s:i, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema",
                             SCHEMA, "version", 1, "job", l->job, "launcher", l->tag, "restart",
                             starts_before(), "inode", (json_int_t)mark->inode, "seconds", (json_int_t)mark->seconds,
                             "nanoseconds", (json_int_t)mark->nanoseconds, "vain",
                             (json_int_t)tries->vain, "first_inode", (json_int_t)first->inode,
                             "first_seconds", (json_int_t)first->seconds, "first_nanoseconds",
                             (json_int_t)first->nanoseconds);

    text = json_dumps(json, JSON_INDENT(2));
    if (text && file_replace_private(path, text, strlen(text), &err) < 0)
        log_debug("%s", err.text);
    free(text);
    json_decref(json);
    free(path);
}

/* Not one that another launcher has written since. */
static void keep_file(const struct launcher *l, const struct launcher_tries *tries)
{
    enum whose whose = whose_file(l);

    if (whose == NOBODYS || whose == OF_THIS_LAUNCHER)
        write_file(l, tries);
}

static void forget_file(const struct launcher *l)
{
    char *path = path_of(l);

    if (whose_file(l) == OF_THIS_LAUNCHER)
        unlink(path);
    free(path);
}

/* Of a run that may be there now, of another launcher of this job, too. Where that is long dead, this
 * job's own count begins with its next allocation.
 */
static bool is_in_use(const struct launcher *l, enum whose whose, const struct launcher_tries *before)
{
    char *lock = mem_printf("%s/lock", l->checkpoint);
    bool others = whose == OF_OTHER_JOB && starts_before() == 0;
    bool beside = whose == OF_THIS_JOB && before->restart == starts_before();
    bool in_use = (others || beside) && access(lock, F_OK) == 0;

    free(lock);
    return in_use;
}

/* Counting ----------------------------------------------------------------------------- */

static int give_up(const struct launcher *l, int64_t vain, struct err *err)
{
    char *what = mem_printf("giving up: %" PRId64 " restarts brought no new checkpoint "
                            "(--max-restarts)", vain);

    if (l->checkpoint)
        forget_file(l);
    if (err->text[0])
        err_hint(err, "%s", what);
    else
        err_set(err, "job %s: %s", l->job, what);
    err->code = EXIT_FAILED;
    free(what);
    return -1;
}

int launcher_begin_tries(struct launcher *l, struct err *err)
{
    struct launcher_tries *tries = &l->tries;
    struct launcher_tries before = { .restart = -1 };
    enum whose whose;
    bool again;

    if (option_int(l->options, "max-restarts", 0, 1 << 20, 3, &tries->most, err) < 0)
        return -1;
    if (!l->checkpoint)
        return 0;
    if (file_check_link(l->checkpoint, err) < 0)
        return -1;
    file_mkdirs(l->checkpoint);
    tries->first = tries->last = launcher_newest(l);
    whose = read_file(l, &before);
    again = starts_before() > 0;
    if (again && whose >= OF_THIS_JOB) {
        tries->first = before.first;
        if (launcher_same_mark(&before.last, &tries->last))
            tries->vain = before.vain + 1;
    }
    /* Of a job that was started again what an earlier start of it wrote, as far as is known. */
    tries->resume = again && (whose < OF_THIS_JOB ||
                              !launcher_same_mark(&tries->first, &tries->last));
    if (!is_in_use(l, whose, &before))
        write_file(l, tries);
    return tries->vain > tries->most ? give_up(l, tries->vain - 1, err) : 0;
}

int launcher_try_again(struct launcher *l, struct err *err)
{
    struct launcher_tries *tries = &l->tries;
    struct launcher_mark mark = launcher_newest(l);

    if (!launcher_same_mark(&mark, &tries->last))
        tries->vain = 0;
    tries->last = mark;
    if (tries->vain >= tries->most)
        return give_up(l, tries->vain, err);
    tries->vain++;
    /* An older run's checkpoints are not this one's, unless it was told so. */
    tries->resume = tries->resume || !launcher_same_mark(&mark, &tries->first);
    keep_file(l, tries);
    return 0;
}

/* What Slurm takes away by SIGTERM, before there is a checkpoint, is no failure of the run. */
int launcher_end_tries(struct launcher *l, int code, struct err *err)
{
    struct launcher_tries *tries = &l->tries;
    struct launcher_mark mark;

    /* Nobody knows of earlier allocations but Slurm. */
    if (!l->checkpoint && code == EXIT_REQUEUE && !l->told && starts_before() >= tries->most)
        return give_up(l, starts_before(), err) < 0 ? (int)err->code : code;
    if (!l->checkpoint || l->replaced)
        return code;
    mark = launcher_newest(l);
    if (code == EXIT_REQUEUE && launcher_same_mark(&mark, &tries->last)) {
        if (l->told == SIGTERM && !l->noticed)
            tries->vain--;
        else if (tries->vain >= tries->most && give_up(l, tries->vain, err) < 0)
            return (int)err->code;
        keep_file(l, tries);
    } else if (code != EXIT_REQUEUE) {
        forget_file(l);
    }
    return code;
}

bool launcher_may_start_again(struct launcher *l)
{
    struct launcher_tries *tries = &l->tries;
    struct launcher_mark mark;

    if (!l->checkpoint)
        return starts_before() < tries->most;
    mark = launcher_newest(l);
    if (!launcher_same_mark(&mark, &tries->last))
        return true;
    tries->vain++;              /* launcher_end_tries() took it for Slurm's */
    if (tries->vain >= tries->most)
        return false;
    keep_file(l, tries);
    return true;
}
