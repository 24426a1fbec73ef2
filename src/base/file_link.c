/* SPDX-License-Identifier: MIT */
/* Links that another user made, anywhere on a path. */
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

#define MOST_LINKS 40       /* as the kernel */

/* On the way along a path. */
struct walk {
    int fd;                 /* of the folder that was reached */
    char *at;               /* what leads there: "" or ending in a slash */
    char *rest;             /* what is left of the path */
    int links;              /* that were followed */
};

static void start(struct walk *walk, char *rest)
{
    if (rest[0] == '/' || walk->fd < 0) {
        if (walk->fd >= 0)
            close(walk->fd);
        walk->fd = open(rest[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        free(walk->at);
        walk->at = mem_strdup(rest[0] == '/' ? "/" : "");
    }
    free(walk->rest);
    walk->rest = rest;
}

/* The next name, malloc'ed, taken off the rest; NULL: that was all. */
static char *take_name(struct walk *walk)
{
    const char *from = walk->rest + strspn(walk->rest, "/");
    size_t n = strcspn(from, "/");
    char *name = n ? mem_printf("%.*s", (int)n, from) : NULL;
    char *rest = mem_strdup(from + n);

    free(walk->rest);
    walk->rest = rest;
    return name;
}

/* As the kernel's protected_symlinks has it: followed is what this user, root or the folder's owner
 * made; but in any folder where others, of a group or all, may make links.
 */
static bool is_foreign(int folder, const struct stat *link)
{
    struct stat status;

    if (link->st_uid == 0 || link->st_uid == geteuid())
        return false;
    return fstat(folder, &status) < 0 ||
           ((status.st_mode & (S_IWOTH | S_IWGRP)) && status.st_uid != link->st_uid);
}

/* From a folder into the next. */
static void enter(struct walk *walk, const char *name, int fd)
{
    char *at = mem_printf("%s%s/", walk->at, name);

    close(walk->fd);
    free(walk->at);
    walk->fd = fd;
    walk->at = at;
}

static int refuse(const struct walk *walk, const char *path, const char *name, uid_t maker,
                  struct err *err)
{
    char *link = mem_printf("%s%s", walk->at, name);
    size_t n = strlen(link);

    /* The path itself, but for slashes behind it? */
    if (strncmp(path, link, n) == 0 && !path[n + strspn(path + n, "/")])
        err_set(err, "%s: is a link that another user made (user %u)", link, (unsigned)maker);
    else
        err_set(err, "%s: %s is a link that another user made (user %u)", path, link,
                (unsigned)maker);
    free(link);
    return -1;
}

/* As step(), of a name that leads to no folder by itself. */
static int follow(struct walk *walk, const char *path, const char *name, struct err *err)
{
    char target[PATH_MAX];
    struct stat status;
    ssize_t n;

    if (fstatat(walk->fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(status.st_mode))
        return 0;
    if (is_foreign(walk->fd, &status))
        return refuse(walk, path, name, status.st_uid, err);
    n = readlinkat(walk->fd, name, target, sizeof(target) - 1);
    if (n <= 0 || ++walk->links > MOST_LINKS)
        return 0;
    target[n] = '\0';
    start(walk, mem_printf("%s/%s", target, walk->rest));
    return walk->fd >= 0;
}

/* 1: there is more of the path, 0: it ends, or is not there; -1: a link of another user. */
static int step(struct walk *walk, const char *path, struct err *err)
{
    char *name = take_name(walk);
    int fd, result = 1;

    if (!name)
        return 0;
    /* A folder that is mounted when it is needed is mounted by this. */
    fd = openat(walk->fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        enter(walk, name, fd);
    else
        result = follow(walk, path, name, err);
    free(name);
    return result;
}

int file_check_link(const char *path, struct err *err)
{
    struct walk walk = { .fd = -1 };
    int result;

    start(&walk, mem_strdup(path));
    result = walk.fd >= 0;
    while (result > 0)
        result = step(&walk, path, err);
    if (walk.fd >= 0)
        close(walk.fd);
    free(walk.at);
    free(walk.rest);
    return result;
}
