/* SPDX-License-Identifier: MIT */
#include "topology/switches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/node_read.h"

#define MOST_LEVELS 4   /* a machine, a node, an island and a device want places, too */

static int count_dots(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '.';
    return n;
}

char *switches_path(const char *address, const char *pattern, struct err *err)
{
    size_t words = strlen(pattern), used = 0;
    int levels = count_dots(pattern);
    const char *at = address;
    char *path;

    if (words < 4 || strcmp(pattern + words - 4, "node") != 0 || count_dots(address) < levels ||
        strchr(address, '/')) {
        err_set(err, "SLURM_TOPOLOGY_ADDR=%s: does not fit its pattern %s", address, pattern);
        return NULL;
    }
    path = mem_new(strlen(address) + 2, 1);
    /* A level on which the node has no switch is empty; names of nodes may have dots. */
    for (; levels > 0; levels--) {
        size_t n = strcspn(at, ".");

        if (n > 0) {
            path[used++] = '/';
            memcpy(path + used, at, n);
            used += n;
        }
        at += n + 1;
    }
    if (used == 0)
        path[0] = '/';
    return path;
}

static int read_switches(struct topo_node *node, const struct topo_input *input,
                         struct err *err)
{
    char *address = topo_input_variable(input, "SLURM_TOPOLOGY_ADDR");
    char *pattern = topo_input_variable(input, "SLURM_TOPOLOGY_ADDR_PATTERN");
    char *job = topo_input_variable(input, "SLURM_JOB_ID"), *path = NULL;
    struct err trouble = { 0 };

    (void)err;
    if (address && pattern)
        path = switches_path(address, pattern, &trouble);
    if (path) {
        topo_node_set_text(&node->switches, path);
        topo_node_say(node, "switches", TOPO_USED, "%s",
                      strcmp(pattern, "node") == 0 ? "topology/none (SLURM_TOPOLOGY_ADDR)"
                      : path[1]                    ? "SLURM_TOPOLOGY_ADDR"
                                                   : "above this node (SLURM_TOPOLOGY_ADDR)");
    } else if (address && pattern) {
        topo_node_say(node, "switches", TOPO_FAILED, "%s", trouble.text);
    } else if (job) {
        topo_node_say(node, "switches", TOPO_ABSENT, "Slurm set no SLURM_TOPOLOGY_ADDR here");
    }
    free(address);
    free(pattern);
    free(job);
    free(path);
    return 0;
}

const struct topo_source topo_source_switches = { "switches", read_switches };

/* Nodes of which each still has 'rest' of its path to go. */
struct group {
    int n;
    int *nodes;
    const char **rest;
};

struct work {
    struct cluster *cluster;
    void (*place)(void *context, int node, int parent);
    void *context;
};

static struct group group_new(int n)
{
    return (struct group){ .nodes = mem_new((size_t)n, sizeof(int)),
                           .rest = mem_new((size_t)n, sizeof(char *)) };
}

static void group_add(struct group *group, int node, const char *rest)
{
    group->nodes[group->n] = node;
    group->rest[group->n++] = rest;
}

static void group_free(struct group *group)
{
    free(group->nodes);
    free(group->rest);
}

static const char *skip_slashes(const char *path)
{
    return path + strspn(path, "/");
}

/* Those after the first 'from' that go on to the same switch leave the group for 'same'. */
static void take_same(struct group *group, int from, struct group *same)
{
    const char *name = group->rest[from];
    size_t length = strcspn(name, "/");

    for (int i = from; i < group->n; i++) {
        const char *other = group->rest[i];

        if (!other || strcspn(other, "/") != length || strncmp(name, other, length) != 0)
            continue;
        group_add(same, group->nodes[i], skip_slashes(other + length));
        group->rest[i] = NULL;
    }
}

static void place_group(const struct work *work, struct group *group, int parent)
{
    for (int i = 0; i < group->n; i++) {
        const char *name = group->rest[i];
        struct group same;
        char *text;
        int place;

        if (!name)
            continue;
        if (!*name) {
            work->place(work->context, group->nodes[i], parent);
            continue;
        }
        text = mem_printf("%.*s", (int)strcspn(name, "/"), name);
        place = cluster_add_place(work->cluster, CLUSTER_SWITCH, text, parent,
                                  INFINITY);
        same = group_new(group->n - i);
        take_same(group, i, &same);
        place_group(work, &same, place);
        group_free(&same);
        free(text);
    }
}

static const char *lowest(const char *path)
{
    int levels = 0;

    for (const char *at = skip_slashes(path); *at; at = skip_slashes(at + strcspn(at, "/")))
        levels++;
    path = skip_slashes(path);
    for (; levels > MOST_LEVELS; levels--)
        path = skip_slashes(path + strcspn(path, "/"));
    return path;
}

void switches_place(struct cluster *cluster, int parent, int n, const char *const *paths,
                    void (*place)(void *context, int node, int parent), void *context)
{
    const struct work work = { cluster, place, context };
    int first = cluster->n_places;
    struct group all = group_new(n);

    for (int i = 0; i < n; i++)
        group_add(&all, i, lowest(paths[i]));
    place_group(&work, &all, parent);
    for (int p = first; p < cluster->n_places; p++)
        if (cluster->places[p].kind == CLUSTER_SWITCH)
            cluster->places[p].latency = cluster->places[parent].latency;
    group_free(&all);
}
