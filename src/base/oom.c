/* SPDX-License-Identifier: MIT */
#include "base/oom.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define GIB (1024.0 * 1024 * 1024)

/* Files ---------------------------------------------------------------------------------- */

/* A whole line that is a number of 0 and more; -1: it is none. */
static int64_t parse(const char *line)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(line, &end, 10);
    return *line < '0' || *line > '9' || errno || (*end && strcmp(end, "\n") != 0) ? -1 : value;
}

/* Of the first line "KEY NUMBER", or "NUMBER" where the key is "". */
static int64_t number_in(const char *folder, const char *name, const char *key)
{
    char *path = mem_printf("%s/%s", folder, name), *line = NULL;
    FILE *file = fopen(path, "re");
    size_t length = strlen(key), room = 0;
    int64_t value = -1;

    while (file && getline(&line, &room, file) > 0)
        if (strncmp(line, key, length) == 0 && (!length || line[length] == ' ')) {
            value = parse(line + length + (length > 0));
            break;
        }
    if (file)
        fclose(file);
    free(line);
    free(path);
    return value;
}

/* The group ------------------------------------------------------------------------------ */

struct group {
    char *folder;           /* malloc'ed; NULL: there is none */
    size_t mount;           /* so long is what stands before its path */
    bool old;               /* v1 */
};

/* Is it one of "cpu,memory"? */
static bool has_memory(const char *controllers)
{
    static const char name[] = "memory";
    size_t n;

    for (const char *at = controllers; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (n == strlen(name) && strncmp(at, name, n) == 0)
            return true;
    }
    return false;
}

/* "4:cpu,memory:/PATH" of v1, which goes before "0::/PATH" of v2. */
static void take_line(struct group *group, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    bool old;

    if (!path || path[1] != '/')
        return;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    old = has_memory(++controllers);
    if (!old && (*controllers || group->folder))
        return;
    free(group->folder);
    group->old = old;
    group->folder = mem_printf("%s/sys/fs/cgroup/%s", root, old ? "memory" : "unified");
    if (!old && access(group->folder, F_OK))
        *strrchr(group->folder, '/') = '\0';
    group->mount = strlen(group->folder);
    /* Outside of what is mounted here the mount's root is all that can be seen. */
    if (!strstr(path, "/..") && strcmp(path, "/") != 0) {
        char *whole = mem_printf("%s%s", group->folder, path);

        free(group->folder);
        group->folder = whole;
    }
}

static struct group find_group(const char *root)
{
    char *path = mem_printf("%s/proc/self/cgroup", root), *line = NULL;
    struct group group = { .folder = NULL };
    FILE *file = fopen(path, "re");
    size_t room = 0;

    while (file && !group.old && getline(&line, &room, file) > 0)
        take_line(&group, root, line);
    if (file)
        fclose(file);
    free(line);
    free(path);
    return group;
}

/* The tightest limit counts, and of several alike that of the outermost group, which has all ranks
 * in it: v2 counts in a group what was ended in those below.
 */
static void look_at_groups(struct oom *oom, struct group *group)
{
    int64_t most = -1;

    for (;;) {
        const char *folder = group->folder;
        int64_t limit = number_in(folder, group->old ? "memory.limit_in_bytes" : "memory.max", "");
        int64_t ended = number_in(folder, group->old ? "memory.oom_control" : "memory.events",
                                  "oom_kill");
        bool counts = limit > 0 && (double)limit <= oom->limit;

        most = ended > most ? ended : most;
        if (counts)
            oom->limit = (double)limit;
        if (counts || oom->group < 0)
            oom->group = most;
        oom->grouped = oom->grouped || counts;
        if (strlen(folder) <= group->mount)
            return;
        *strrchr(group->folder, '/') = '\0';
    }
}

struct oom oom_look(const char *root)
{
    struct oom oom = { .group = -1 };
    struct group group = find_group(root);
    char *proc = mem_printf("%s/proc", root);

    oom.limit = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    oom.machine = number_in(proc, "vmstat", "oom_kill");
    if (group.folder)
        look_at_groups(&oom, &group);
    free(group.folder);
    free(proc);
    return oom;
}

/* Words ---------------------------------------------------------------------------------- */

static int64_t rise(int64_t before, int64_t now)
{
    return before >= 0 && now > before ? now - before : 0;
}

bool oom_text(const struct oom *before, const struct oom *now, const char *host,
              const char *since, char *text, size_t size)
{
    /* Of another limit, of another group. */
    int64_t group = before->limit < now->limit || before->limit > now->limit
                        ? 0 : rise(before->group, now->group);
    int64_t ended = group > 0 ? group : rise(before->machine, now->machine);

    text[0] = '\0';
    if (ended > 0)
        snprintf(text, size, "the kernel of %.64s has ended %" PRId64 " process%s%s for want of "
                 "memory since %s (%s: %.4g GiB)", host, ended, ended == 1 ? "" : "es",
                 group > 0 ? " of the ranks' control group" : "", since,
                 now->grouped ? "limit of the control group" : "memory of the node",
                 now->limit / GIB);
    return ended > 0;
}
