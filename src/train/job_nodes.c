/* SPDX-License-Identifier: MIT */
#include "train/job_nodes.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define MOST_SLOTS 65536

/* 'counted': "NODE SLOTS QUEUE …" on each line, else a line for each slot. */
static const struct source {
    const char *mark, *variable;
    bool counted;
} sources[] = {
    { "PJM_JOBID", "PJM_O_NODEINF", false },
    { "PBS_JOBID", "PBS_NODEFILE", false },
    { "SGE_TASK_ID", "PE_HOSTFILE", true },
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

int job_nodes_read(struct job_nodes *nodes, struct err *err)
{
    const struct source *source = find_source();
    FILE *file;
    int bad;

    *nodes = (struct job_nodes){ 0 };
    if (!source)
        return 0;
    nodes->variable = source->variable;
    nodes->path = getenv(source->variable);
    file = fopen(nodes->path, "re");
    bad = file ? read_file(nodes, file, source->counted, err)
               : err_set(err, "%s=%s: %s", nodes->variable, nodes->path, strerror(errno));
    if (file)
        fclose(file);
    if (bad)
        job_nodes_clear(nodes);
    return bad;
}

void job_nodes_clear(struct job_nodes *nodes)
{
    for (int i = 0; i < nodes->n; i++)
        free(nodes->list[i].name);
    free(nodes->list);
    *nodes = (struct job_nodes){ 0 };
}
