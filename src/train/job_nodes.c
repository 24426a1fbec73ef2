/* SPDX-License-Identifier: MIT */
#include "train/job_nodes.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"

#define MOST_SLOTS 65536

/* 'counted': "NODE SLOTS QUEUE …" on each line, else a line for each slot, or 'each' says how many
 * processes each node may have.
 */
static const struct source {
    const char *scheduler, *mark, *job, *variable, *each;
    bool counted;
} sources[] = {
    { "PJM", "PJM_JOBID", "PJM_JOBID", "PJM_O_NODEINF", "PJM_PROC_BY_NODE", false },
    { "PBS", "PBS_JOBID", "PBS_JOBID", "PBS_NODEFILE", NULL, false },
    { "Grid Engine", "SGE_TASK_ID", "JOB_ID", "PE_HOSTFILE", NULL, true },
};

static const struct source *find_source(void)
{
    const char *slurm = getenv("SLURM_JOB_ID");

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && !(slurm && *slurm); i++) {
        const char *path = getenv(sources[i].variable), *job = getenv(sources[i].mark);

        if (path && *path && job && *job)
            return &sources[i];
    }
    return NULL;
}

static void add(struct job_nodes *nodes, const char *name, int64_t slots)
{
    nodes->slots += slots;
    for (int i = 0; i < nodes->n; i++)
        if (strcmp(nodes->list[i].name, name) == 0) {
            nodes->list[i].slots += slots;
            return;
        }
    *(struct job_node *)mem_push((void **)&nodes->list, &nodes->n, sizeof(struct job_node)) =
        (struct job_node){ mem_strdup(name), slots };
}

/* False: it is none of the kind. Lines without a word are none at all. */
static bool read_line(struct job_nodes *nodes, char *line, bool counted)
{
    static const char space[] = " \t\r\n";
    char *name = strtok_r(line, space, &line), *count, *end;
    long slots = 1;

    if (!name)
        return true;
    for (const char *c = name; *c; c++)
        if (!isgraph((unsigned char)*c))
            return false;
    if (counted) {
        count = strtok_r(NULL, space, &line);
        slots = count ? strtol(count, &end, 10) : 0;
        if (!count || *end || slots < 1 || slots > MOST_SLOTS)
            return false;
    }
    add(nodes, name, slots);
    return true;
}

static int read_file(struct job_nodes *nodes, FILE *file, bool counted, struct err *err)
{
    char line[1024];

    for (int at = 1; fgets(line, sizeof(line), file); at++)
        if ((!strchr(line, '\n') && !feof(file)) || !read_line(nodes, line, counted))
            return err_set(err, "%s=%s: line %d is no node%s", nodes->variable, nodes->path, at,
                           counted ? " with its slots" : "");
    if (ferror(file) || nodes->n == 0)
        return err_set(err, "%s=%s: %s", nodes->variable, nodes->path,
                       ferror(file) ? strerror(errno) : "it lists no node");
    return 0;
}

/* Slots are a limit where somebody said how many. */
static void count_slots(struct job_nodes *nodes, const struct source *source)
{
    const char *text = source->each ? getenv(source->each) : NULL;
    char *end;
    long each = text ? strtol(text, &end, 10) : 0;

    nodes->counted = source->counted;
    for (int i = 0; i < nodes->n; i++)
        nodes->counted |= nodes->list[i].slots > 1;
    if (!text || !*text || *end || each < 1 || each > MOST_SLOTS)
        return;
    nodes->counted = true;
    nodes->slots = each * nodes->n;
    for (int i = 0; i < nodes->n; i++)
        nodes->list[i].slots = each;
}

int job_nodes_read(struct job_nodes *nodes, struct err *err)
{
    const struct source *source = find_source();
    const char *job;
    FILE *file;
    int bad;

    *nodes = (struct job_nodes){ 0 };
    if (!source)
        return 0;
    nodes->variable = source->variable;
    nodes->path = getenv(source->variable);
    nodes->scheduler = source->scheduler;
    job = getenv(source->job);
    nodes->job = job ? job : "";
    file = fopen(nodes->path, "re");
    bad = file ? read_file(nodes, file, source->counted, err)
               : err_set(err, "%s=%s: %s", nodes->variable, nodes->path, strerror(errno));
    if (file)
        fclose(file);
    if (bad)
        job_nodes_clear(nodes);
    else
        count_slots(nodes, source);
    return bad;
}

void job_nodes_clear(struct job_nodes *nodes)
{
    for (int i = 0; i < nodes->n; i++)
        free(nodes->list[i].name);
    free(nodes->list);
    *nodes = (struct job_nodes){ 0 };
}

char *job_nodes_title(const struct job_nodes *nodes)
{
    char slots[48] = "";

    if (nodes->counted)
        snprintf(slots, sizeof(slots), ", %lld slot%s", (long long)nodes->slots,
                 nodes->slots == 1 ? "" : "s");
    return mem_printf("%s job %s: %d node%s%s", nodes->scheduler, nodes->job, nodes->n,
                      nodes->n == 1 ? "" : "s", slots);
}

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");

    return n == strcspn(b, ".") && strncasecmp(a, b, n) == 0;
}

const struct job_node *job_nodes_find(const struct job_nodes *nodes, const char *host)
{
    for (int i = 0; i < nodes->n; i++)
        if (!is_address(nodes->list[i].name) && same_name(nodes->list[i].name, host))
            return &nodes->list[i];
    return NULL;
}

/* Are these names of the kind that the job's nodes have? */
static bool are_known(const struct job_nodes *nodes, int n, const char *const *hosts)
{
    bool some = false;

    for (int i = 0; i < nodes->n; i++)
        if (is_address(nodes->list[i].name))
            return false;
    for (int r = 0; r < n && !some; r++)
        some = job_nodes_find(nodes, hosts[r]) != NULL;
    return some;
}

enum job_misfit job_nodes_fit(const struct job_nodes *nodes, int n, const char *const *hosts,
                              int *rank)
{
    bool known = are_known(nodes, n, hosts);

    for (*rank = 0; *rank < n && known; ++*rank) {
        const struct job_node *node = job_nodes_find(nodes, hosts[*rank]);
        int64_t there = 0;

        if (!node)
            return JOB_ELSEWHERE;
        for (int r = 0; r <= *rank; r++)
            there += job_nodes_find(nodes, hosts[r]) == node;
        if (nodes->counted && there > node->slots)
            return JOB_CROWDED;
    }
    *rank = -1;
    return nodes->counted && n > nodes->slots ? JOB_CROWDED : JOB_FITS;
}
