/* SPDX-License-Identifier: MIT */
#include "topology/svg.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/node.h"
#include "topology/xml.h"

static const char style[] =
    "<style>text{font-family:sans-serif;fill:#222}"
    ".title{font-size:15px;font-weight:bold}.body{font-size:11px}"
    ".bold{font-size:11px;font-weight:bold}.small{font-size:10px}"
    ".warning{font-size:10px;fill:#a02010}.m{text-anchor:middle}"
    ".numa{fill:#f4f1e8;stroke:#8a7f66}.sw{fill:#fff;stroke:#777}"
    ".net{fill:#f6f6fa;stroke:#9a9aa8}.net2{fill:#ececf4;stroke:#9a9aa8}"
    ".gpu{fill:#cfe8cf;stroke:#2f7f2f}.nic{fill:#cfdcf0;stroke:#3f5f9f}"
    ".off{fill:#f2d0cc;stroke:#b03020}.hid{fill:#eee;stroke:#999;stroke-dasharray:3 2}"
    ".nvs{fill:#e4f4e4;stroke:#2f7f2f}.bar{fill:#2f8f2f;stroke:none}"
    ".w{stroke:#777;fill:none}.nv{stroke:#2f8f2f;fill:none}</style>\n";

static const struct { const char *class; double size, bold; } kinds[] = {
    [SVG_TITLE] = { "title", 15, 1.1 },  [SVG_BODY] = { "body", 11, 1 },
    [SVG_BOLD] = { "bold", 11, 1.1 },    [SVG_SMALL] = { "small", 10, 1 },
    [SVG_WARNING] = { "warning", 10, 1 },
};

char *svg_file(int width, int height, const char *body)
{
    return mem_printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "viewBox=\"0 0 %d %d\">\n%s<rect width=\"%d\" height=\"%d\" "
                      "fill=\"#fff\"/>\n%s</svg>\n", width, height, width, height, style, width,
                      height, body);
}

void svg_rect(FILE *out, const char *class, int x, int y, int w, int h)
{
    fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\"/>\n",
            class, x, y, w, h);
}

void svg_line(FILE *out, const char *class, double width, int x1, int y1, int x2, int y2)
{
    fprintf(out, "<line class=\"%s\" stroke-width=\"%g\" x1=\"%d\" y1=\"%d\" x2=\"%d\" "
            "y2=\"%d\"/>\n", class, width, x1, y1, x2, y2);
}

static bool starts_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;   /* UTF-8 */
}

/* In ems, of the wider of the usual sans-serif fonts. */
static double em_of(const char *c)
{
    if (!starts_character(*c))
        return 0;
    if ((unsigned char)*c >= 0x80)
        return 1;
    if (strchr("iljI|.,:;'!()[] -/f", *c))
        return 0.42;
    if (strchr("rt", *c))
        return 0.46;
    if (strchr("mwMW@%", *c))
        return 1;
    return (*c >= 'A' && *c <= 'Z') || strchr("#$&+<=>^~_", *c) ? 0.84 : 0.65;
}

static double ems_of(const char *text, const char *end)
{
    double sum = 0;

    for (; text < end; text++)
        sum += em_of(text);
    return sum;
}

int svg_width(enum svg_text kind, const char *text)
{
    return (int)(ems_of(text, text + strlen(text)) * kinds[kind].size * kinds[kind].bold + 1);
}

static const char *before(const char *text, const char *at)
{
    while (at > text && !starts_character(*--at)) {}
    return at;
}

static const char *behind(const char *at)
{
    while (*at && !starts_character(*++at)) {}
    return at;
}

/* What fits: characters are left out at the end, or in the middle. malloc'ed. */
static char *fit(enum svg_text kind, int room, const char *text, bool middle)
{
    const char *end = text + strlen(text), *head = end, *tail = end;
    double most = room / (kinds[kind].size * kinds[kind].bold);

    if (ems_of(text, end) <= most)
        return mem_strdup(text);
    if (middle)
        for (head = tail = text + strlen(text) / 2; !starts_character(*head);)
            tail = --head;
    while (head > text && ems_of(text, head) + 1 + ems_of(tail, end) > most) {
        head = before(text, head);
        if (middle && *tail && ems_of(text, head) + 1 + ems_of(tail, end) > most)
            tail = behind(tail);
    }
    return mem_printf("%.*s\xe2\x80\xa6%s", (int)(head - text), text, tail);
}

static void write_text(FILE *out, enum svg_text kind, enum svg_at at, int x, int y,
                       char *text)
{
    fprintf(out, "<text class=\"%s%s\" x=\"%d\" y=\"%d\">", kinds[kind].class,
            at == SVG_MIDDLE ? " m" : "", x, y);
    xml_text(out, text);
    fputs("</text>\n", out);
    free(text);
}

void svg_text(FILE *out, enum svg_text kind, enum svg_at at, int x, int y, int room,
              const char *text)
{
    write_text(out, kind, at, x, y, fit(kind, room, text, false));
}

void svg_name(FILE *out, enum svg_text kind, int x, int y, int room, const char *text)
{
    write_text(out, kind, SVG_START, x, y, fit(kind, room, text, true));
}

int svg_key(FILE *out, const char *class, int x, int y, const char *text)
{
    int width = svg_width(SVG_SMALL, text);

    svg_rect(out, class, x, y - 9, 14, 10);
    svg_text(out, SVG_SMALL, SVG_START, x + 19, y, width, text);
    return x + 19 + width + 18;
}

static int count_up(const struct topo_gpu *gpu)
{
    int n = 0;

    for (int i = 0; i < gpu->n_links; i++)
        n += gpu->links[i].up == 1;
    return n;
}

const char *svg_trouble(const struct topo_node *node, int gpu, char text[32])
{
    const struct topo_gpu *g = &node->gpus[gpu];
    int most = 0;

    for (int i = 0; i < node->n_gpus; i++)
        most = count_up(&node->gpus[i]) > most ? count_up(&node->gpus[i]) : most;
    if (g->ecc_uncorrected > 0)
        return "ECC errors";
    if (g->remap_failure == 1)
        return "memory is worn";
    if (g->n_faults > 0)
        return "no answer";
    if (g->throttle > 0 && g->throttle & TOPO_THROTTLE_HARMFUL)
        return "throttled";
    if (g->n_links < 0 || count_up(g) >= most)
        return NULL;
    snprintf(text, 32, "%d/%d NVLinks", count_up(g) % 1000, most % 1000);
    return text;
}
