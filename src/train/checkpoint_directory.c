/* SPDX-License-Identifier: MIT */
#include "train/checkpoint_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/checkpoint.h"

static int sync_directory(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad;

    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    /* Some file systems cannot sync a directory, and then need not. */
    bad = fsync(fd) < 0 && errno != EINVAL;
    if (bad)
        err_set(err, "%s: %s", path, strerror(errno));
    close(fd);
    return bad ? -1 : 0;
}

int checkpoint_start(const char *directory, const char *temporary, struct err *err)
{
    if (file_mkdir(directory, err) < 0 || file_check_link(directory, err) < 0)
        return -1;
    file_remove_directory(temporary);
    if (mkdir(temporary, 0777) < 0)
        return err_set(err, "%s: %s", temporary, strerror(errno));
    return 0;
}

static bool is_link(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 && S_ISLNK(status.st_mode);
}

/* How a new directory took the place of an older one of the same step. */
enum moved { MOVED_NOT, MOVED_IN, MOVED_EXCHANGED, MOVED_ASIDE };

/* An older directory of the same step (of a run that was resumed from before) gives way: at
 * once, since "latest" may name it; in two moves where the file system cannot exchange names.
 */
static enum moved move_in(const char *temporary, const char *final, const char *old,
                          struct err *err)
{
    if (rename(temporary, final) == 0)
        return MOVED_IN;
    /* Where nothing is in the way, 'old' may be the only one of the step. */
    if (errno != EEXIST && errno != ENOTEMPTY && !(errno == ENOTDIR && is_link(final))) {
        err_set(err, "%s: %s", final, strerror(errno));
        return MOVED_NOT;
    }
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return MOVED_EXCHANGED;
    file_remove_directory(old);
    if (rename(final, old) == 0 && rename(temporary, final) == 0)
        return MOVED_ASIDE;
    err_set(err, "%s: %s", final, strerror(errno));
    (void)rename(old, final);
    return MOVED_NOT;
}

/* As it was before: what is new is at 'temporary' again. */
static void move_back(const char *temporary, const char *final, const char *old,
                      enum moved moved)
{
    if (moved == MOVED_EXCHANGED)
        (void)renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE);
    else if (moved != MOVED_NOT)
        (void)rename(final, temporary);
    if (moved == MOVED_ASIDE)
        (void)rename(old, final);
}

/* The number of "step-00000020" between 'before' and 'after'; -1: it is something else. */
static int64_t step_of(const char *name, const char *before, const char *after)
{
    size_t head = strlen(before), digits;

    if (strncmp(name, before, head) != 0 || strncmp(name + head, "step-", 5) != 0)
        return -1;
    digits = strspn(name + head + 5, "0123456789");
    if (digits == 0 || digits > 18 || strcmp(name + head + 5 + digits, after) != 0)
        return -1;
    return strtoll(name + head + 5, NULL, 10);
}

/* Steps in the directory, in no order; '*steps' is malloc'ed. */
static int list_steps(const char *directory, int64_t **steps)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    int n = 0;

    *steps = NULL;
    while (dir && (entry = readdir(dir))) {
        int64_t step = step_of(entry->d_name, "", "");

        if (step >= 0)
            *(int64_t *)mem_push((void **)steps, &n, sizeof(**steps)) = step;
    }
    if (dir)
        closedir(dir);
    return n;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x > y ? -1 : x < y;
}

/* First under another name: what is left of it where the run is killed now is none any more. */
static void remove_step(const char *directory, int64_t step)
{
    char *path = mem_printf("%s/step-%08lld", directory, (long long)step);
    char *gone = mem_printf("%s/.step-%08lld.tmp", directory, (long long)step);

    file_remove_directory(gone);
    file_remove_directory(rename(path, gone) == 0 ? gone : path);
    free(path);
    free(gone);
}

/* Steps after 'step' are of a run that went another way: they are its user's. */
static void remove_older(const char *directory, int64_t step, int keep)
{
    int64_t *steps;
    int n = list_steps(directory, &steps), seen = 0;

    if (n > 0)
        qsort(steps, (size_t)n, sizeof(*steps), newest_first);
    for (int i = 0; i < n; i++) {
        if (steps[i] > step && keep != CHECKPOINT_KEEP_ONLY)
            continue;
        if (keep == CHECKPOINT_KEEP_ONLY ? steps[i] != step : ++seen > keep)
            remove_step(directory, steps[i]);
    }
    free(steps);
}

