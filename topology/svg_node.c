/* SPDX-License-Identifier: MIT */
/* One node: what hangs where on PCI, and the NVLinks below. */
#include "topology/svg_node.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/model.h"
#include "topology/node.h"
#include "topology/report.h"
#include "topology/svg.h"
#include "topology/svg_leaves.h"

#define COLUMN 124      /* of a GPU or NIC, with its gap */
#define BOX 112
#define MARGIN 20
#define ROW 46

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

    svg_rect(out, class, left_of(first), y, width, 24);
    svg_text(out, SVG_BODY, SVG_MIDDLE, left_of(first) + width / 2, y + 16, width - 8, text);
}

static const struct topo_numa *numa_called(const struct topo_node *node, int id)
{
    for (int i = 0; i < node->n_numas; i++)
        if (node->numas[i].id == id)
            return &node->numas[i];
    return NULL;
}

/* A column for each that has neither GPUs nor NICs, behind the others. How many. */
static int write_bare_numas(FILE *out, const struct topo_node *node,
                            const struct leaves *leaves, int y)
{
    int column = leaves->n;

    for (int i = 0; i < node->n_numas; i++) {
        bool bare = true;
        char *text;

        for (int j = 0; j < leaves->n; j++)
            bare &= leaves->leaf[j].numa != node->numas[i].id;
        if (!bare)
            continue;
        text = mem_printf("NUMA %d: %s", node->numas[i].id, node->numas[i].cpus);
        write_span(out, "numa", column, column, y, text);
        column++;
        free(text);
    }
    return column - leaves->n;
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

        svg_line(out, "w", 1, x, top - ROW + 24, x, top);
        write_span(out, "sw", s->first, s->last, top, "PCIe switch");
    }
}

/* Three lines in a box. */
static void write_box(FILE *out, const char *class, int column, int y, const char *name,
                      const char *kind, const char *figure)
{
    int x = middle_of(column);

    svg_rect(out, class, left_of(column), y, BOX, 48);
    svg_text(out, SVG_BODY, SVG_MIDDLE, x, y + 15, BOX - 6, name);
    svg_text(out, SVG_SMALL, SVG_MIDDLE, x, y + 29, BOX - 6, kind);
    svg_text(out, SVG_SMALL, SVG_MIDDLE, x, y + 42, BOX - 6, figure);
}

/* The driver was asked, and does not show it. */
static bool is_hidden(const struct topo_node *node, int gpu)
{
    const struct topo_said *driver = topo_node_said(node, "nvml");

    return driver && driver->state == TOPO_USED && !node->gpus[gpu].seen;
}

static void write_gpu(FILE *out, const struct topo_node *node, int gpu, int column, int y)
{
    const struct topo_gpu *g = &node->gpus[gpu];
    char name[24], memory[24], text[32];
    const char *trouble = svg_trouble(node, gpu, text);
    bool hidden = is_hidden(node, gpu);

    snprintf(name, sizeof(name), "GPU%d", gpu);
    write_box(out, hidden ? "hid" : trouble ? "off" : "gpu", column, y, name,
              model_device_kind(g->name),
              hidden         ? "not shown"
              : trouble      ? trouble
              : g->memory > 0 ? report_bytes(g->memory, memory)
                              : "");
}

static void write_nic(FILE *out, const struct topo_node *node, int nic, int rail, int column,
                      int y)
{
    const struct topo_nic *n = &node->nics[nic];
    bool down = topo_nic_is_down(n);
    char name[24], rate[24];

    snprintf(name, sizeof(name), "NIC%d", rail);
    write_box(out, down ? "off" : "nic", column, y, name, n->name,
              down ? "down" : n->bandwidth > 0 ? report_rate(n->bandwidth, rate) : "");
}

static void write_leaves(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                         int switches, int y)
{
    for (int i = 0; i < leaves->n; i++) {
        const struct leaf *leaf = &leaves->leaf[i];

        svg_line(out, "w", 1, middle_of(i), switches + leaf->depth * ROW - ROW + 24,
                 middle_of(i), y);
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
        svg_line(out, "nv", 3, middle_of(i), y, middle_of(i), y + 30);
        snprintf(count, sizeof(count), "NV%d", n);
        svg_text(out, SVG_SMALL, SVG_START, middle_of(i) + 5, y + 19, BOX / 2, count);
    }
    return 54;
}

static double arc_width(int links)
{
    return 0.8 + 0.8 * links;
}

