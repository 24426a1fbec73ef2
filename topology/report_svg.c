/* SPDX-License-Identifier: MIT */
/* Drawings: one node in detail, many as a grid. */
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
#include "topology/svg_leaves.h"
#include "topology/xml.h"

#define COLUMN 106      /* of a GPU or NIC, with its gap */
#define BOX 94
#define MARGIN 20
#define ROW 46

static const char style[] =
    "<style>text{font-family:sans-serif;font-size:11px;fill:#222}"
    ".t{font-size:15px;font-weight:bold}.s{font-size:9px}.m{text-anchor:middle}"
    ".numa{fill:#f4f1e8;stroke:#8a7f66}.sw{fill:#fff;stroke:#777}"
    ".gpu{fill:#cfe8cf;stroke:#2f7f2f}.nic{fill:#cfdcf0;stroke:#3f5f9f}"
    ".off{fill:#f2d0cc;stroke:#b03020}.nvs{fill:#e4f4e4;stroke:#2f7f2f}"
    ".w{stroke:#777;fill:none}.nv{stroke:#2f8f2f;fill:none}</style>\n";

static void open_svg(FILE *out, int width, int height)
{
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n%s<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            width, height, width, height, style, width, height);
}

static void write_rect(FILE *out, const char *class, int x, int y, int w, int h)
{
    fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\"/>\n",
            class, x, y, w, h);
}

static void write_text(FILE *out, const char *class, int x, int y, const char *text, int most)
{
    fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    xml_text_cut(out, text, most);
    fputs("</text>\n", out);
}

static void write_line(FILE *out, const char *class, int x, int from, int to)
{
    fprintf(out, "<line class=\"%s\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", class, x,
            from, x, to);
}

static int left_of(int column)
{
    return MARGIN + column * COLUMN;
}

static int middle_of(int column)
{
    return left_of(column) + BOX / 2;
}

/* A box over the columns from first to last, with text that fits. */
static void write_span(FILE *out, const char *class, int first, int last, int y,
                       const char *text)
{
    int width = (last - first) * COLUMN + BOX;

    write_rect(out, class, left_of(first), y, width, 24);
    write_text(out, "m", left_of(first) + width / 2, y + 16, text, width / 6);
}

static const struct topo_numa *numa_called(const struct topo_node *node, int id)
{
    for (int i = 0; i < node->n_numas; i++)
        if (node->numas[i].id == id)
            return &node->numas[i];
    return NULL;
}

static void write_numas(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                        int y)
{
    for (int first = 0, last; first < leaves->n; first = last + 1) {
        const struct topo_numa *numa = numa_called(node, leaves->leaf[first].numa);
        char *text;

        for (last = first; last + 1 < leaves->n &&
                           leaves->leaf[last + 1].numa == leaves->leaf[first].numa; last++) {}
        text = numa ? mem_printf(last > first ? "NUMA node %d, CPUs %s" : "NUMA %d: %s",
                                 numa->id, numa->cpus)
                    : mem_strdup(last > first ? "near to no NUMA node" : "no NUMA");
        write_span(out, "numa", first, last, y, text);
        free(text);
    }
}

/* Boxes of switches; wires from each to what is above it. */
static void write_switches(FILE *out, const struct leaves *leaves, int y)
{
    for (int i = 0; i < leaves->n_switches; i++) {
        const struct leaf_switch *s = &leaves->switches[i];
        int top = y + s->depth * ROW, x = left_of(s->first) + ((s->last - s->first) * COLUMN +
                                                               BOX) / 2;

        write_line(out, "w", x, top - ROW + 24, top);
        write_span(out, "sw", s->first, s->last, top, "PCIe switch");
    }
}

static void write_gpu(FILE *out, const struct topo_node *node, int gpu, int column, int y)
{
    const struct topo_gpu *g = &node->gpus[gpu];
    char name[24], memory[24];

    snprintf(name, sizeof(name), "GPU%d", gpu);
    write_rect(out, "gpu", left_of(column), y, BOX, 46);
    write_text(out, "m", middle_of(column), y + 15, name, 12);
    write_text(out, "m s", middle_of(column), y + 28, model_device_kind(g->name), 15);
    write_text(out, "m s", middle_of(column), y + 40,
               g->memory > 0 ? report_bytes(g->memory, memory) : "", 15);
}

static void write_nic(FILE *out, const struct topo_node *node, int nic, int rail, int column,
                      int y)
{
    const struct topo_nic *n = &node->nics[nic];
    char name[24], rate[24];

    snprintf(name, sizeof(name), "NIC%d", rail);
    write_rect(out, topo_nic_is_down(n) ? "off" : "nic", left_of(column), y, BOX, 46);
    write_text(out, "m", middle_of(column), y + 15, name, 12);
    write_text(out, "m s", middle_of(column), y + 28, n->name, 15);
    write_text(out, "m s", middle_of(column), y + 40,
               topo_nic_is_down(n) ? "down" : n->bandwidth > 0 ? report_rate(n->bandwidth, rate)
                                                               : "", 15);
}

