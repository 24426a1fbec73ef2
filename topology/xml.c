/* SPDX-License-Identifier: MIT */
#include "topology/xml.h"

#include <limits.h>
#include <stdbool.h>

static void put(FILE *out, char c)
{
    switch (c) {
    case '<': fputs("&lt;", out); break;
    case '>': fputs("&gt;", out); break;
    case '&': fputs("&amp;", out); break;
    case '"': fputs("&quot;", out); break;
    case '\'': fputs("&apos;", out); break;
    default: fputc((unsigned char)c < ' ' || c == 0x7f ? '?' : c, out);
    }
}

static bool starts_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;   /* UTF-8 */
}

void xml_text_cut(FILE *out, const char *text, int most)
{
    int n = 0, room = most;

    for (const char *c = text; *c; c++)
        n += starts_character(*c);
    for (; *text; text++) {
        if (starts_character(*text) && (room-- == (n > most ? 1 : 0)))
            break;
        put(out, *text);
    }
    if (n > most)
        fputs("\xe2\x80\xa6", out);
}

void xml_text(FILE *out, const char *text)
{
    xml_text_cut(out, text, INT_MAX);
}

void dot_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
    }
    fputc('"', out);
}
