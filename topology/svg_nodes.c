/* SPDX-License-Identifier: MIT */
/* Many nodes: first frames with their cells, then how large they are, then the drawing. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/distance.h"
#include "topology/model.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/svg.h"
#include "topology/svg_node.h"

#define MARGIN 20
#define PAD 8           /* inside a frame, and between frames */
#define HEAD 22         /* of a frame, with its name */
#define CELL 152
#define INSIDE (CELL - 8 - 12)
#define ACROSS 8        /* cells beside each other */
#define MOST_MARKS 32   /* of GPUs or NICs in a cell */
#define MOST_SINGLE 256 /* more nodes share cells */
#define MOST_CELLS 1024

struct glance {         /* what a cell shows of a kind of node */
    int n_gpus, n_rails;
    bool gpu_bad[MOST_MARKS], rail_bad[MOST_MARKS], links;
    char *kind, trouble[64];
};

struct cell {
    const char *name, *last;
    int glance, n;      /* n nodes that are alike, up to 'last' */
};

struct frame {
    const char *name;
    int n_cells, n_frames;
    struct cell *cells;
    struct frame *frames;
    int columns, width, height;
};

struct drawing {
    const struct topo_record *record;
    const struct cluster *cluster;
    int n_glances;          /* kinds of the record first, then those that only the tree has */
    struct glance *glances;
    bool *seen;             /* hosts that the tree has */
    int n_nodes, n_cells, n_left_out;
    int cell_height;
};

static bool has_link(const struct topo_gpu *gpu)
{
    for (int i = 0; i < gpu->n_links; i++)
        if (gpu->links[i].up == 1)
            return true;
    return false;
}

static void look_at(struct glance *g, const struct topo_node *node)
{
    int *rails, down = 0;
    char text[32];

    g->n_gpus = node->n_gpus;
    g->n_rails = topo_rails(node, &rails);
    g->kind = node->n_gpus ? mem_printf("%d x %s", node->n_gpus,
                                        model_device_kind(node->gpus[0].name))
                           : mem_strdup(node->cpu);
    for (int i = 0; i < g->n_rails; i++) {
        bool bad = topo_nic_is_down(&node->nics[rails[i]]);

        down += bad;
        if (i < MOST_MARKS)
            g->rail_bad[i] = bad;
    }
    if (down)
        snprintf(g->trouble, sizeof(g->trouble), "%d NIC%s down", down, down > 1 ? "s" : "");
    for (int i = node->n_gpus - 1; i >= 0; i--) {
        const char *trouble = svg_trouble(node, i, text);

        g->links |= has_link(&node->gpus[i]);
        if (i < MOST_MARKS)
            g->gpu_bad[i] = trouble != NULL;
        if (trouble)
            snprintf(g->trouble, sizeof(g->trouble), "GPU%d: %s", i, trouble);
    }
    free(rails);
}

static int look_at_all(struct drawing *d, struct err *err)
{
    int n = topo_record_kinds(d->record);

    for (int k = 0; k < n; k++) {
        struct glance *g = mem_push((void **)&d->glances, &d->n_glances, sizeof(*g));
        struct topo_node *node;
        int first;

        topo_record_count(d->record, k, &first);
        node = topo_record_node(d->record, first, err);
        if (!node)
            return -1;
        look_at(g, node);
        topo_node_free(node);
    }
    return 0;
}

/* Of a node that nobody described, its devices. The index of what is known of such nodes. */
static int look_at_place(struct drawing *d, int place)
{
    const struct cluster *c = d->cluster;
    const char *kind = NULL;
    struct glance g = { 0 };
    int n = 0, end = cluster_end(c, place);

    for (int i = place; i < end; i++)
        if (c->places[i].kind == CLUSTER_DEVICE) {
            kind = kind ? kind : cluster_device_at(c, i)->kind;
            n++;
        }
    g.n_gpus = kind && strcmp(kind, "cpu") != 0 ? n : 0;
    g.kind = g.n_gpus ? mem_printf("%d x %s", n, kind) : mem_strdup("CPUs");
    for (int i = topo_record_kinds(d->record); i < d->n_glances; i++)
        if (strcmp(d->glances[i].kind, g.kind) == 0) {
            free(g.kind);
            return i;
        }
    *(struct glance *)mem_push((void **)&d->glances, &d->n_glances, sizeof(g)) = g;
    return d->n_glances - 1;
}

static void add_cell(struct drawing *d, struct frame *frame, const char *name, int glance)
{
    struct cell *last = frame->n_cells ? &frame->cells[frame->n_cells - 1] : NULL;

    if (last && d->n_nodes > MOST_SINGLE && last->glance == glance) {
        last->last = name;
        last->n++;
    } else if (d->n_cells == MOST_CELLS) {
        d->n_left_out++;
    } else {
        *(struct cell *)mem_push((void **)&frame->cells, &frame->n_cells, sizeof(*last)) =
            (struct cell){ name, name, glance, 1 };
        d->n_cells++;
    }
}

