/* SPDX-License-Identifier: MIT */
/* What Slurm knows, in words. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "topology/names.h"
#include "topology/report.h"
#include "topology/shape.h"

#define COLUMN 12

char *slurm_title(const struct slurm_facts *facts)
{
    return facts->job[0] ? mem_printf("job %s", facts->job)
                         : mem_printf("partition %s", facts->partition);
}

/* "2 d 3 h", "59 min 10 s": two units are enough. */
static void write_duration(FILE *out, int64_t seconds)
{
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
    int i = 0;

    while (i < 3 && seconds < units[i].seconds)
        i++;
    fprintf(out, "%lld %s", (long long)(seconds / units[i].seconds), units[i].name);
    seconds %= units[i].seconds;
    if (i < 3 && seconds >= units[i + 1].seconds)
        fprintf(out, " %lld %s", (long long)(seconds / units[i + 1].seconds),
                units[i + 1].name);
}

static void write_count(FILE *out, int64_t n, const char *thing)
{
    fprintf(out, "%lld %s%s", (long long)n, thing, n == 1 ? "" : "s");
}

static void write_limit(FILE *out, int64_t seconds)
{
    if (seconds == SLURM_NO_LIMIT)
        fputs("no time limit", out);
    else if (seconds > 0)
        write_duration(out, seconds);
    else
        fputs("time limit not known", out);
}

static void write_job(FILE *out, const struct slurm_facts *facts)
{
    fprintf(out, "job %s", facts->job);
    if (facts->name[0])
        fprintf(out, " \"%s\"", facts->name);
    if (facts->user[0])
        fprintf(out, " of %s", facts->user);
    fprintf(out, ": %s", facts->state);
    if (facts->why[0])
        fprintf(out, " (%s)", facts->why);
    fprintf(out, ", partition %s\n  %-*s ", facts->partition, COLUMN, "time");
    if (facts->time_left >= 0) {
        write_duration(out, facts->time_left);
        fputs(" left of ", out);
    }
    write_limit(out, facts->time_limit);
    fputc('\n', out);
    if (facts->n_nodes == 0 && facts->nodes_wanted >= 0) {
        fprintf(out, "  %-*s none yet, it wants %lld\n", COLUMN, "nodes",
                (long long)facts->nodes_wanted);
    }
}

static void write_partition(FILE *out, const struct slurm_facts *facts)
{
    fprintf(out, "partition %s: %s\n  %-*s ", facts->partition, facts->state, COLUMN, "time");
    write_limit(out, facts->time_limit);
    if (facts->time_limit > 0)
        fputs(" at most", out);
    if (facts->time_default > 0) {
        fputs(", ", out);
        write_duration(out, facts->time_default);
        fputs(" by default", out);
    }
    fprintf(out, "\n  %-*s ", COLUMN, "a job");
    if (facts->nodes_most == SLURM_NO_LIMIT)
        fputs("any number of nodes", out);
    else if (facts->nodes_most > 0)
        fprintf(out, "at most %lld nodes", (long long)facts->nodes_most);
    else
        fputs("number of nodes not known", out);
    if (facts->nodes_least > 1)
        fprintf(out, ", at least %lld", (long long)facts->nodes_least);
    fputc('\n', out);
}

static bool alike(const struct slurm_node *a, const struct slurm_node *b)
{
    return strcmp(a->state, b->state) == 0 && strcmp(a->reason, b->reason) == 0 &&
           strcmp(a->features, b->features) == 0 && strcmp(a->gres, b->gres) == 0 &&
           strcmp(a->given, b->given) == 0 && a->sockets == b->sockets &&
           a->cores == b->cores && a->threads == b->threads && a->memory == b->memory;
}

static const struct slurm_gpus *kind_called(const struct slurm_gpus *gpus, int n,
                                            const char *type)
{
    for (int i = 0; i < n; i++)
        if (strcmp(gpus[i].type, type) == 0)
            return &gpus[i];
    return NULL;
}

