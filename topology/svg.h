/* SPDX-License-Identifier: MIT */
/* Elements of a drawing: boxes, wires, and texts that are cut to the room they have. */
#ifndef TASUKI_TOPOLOGY_SVG_H
#define TASUKI_TOPOLOGY_SVG_H

#include <stdio.h>

struct topo_gpu;
struct topo_node;

enum svg_text { SVG_TITLE, SVG_BODY, SVG_BOLD, SVG_SMALL, SVG_WARNING };
enum svg_at { SVG_START, SVG_MIDDLE };

/* A whole file with 'body' in it; malloc'ed. */
char *svg_file(int width, int height, const char *body);

void svg_rect(FILE *out, const char *class, int x, int y, int w, int h);
void svg_line(FILE *out, const char *class, double width, int x1, int y1, int x2, int y2);
/* 'x' is the start or the middle of the line, 'y' where letters stand; no wider than 'room'. */
void svg_text(FILE *out, enum svg_text kind, enum svg_at at, int x, int y, int room,
              const char *text);
/* The same, but cut in the middle: the ends of names tell them apart. */
void svg_name(FILE *out, enum svg_text kind, int x, int y, int room, const char *text);
/* How wide the text may be, pixels. */
int svg_width(enum svg_text kind, const char *text);

/* A box with its meaning behind it; where the next one goes is returned. */
int svg_key(FILE *out, const char *class, int x, int y, const char *text);

/* What is wrong with a GPU in few words, NULL: nothing that is known. */
const char *svg_trouble(const struct topo_node *node, int gpu, char text[32]);

#endif
