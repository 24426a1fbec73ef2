/* SPDX-License-Identifier: MIT */
/* A directory for the copies that is the user's alone: DIR may be anybody's, such as /tmp. */
#include "train/staging_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#define PLACES 64               /* runs of one user on a node at a time */

enum attempt { TAKEN, TRY_AGAIN, NOT_OURS, FAILED };

static int open_directory(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int staging_probe(const char *parent, struct err *err)
{
    struct stat status;

    if (file_check_link(parent, err) < 0)
        return -1;
    if (stat(parent, &status) < 0 || access(parent, W_OK | X_OK) < 0)
        return err_set(err, "--stage-to: %s: %s", parent, strerror(errno));
    return S_ISDIR(status.st_mode) ? 0
                                   : err_set(err, "--stage-to: %s: not a directory", parent);
}

/* Nobody else can have put anything there. */
static bool is_private(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 && status.st_uid == geteuid() && !(status.st_mode & 077);
}

/* Who held the lock before may have removed it meanwhile. */
static bool is_there(const char *path, int fd)
{
    struct stat there, status;

    return lstat(path, &there) == 0 && fstat(fd, &status) == 0 &&
           there.st_dev == status.st_dev && there.st_ino == status.st_ino;
}

static enum attempt attempt(const char *path, int *claimed, struct err *err)
{
    int fd;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        err_set(err, "--stage-to: %s: %s", path, strerror(errno));
        return FAILED;
    }
    fd = open_directory(path);
    if (fd < 0)
        return errno == ENOENT ? TRY_AGAIN : NOT_OURS;
    if (!is_private(fd)) {
        close(fd);
        return NOT_OURS;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int why = errno;

        close(fd);
        if (why == EWOULDBLOCK)
            return NOT_OURS;
        err_set(err, "--stage-to: %s: cannot be locked: %s", path, strerror(why));
        return FAILED;
    }
    if (is_there(path, fd)) {
        *claimed = fd;
        return TAKEN;
    }
    close(fd);
    return TRY_AGAIN;
}

static void make_name(char *host)
{
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
}

int staging_claim(const char *parent, const char *host, char **path, int *fd, struct err *err)
{
    char *node = mem_strdup(host);

    make_name(node);
    for (int i = 0; i < PLACES; i++) {
        char *name = mem_printf("%s/tasuki-%ld-%s-%d", parent, (long)geteuid(), node, i);
        enum attempt result;

        do
            result = attempt(name, fd, err);
        while (result == TRY_AGAIN);
        if (result == TAKEN)
            *path = name;
        else
            free(name);
        if (result != NOT_OURS) {
            free(node);
            return result == TAKEN ? 0 : -1;
        }
    }
    err_set(err, "--stage-to: %s: %d directories tasuki-%ld-%s-* are there already, and in use or "
            "another user's", parent, PLACES, (long)geteuid(), node);
    free(node);
    return -1;
}

int staging_join(const char *path, int *fd, struct err *err)
{
    *fd = open_directory(path);
    if (*fd < 0)
        return err_set(err, "--stage-to: %s: %s", path, strerror(errno));
    return is_private(*fd) ? 0 : err_set(err, "--stage-to: %s: is another user's", path);
}

int staging_list(int fd, void (*visit)(void *context, const char *name), void *context)
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = own >= 0 ? fdopendir(own) : NULL;
    const struct dirent *entry;

    if (!directory) {
        if (own >= 0)
            close(own);
        return -1;
    }
    while ((entry = readdir(directory)))
        visit(context, entry->d_name);
    closedir(directory);
    return 0;
}
