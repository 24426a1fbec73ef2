/* SPDX-License-Identifier: MIT */
/* The switch tree in words. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/names.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"

#define COLUMN 20

/* A machine on which nodes are virtual is no switch of the network. */
static bool is_switch(const struct cluster_place *place)
{
    return place->kind == CLUSTER_SWITCH && place->cores == 0;
}

static bool has_switches(const struct cluster *cluster)
{
    for (int i = 1; i < cluster->n_places; i++)
        if (is_switch(&cluster->places[i]))
            return true;
    return false;
}

static char *names_below(const struct cluster *cluster, int parent, enum cluster_kind kind)
{
    int end = cluster_end(cluster, parent), n = 0;
    const char **names = mem_new((size_t)(end - parent), sizeof(*names));
    char *text;

    for (int i = parent + 1; i < end; i++)
        if (cluster->places[i].parent == parent && cluster->places[i].kind == kind)
            names[n++] = cluster->places[i].name;
    text = names_compact(n, names);
    free(names);
    return text;
}

static void write_switch(FILE *out, const struct cluster *cluster, int place, int indent)
{
    const struct cluster_place *p = &cluster->places[place];
    char *nodes = names_below(cluster, place, CLUSTER_NODE);
    char *switches = names_below(cluster, place, CLUSTER_SWITCH), rate[24];

    fprintf(out, "%*s%-*s %s%s%s", indent, "", COLUMN - indent, p->name, switches,
            *switches && *nodes ? "," : "", nodes);
    if (isfinite(p->up_bandwidth))
        fprintf(out, "; %s up", report_rate(p->up_bandwidth, rate));
    fputc('\n', out);
    free(nodes);
    free(switches);
}

static void write_switches(FILE *out, const struct cluster *cluster)
{
    int *depth = mem_new((size_t)cluster->n_places, sizeof(int));

    for (int i = 1; i < cluster->n_places; i++) {
        const struct cluster_place *p = &cluster->places[i];

        depth[i] = depth[p->parent] + is_switch(p);
        if (is_switch(p))
            write_switch(out, cluster, i, 2 * depth[i]);
    }
    free(depth);
}

static void write_origin(FILE *out, const struct cluster *cluster, const struct topo_node *node)
{
    const struct topo_said *said = topo_node_said(node, "switches");

    if (has_switches(cluster)) {
        fprintf(out, "switches (%s)\n", said && said->state == TOPO_USED ? said->text
                                                                         : "from the file");
        write_switches(out, cluster);
    } else if (strcmp(node->switches, "/") == 0) {
        fprintf(out, "switches\n  no switches known: %s\n",
                said ? said->text : "the file has none");
    } else {
        fprintf(out, "switches\n  not collected: %s\n",
                said ? said->text : "this is no allocation of Slurm");
    }
    fputc('\n', out);
}

char *report_switches(const struct topo_record *record, const struct cluster *cluster,
                      struct err *err)
{
    int hosts = topo_record_hosts(record);
    struct topo_node *node = NULL;
    char *text = NULL;
    size_t size;
    FILE *out;

    /* A tree alone shows its switches itself, alike ones on one line. */
    if (hosts == 0)
        return mem_strdup("");
    node = topo_record_node(record, 0, err);
    if (!node)
        return NULL;
    out = open_memstream(&text, &size);
    if (out && (hosts != 1 || node->switches[0] || topo_node_said(node, "switches")))
        write_origin(out, cluster, node);
    if (out)
        fclose(out);
    topo_node_free(node);
    return text ? text : mem_strdup("");
}
