/* SPDX-License-Identifier: MIT */
/* Preloaded, it tells which files a program reads, and how much of them, in lines of the file
 * $TASUKI_READS, to which several processes may write:
 *
 *     open PATH               for reading
 *     bytes N PATH            by read() or pread(), or by a mapping, which counts as a whole
 *
 * Of those in the folder $TASUKI_READS_OF alone.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_FILES 4096

static bool counted[MOST_FILES];

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A line at a time, which no other process cuts in two. */
static void tell(const char *format, ...)
{
    const char *path = getenv("TASUKI_READS");
    int fd = path ? REAL(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    char line[PATH_MAX + 64];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

static const char *path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = '\0';
    return path;
}

static int opened(int fd, int flags)
{
    const char *folder = getenv("TASUKI_READS_OF");
    char path[PATH_MAX];

    if (fd < 0 || fd >= MOST_FILES)
        return fd;
    counted[fd] = folder && (flags & O_ACCMODE) != O_WRONLY && !(flags & O_DIRECTORY) &&
                  strncmp(path_of(fd, path), folder, strlen(folder)) == 0;
    if (counted[fd])
        tell("open %s\n", path);
    return fd;
}

static void got(int fd, ssize_t bytes)
{
    char path[PATH_MAX];

    if (fd >= 0 && fd < MOST_FILES && counted[fd] && bytes > 0)
        tell("bytes %zd %s\n", bytes, path_of(fd, path));
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPEN(name)                                        \
    int name(const char *path, int flags, ...)            \
    {                                                     \
        va_list args;                                     \
        mode_t mode;                                      \
                                                          \
        va_start(args, flags);                            \
        mode = mode_of(flags, args);                      \
        va_end(args);                                     \
        return opened(REAL(name)(path, flags, mode), flags); \
    }

#define OPENAT(name)                                      \
    int name(int at, const char *path, int flags, ...)    \
    {                                                     \
        va_list args;                                     \
        mode_t mode;                                      \
                                                          \
        va_start(args, flags);                            \
        mode = mode_of(flags, args);                      \
        va_end(args);                                     \
        return opened(REAL(name)(at, path, flags, mode), flags); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* What is opened so is told as it is; what is read of it then goes past read(). */
FILE *fopen(const char *path, const char *mode)
{
    FILE *file = REAL(fopen)(path, mode);

    if (file && mode[0] == 'r')
        opened(fileno(file), O_RDONLY);
    return file;
}

int close(int fd)
{
    if (fd >= 0 && fd < MOST_FILES)
        counted[fd] = false;
    return REAL(close)(fd);
}

ssize_t read(int fd, void *data, size_t size)
{
    ssize_t n = REAL(read)(fd, data, size);

    got(fd, n);
    return n;
}

ssize_t pread(int fd, void *data, size_t size, off_t at)
{
    ssize_t n = REAL(pread)(fd, data, size, at);

    got(fd, n);
    return n;
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at)
{
    ssize_t n = REAL(pread64)(fd, data, size, at);

    got(fd, n);
    return n;
}

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t at)
{
    void *data = REAL(mmap)(where, size, protection, flags, fd, at);

    if (data != MAP_FAILED && !(flags & MAP_ANONYMOUS))
        got(fd, (ssize_t)size);
    return data;
}

void *mmap64(void *where, size_t size, int protection, int flags, int fd, off64_t at)
{
    void *data = REAL(mmap64)(where, size, protection, flags, fd, at);

    if (data != MAP_FAILED && !(flags & MAP_ANONYMOUS))
        got(fd, (ssize_t)size);
    return data;
}
