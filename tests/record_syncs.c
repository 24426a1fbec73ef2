/* SPDX-License-Identifier: MIT */
/* Preloaded, it tells in which order a program writes, syncs and renames, in lines of the file
 * $TASUKI_SYNCS:
 *
 *     write PATH              before
 *     fsync PATH              a file or a folder, once it has succeeded
 *     rename FROM TO          before
 *
 * Of those in the folder $TASUKI_SYNCS_OF alone, an absolute path.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line at a time, which no other thread cuts in two. */
static void tell(const char *format, ...)
{
    const char *path = getenv("TASUKI_SYNCS");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    char line[2 * PATH_MAX + 64];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (fd < 0 || REAL(write)(fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

static bool is_inside(const char *path)
{
    const char *folder = getenv("TASUKI_SYNCS_OF");

    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static void tell_of(const char *what, int fd)
{
    char link[64], path[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    if (is_inside(path))
        tell("%s %s\n", what, path);
}

ssize_t write(int fd, const void *data, size_t size)
{
    tell_of("write", fd);
    return REAL(write)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    tell_of("write", fd);
    return REAL(pwrite)(fd, data, size, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    tell_of("write", fd);
    return REAL(writev)(fd, parts, n);
}

int fsync(int fd)
{
    int result = REAL(fsync)(fd);

    if (result == 0)
        tell_of("fsync", fd);
    return result;
}

int fdatasync(int fd)
{
    int result = REAL(fdatasync)(fd);

    if (result == 0)
        tell_of("fsync", fd);
    return result;
}

int rename(const char *from, const char *to)
{
    if (is_inside(to))
        tell("rename %s %s\n", from, to);
    return REAL(rename)(from, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
    if (is_inside(to))
        tell("rename %s %s\n", from, to);
    return REAL(renameat2)(from_fd, from, to_fd, to, flags);
}
