/* SPDX-License-Identifier: MIT */
/* A map from names to ids. The strings stay the caller's and must outlive the map. */
#ifndef TASUKI_GRAPH_NAMES_H
#define TASUKI_GRAPH_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct names;

struct names *names_new(void);
/* With the same strings. */
struct names *names_copy(const struct names *names);
void names_free(struct names *names);
int names_find(const struct names *names, const char *name);    /* -1 if not there */
/* The name must not be there yet. */
void names_put(struct names *names, const char *name, int id);
/* False, and nothing is done, where it is there already. */
bool names_add(struct names *names, const char *name, int id);
/* Each id becomes map[id]; what is -1 there is removed. */
void names_renumber(struct names *names, const int *map);
void names_remove(struct names *names, const char *name);
uint64_t names_hash(const char *name);  /* FNV-1a, 64 bits */

/* For a search through a table: most names differ in their first letter. */
static inline bool names_same(const char *a, const char *b)
{
    return a[0] == b[0] && strcmp(a, b) == 0;
}

#endif