/* What runs that were killed in the midst of a checkpoint left behind. */
static void remove_leftovers(const char *directory)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *path;

        if (step_of(entry->d_name, ".", ".tmp") < 0 && step_of(entry->d_name, "", ".old") < 0)
            continue;
        path = mem_printf("%s/%s", directory, entry->d_name);
        file_remove_directory(path);
        free(path);
    }
    if (dir)
        closedir(dir);
}

static int write_latest(const char *directory, const char *name, struct err *err)
{
    char *latest = mem_printf("%s/latest", directory), *line = mem_printf("%s\n", name);
    int bad = file_replace(latest, line, strlen(line), err);

    free(latest);
    free(line);
    return bad;
}

int checkpoint_finish(const char *directory, const char *temporary, const char *name,
                      int keep, struct err *err)
{
    char *final = mem_printf("%s/%s", directory, name), *old = mem_printf("%s.old", final);
    enum moved moved = MOVED_NOT;
    int bad = sync_directory(temporary, err);

    if (!bad)
        moved = move_in(temporary, final, old, err);
    bad = moved == MOVED_NOT || sync_directory(directory, err) < 0 ||
          write_latest(directory, name, err) < 0;
    if (bad) {
        move_back(temporary, final, old, moved);
    } else {
        remove_leftovers(directory);
        if (keep != CHECKPOINT_KEEP_ALL)
            remove_older(directory, step_of(name, "", ""), keep);
    }
    free(final);
    free(old);
    return bad ? -1 : 0;
}

/* Between the two moves of a replacement the step has only its other name. */
static char *existing(const char *directory, int length, const char *name)
{
    char *path = mem_printf("%s/%.*s", directory, length, name);
    char *old = mem_printf("%s.old", path);
    struct stat st;
    bool aside = stat(path, &st) < 0 && errno == ENOENT && stat(old, &st) == 0;

    free(aside ? path : old);
    return aside ? old : path;
}

bool checkpoint_is_aside(const char *path)
{
    const char *slash = strrchr(path, '/');

    return step_of(slash ? slash + 1 : path, "", ".old") >= 0;
}

int checkpoint_latest(const char *directory, char **path, struct err *err)
{
    char *latest = mem_printf("%s/latest", directory);
    struct file_map map;
    struct stat st;
    int bad = 0;

    *path = NULL;
    if (stat(latest, &st) == 0) {
        bad = file_map_open(latest, &map, err);
        if (!bad) {
            int length = (int)strnlen((const char *)map.data, map.size < 256 ? map.size : 256);

            while (length > 0 && map.data[length - 1] == '\n')
                length--;
            if (length == 0 || memchr(map.data, '/', (size_t)length))
                bad = err_set(err, "%s: expected the name of a checkpoint", latest);
            else
                *path = existing(directory, length, (const char *)map.data);
            file_map_close(&map);
        }
    } else if (errno != ENOENT && errno != ENOTDIR) {
        bad = err_set(err, "%s: %s", latest, strerror(errno));
    } else {
        *path = checkpoint_before(directory, "");
    }
    free(latest);
    return bad;
}

bool checkpoint_names_latest(const char *directory)
{
    char *latest = mem_printf("%s/latest", directory);
    bool there = access(latest, F_OK) == 0;

    free(latest);
    return there;
}

char *checkpoint_before(const char *directory, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int64_t *steps, before = step_of(name, "", ""), best = -1;
    int n = list_steps(directory, &steps);

    if (before < 0)
        before = step_of(name, "", ".old");
    if (before < 0)             /* "latest" names no step at all */
        before = INT64_MAX;
    for (int i = 0; i < n; i++)
        if (steps[i] < before && steps[i] > best)
            best = steps[i];
    free(steps);
    return best < 0 ? NULL : mem_printf("%s/step-%08lld", directory, (long long)best);
}

int checkpoint_count_steps(const char *directory, int64_t last)
{
    int64_t *steps;
    int n = list_steps(directory, &steps), count = 0;

    for (int i = 0; i < n; i++)
        count += steps[i] <= last;
    free(steps);
    return count;
}

void checkpoint_state_hash(const json_t *state, char hex[17])
{
    json_t *copy = json_copy((json_t *)state);
    char *text;

    json_object_del(copy, "xxh3");
    text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    hex[0] = '\0';
    if (text)
        file_hash(text, strlen(text), hex);
    free(text);
    json_decref(copy);
}
