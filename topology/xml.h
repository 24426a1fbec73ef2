/* SPDX-License-Identifier: MIT */
/* Text inside XML and DOT. */
#ifndef TASUKI_TOPOLOGY_XML_H
#define TASUKI_TOPOLOGY_XML_H

#include <stdio.h>

/* Write 'text' with <, >, & and quotes as entities; control characters become '?'. */
void xml_text(FILE *out, const char *text);
/* Write 'text' as a quoted string of DOT. */
void dot_text(FILE *out, const char *text);

#endif