static void write_leaves(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                         int switches, int y)
{
    for (int i = 0; i < leaves->n; i++) {
        const struct leaf *leaf = &leaves->leaf[i];

        write_line(out, "w", middle_of(i), switches + leaf->depth * ROW - ROW + 24, y);
        if (leaf->gpu >= 0)
            write_gpu(out, node, leaf->gpu, i, y);
        else
            write_nic(out, node, leaf->nic, leaf->rail, i, y);
    }
}

static int switch_links(const struct topo_gpu *gpu)
{
    int n = 0;

    for (int i = 0; i < gpu->n_links; i++)
        n += gpu->links[i].up == 1 && gpu->links[i].remote == TOPO_REMOTE_SWITCH;
    return n;
}

/* A bar that GPUs with links to switches hang on. Returns its height. */
static int write_nvswitches(FILE *out, const struct topo_node *node,
                            const struct leaves *leaves, int y)
{
    int first = -1, last = -1;
    char count[16];

    for (int i = 0; i < leaves->n; i++)
        if (leaves->leaf[i].gpu >= 0 && switch_links(&node->gpus[leaves->leaf[i].gpu])) {
            first = first < 0 ? i : first;
            last = i;
        }
    if (first < 0)
        return 0;
    write_span(out, "nvs", first, last, y + 30, "NVSwitches");
    for (int i = first; i <= last; i++) {
        int n = leaves->leaf[i].gpu >= 0 ? switch_links(&node->gpus[leaves->leaf[i].gpu]) : 0;

        if (n == 0)
            continue;
        fprintf(out, "<line class=\"nv\" stroke-width=\"3\" x1=\"%d\" y1=\"%d\" x2=\"%d\" "
                "y2=\"%d\"/>\n", middle_of(i), y, middle_of(i), y + 30);
        snprintf(count, sizeof(count), "NV%d", n);
        write_text(out, "s", middle_of(i) + 5, y + 19, count, 8);
    }
    return 66;
}

/* Direct links as arcs below the GPUs, as wide as they are many. Returns their height. */
static int write_arcs(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                      int y)
{
    int deepest = 0;

    for (int i = 0; i < leaves->n; i++)
        for (int j = i + 1; j < leaves->n; j++) {
            int a = leaves->leaf[i].gpu, b = leaves->leaf[j].gpu, depth = 22 + 14 * (j - i);
            struct topo_distance d;

            if (a < 0 || b < 0 ||
                (switch_links(&node->gpus[a]) && switch_links(&node->gpus[b])))
                continue;
            d = topo_distance_gpus(node, a, b);
            if (d.near != TOPO_NVLINK)
                continue;
            fprintf(out, "<path class=\"nv\" stroke-width=\"%g\" d=\"M%d %d C%d %d %d %d "
                    "%d %d\"><title>GPU%d-GPU%d: NV%d</title></path>\n", 0.8 + 0.8 * d.links,
                    middle_of(i), y, middle_of(i), y + depth, middle_of(j), y + depth,
                    middle_of(j), y, a, b, d.links);
            deepest = depth > deepest ? depth : deepest;
        }
    return deepest;
}

static void write_legend(FILE *out, int y, bool arcs)
{
    write_text(out, "s", MARGIN, y, arcs ? "green arcs: NVLinks, the wider the more; grey: PCIe"
                                         : "green: NVLinks, with their number; grey: PCIe", 80);
}

static char *one_node(const struct topo_node *node)
{
    struct leaves *leaves = leaves_of(node);
    int columns = leaves->n > 4 ? leaves->n : 4, y = 56, switches = y + ROW;
    int row = switches + leaves->depth * ROW, below, bar, arcs;
    char *body = NULL, *text = NULL, *title;
    size_t size;
    FILE *out = open_memstream(&body, &size);

    title = mem_printf("%s: %d x %s, %d cores", node->host, node->packages, node->cpu,
                       node->cores);
    write_text(out, "t", MARGIN, 32, title, (columns * COLUMN) / 9);
    if (leaves->n == 0)
        write_text(out, "", MARGIN, y + 16, "neither GPUs nor NICs on PCI were found", 60);
    write_numas(out, node, leaves, y);
    write_switches(out, leaves, switches);
    write_leaves(out, node, leaves, switches, row);
    below = row + 46;
    bar = write_nvswitches(out, node, leaves, below);
    arcs = write_arcs(out, node, leaves, below + bar);
    write_legend(out, below + bar + arcs + 24, arcs > 0);
    fclose(out);
    out = open_memstream(&text, &size);
    open_svg(out, 2 * MARGIN + columns * COLUMN, below + bar + arcs + 40);
    fputs(body, out);
    fputs("</svg>\n", out);
    fclose(out);
    free(title);
    free(body);
    leaves_free(leaves);
    return text;
}

