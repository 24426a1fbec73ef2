/* SPDX-License-Identifier: MIT */
/* tasuki plan --format svg: the stages on the devices of the tree. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cmd_plan.h"
#include "topology/cluster.h"
#include "topology/svg.h"

#define WIDTH 1100      /* that boxes are wrapped at; twice that where there are many */
#define PAD 6
#define HEAD 18         /* of a box: its name */
#define LINE 16
#define MOST_DEVICES 4096
#define MOST_STAGES 64  /* that are listed */
#define MANY 256        /* devices, whose cells are small */

/* A place and what is in it; 'x' and 'y' are seen from its parent. No width: not drawn. */
struct box {
    int x, y, w, h;
};

struct drawing {
    const struct plan *plan;
    const struct cluster *cluster;
    struct box *boxes;      /* of each place */
    int *stage;             /* of each device: its first; -1: none */
    char (*label)[32];      /* of each device: "STAGE.REPLICA ..." */
    FILE *out;
};

static void note_device(struct drawing *d, const char *id, int stage, int pipeline, int replica)
{
    int device = cluster_find_device(d->cluster, id);
    size_t used;

    if (device < 0)
        return;
    used = strlen(d->label[device]);
    if (d->stage[device] < 0)
        d->stage[device] = stage;
    snprintf(d->label[device] + used, sizeof(d->label[device]) - used, "%s%d.%d",
             used ? " " : "", stage, pipeline * d->plan->stages[stage].replicas + replica);
}

static void note_devices(struct drawing *d)
{
    for (int i = 0; i < d->cluster->n_devices; i++)
        d->stage[i] = -1;
    for (int s = 0; s < d->plan->n_stages; s++) {
        const struct plan_stage *stage = &d->plan->stages[s];

        for (int p = 0; p < d->plan->pipelines; p++)
            for (int r = 0; r < stage->replicas; r++)
                note_device(d, stage->devices[p * stage->replicas + r], s, p, r);
    }
}

/* Children side by side, in as many rows as they need. */
static void measure(struct drawing *d, int place, int width)
{
    struct box *box = &d->boxes[place];
    int x = PAD, y = HEAD, row = 0;
    bool small = d->cluster->n_devices > MANY;

    if (d->cluster->places[place].kind == CLUSTER_DEVICE) {
        box->w = small ? 34 : 62;
        box->h = small ? 20 : 36;
        return;
    }
    for (int c = place + 1; c < cluster_end(d->cluster, place); c = cluster_end(d->cluster, c)) {
        struct box *child = &d->boxes[c];

        if (cluster_device_from(d->cluster, c) >= MOST_DEVICES)
            break;
        measure(d, c, width - 2 * PAD);
        if (x > PAD && x + child->w + PAD > width) {
            x = PAD;
            y += row + PAD;
            row = 0;
        }
        child->x = x;
        child->y = y;
        x += child->w + PAD;
        box->w = x > box->w ? x : box->w;
        row = child->h > row ? child->h : row;
    }
    box->h = y + row + PAD;
}

/* Neighbouring stages get colours that are far apart. */
static void draw_color(const struct drawing *d, int stage, int x, int y, int w, int h)
{
    static const char *const colors[] = {
        "#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffff99", "#8dd3c7", "#fccde5",
        "#d9d9d9", "#e5c494", "#80b1d3", "#ccebc5",
    };

    fprintf(d->out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" stroke=\"#555\" "
            "fill=\"%s\"/>\n", x, y, w, h,
            colors[(size_t)stage % (sizeof(colors) / sizeof(colors[0]))]);
}

static void draw_device(const struct drawing *d, int place, int x, int y)
{
    const struct box *box = &d->boxes[place];
    int device = cluster_device_from(d->cluster, place), middle = x + box->w / 2;
    const char *id = d->cluster->devices[device].id, *slash = strrchr(id, '/');

    if (d->stage[device] >= 0)
        draw_color(d, d->stage[device], x, y, box->w, box->h);
    else
        svg_rect(d->out, "hid", x, y, box->w, box->h);
    svg_text(d->out, SVG_BOLD, SVG_MIDDLE, middle, y + 14, box->w - 2, d->label[device]);
    if (box->h > 30)
        svg_text(d->out, SVG_SMALL, SVG_MIDDLE, middle, y + 29, box->w - 2,
                 slash ? slash + 1 : id);
}

