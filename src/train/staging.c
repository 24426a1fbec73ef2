/* SPDX-License-Identifier: MIT */
#include "train/staging_private.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/room.h"

#define LOOK_EVERY 0.1          /* seconds */

struct staging {
    char *path;
    int fd;                     /* of the directory; on the leader it holds the lock */
    bool leads, keep, over;
    struct staging_table table;
    double look;                /* clock when to look again */
    struct staging_copier *copier;
};

/* Names ------------------------------------------------------------------------------- */

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
            return false;
    return true;
}

struct staging_name staging_name(const char *text)
{
    struct staging_name name = { .kind = STAGING_OTHER };
    const char *rest = text + STAGING_KEY;

    if (strlen(text) < STAGING_KEY || !is_hex(text, 16) || text[16] != '-' ||
        !is_hex(text + 17, 16))
        return name;
    memcpy(name.key, text, STAGING_KEY);
    if (strcmp(rest, STAGING_NEW) == 0) {
        name.kind = STAGING_PART;
    } else if (strlen(rest) > STAGING_SUM && rest[0] == '-' && is_hex(rest + 1, STAGING_SUM)) {
        memcpy(name.sum, rest + 1, STAGING_SUM);
        rest += 1 + STAGING_SUM;
        if (!*rest)
            name.kind = STAGING_COPY;
        else if (strcmp(rest, STAGING_OLD) == 0)
            name.kind = STAGING_LEFT;
    }
    return name;
}