/* Direct links as arcs below the GPUs, as wide as they are many; bit n of '*counts': some
 * are n.
 * Returns their height: a curve stays within three quarters of its control points.
 */
static int write_arcs(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                      int y, unsigned *counts)
{
    int deepest = 0;

    *counts = 0;
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
                    "%d %d\"><title>GPU%d-GPU%d: NV%d</title></path>\n", arc_width(d.links),
                    middle_of(i), y, middle_of(i), y + depth, middle_of(j), y + depth,
                    middle_of(j), y, a, b, d.links);
            deepest = depth > deepest ? depth : deepest;
            *counts |= d.links < 31 ? 1u << d.links : 0;
        }
    return deepest * 3 / 4;
}

/* A line with its meaning behind it; where the next one goes is returned. */
static int write_sample(FILE *out, const char *class, double stroke, int x, int y,
                        const char *text)
{
    int width = svg_width(SVG_SMALL, text);

    svg_line(out, class, stroke, x, y - 4, x + 20, y - 4);
    svg_text(out, SVG_SMALL, SVG_START, x + 25, y, width, text);
    return x + 25 + width + 18;
}

/* Only what is in the drawing. Its width is returned. */
static int write_legend(FILE *out, const struct topo_node *node, const struct leaves *leaves,
                        int y, unsigned counts, bool switches)
{
    bool gpu = false, nic = false, off = false, hidden = false;
    char text[32];
    int x = MARGIN;

    for (int i = 0; i < leaves->n; i++) {
        const struct leaf *leaf = &leaves->leaf[i];

        gpu |= leaf->gpu >= 0;
        nic |= leaf->nic >= 0;
        hidden |= leaf->gpu >= 0 && is_hidden(node, leaf->gpu);
        off |= leaf->gpu >= 0 ? svg_trouble(node, leaf->gpu, text) != NULL
                              : topo_nic_is_down(&node->nics[leaf->nic]);
    }
    x = gpu ? svg_key(out, "gpu", x, y, "GPU") : x;
    x = nic ? svg_key(out, "nic", x, y, "NIC, its rail") : x;
    x = off ? svg_key(out, "off", x, y, "down or not well") : x;
    x = hidden ? svg_key(out, "hid", x, y, "hidden by the driver") : x;
    if (leaves->n == 0) {
        svg_text(out, SVG_SMALL, SVG_START, x, y, 4 * COLUMN,
                 "neither GPUs nor NICs on PCI were found");
        return x + svg_width(SVG_SMALL, "neither GPUs nor NICs on PCI were found");
    }
    x = write_sample(out, "w", 1, x, y, "PCIe");
    x = switches ? write_sample(out, "nv", 3, x, y, "NVLinks (NV#: how many)") : x;
    for (int n = 1; n < 31; n++)
        if (counts & 1u << n) {
            snprintf(text, sizeof(text), "%d NVLink%s", n, n == 1 ? "" : "s");
            x = write_sample(out, "nv", arc_width(n), x, y, text);
        }
    return x;
}

char *svg_of_node(const struct topo_node *node)
{
    struct leaves *leaves = leaves_of(node);
    int columns, y = 52, switches = y + ROW, row = switches + leaves->depth * ROW;
    int below = leaves->n ? row + 48 : y + 24, bar, arcs, width, room;
    char *body = NULL, *text, *title;
    unsigned counts;
    size_t size;
    FILE *out = open_memstream(&body, &size);

    columns = leaves->n + write_bare_numas(out, node, leaves, y);
    columns = columns > 4 ? columns : 4;
    title = mem_printf("%s: %d x %s, %d cores", node->host, node->packages,
                       node->cpu[0] ? node->cpu : "processor not known", node->cores);
    room = columns * COLUMN;
    if (svg_width(SVG_TITLE, title) > room)
        room = svg_width(SVG_TITLE, title) < 900 ? svg_width(SVG_TITLE, title) : 900;
    svg_text(out, SVG_TITLE, SVG_START, MARGIN, 32, room, title);
    write_numas(out, node, leaves, y);
    write_switches(out, leaves, switches);
    write_leaves(out, node, leaves, switches, row);
    bar = write_nvswitches(out, node, leaves, below);
    arcs = write_arcs(out, node, leaves, below + bar, &counts);
    width = write_legend(out, node, leaves, below + bar + arcs + 28, counts, bar > 0);
    fclose(out);
    text = svg_file((width > room + MARGIN ? width : room + MARGIN) + MARGIN,
                    below + bar + arcs + 44, body);
    free(title);
    free(body);
    leaves_free(leaves);
    return text;
}
