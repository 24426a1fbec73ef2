/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/cache.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define LOCK ".lock"
#define LIMIT ((int64_t)1 << 30)
#define TRIES 100               /* for the turn, */
#define PAUSE 10000000          /* nanoseconds between them */
#define DAY (24 * 3600)
#define DIGITS 16

static bool is_off;

static char *find_directory(void)
{
    const char *own = getenv("TASUKI_CACHE_DIR"), *shared = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (own && *own)
        return mem_strdup(own);
    if (shared && *shared)
        return mem_printf("%s/tasuki", shared);
    return home && *home ? mem_printf("%s/.cache/tasuki", home) : NULL;
}

char *cache_directory(bool kept)
{
    is_off = !kept;
    return kept ? find_directory() : NULL;
}

char *cache_of_run(void)
{
    return is_off ? NULL : find_directory();
}

/* Fowler, Noll, Vo. */
static uint64_t add(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

void cache_hash_bytes(const void *data, size_t bytes, char hex[17])
{
    static const char version[] = PACKAGE_VERSION " ";
    uint64_t hash = add(add(0xcbf29ce484222325u, version, sizeof(version) - 1), data, bytes);

    snprintf(hex, DIGITS + 1, "%016llx", (unsigned long long)hash);
}

void cache_hash(const char *text, char hex[17])
{
    cache_hash_bytes(text, strlen(text), hex);
}

char *cache_path(const char *directory, const char *prefix, const char *hash, const char *suffix)
{
    return mem_printf("%s/%s-%s%s", directory, prefix, hash, suffix);
}

char *cache_site_path(const char *path)
{
    const char *site = getenv("TASUKI_SITE_CACHE"), *slash = strrchr(path, '/');

    return site && *site ? mem_printf("%s/%s", site, slash ? slash + 1 : path) : NULL;
}

/* Once a day is enough: ranks of many nodes read the same file. */
void cache_touch(const char *path)
{
    struct stat status;

    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_mtime + DAY < time(NULL))
        (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
}

/* Changing ------------------------------------------------------------------------------ */

int cache_enter(const char *directory)
{
    char *path = mem_printf("%s/%s", directory, LOCK);
    const struct timespec pause = { .tv_nsec = PAUSE };
    int turn, tries = TRIES;

    file_mkdirs(directory);
    turn = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    free(path);
    while (turn >= 0 && flock(turn, LOCK_EX | LOCK_NB)) {
        if (--tries > 0) {
            nanosleep(&pause, NULL);
            continue;
        }
        close(turn);
        turn = -1;
    }
    return turn;
}

struct kept {
    char *name;
    off_t size;
    struct timespec used;
};

static bool are_digits(const char *text)
{
    int n = 0;

    while (isxdigit((unsigned char)text[n]))
        n++;
    return n == DIGITS;
}

/* What follows in a name of cache_path(): whatever else lies there is somebody else's, and NULL. */
static const char *suffix_of(const char *name)
{
    for (const char *dash = strchr(name, '-'); dash; dash = strchr(dash + 1, '-'))
        if (are_digits(dash + 1))
            return dash + 1 + DIGITS;
    return NULL;
}

/* Of those that file_replace() makes, too, which lie there for a moment. */
static bool is_ours(const char *name, bool *temporary)
{
    static const char *const suffixes[] = { ".json", ".index", ".cubin", ".plan" };
    const char *suffix = suffix_of(name);

    for (size_t i = 0; suffix && i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        const char *rest = suffix + strlen(suffixes[i]);

        if (strncmp(suffix, suffixes[i], strlen(suffixes[i])) != 0)
            continue;
        *temporary = *rest == '.' && are_digits(rest + 1) && !rest[DIGITS + 1];
        return *temporary || !*rest;
    }
    return false;
}

static int order_used(const void *a, const void *b)
{
    const struct timespec *x = &((const struct kept *)a)->used;
    const struct timespec *y = &((const struct kept *)b)->used;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* What a killed writer left goes. */
static struct kept *list_kept(DIR *folder, int *n)
{
    struct kept *kept = NULL;
    const struct dirent *entry;
    struct stat status;
    bool temporary;

    *n = 0;
    while ((entry = readdir(folder))) {
        if (!is_ours(entry->d_name, &temporary) ||
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(status.st_mode))
            continue;
        if (!temporary)
            *(struct kept *)mem_push((void **)&kept, n, sizeof(*kept)) = (struct kept){
                mem_strdup(entry->d_name), status.st_size, status.st_mtim };
        else if (status.st_mtime + DAY < time(NULL))
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    return kept;
}

int64_t cache_limit(void)
{
    const char *said = getenv("TASUKI_CACHE_LIMIT");
    char *end;
    long long limit = said ? strtoll(said, &end, 10) : 0;

    return said && end > said && !*end && limit >= 0 ? limit : LIMIT;
}

static void remove_oldest(const char *directory)
{
    DIR *folder = opendir(directory);
    int64_t sum = 0, limit = cache_limit();
    struct kept *kept;
    int n;

    if (!folder)
        return;
    kept = list_kept(folder, &n);
    for (int i = 0; i < n; i++)
        sum += kept[i].size;
    if (n && sum > limit)
        qsort(kept, (size_t)n, sizeof(*kept), order_used);
    for (int i = 0; i < n; i++) {
        if (sum > limit && unlinkat(dirfd(folder), kept[i].name, 0) == 0)
            sum -= kept[i].size;
        free(kept[i].name);
    }
    free(kept);
    closedir(folder);
}

void cache_leave(const char *directory, int turn)
{
    remove_oldest(directory);
    close(turn);
}
