/* SPDX-License-Identifier: MIT */
#include "topology/xml.h"

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

void xml_text(FILE *out, const char *text)
{
    for (; *text; text++)
        put(out, *text);
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
