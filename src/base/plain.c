/* SPDX-License-Identifier: MIT */
#include "base/plain.h"

#include <stdlib.h>

#include "base/mem.h"

void plain_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

void plain_print(FILE *out, int width, const char *text)
{
    char *plain = mem_strdup(text);

    plain_line(plain);
    fprintf(out, "%-*s", width, plain);
    free(plain);
}
