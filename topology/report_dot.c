/* SPDX-License-Identifier: MIT */
/* For Graphviz: one node in detail, or the tree of many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/distance.h"
#include "topology/model.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/report.h"
#include "topology/xml.h"

static void write_box(FILE *out, const char *kind, int id, const char *label, const char *style)
{
    fprintf(out, "  %s%d [label=", kind, id);
    dot_text(out, label);
    fprintf(out, "%s];\n", style);
}

static void write_bridges(FILE *out, const struct topo_node *node)
{
    char rate[24];

    for (int i = 0; i < node->n_pcis; i++) {
        const struct topo_pci *p = &node->pcis[i];

        if (p->kind == TOPO_PCI_DEVICE)
            continue;
        write_box(out, "pci", i, p->address, p->kind == TOPO_PCI_HOST
                                                 ? ", shape=box, style=rounded"
                                                 : ", shape=ellipse");
        if (p->parent >= 0)
            fprintf(out, "  pci%d -- pci%d [label=\"%s\"];\n", p->parent, i,
                    p->bandwidth > 0 ? report_rate(p->bandwidth, rate) : "");
        else if (p->numa >= 0)
            fprintf(out, "  numa%d -- pci%d;\n", p->numa, i);
    }
}

/* A device hangs on its bridge, or on its NUMA node where none is known. */
static void write_leaf(FILE *out, const struct topo_node *node, const char *address, int numa,
                       const char *name)
{
    int pci = topo_node_find_pci(node, address);
    int parent = pci >= 0 ? node->pcis[pci].parent : -1;

    if (parent >= 0)
        fprintf(out, "  pci%d -- %s;\n", parent, name);
    else if (numa >= 0)
        fprintf(out, "  numa%d -- %s;\n", numa, name);
}

static void write_gpus(FILE *out, const struct topo_node *node)
{
    for (int i = 0; i < node->n_gpus; i++) {
        const struct topo_gpu *gpu = &node->gpus[i];
        char *label = mem_printf("GPU%d %s", i, model_device_kind(gpu->name)), name[16];

        write_box(out, "gpu", i, label, ", shape=box, style=filled, fillcolor=\"#cfe8cf\"");
        snprintf(name, sizeof(name), "gpu%d", i);
        write_leaf(out, node, gpu->address, gpu->numa, name);
        free(label);
    }
}

static void write_nics(FILE *out, const struct topo_node *node)
{
    int *rails, n = topo_rails(node, &rails);

    for (int i = 0; i < n; i++) {
        const struct topo_nic *nic = &node->nics[rails[i]];
        char rate[24], name[16];
        char *label = mem_printf("NIC%d %s%s%s", i, nic->name, nic->bandwidth > 0 ? " " : "",
                                 nic->bandwidth > 0 ? report_rate(nic->bandwidth, rate) : "");

        write_box(out, "nic", i, label, ", shape=box, style=filled, fillcolor=\"#cfdcf0\"");
        snprintf(name, sizeof(name), "nic%d", i);
        write_leaf(out, node, nic->address, nic->numa, name);
        free(label);
    }
    free(rails);
}

static bool has_switch(const struct topo_gpu *gpu)
{
    for (int i = 0; i < gpu->n_links; i++)
        if (gpu->links[i].up == 1 && gpu->links[i].remote == TOPO_REMOTE_SWITCH)
            return true;
    return false;
}

static void write_nvlinks(FILE *out, const struct topo_node *node)
{
    bool switches = false;

    for (int i = 0; i < node->n_gpus; i++)
        if (has_switch(&node->gpus[i])) {
            if (!switches)
                fputs("  nvswitch [label=\"NVSwitches\", shape=box];\n", out);
            switches = true;
            fprintf(out, "  gpu%d -- nvswitch [color=\"#2f8f2f\", penwidth=2];\n", i);
        }
    for (int i = 0; i < node->n_gpus; i++)
        for (int j = i + 1; j < node->n_gpus; j++) {
            struct topo_distance d = topo_distance_gpus(node, i, j);

            if (d.near == TOPO_NVLINK && !(has_switch(&node->gpus[i]) &&
                                           has_switch(&node->gpus[j])))
                fprintf(out, "  gpu%d -- gpu%d [label=\"NV%d\", color=\"#2f8f2f\", penwidth=2, "
                        "constraint=false];\n", i, j, d.links);
        }
}

static void write_node(FILE *out, const struct topo_node *node)
{
    for (int i = 0; i < node->n_numas; i++) {
        char *label = mem_printf("NUMA node %d\nCPUs %s", node->numas[i].id,
                                 node->numas[i].cpus);

        for (char *c = label; *c; c++)
            *c = *c == '\n' ? ' ' : *c;
        write_box(out, "numa", node->numas[i].id, label, ", shape=box");
        free(label);
    }
    for (int i = 1; i < node->n_numas; i++)
        fprintf(out, "  numa%d -- numa%d [style=dashed];\n", node->numas[i - 1].id,
                node->numas[i].id);
    write_bridges(out, node);
    write_gpus(out, node);
    write_nics(out, node);
    write_nvlinks(out, node);
}

static void write_tree(FILE *out, const struct cluster *cluster)
{
    for (int i = 0; i < cluster->n_places; i++) {
        const struct cluster_place *p = &cluster->places[i];
        const char *name = p->kind == CLUSTER_DEVICE ? cluster_device_at(cluster, i)->id
                           : i == 0                  ? cluster->name
                                                     : p->name;
        char rate[24];

        write_box(out, "place", i, name, p->kind == CLUSTER_DEVICE ? "" : ", shape=box");
        if (i > 0)
            fprintf(out, "  place%d -- place%d [label=\"%s\"];\n", p->parent, i,
                    isinf(p->up_bandwidth) ? "" : report_rate(p->up_bandwidth, rate));
    }
}

char *report_dot(const struct topo_record *record, const struct cluster *cluster,
                 struct err *err)
{
    bool one = topo_record_hosts(record) == 1;
    struct topo_node *node = one ? topo_record_node(record, 0, err) : NULL;
    char *text = NULL;
    size_t size;
    FILE *out;

    if (one && !node)
        return NULL;
    out = open_memstream(&text, &size);
    if (!out)
        return mem_strdup("");
    fputs("graph ", out);
    dot_text(out, one ? node->host : cluster->name);
    fputs(" {\n  node [fontname=\"sans-serif\", fontsize=10];\n"
          "  edge [fontname=\"sans-serif\", fontsize=8];\n", out);
    if (one)
        write_node(out, node);
    else
        write_tree(out, cluster);
    fputs("}\n", out);
    fclose(out);
    topo_node_free(node);
    return text;
}
