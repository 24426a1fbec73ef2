/* SPDX-License-Identifier: MIT */
#include "topology/names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MOST_DIGITS 9

/* "n007": a stem of 1 and a number of 3 digits. */
struct name {
    const char *text;
    size_t stem;
    int digits;             /* 0: the name ends in no number */
    long number;
};

static struct name split(const char *text)
{
    struct name name = { .text = text, .stem = strlen(text) };

    while (name.stem > 0 && name.digits < MOST_DIGITS &&
           isdigit((unsigned char)text[name.stem - 1])) {
        name.stem--;
        name.digits++;
    }
    if (name.digits > 0)
        name.number = strtol(text + name.stem, NULL, 10);
    return name;
}

static bool same_stem(const struct name *a, const struct name *b)
{
    return a->digits > 0 && b->digits > 0 && a->stem == b->stem &&
           strncmp(a->text, b->text, a->stem) == 0;
}

/* "n9" is followed by "n10", "n09" too, "n009" by "n010". */
static bool follows(const struct name *a, const struct name *b)
{
    bool padded = a->text[a->stem] == '0' || b->text[b->stem] == '0';

    return b->number == a->number + 1 && (!padded || a->digits == b->digits);
}

static const char *number_of(const struct name *name)
{
    return name->text + name->stem;
}

/* The numbers of names[first..last], which have one stem. */
static void write_numbers(FILE *out, const struct name *names, int first, int last)
{
    for (int i = first; i <= last; i++) {
        int end = i;

        while (end < last && follows(&names[end], &names[end + 1]))
            end++;
        fprintf(out, "%s%s", i > first ? "," : "", number_of(&names[i]));
        if (end > i)
            fprintf(out, "-%s", number_of(&names[end]));
        i = end;
    }
}

char *names_compact(int n, const char *const *names)
{
    struct name *list = mem_new((size_t)n, sizeof(*list));
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int i = 0; i < n; i++)
        list[i] = split(names[i]);
    for (int i = 0; out && i < n; i++) {
        int last = i;

        while (last + 1 < n && same_stem(&list[i], &list[last + 1]))
            last++;
        fputs(i ? "," : "", out);
        if (last == i) {
            fputs(names[i], out);
        } else {
            fprintf(out, "%.*s[", (int)list[i].stem, names[i]);
            write_numbers(out, list, i, last);
            fputc(']', out);
        }
        i = last;
    }
    if (out)
        fclose(out);
    free(list);
    return text ? text : mem_strdup("");
}