static void add_node(struct drawing *d, struct frame *frame, int place)
{
    const char *name = d->cluster->places[place].name;
    int host = topo_record_find(d->record, name);

    if (host >= 0)
        d->seen[host] = true;
    add_cell(d, frame, name, host >= 0 ? topo_record_kind(d->record, host)
                                       : look_at_place(d, place));
}

/* The switches and nodes below a place. */
static struct frame frame_of(struct drawing *d, int place)
{
    const struct cluster *c = d->cluster;
    struct frame frame = { .name = place ? c->places[place].name : "network" };
    int end = cluster_end(c, place);

    for (int i = place + 1; i < end; i = cluster_end(c, i)) {
        struct frame below;

        if (c->places[i].kind == CLUSTER_NODE)
            add_node(d, &frame, i);
        if (c->places[i].kind != CLUSTER_SWITCH)
            continue;
        below = frame_of(d, i);
        if (below.n_cells || below.n_frames)
            *(struct frame *)mem_push((void **)&frame.frames, &frame.n_frames, sizeof(frame)) =
                below;
    }
    return frame;
}

static void frame_clear(struct frame *frame)
{
    for (int i = 0; i < frame->n_frames; i++)
        frame_clear(&frame->frames[i]);
    free(frame->frames);
    free(frame->cells);
}

static int marks_rows(int n)
{
    return n == 0 ? 0 : n > 8 ? 2 : 1;
}

static int rows_height(const struct glance *g)
{
    return marks_rows(g->n_gpus) * 15 + (g->links ? 6 : 0) + marks_rows(g->n_rails) * 11;
}

static int rows_of(int n, int columns)
{
    return columns ? (n + columns - 1) / columns : 0;
}

/* Frames go beside each other as long as there is room. Their width and height. */
static void place_frames(const struct frame *frame, int *width, int *height,
                         void (*draw)(const struct drawing *, FILE *, const struct frame *, int,
                                      int, int), const struct drawing *d, FILE *out, int left,
                         int top, int depth)
{
    int x = 0, y = 0, tallest = 0;

    *width = 0;
    for (int i = 0; i < frame->n_frames; i++) {
        const struct frame *f = &frame->frames[i];

        if (x > 0 && x + f->width > ACROSS * CELL + 12 * PAD) {
            x = 0;
            y += tallest + PAD;
            tallest = 0;
        }
        if (draw)
            draw(d, out, f, left + x, top + y, depth);
        x += f->width + PAD;
        tallest = f->height > tallest ? f->height : tallest;
        *width = x > *width ? x : *width;
    }
    *height = frame->n_frames ? y + tallest + PAD : 0;
}

static void measure(struct frame *frame, int cell_height)
{
    int rows = rows_of(frame->n_cells, ACROSS), width, height;

    for (int i = 0; i < frame->n_frames; i++)
        measure(&frame->frames[i], cell_height);
    frame->columns = rows ? rows_of(frame->n_cells, rows) : 0;
    place_frames(frame, &width, &height, NULL, NULL, NULL, 0, 0, 0);
    frame->width = PAD + (width > frame->columns * CELL ? width : frame->columns * CELL);
    frame->height = HEAD + rows * cell_height + height;
}

/* At most two rows of marks. */
static int write_marks(FILE *out, const char *class, int n, const bool *bad, int x, int y,
                       int size)
{
    int across = n > 16 ? 16 : 8, wide = INSIDE / across;

    for (int i = 0; i < n && i < MOST_MARKS; i++)
        svg_rect(out, bad[i] ? "off" : class, x + i % across * wide,
                 y + i / across * (size + 3), wide - 3, size);
    return marks_rows(n) * (size + 3);
}

/* Without its domain where that is too long. */
static void write_host(FILE *out, const struct cell *cell, int x, int y)
{
    char *text = cell->n == 1 ? mem_strdup(cell->name)
                              : mem_printf("%s ... %s", cell->name, cell->last);

    if (cell->n == 1 && svg_width(SVG_BOLD, text) > INSIDE)
        text[strcspn(text, ".")] = '\0';
    svg_name(out, SVG_BOLD, x, y, INSIDE, text);
    free(text);
}

