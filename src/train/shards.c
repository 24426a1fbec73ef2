/* SPDX-License-Identifier: MIT */
#include "train/shards.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#define MAX_SHARDS 100000

struct list {
    char **paths;
    int n;
};

static void push(struct list *list, const char *path)
{
    *(char **)mem_push((void **)&list->paths, &list->n, sizeof(char *)) = mem_strdup(path);
}

/* Digits of a number of at most 9; 0 where there is none. */
static int read_number(const char *text, long *number)
{
    int n = 0;

    for (*number = 0; isdigit((unsigned char)text[n]) && n < 9; n++)
        *number = 10 * *number + (text[n] - '0');
    return n;
}

/* "{000..127}" at 'text'; its length, 0 where it is none. */
static int read_range(const char *text, long *first, long *last, int *digits)
{
    int a, b;

    if (text[0] != '{')
        return 0;
    a = read_number(text + 1, first);
    if (a == 0 || strncmp(text + 1 + a, "..", 2) != 0)
        return 0;
    b = read_number(text + 3 + a, last);
    if (b == 0 || text[3 + a + b] != '}' || *last < *first)
        return 0;
    *digits = a;
    return 4 + a + b;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int shards_in(const char *directory, const char *suffix, char ***paths)
{
    struct list list = { NULL, 0 };
    DIR *open = opendir(directory);
    const struct dirent *entry;

    if (!open)
        return -1;
    while ((entry = readdir(open)))
        if (entry->d_name[0] != '.' && file_ends_in(entry->d_name, suffix)) {
            char *path = mem_printf("%s/%s", directory, entry->d_name);

            push(&list, path);
            free(path);
        }
    closedir(open);
    if (list.n > 1)
        qsort(list.paths, (size_t)list.n, sizeof(*list.paths), by_name);
    *paths = list.paths;
    return list.n;
}

static int add_pattern(struct list *list, const char *pattern, struct err *err)
{
    glob_t found = { 0 };
    int result;

    if (access(pattern, F_OK) == 0) {
        push(list, pattern);
        return 0;
    }
    result = glob(pattern, GLOB_BRACE | GLOB_NOMAGIC, NULL, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc && list->n < MAX_SHARDS; i++)
        push(list, found.gl_pathv[i]);
    globfree(&found);
    if (result == GLOB_NOMATCH)
        return err_set(err, "%s: no such files", pattern);
    return result ? err_set(err, "%s: cannot be searched", pattern) : 0;
}

static int expand(struct list *list, const char *spec, struct err *err)
{
    long first = 0, last = 0;
    int digits = 0, length = 0, bad = 0;
    const char *at = spec;

    while ((at = strchr(at, '{')) && (length = read_range(at, &first, &last, &digits)) == 0)
        at++;
    if (!at)
        return add_pattern(list, spec, err);
    for (long i = first; i <= last && !bad; i++) {
        char *part = mem_printf("%.*s%0*ld%s", (int)(at - spec), spec, digits, i, at + length);

        bad = expand(list, part, err);
        free(part);
        if (!bad && list->n >= MAX_SHARDS)
            bad = err_set(err, "%s: more than %d files", spec, MAX_SHARDS - 1);
    }
    return bad;
}

int shards_find(const char *spec, const char *suffix, char ***paths, int *n, struct err *err)
{
    struct list list = { NULL, 0 };
    struct stat st;
    bool there = stat(spec, &st) == 0;
    int bad = 0;

    if (there && S_ISDIR(st.st_mode)) {
        list.n = shards_in(spec, suffix, &list.paths);
        if (list.n < 0)
            return err_set(err, "%s: %s", spec, strerror(errno));
        if (list.n == 0)
            bad = err_set(err, "%s: no files *%s", spec, suffix);
        else if (list.n >= MAX_SHARDS)
            bad = err_set(err, "%s: more than %d files", spec, MAX_SHARDS - 1);
    } else if (there) {
        push(&list, spec);
    } else {
        bad = expand(&list, spec, err);
    }
    if (bad) {
        shards_free(list.paths, list.n);
        return -1;
    }
    *paths = list.paths;
    *n = list.n;
    return 0;
}

void shards_free(char **paths, int n)
{
    for (int i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}
