/* SPDX-License-Identifier: MIT */
#include "graph/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct entry {
    const char *name;   /* NULL: never used */
    uint32_t hash;      /* part of its hash: few other names need to be compared */
    int id;             /* -1: removed */
};

struct names {
    size_t n, size;     /* size: a power of two, more than half of it unused */
    struct entry *entries;
};

uint64_t names_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Its place in a table: eight letters at a time, which takes a tenth of the time. */
static uint32_t place_hash(const char *name)
{
    uint64_t hash = 0, word = 0;
    size_t n = strlen(name);

    for (; n >= sizeof(word); n -= sizeof(word), name += sizeof(word)) {
        memcpy(&word, name, sizeof(word));
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    word = n;
    memcpy((char *)&word + 1, name, n);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32);
}

struct names *names_new(void)
{
    struct names *names = mem_new(1, sizeof(*names));

    names->size = 64;
    names->entries = mem_new(names->size, sizeof(*names->entries));
    return names;
}

void names_free(struct names *names)
{
    if (!names)
        return;
    free(names->entries);
    free(names);
}

struct names *names_copy(const struct names *names)
{
    struct names *copy = mem_new(1, sizeof(*copy));

    *copy = *names;
    copy->entries = mem_new(copy->size, sizeof(*copy->entries));
    memcpy(copy->entries, names->entries, copy->size * sizeof(*copy->entries));
    return copy;
}

/* The place of a name, or the free one that it would get. */
static struct entry *look(const struct names *names, const char *name, uint32_t hash)
{
    size_t i = hash & (names->size - 1);

    while (names->entries[i].name && (names->entries[i].hash != hash ||
                                      strcmp(names->entries[i].name, name) != 0))
        i = (i + 1) & (names->size - 1);
    return &names->entries[i];
}

int names_find(const struct names *names, const char *name)
{
    const struct entry *entry = look(names, name, place_hash(name));

    return entry->name ? entry->id : -1;
}

static void grow(struct names *names)
{
    struct names larger = { names->n, 2 * names->size, NULL };
    size_t i;

    larger.entries = mem_new(larger.size, sizeof(*larger.entries));
    for (i = 0; i < names->size; i++)
        if (names->entries[i].name)
            *look(&larger, names->entries[i].name, names->entries[i].hash) = names->entries[i];
    free(names->entries);
    *names = larger;
}

/* Its entry, with id -1 where it is new, or was removed. */
static struct entry *enter(struct names *names, const char *name)
{
    uint32_t hash = place_hash(name);
    struct entry *entry;

    if (2 * names->n >= names->size)
        grow(names);
    entry = look(names, name, hash);
    if (!entry->name) {
        names->n++;
        *entry = (struct entry){ name, hash, -1 };
    }
    return entry;
}

void names_put(struct names *names, const char *name, int id)
{
    struct entry *entry = enter(names, name);

    entry->name = name;
    entry->id = id;
}

bool names_add(struct names *names, const char *name, int id)
{
    struct entry *entry = enter(names, name);

    if (entry->id >= 0)
        return false;
    entry->name = name;
    entry->id = id;
    return true;
}

void names_renumber(struct names *names, const int *map)
{
    for (size_t i = 0; i < names->size; i++) {
        struct entry *entry = &names->entries[i];

        if (entry->name && entry->id >= 0)
            entry->id = map[entry->id];
    }
}

void names_remove(struct names *names, const char *name)
{
    struct entry *entry = look(names, name, place_hash(name));

    if (entry->name)
        entry->id = -1;
}
