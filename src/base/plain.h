/* SPDX-License-Identifier: MIT */
/* Names may come from any file: printed, they are not to command a terminal, nor to begin a line. */
#ifndef TASUKI_BASE_PLAIN_H
#define TASUKI_BASE_PLAIN_H

#include <stdio.h>

/* Control characters become question marks. */
void plain_line(char *text);
/* The same of a copy, which is printed as "%-*s" has it. */
void plain_print(FILE *out, int width, const char *text);

#endif