static int by_key(const void *a, const void *b)
{
    const struct staging_item *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* The first item whose key is not less in its first 'n' characters. */
static int find_from(const struct staging_table *table, const char *key, size_t n)
{
    int low = 0, high = table->n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (strncmp(table->items[middle].key, key, n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < table->n && strncmp(table->items[low].key, key, n) == 0 ? low : -1;
}

int staging_find(const struct staging_table *table, const char *key)
{
    return find_from(table, key, STAGING_KEY);
}

const char *staging_find_path(const struct staging_table *table, const char *key)
{
    int i = find_from(table, key, 16);

    return i < 0 ? NULL : table->items[i].file->path;
}

/* "" where the file is no longer there, or empty: it stays where it is. */
static void make_key(const struct data_file *file, char key[STAGING_KEY + 1])
{
    const struct file_stamp *stamp = &file->map.stamp;
    char *path = realpath(file->path, NULL), age[64], hex[2][17];

    key[0] = '\0';
    if (!path || file->map.size == 0) {
        free(path);
        return;
    }
    snprintf(age, sizeof(age), "%llu %lld %lld", (unsigned long long)stamp->size,
             (long long)stamp->seconds, (long long)stamp->nanoseconds);
    file_hash(path, strlen(path), hex[0]);
    file_hash(age, strlen(age), hex[1]);
    snprintf(key, STAGING_KEY + 1, "%.16s-%.16s", hex[0], hex[1]);
    free(path);
}

static void make_table(struct staging_table *table, const struct staging_options *o)
{
    table->items = mem_new((size_t)o->n, sizeof(*table->items));
    for (int i = 0; i < o->n; i++) {
        struct staging_item *item = &table->items[table->n];

        item->file = o->files[i];
        make_key(item->file, item->key);
        if (item->key[0])
            table->n++;
    }
    qsort(table->items, (size_t)table->n, sizeof(*table->items), by_key);
}

/* Opening ------------------------------------------------------------------------------ */

static bool has_sums(void)
{
    char hex[17];

    file_hash("", 0, hex);
    return hex[0];
}

struct inventory {
    const struct staging_table *table;
    double bytes, files;        /* of copies that are there */
};

static void add_copy(void *context, const char *text)
{
    struct inventory *inventory = context;
    struct staging_name name = staging_name(text);
    int item = name.kind == STAGING_COPY || name.kind == STAGING_LEFT
                   ? staging_find(inventory->table, name.key) : -1;

    if (item < 0)
        return;
    inventory->bytes += (double)inventory->table->items[item].file->map.size;
    inventory->files++;
}

static void compare(const struct staging *s, double all, double bytes, double files)
{
    struct err ignored = { 0 };
    struct room room;
    char *unasked;

    if (room_in(s->path, &room, &ignored) < 0)
        return;
    /* STAGING_BUSY is one. */
    room.files = fmax(room.files - 1, 0);
    unasked = room_unasked(s->path, &room);
    if (unasked)
        log_debug("%s", unasked);
    free(unasked);
    if (bytes > room.bytes)
        log_warning("--stage-to: %s: %.0f files are to be copied, of which %.4g MB are not there "
                    "yet, and %.4g MB %s: what does not fit is read from where it is", s->path, all,
                    1e-6 * bytes, 1e-6 * room.bytes, room_said(room.bytes_limit));
    else if (files > room.files)
        log_warning("--stage-to: %s: %.0f files are to be copied, of which %.0f are not there yet, "
                    "and %.0f %s: what does not fit is read from where it is", s->path, all, files,
                    room.files, room_said(room.files_limit));
}

/* What there is no room for is read from where it is: that is known before the first step. */
static void check_room(const struct staging *s)
{
    struct inventory there = { .table = &s->table };
    double bytes = 0, files = 0;

    for (int i = 0; i < s->table.n; i++) {
        const struct staging_item *item = &s->table.items[i];

        if (staging_find(&s->table, item->key) != i)
            continue;
        bytes += (double)item->file->map.size;
        files++;
    }
    staging_list(s->fd, add_copy, &there);
    compare(s, files, bytes - there.bytes, files - there.files);
}

struct staging *staging_open(const struct staging_options *options, struct err *err)
{
    struct staging *s = mem_new(1, sizeof(*s));
    int bad;

    s->fd = -1;
    s->leads = !options->directory;
    s->keep = options->keep;
    if (!has_sums())
        bad = err_set(err, "--stage-to: this build is without xxhash, which checks the copies");
    else if (s->leads)
        bad = staging_claim(options->parent, options->host, &s->path, &s->fd, err);
    else
        bad = staging_join(s->path = mem_strdup(options->directory), &s->fd, err);
    if (!bad) {
        make_table(&s->table, options);
        if (s->leads)
            check_room(s);
        if (s->leads)
            s->copier = staging_copier_new(s->path, s->fd, &s->table, options->first, err);
        bad = s->leads && !s->copier;
    }
    if (bad) {
        staging_close(s);
        return NULL;
    }
    return s;
}

const char *staging_directory(const struct staging *staging)
{
    return staging->path;
}

/* Using -------------------------------------------------------------------------------- */

/* Where that fails the original goes on being read. */
static void use_copy(struct staging *s, const char *text, int item)
{
    int fd = openat(s->fd, text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat status;

    for (int i = item; fd >= 0 && i < s->table.n &&
                       strcmp(s->table.items[i].key, s->table.items[item].key) == 0; i++) {
        struct staging_item *it = &s->table.items[i];

        if (it->used || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ||
            (size_t)status.st_size != it->file->map.size)
            continue;
        it->used = file_map_replace(&it->file->map, fd) == 0;
    }
    if (fd >= 0)
        close(fd);
}

static void see(void *context, const char *text)
{
    struct staging *s = context;
    struct staging_name name = staging_name(text);
    int item = name.kind == STAGING_COPY ? staging_find(&s->table, name.key) : -1;

    if (item >= 0 && !s->table.items[item].used)
        use_copy(s, text, item);
}

static void tell(struct staging *s)
{
    char *warning;

    while (s->copier && (warning = staging_copier_warning(s->copier))) {
        log_warning("%s", warning);
        free(warning);
    }
}

void staging_take(struct staging *staging)
{
    struct staging *s = staging;
    bool copying;

    if (!s || s->over || clock_now() < s->look)
        return;
    /* First: what is there when this is gone is all. */
    copying = faccessat(s->fd, STAGING_BUSY, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    staging_list(s->fd, see, s);
    tell(s);
    s->over = !copying;
    s->look = clock_now() + LOOK_EVERY;
}

struct staging_state staging_state(struct staging *staging)
{
    struct staging_state state = { 0 };

    if (!staging)
        return state;
    state.over = staging->over;
    if (staging->copier)
        staging_copier_bytes(staging->copier, &state.bytes, &state.copied);
    return state;
}

/* Closing ------------------------------------------------------------------------------ */

static void remove_copy(void *context, const char *text)
{
    const struct staging *s = context;

    if (staging_name(text).kind != STAGING_OTHER || strcmp(text, STAGING_BUSY) == 0)
        unlinkat(s->fd, text, 0);
}

void staging_close(struct staging *staging)
{
    struct staging *s = staging;

    if (!s)
        return;
    if (s->copier)
        staging_copier_stop(s->copier);
    tell(s);
    staging_copier_free(s->copier);
    if (s->leads && s->fd >= 0 && !s->keep) {
        staging_list(s->fd, remove_copy, s);
        rmdir(s->path);
    }
    if (s->fd >= 0)
        close(s->fd);
    free(s->table.items);
    free(s->path);
    free(s);
}
