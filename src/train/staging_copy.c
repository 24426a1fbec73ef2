/* SPDX-License-Identifier: MIT */
#include "train/staging_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/room.h"

#define PIECE ((size_t)4 << 20)

struct staging_copier {
    const char *path;
    int fd, first;
    struct staging_table *table;
    char (*left)[STAGING_SUM + 1];  /* of each item: sum of an earlier run's copy, or "" */
    unsigned char *buffer;
    int without;                    /* files that there was no room for */
    bool started;
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock;           /* of what follows */
    double bytes, copied;
    int n_warnings;
    char **warnings;
};

enum outcome { DONE, STOPPED, SOURCE_FAILED, DISK_FAILED };

static void warn(struct staging_copier *c, char *text)
{
    pthread_mutex_lock(&c->lock);
    *(char **)mem_push((void **)&c->warnings, &c->n_warnings, sizeof(char *)) = text;
    pthread_mutex_unlock(&c->lock);
}

char *staging_copier_warning(struct staging_copier *copier)
{
    char *text = NULL;

    pthread_mutex_lock(&copier->lock);
    if (copier->n_warnings > 0) {
        text = copier->warnings[0];
        copier->n_warnings--;
        memmove(copier->warnings, copier->warnings + 1,
                (size_t)copier->n_warnings * sizeof(char *));
    }
    pthread_mutex_unlock(&copier->lock);
    return text;
}

void staging_copier_bytes(struct staging_copier *copier, double *bytes, double *copied)
{
    pthread_mutex_lock(&copier->lock);
    *bytes = copier->bytes;
    *copied = copier->copied;
    pthread_mutex_unlock(&copier->lock);
}

/* What is there already --------------------------------------------------------------- */

/* Rename KEY-SUM to KEY-SUM.old or back. */
static int rename_copy(int fd, const char *key, const char *sum, const char *from,
                       const char *to)
{
    char old[128], new[128];

    snprintf(old, sizeof(old), "%s-%s%s", key, sum, from);
    snprintf(new, sizeof(new), "%s-%s%s", key, sum, to);
    return renameat(fd, old, fd, new);
}

/* Copies of earlier runs: those that this run can use are set aside, the others go. */
static void sort_out(void *context, const char *text)
{
    struct staging_copier *c = context;
    struct staging_name name = staging_name(text);
    int item = staging_find(c->table, name.key);
    const char *path;

    if (name.kind == STAGING_OTHER)
        return;
    if (name.kind == STAGING_PART || item < 0 ||
        (name.kind == STAGING_COPY &&
         rename_copy(c->fd, name.key, name.sum, "", STAGING_OLD) < 0)) {
        path = item < 0 ? staging_find_path(c->table, name.key) : NULL;
        if (path && name.kind != STAGING_PART)
            warn(c, mem_printf("%s: has changed since it was copied: it is copied anew", path));
        unlinkat(c->fd, text, 0);
        return;
    }
    memcpy(c->left[item], name.sum, sizeof(name.sum));
}

/* Copying ------------------------------------------------------------------------------ */

/* All of 'from', to 'to' unless it is -1; its checksum and length. */
static enum outcome pump(struct staging_copier *c, int from, int to, size_t *size,
                         char sum[17], struct err *err)
{
    struct file_sum *hash = file_sum_new();
    enum outcome outcome = DONE;
    ssize_t n;

    *size = 0;
    posix_fadvise(from, 0, 0, POSIX_FADV_SEQUENTIAL);
    do {
        n = read(from, c->buffer, PIECE);
        if (n < 0 && errno != EINTR) {
            err_set(err, "%s", strerror(errno));
            outcome = SOURCE_FAILED;
        } else if (n > 0) {
            file_sum_add(hash, c->buffer, (size_t)n);
            *size += (size_t)n;
            if (to >= 0 && file_write_all(to, c->path, c->buffer, (size_t)n, err) < 0)
                outcome = DISK_FAILED;
        }
        if (atomic_load(&c->stop))
            outcome = STOPPED;
    } while (n != 0 && outcome == DONE);
    file_sum_end(hash, sum);
    return outcome;
}

