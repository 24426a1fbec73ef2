/* SPDX-License-Identifier: MIT */
#include "base/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

#define CHUNK ((size_t)1 << 16)
#define MARK 64         /* bytes before the place that tell whether it is still the same file */

struct tail {
    char *path;
    struct tail_reader reader;
    int fd;             /* -1: there is none yet */
    int64_t place;      /* what was read of it */
    char mark[MARK];    /* the last bytes before 'place' */
    size_t marked;
    char *line;         /* begun */
    size_t length, room;
    bool too_long;      /* its rest is passed over */
    struct timespec written;
};

struct tail *tail_new(const char *path, const struct tail_reader *reader)
{
    struct tail *tail = mem_new(1, sizeof(*tail));

    tail->path = mem_strdup(path);
    tail->reader = *reader;
    tail->fd = -1;
    return tail;
}

void tail_free(struct tail *tail)
{
    if (!tail)
        return;
    if (tail->fd >= 0)
        close(tail->fd);
    free(tail->path);
    free(tail->line);
    free(tail);
}

bool tail_found(const struct tail *tail)
{
    return tail->fd >= 0;
}

double tail_age(const struct tail *tail)
{
    struct timespec now;

    if (tail->fd < 0)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(now.tv_sec - tail->written.tv_sec) +
           1e-9 * (double)(now.tv_nsec - tail->written.tv_nsec);
}

static void forget(struct tail *tail)
{
    bool had = tail->place > 0;

    tail->place = 0;
    tail->marked = tail->length = 0;
    tail->too_long = false;
    if (had)
        tail->reader.restart(tail->reader.context);
}

static void give(struct tail *tail)
{
    if (tail->too_long)
        tail->reader.line(tail->reader.context, NULL, 0);
    else
        tail->reader.line(tail->reader.context, tail->line ? tail->line : "", tail->length);
    tail->length = 0;
    tail->too_long = false;
}

static void append(struct tail *tail, const char *data, size_t n)
{
    if (tail->too_long || n == 0)
        return;
    if (n > TAIL_MOST - tail->length) {
        tail->too_long = true;
        return;
    }
    while (tail->room < tail->length + n) {
        tail->room = tail->room ? 2 * tail->room : CHUNK;
        tail->line = mem_resize(tail->line, tail->room, 1);
    }
    memcpy(tail->line + tail->length, data, n);
    tail->length += n;
}

static int take(struct tail *tail, const char *data, size_t n)
{
    int lines = 0;

    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t length = end ? (size_t)(end - data) : n;

        append(tail, data, length);
        if (!end)
            break;
        give(tail);
        lines = 1;
        data += length + 1;
        n -= length + 1;
    }
    return lines;
}

static void keep_mark(struct tail *tail, const char *data, size_t n)
{
    size_t kept = n < MARK ? MARK - n : 0;

    if (kept > tail->marked)
        kept = tail->marked;
    memmove(tail->mark, tail->mark + tail->marked - kept, kept);
    if (n > MARK - kept) {
        data += n - (MARK - kept);
        n = MARK - kept;
    }
    memcpy(tail->mark + kept, data, n);
    tail->marked = kept + n;
}

/* A file that was truncated and is as long again has other bytes where we stopped. */
static bool is_same(const struct tail *tail, const struct stat *status)
{
    char now[MARK];

    if (status->st_size < tail->place)
        return false;
    return tail->marked == 0 ||
           (pread(tail->fd, now, tail->marked, (off_t)(tail->place - (int64_t)tail->marked)) ==
                (ssize_t)tail->marked &&
            memcmp(now, tail->mark, tail->marked) == 0);
}

/* 1: open; 0: there is none. */
static int open_file(struct tail *tail, struct err *err)
{
    struct stat status;

    if (stat(tail->path, &status))
        return errno == ENOENT ? 0 : err_set(err, "%s: %s", tail->path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return err_set(err, "%s: not a file", tail->path);
    tail->fd = open(tail->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (tail->fd < 0)
        return errno == ENOENT ? 0 : err_set(err, "%s: %s", tail->path, strerror(errno));
    return 1;
}

/* Another file may have this name by now; one that was removed is read as far as it goes. */
static int follow_name(struct tail *tail, struct err *err)
{
    struct stat here, named;

    if (tail->fd < 0)
        return open_file(tail, err);
    if (fstat(tail->fd, &here))
        return err_set(err, "%s: %s", tail->path, strerror(errno));
    tail->written = here.st_mtim;
    if (stat(tail->path, &named) == 0 && S_ISREG(named.st_mode) &&
        (named.st_dev != here.st_dev || named.st_ino != here.st_ino)) {
        close(tail->fd);
        tail->fd = -1;
        forget(tail);
        return open_file(tail, err);
    }
    if (!is_same(tail, &here))
        forget(tail);
    return 1;
}

int tail_poll(struct tail *tail, struct err *err)
{
    int open = follow_name(tail, err), lines = 0;
    char chunk[CHUNK];
    struct stat status;

    while (open > 0) {
        ssize_t n = pread(tail->fd, chunk, sizeof(chunk), (off_t)tail->place);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, "%s: %s", tail->path, strerror(errno));
        if (n == 0)
            break;
        lines |= take(tail, chunk, (size_t)n);
        keep_mark(tail, chunk, (size_t)n);
        tail->place += n;
    }
    if (open > 0 && fstat(tail->fd, &status) == 0)
        tail->written = status.st_mtim;
    return open < 0 ? -1 : lines;
}