/* "p100: 0-1 of 4" for a job, "4 x p100" for a partition. */
static void write_gpus(FILE *out, const struct slurm_node *node, bool job)
{
    struct slurm_gpus *all, *given;
    int n_all = slurm_gpus_of(node->gres, &all), n_given = slurm_gpus_of(node->given, &given);

    fprintf(out, "  %-*s GPUs ", COLUMN, "");
    for (int i = 0; i < n_all; i++) {
        const struct slurm_gpus *own = kind_called(given, n_given, all[i].type);
        char *set = own && own->index ? set_text(own->n, own->index) : NULL;

        fprintf(out, "%s%d x %s", i ? ", " : "", all[i].n, all[i].type);
        if (job && set)
            fprintf(out, ", of which the job has %s", set);
        else if (job)
            fprintf(out, ", of which the job has %d", own ? own->n : 0);
        free(set);
    }
    fputs(n_all ? "\n" : "none configured\n", out);
    slurm_gpus_free(n_all, all);
    slurm_gpus_free(n_given, given);
}

static void write_kind(FILE *out, const struct slurm_node *node, int n, const char *names,
                       bool job)
{
    char memory[24];

    fprintf(out, "  %-*s ", COLUMN, names);
    write_count(out, n, "node");
    fprintf(out, ", %s", node->state[0] ? node->state : "state not known");
    if (node->reason[0])
        fprintf(out, ": %s", node->reason);
    fprintf(out, "\n  %-*s ", COLUMN, "");
    if (node->sockets > 0) {
        write_count(out, node->sockets, "socket");
        fputs(", ", out);
        write_count(out, (int64_t)node->sockets * node->cores, "core");
        fputs(", ", out);
        write_count(out, (int64_t)node->sockets * node->cores * node->threads, "thread");
        fputs(", ", out);
    }
    fprintf(out, "%s\n", node->memory > 0 ? report_bytes(node->memory, memory)
                                          : "memory not known");
    write_gpus(out, node, job);
    if (node->features[0])
        fprintf(out, "  %-*s features %s\n", COLUMN, "", node->features);
}

/* Nodes that are alike share an entry, in the place of the first. */
static void write_nodes(FILE *out, const struct slurm_facts *facts)
{
    size_t n = (size_t)facts->n_nodes;
    bool *done = mem_new(n, sizeof(*done));
    const char **names = mem_new(n, sizeof(*names));

    for (int i = 0; i < facts->n_nodes; i++) {
        int same = 0;
        char *compact;

        if (done[i])
            continue;
        for (int j = i; j < facts->n_nodes; j++)
            if (!done[j] && alike(&facts->nodes[i], &facts->nodes[j])) {
                done[j] = true;
                names[same++] = facts->nodes[j].name;
            }
        compact = names_compact(same, names);
        write_kind(out, &facts->nodes[i], same, compact, facts->job[0]);
        free(compact);
    }
    free(done);
    free(names);
}

/* Slurm's default is 1 everywhere, which says nothing. */
static void write_speeds(FILE *out, const struct slurm_facts *facts)
{
    bool any = false;

    for (int i = 0; i < facts->n_switches; i++)
        any |= facts->switches[i].link_speed > 1;
    for (int i = 0; i < facts->n_switches && any; i++)
        fprintf(out, "%s%s %lld", i ? ", " : "\nlink speeds, in units of the site's own: ",
                facts->switches[i].name, (long long)facts->switches[i].link_speed);
    if (any)
        fputc('\n', out);
}

char *slurm_text(const struct slurm_facts *facts)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    if (facts->job[0])
        write_job(out, facts);
    else
        write_partition(out, facts);
    fprintf(out, "  %-*s %s, Slurm %s\n\n", COLUMN, "cluster",
            facts->cluster[0] ? facts->cluster : "not known", facts->version);
    if (facts->n_nodes > 0)
        fputs("nodes\n", out);
    write_nodes(out, facts);
    write_speeds(out, facts);
    fputc('\n', out);
    fclose(out);
    return text;
}