static void draw_place(const struct drawing *d, int place, int x, int y)
{
    const struct cluster_place *of = &d->cluster->places[place];
    const struct box *box = &d->boxes[place];

    if (of->kind == CLUSTER_DEVICE) {
        draw_device(d, place, x, y);
        return;
    }
    svg_rect(d->out, of->kind == CLUSTER_NODE ? "numa" : cluster_depth(d->cluster, place) % 2
                                                             ? "net2" : "net",
             x, y, box->w, box->h);
    svg_text(d->out, SVG_SMALL, SVG_START, x + PAD, y + 13, box->w - 2 * PAD,
             place ? of->name : d->cluster->name);
    for (int c = place + 1; c < cluster_end(d->cluster, place); c = cluster_end(d->cluster, c))
        if (d->boxes[c].w > 0)
            draw_place(d, c, x + d->boxes[c].x, y + d->boxes[c].y);
}

static void draw_title(const struct drawing *d, int y)
{
    const struct plan *plan = d->plan;
    char *text = mem_printf("%d pipeline%s of %d stage%s, %s, %lld micro-batches of %lld: "
                            "%.6g ms, %.6g samples/s", plan->pipelines,
                            plan->pipelines == 1 ? "" : "s", plan->n_stages,
                            plan->n_stages == 1 ? "" : "s", plan->schedule,
                            (long long)plan->micro_batches, (long long)plan->micro_batch,
                            1e3 * plan->iteration_seconds, plan->iteration_seconds > 0
                                ? (double)plan->global_batch / plan->iteration_seconds : 0);

    svg_text(d->out, SVG_TITLE, SVG_START, PAD, y, WIDTH, text);
    free(text);
}

static void draw_stage(const struct drawing *d, int s, int y)
{
    const struct plan_stage *stage = &d->plan->stages[s];
    const struct plan_block *first = &stage->blocks[0];
    const struct plan_block *last = &stage->blocks[stage->n_blocks - 1];
    char memory[32];
    char *text = mem_printf("stage %d: %d replica%s, F %.4g, B %.4g, W %.4g ms, %s", s,
                            stage->replicas, stage->replicas == 1 ? "" : "s",
                            1e3 * stage->forward, 1e3 * stage->dgrad, 1e3 * stage->wgrad,
                            bytes_text(stage->memory, memory));
    char *nodes = mem_printf("%s ... %s", first->first_node ? first->first_node : first->name,
                             last->last_node ? last->last_node : last->name);

    draw_color(d, s, PAD, y - 10, 12, 12);
    svg_text(d->out, SVG_BODY, SVG_START, 3 * PAD + 6, y, 440, text);
    svg_name(d->out, SVG_BODY, 470, y, WIDTH - 480, nodes);
    free(text);
    free(nodes);
}

static void draw_all(struct drawing *d, int top, int bottom)
{
    int n = d->plan->n_stages, listed = n < MOST_STAGES ? n : MOST_STAGES, y = bottom + LINE;
    int left_out = d->cluster->n_devices - MOST_DEVICES;

    draw_title(d, top - 8);
    draw_place(d, 0, PAD, top);
    for (int s = 0; s < listed; s++, y += LINE)
        draw_stage(d, s, y);
    if (listed < n || left_out > 0)
        fprintf(d->out, "<text class=\"body\" x=\"%d\" y=\"%d\">%d more stages, %d more devices"
                "</text>\n", PAD, y, n - listed, left_out > 0 ? left_out : 0);
}

char *plan_svg(const struct plan *plan, const struct cluster *cluster)
{
    const int top = 30, width = cluster->n_devices > MANY ? 2 * WIDTH : WIDTH;
    struct drawing d = { .plan = plan, .cluster = cluster };
    int stages = plan->n_stages < MOST_STAGES ? plan->n_stages : MOST_STAGES, bottom;
    char *body = NULL, *file;
    size_t size;

    d.out = open_memstream(&body, &size);
    if (!d.out)
        return NULL;
    d.boxes = mem_new((size_t)cluster->n_places, sizeof(*d.boxes));
    d.stage = mem_new((size_t)cluster->n_devices, sizeof(*d.stage));
    d.label = mem_new((size_t)cluster->n_devices, sizeof(*d.label));
    note_devices(&d);
    measure(&d, 0, width);
    bottom = top + d.boxes[0].h;
    draw_all(&d, top, bottom);
    fclose(d.out);
    file = svg_file(width + 2 * PAD, bottom + (stages + 2) * LINE, body);
    free(body);
    free(d.boxes);
    free(d.stage);
    free(d.label);
    return file;
}