static void write_cell(const struct drawing *d, FILE *out, const struct cell *cell, int x,
                       int y)
{
    const struct glance *g = &d->glances[cell->glance];
    char *text = mem_printf("%d nodes alike", cell->n);
    int at = y + 36;

    svg_rect(out, g->trouble[0] ? "off" : "sw", x, y, CELL - PAD, d->cell_height - PAD);
    write_host(out, cell, x + 6, y + 15);
    svg_text(out, SVG_SMALL, SVG_START, x + 6, y + 28, INSIDE, g->kind);
    at += write_marks(out, "gpu", g->n_gpus, g->gpu_bad, x + 6, at, 12);
    if (g->links) {
        svg_rect(out, "bar", x + 6, at, (g->n_gpus < 8 ? g->n_gpus : 8) * (INSIDE / 8) - 3, 3);
        at += 6;
    }
    write_marks(out, "nic", g->n_rails, g->rail_bad, x + 6, at, 8);
    if (g->trouble[0] || cell->n > 1)
        svg_text(out, g->trouble[0] ? SVG_WARNING : SVG_SMALL, SVG_START, x + 6,
                 y + d->cell_height - PAD - 5, INSIDE, g->trouble[0] ? g->trouble : text);
    free(text);
}

static void write_frame(const struct drawing *d, FILE *out, const struct frame *f, int x, int y,
                        int depth)
{
    int rows = rows_of(f->n_cells, f->columns), width, height;

    svg_rect(out, depth % 2 ? "net2" : "net", x, y, f->width, f->height);
    svg_name(out, SVG_BOLD, x + PAD, y + 15, f->width - 2 * PAD, f->name);
    for (int i = 0; i < f->n_cells; i++)
        write_cell(d, out, &f->cells[i], x + PAD + i % f->columns * CELL,
                   y + HEAD + i / f->columns * d->cell_height);
    place_frames(f, &width, &height, write_frame, d, out, x + PAD,
                 y + HEAD + rows * d->cell_height, depth + 1);
}

static bool any_trouble(const struct drawing *d)
{
    for (int k = 0; k < d->n_glances; k++)
        if (d->glances[k].trouble[0])
            return true;
    return false;
}

static int write_legend(const struct drawing *d, FILE *out, int y)
{
    bool gpu = false, nic = false, links = false;
    int x = MARGIN;
    char *text;

    for (int k = 0; k < d->n_glances; k++) {
        gpu |= d->glances[k].n_gpus > 0;
        nic |= d->glances[k].n_rails > 0;
        links |= d->glances[k].links;
    }
    x = gpu ? svg_key(out, "gpu", x, y, "GPU") : x;
    x = nic ? svg_key(out, "nic", x, y, "NIC") : x;
    x = links ? svg_key(out, "bar", x, y, "NVLinks") : x;
    x = any_trouble(d) ? svg_key(out, "off", x, y, "down or not well") : x;
    if (d->n_left_out) {
        text = mem_printf("and %d more nodes", d->n_left_out);
        svg_text(out, SVG_SMALL, SVG_START, x, y, svg_width(SVG_SMALL, text), text);
        x += svg_width(SVG_SMALL, text);
        free(text);
    }
    return x;
}

static char *draw(struct drawing *d, struct frame *top)
{
    char *body = NULL, *text, *title;
    int tallest = 0, width, bottom;
    size_t size;
    FILE *out;

    for (int k = 0; k < d->n_glances; k++)
        tallest = rows_height(&d->glances[k]) > tallest ? rows_height(&d->glances[k]) : tallest;
    d->cell_height = 36 + tallest + (any_trouble(d) || d->n_nodes > MOST_SINGLE ? 16 : 2) + PAD;
    measure(top, d->cell_height);
    out = open_memstream(&body, &size);
    title = mem_printf("%s: %d nodes", d->cluster->name, d->n_nodes);
    bottom = 46 + top->height + 24;
    write_frame(d, out, top, MARGIN, 46, 0);
    width = write_legend(d, out, bottom);
    width = width > MARGIN + top->width ? width : MARGIN + top->width;
    width = width > 400 ? width : 400;
    svg_text(out, SVG_TITLE, SVG_START, MARGIN, 30, width - MARGIN, title);
    fclose(out);
    text = svg_file(width + MARGIN, bottom + 16, body);
    free(title);
    free(body);
    return text;
}

char *svg_of_nodes(const struct topo_record *record, const struct cluster *cluster,
                   struct err *err)
{
    struct drawing d = { .record = record, .cluster = cluster };
    int n = topo_record_hosts(record);
    char *text = NULL;

    d.seen = mem_new((size_t)n, sizeof(bool));
    for (int i = 0; i < cluster->n_places; i++)
        d.n_nodes += cluster->places[i].kind == CLUSTER_NODE;
    d.n_nodes = d.n_nodes > n ? d.n_nodes : n;
    if (look_at_all(&d, err) == 0) {
        struct frame top = frame_of(&d, 0);

        for (int i = 0; i < n; i++)
            if (!d.seen[i])
                add_cell(&d, &top, topo_record_host(record, i), topo_record_kind(record, i));
        text = draw(&d, &top);
        frame_clear(&top);
    }
    for (int k = 0; k < d.n_glances; k++)
        free(d.glances[k].kind);
    free(d.glances);
    free(d.seen);
    return text;
}