/* Many nodes: a cell for each. */

#define CELL 152
#define CELL_HEIGHT 96

struct glance {         /* what a cell shows of a kind of node */
    int n_gpus, n_rails, n_down;
    char *kind;
};

static struct glance *glances_of(const struct topo_record *record, struct err *err)
{
    int n = topo_record_kinds(record);
    struct glance *glances = mem_new((size_t)n, sizeof(*glances));

    for (int k = 0; k < n; k++) {
        struct topo_node *node;
        int first, *rails;

        topo_record_count(record, k, &first);
        node = topo_record_node(record, first, err);
        if (!node) {
            for (int i = 0; i < k; i++)
                free(glances[i].kind);
            free(glances);
            return NULL;
        }
        glances[k].n_gpus = node->n_gpus;
        glances[k].n_rails = topo_rails(node, &rails);
        for (int i = 0; i < glances[k].n_rails; i++)
            glances[k].n_down += topo_nic_is_down(&node->nics[rails[i]]);
        glances[k].kind = mem_strdup(node->n_gpus ? model_device_kind(node->gpus[0].name)
                                                  : node->cpu);
        free(rails);
        topo_node_free(node);
    }
    return glances;
}

static void write_dots(FILE *out, const char *class, int n, int bad, int x, int y, int size)
{
    int shown = n > 16 ? 16 : n;

    for (int i = 0; i < shown; i++)
        write_rect(out, i < bad ? "off" : class, x + i % 8 * 17, y + i / 8 * (size + 3), 14,
                   size);
}

static void write_cell(FILE *out, const struct topo_record *record, int host,
                       const struct glance *g, int x, int y)
{
    char *count = g->n_gpus ? mem_printf("%d x %s", g->n_gpus, g->kind) : mem_strdup(g->kind);

    write_rect(out, "sw", x, y, CELL - 8, CELL_HEIGHT - 8);
    write_text(out, "", x + 6, y + 15, topo_record_host(record, host), 22);
    write_text(out, "s", x + 6, y + 27, count, 27);
    write_dots(out, "gpu", g->n_gpus, 0, x + 5, y + 33, 12);
    write_dots(out, "nic", g->n_rails, g->n_down, x + 5, y + 65, 6);
    free(count);
}

/* The switch that a node hangs on in the tree: 0 is the root. */
static int switch_of(const struct cluster *cluster, const char *host)
{
    for (int i = 1; i < cluster->n_places; i++)
        if (cluster->places[i].kind == CLUSTER_NODE &&
            strcmp(cluster->places[i].name, host) == 0)
            return cluster->places[i].parent;
    return 0;
}

static char *many_nodes(const struct topo_record *record, const struct cluster *cluster,
                        const struct glance *glances)
{
    int n = topo_record_hosts(record), columns = n < 8 ? n : 8, column = 0, y = 50, last = -1;
    char *body = NULL, *text = NULL;
    size_t size;
    FILE *out = open_memstream(&body, &size);

    write_text(out, "t", MARGIN, 30, cluster->name, columns * CELL / 9);
    for (int i = 0; i < n; i++) {
        int parent = n <= 4096 ? switch_of(cluster, topo_record_host(record, i)) : 0;

        if (parent != last) {
            y += column ? CELL_HEIGHT : 0;
            column = 0;
            write_text(out, "", MARGIN, y + 14, parent ? cluster->places[parent].name
                                                       : "network", 60);
            write_rect(out, "nvs", MARGIN, y + 20, columns * CELL - 8, 6);
            y += 34;
            last = parent;
        }
        if (column == columns) {
            column = 0;
            y += CELL_HEIGHT;
        }
        write_cell(out, record, i, &glances[topo_record_kind(record, i)],
                   MARGIN + column++ * CELL, y);
    }
    write_text(out, "s", MARGIN, y + CELL_HEIGHT + 12, "green: GPUs; blue: NICs; red: down",
               60);
    fclose(out);
    out = open_memstream(&text, &size);
    open_svg(out, 2 * MARGIN + (columns < 3 ? 3 : columns) * CELL, y + CELL_HEIGHT + 24);
    fputs(body, out);
    fputs("</svg>\n", out);
    fclose(out);
    free(body);
    return text;
}

char *report_svg(const struct topo_record *record, const struct cluster *cluster,
                 struct err *err)
{
    char *text = NULL;

    if (topo_record_hosts(record) == 1) {
        struct topo_node *node = topo_record_node(record, 0, err);

        if (node)
            text = one_node(node);
        topo_node_free(node);
    } else {
        struct glance *glances = glances_of(record, err);

        if (glances)
            text = many_nodes(record, cluster, glances);
        for (int k = 0; glances && k < topo_record_kinds(record); k++)
            free(glances[k].kind);
        free(glances);
    }
    return text;
}
