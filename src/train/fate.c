/* SPDX-License-Identifier: MIT */
#include "train/fate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "comm/comm.h"

#define FATE_BYTES 1024     /* of one: about so many */
#define STEP "step"         /* the file with the number of the step */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int fate_make(const char *directory, struct err *err)
{
    struct stat st;

    fate_forget(directory);
    if (mkdir(directory, 0700) == 0)
        return 0;
    if (errno != EEXIST || lstat(directory, &st) < 0)
        return err_set(err, "%s: %s", directory, strerror(errno));
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
        return 0;
    return err_set(err, "%s: is no directory of this user alone; remove it", directory);
}

/* Complete or not at all, and through no link that somebody may have put there. */
static void leave(const char *directory, const char *name, const char *text)
{
    DIR *folder = file_opendir(directory);
    char *own = mem_printf(".%s", name);
    struct err ignored = { 0 };
    int fd = -1, bad;

    if (folder) {
        unlinkat(dirfd(folder), own, 0);
        fd = openat(dirfd(folder), own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd >= 0) {
        bad = file_write_all(fd, own, text, strlen(text), &ignored) < 0 || fsync(fd) < 0;
        bad = close(fd) < 0 || bad;
        if (bad || renameat(dirfd(folder), own, dirfd(folder), name) < 0)
            unlinkat(dirfd(folder), own, 0);
    }
    if (folder)
        closedir(folder);
    free(own);
}

/* Takes what 'json' has. */
static void leave_json(const char *name, json_t *json)
{
    char *line = json_dumps(json, JSON_COMPACT);

    if (line)
        leave(getenv("TASUKI_FATE"), name, line);
    json_decref(json);
    free(line);
}

static bool is_asked(void)
{
    const char *directory = getenv("TASUKI_FATE");

    return directory && *directory;
}

void fate_begin(void)
{
    const char *step = getenv("SLURM_STEP_ID");

    if (is_asked() && step)
        leave_json(STEP, json_pack("{s:s}", "step", step));
}

char *fate_step(const char *directory)
{
    char *path = mem_printf("%s/" STEP, directory), *step = NULL;
    struct err ignored = { 0 };
    json_t *json = json_load(path, &ignored);
    const char *text;

    if (json_unpack(json, "{s:s}", "step", &text) == 0)
        step = mem_strdup(text);
    json_decref(json);
    free(path);
    return step;
}

void fate_tell(const struct comm *comm, int code, bool agreed, double kwh, const char *text)
{
    const char *step = getenv("SLURM_STEP_ID");
    int rank = comm_rank(comm);
    json_t *json;
    char *name;

    if (!is_asked())
        return;
    json = json_pack("{s:i, s:i, s:b, s:f, s:s, s:s, s:s, s:o*}", "rank", rank, "code", code,
                     "agreed", (int)agreed, "time", now(), "host", comm_host(comm, rank),
                     "text", json_is_text(text) ? text : "not UTF-8", "step", step ? step : "",
                     "kwh", isfinite(kwh) ? json_real(kwh) : NULL);
    name = mem_printf("%d.json", rank);
    leave_json(name, json);
    free(name);
}

int fate_check(const char *directory, struct err *err)
{
    static const char text[FATE_BYTES];
    char *name = mem_printf("%s/.room", directory);
    int fd, number = 0;
    ssize_t n = 0;

    unlink(name);
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        n = write(fd, text, sizeof(text));
    if (fd < 0 || n < 0 || fsync(fd) < 0)
        number = errno;
    else if ((size_t)n < sizeof(text))
        number = ENOSPC;
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    free(name);
    if (number == ENOSPC || number == EDQUOT || number == EROFS)
        return err_set(err, "%s: %s", directory, strerror(number));
    return 0;
}

static bool is_fate(DIR *folder, const char *name)
{
    size_t length = strlen(name);
    struct stat st;

    return name[0] != '.' && length > 5 && strcmp(name + length - 5, ".json") == 0 &&
           fstatat(dirfd(folder), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static int read_one(const char *path, struct fate *fate)
{
    struct err ignored = { 0 };
    json_t *json = json_load(path, &ignored);
    const char *host, *text, *step;
    int agreed, bad;

    *fate = (struct fate){ .kwh = NAN };
    bad = json_unpack(json, "{s:i, s:i, s:b, s:f, s:s, s:s, s:s, s?f}", "rank", &fate->rank, "code",
                      &fate->code, "agreed", &agreed, "time", &fate->time, "host", &host,
                      "text", &text, "step", &step, "kwh", &fate->kwh);
    if (!bad) {
        fate->agreed = agreed;
        fate->host = mem_strdup(host);
        fate->text = mem_strdup(text);
        fate->step = mem_strdup(step);
    }
    json_decref(json);
    return bad;
}

static int by_time(const void *a, const void *b)
{
    const struct fate *f = a, *g = b;

    if ((f->code == EXIT_OK) != (g->code == EXIT_OK))
        return f->code == EXIT_OK ? 1 : -1;
    return (f->time > g->time) - (f->time < g->time);
}

int fate_read(const char *directory, struct fate **fates)
{
    DIR *folder = file_opendir(directory);
    int n = 0;

    *fates = NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *path = mem_printf("%s/%s", directory, entry->d_name);
        struct fate fate;

        if (is_fate(folder, entry->d_name) && read_one(path, &fate) == 0)
            *(struct fate *)mem_push((void **)fates, &n, sizeof(fate)) = fate;
        free(path);
    }
    if (folder)
        closedir(folder);
    if (n > 1)
        qsort(*fates, (size_t)n, sizeof(**fates), by_time);
    return n;
}

void fate_free(int n, struct fate *fates)
{
    for (int i = 0; i < n; i++) {
        free(fates[i].host);
        free(fates[i].text);
        free(fates[i].step);
    }
    free(fates);
}

void fate_forget(const char *directory)
{
    file_remove_directory(directory);
}

void fate_forget_old(const char *folder, const char *name, time_t since)
{
    DIR *parent = opendir(folder);
    struct stat st;

    for (struct dirent *entry; parent && (entry = readdir(parent));)
        if (strncmp(entry->d_name, name, strlen(name)) == 0 &&
            fstatat(dirfd(parent), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < since) {
            char *path = mem_printf("%s/%s", folder, entry->d_name);

            fate_forget(path);
            free(path);
        }
    if (parent)
        closedir(parent);
}