static int open_source(const struct data_file *file, struct err *err)
{
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        err_set(err, "%s", strerror(errno));
    return fd;
}

/* Has it changed since it was mapped? */
static bool is_source(int fd, const struct data_file *file, struct err *err)
{
    struct file_stamp now;

    if (file_stamp(fd, &now) == 0 && file_stamp_same(&now, &file->map.stamp))
        return true;
    err_set(err, "has changed since the run began");
    return false;
}

static enum outcome copy_bytes(struct staging_copier *c, const struct data_file *file, int to,
                               char sum[17], struct err *err)
{
    int from = open_source(file, err);
    enum outcome outcome = SOURCE_FAILED;
    size_t size;

    if (from < 0)
        return SOURCE_FAILED;
    if (is_source(from, file, err)) {
        outcome = pump(c, from, to, &size, sum, err);
        if (outcome == DONE && (!is_source(from, file, err) || size != file->map.size))
            outcome = SOURCE_FAILED;
        if (outcome == DONE && fsync(to) < 0) {
            err_set(err, "%s: %s", c->path, strerror(errno));
            outcome = DISK_FAILED;
        }
    }
    close(from);
    return outcome;
}

/* Read a copy back: are these the bytes? */
static enum outcome check_copy(struct staging_copier *c, const char *name, size_t size,
                               const char *sum, struct err *err)
{
    int fd = openat(c->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    enum outcome outcome;
    char found[17];
    size_t length;

    if (fd < 0) {
        err_set(err, "%s/%s: %s", c->path, name, strerror(errno));
        return DISK_FAILED;
    }
    outcome = pump(c, fd, -1, &length, found, err);
    close(fd);
    if (outcome == SOURCE_FAILED || (outcome == DONE && (length != size || strcmp(found, sum)))) {
        err_set(err, "%s/%s: the copy is damaged", c->path, name);
        return DISK_FAILED;
    }
    return outcome;
}

static enum outcome copy(struct staging_copier *c, const struct staging_item *item,
                         struct err *err)
{
    char part[64], sum[17], name[128];
    enum outcome outcome;
    int to;

    snprintf(part, sizeof(part), "%s" STAGING_NEW, item->key);
    to = openat(c->fd, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (to < 0) {
        err_set(err, "%s: %s", c->path, strerror(errno));
        return DISK_FAILED;
    }
    outcome = copy_bytes(c, item->file, to, sum, err);
    if (close(to) < 0 && outcome == DONE) {
        err_set(err, "%s: %s", c->path, strerror(errno));
        outcome = DISK_FAILED;
    }
    if (outcome == DONE)
        outcome = check_copy(c, part, item->file->map.size, sum, err);
    snprintf(name, sizeof(name), "%s-%s", item->key, sum);
    if (outcome == DONE && renameat(c->fd, part, c->fd, name) < 0) {
        err_set(err, "%s: %s", c->path, strerror(errno));
        outcome = DISK_FAILED;
    }
    if (outcome != DONE)
        unlinkat(c->fd, part, 0);
    return outcome;
}

/* An earlier run's copy, if its bytes are still what they were. */
static enum outcome reuse(struct staging_copier *c, int i)
{
    const struct staging_item *item = &c->table->items[i];
    struct err err = { 0 };
    char name[128];
    enum outcome outcome;

    snprintf(name, sizeof(name), "%s-%s" STAGING_OLD, item->key, c->left[i]);
    outcome = check_copy(c, name, item->file->map.size, c->left[i], &err);
    if (outcome == DONE && rename_copy(c->fd, item->key, c->left[i], STAGING_OLD, "") == 0)
        return DONE;
    if (outcome != STOPPED) {
        warn(c, mem_printf("%s: %s is copied anew", err.text, item->file->path));
        unlinkat(c->fd, name, 0);
    }
    return outcome == DONE ? DISK_FAILED : outcome;
}

/* All --------------------------------------------------------------------------------- */

static bool has_room(const struct staging_copier *c, size_t size)
{
    struct room room;
    struct err ignored;

    return room_in(c->path, &room, &ignored) < 0 ||
           ((double)size <= room.bytes && room.files >= 1);
}

/* Items of the same key are one file. */
static void note(struct staging_copier *c, int i, bool copied)
{
    struct staging_item *items = c->table->items;
    double size = (double)items[i].file->map.size;

    for (int k = staging_find(c->table, items[i].key);
         k < c->table->n && strcmp(items[k].key, items[i].key) == 0; k++)
        items[k].there = true;
    pthread_mutex_lock(&c->lock);
    c->bytes += size;
    c->copied += copied ? size : 0;
    pthread_mutex_unlock(&c->lock);
}

/* False: there is no use in going on. */
static bool stage(struct staging_copier *c, int index)
{
    /* Of items that are one file, the first knows what is left of it. */
    int i = staging_find(c->table, c->table->items[index].key);
    const struct staging_item *item = &c->table->items[i];
    struct err err = { 0 };
    enum outcome outcome = DISK_FAILED;

    if (item->there)
        return true;
    if (c->left[i][0]) {
        outcome = reuse(c, i);
        if (outcome == DONE)
            note(c, i, false);
        if (outcome != DISK_FAILED)
            return outcome == DONE;
    }
    if (!has_room(c, item->file->map.size)) {
        c->without++;
        return true;
    }
    outcome = copy(c, item, &err);
    if (outcome == DONE)
        note(c, i, true);
    else if (outcome == SOURCE_FAILED)
        warn(c, mem_printf("%s: %s: it is not copied", item->file->path, err.text));
    else if (outcome == DISK_FAILED)
        warn(c, mem_printf("--stage-to: %s: what has not been copied is read from where it is",
                           err.text));
    return outcome == DONE || outcome == SOURCE_FAILED;
}

static void *run(void *argument)
{
    struct staging_copier *c = argument;
    int n = c->table->n;
    bool more = true;

    for (int i = 0; i < n && more && !atomic_load(&c->stop); i++)
        more = stage(c, (c->first + i) % n);
    if (c->without > 0)
        warn(c, mem_printf("--stage-to: %s: no room for %d of %d files: they are read from where "
                           "they are", c->path, c->without, n));
    unlinkat(c->fd, STAGING_BUSY, 0);
    return NULL;
}

/* Signals are for the thread that trains. */
static int start(struct staging_copier *c, struct err *err)
{
    sigset_t all, before;
    int bad;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bad = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->started = !bad;
    return bad ? err_set(err, "--stage-to: a thread cannot be started: %s", strerror(bad)) : 0;
}

struct staging_copier *staging_copier_new(const char *path, int fd,
                                          struct staging_table *table, int first,
                                          struct err *err)
{
    struct staging_copier *c = mem_new(1, sizeof(*c));
    int busy = openat(fd, STAGING_BUSY, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    c->path = path;
    c->fd = fd;
    c->table = table;
    c->first = first;
    c->left = mem_new((size_t)table->n, sizeof(*c->left));
    c->buffer = mem_new(PIECE, 1);
    pthread_mutex_init(&c->lock, NULL);
    if (busy < 0) {
        err_set(err, "--stage-to: %s: %s", path, strerror(errno));
    } else {
        close(busy);
        staging_list(fd, sort_out, c);
        if (start(c, err) == 0)
            return c;
    }
    staging_copier_free(c);
    return NULL;
}

void staging_copier_stop(struct staging_copier *copier)
{
    atomic_store(&copier->stop, true);
    if (copier->started)
        pthread_join(copier->thread, NULL);
    copier->started = false;
}

void staging_copier_free(struct staging_copier *copier)
{
    struct staging_copier *c = copier;

    if (!c)
        return;
    staging_copier_stop(c);
    for (int i = 0; i < c->n_warnings; i++)
        free(c->warnings[i]);
    pthread_mutex_destroy(&c->lock);
    free(c->warnings);
    free(c->left);
    free(c->buffer);
    free(c);
}
