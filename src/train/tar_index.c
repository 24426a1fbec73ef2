/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "train/tar_index.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#ifdef HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

#include "base/err.h"
#include "base/mem.h"
#include "train/jpeg.h"
#include "train/shards.h"
#include "train/tar_cache.h"

#define MAX_NAME 4096

void tar_index_clear(struct tar_index *index)
{
    for (int64_t i = 0; i < index->n; i++)
        free((char *)index->samples[i].name);
    for (int i = 0; i < index->n_shards && index->maps; i++)
        file_map_close(&index->maps[i]);
    for (int i = 0; i < index->n_named; i++)
        free(index->bad[i]);
    shards_free(index->paths, index->n_shards);
    free(index->maps);
    free(index->samples);
    free(index->bad);
    *index = (struct tar_index){ 0 };
}

#ifdef HAVE_ARCHIVE

/* The files of one sample so far. */
struct gathering {
    struct tar_index *index;
    struct jpeg *jpeg;
    int shard;
    char name[MAX_NAME];            /* "": none begun */
    struct tar_sample sample;
    bool has_label;
    const char *why;                /* it is bad; NULL: not that one knows */
};

bool tar_index_built(void)
{
    return true;
}

/* Names are foreign text. */
static void add_bad(struct gathering *g, const char *name, const char *why)
{
    struct tar_index *index = g->index;
    char *text;

    index->n_bad++;
    if (index->n_named >= TAR_INDEX_NAMED)
        return;
    text = mem_printf("%s: sample \"%.200s\": %.200s", index->paths[g->shard], name, why);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    *(char **)mem_push((void **)&index->bad, &index->n_named, sizeof(char *)) = text;
}

static int add_good(struct gathering *g, struct err *err)
{
    struct tar_index *index = g->index;

    if (index->n == index->room) {
        int64_t room = index->room ? 2 * index->room : 1024;
        struct tar_sample *more = mem_try((size_t)room, sizeof(*more), err);

        if (!more)
            return -1;
        if (index->n)
            memcpy(more, index->samples, (size_t)index->n * sizeof(*more));
        free(index->samples);
        index->samples = more;
        index->room = room;
    }
    g->sample.name = mem_strdup(g->name);
    g->sample.shard = g->shard;
    index->samples[index->n++] = g->sample;
    return 0;
}

static int finish(struct gathering *g, struct err *err)
{
    const char *why = g->why;
    int bad = 0;

    if (!g->name[0])
        return 0;
    if (!why && !g->sample.bytes)
        why = "no .jpg";
    if (!why && !g->has_label)
        why = "no .cls";
    if (!why)
        why = jpeg_check(g->jpeg, g->sample.bytes, g->sample.size, &g->sample.width,
                         &g->sample.height);
    if (why)
        add_bad(g, g->name, why);
    else
        bad = add_good(g, err);
    g->name[0] = '\0';
    return bad;
}

/* A class of at most 9 digits with spaces around it. */
static bool read_label(const char *bytes, size_t size, int64_t *label)
{
    size_t i = 0, digits = 0;
    int64_t number = 0;

    while (i < size && isspace((unsigned char)bytes[i]))
        i++;
    for (; i < size && isdigit((unsigned char)bytes[i]) && digits < 10; i++, digits++)
        number = 10 * number + (bytes[i] - '0');
    while (i < size && isspace((unsigned char)bytes[i]))
        i++;
    *label = number;
    return i == size && digits > 0 && digits < 10;
}

static void take_file(struct gathering *g, const char *extension, const void *bytes,
                      size_t size)
{
    if (strcasecmp(extension, "jpg") == 0 || strcasecmp(extension, "jpeg") == 0) {
        if (g->sample.bytes)
            g->why = "two pictures";
        g->sample.bytes = bytes;
        g->sample.size = size;
    } else if (strcasecmp(extension, "cls") == 0) {
        if (!read_label(bytes, size, &g->sample.label))
            g->why = "its .cls is no class number";
        g->has_label = true;
    }
}

/* The bytes of an entry, which an archive in memory gives where they lie: in the mapping. */
static const void *entry_bytes(struct archive *a, const struct file_map *map, size_t size)
{
    const void *bytes = "";
    size_t n = 0;
    la_int64_t offset = 0;
    uintptr_t at;

    if (size == 0)
        return bytes;
    if (archive_read_data_block(a, &bytes, &n, &offset) != ARCHIVE_OK || offset != 0 ||
        n < size)
        return NULL;
    /* Before the mapping it is huge. */
    at = (uintptr_t)bytes - (uintptr_t)map->data;
    return at <= map->size && size <= map->size - at ? bytes : NULL;
}

static int take_entry(struct gathering *g, struct archive *a, struct archive_entry *entry,
                      struct err *err)
{
    const char *path = archive_entry_pathname(entry), *base, *dot;
    la_int64_t size = archive_entry_size(entry);
    const void *bytes;
    size_t length;

    if (!path || archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        return 0;
    base = strrchr(path, '/');
    base = base ? base + 1 : path;
    dot = strchr(base, '.');
    if (!dot || dot == base)
        return 0;
    length = (size_t)(dot - path);
    if (length >= MAX_NAME)
        length = MAX_NAME - 1;
    if (strlen(g->name) != length || memcmp(g->name, path, length) != 0) {
        if (finish(g, err) < 0)
            return -1;
        memcpy(g->name, path, length);
        g->name[length] = '\0';
        g->sample = (struct tar_sample){ 0 };
        g->has_label = false;
        g->why = NULL;
    }
    bytes = size < 0 ? NULL : entry_bytes(a, &g->index->maps[g->shard], (size_t)size);
    if (!bytes)
        g->why = "cut off, or stored as a sparse file";
    else
        take_file(g, dot + 1, bytes, (size_t)size);
    return 0;
}

static int read_entries(struct gathering *g, struct archive *a, struct err *err)
{
    struct archive_entry *entry;
    int result;

    while ((result = archive_read_next_header(a, &entry)) == ARCHIVE_OK ||
           result == ARCHIVE_WARN)
        if (take_entry(g, a, entry, err) < 0)
            return -1;
    if (finish(g, err) < 0)
        return -1;
    if (result != ARCHIVE_EOF)
        add_bad(g, "", archive_error_string(a) ? archive_error_string(a) : "damaged archive");
    return 0;
}

static int read_shard(struct gathering *g, struct err *err)
{
    const char *path = g->index->paths[g->shard];
    const struct file_map *map = &g->index->maps[g->shard];
    struct archive *a = archive_read_new();
    int bad;

    if (!a)
        return err_set(err, "%s: libarchive cannot start", path);
    /* Only some pages of each picture are wanted now. */
    madvise((void *)map->data, map->size, MADV_RANDOM);
    archive_read_support_format_tar(a);
    if (archive_read_open_memory(a, map->data, map->size) != ARCHIVE_OK)
        bad = err_set(err, "%s: no tar archive (compressed ones must be unpacked)", path);
    else
        bad = read_entries(g, a, err);
    archive_read_free(a);
    madvise((void *)map->data, map->size, MADV_NORMAL);
    return bad;
}

static int read_shards(struct tar_index *index, struct err *err)
{
    struct gathering g = { .index = index };
    int bad = 0;

    g.jpeg = jpeg_new();
    for (g.shard = 0; g.shard < index->n_shards && !bad; g.shard++)
        bad = read_shard(&g, err);
    jpeg_free(g.jpeg);
    return bad;
}

int tar_index_open(struct tar_index *index, const char *spec, const char *cache, bool keeps,
                   struct err *err)
{
    if (shards_find(spec, ".tar", &index->paths, &index->n_shards, err) < 0)
        return -1;
    index->maps = mem_new((size_t)index->n_shards, sizeof(*index->maps));
    for (int i = 0; i < index->n_shards; i++) {
        if (file_map_open(index->paths[i], &index->maps[i], err) < 0)
            return -1;
        if (index->maps[i].size == 0)
            return err_set(err, "%s: the file is empty", index->paths[i]);
    }
    if (cache && tar_cache_load(index, cache))
        return 0;
    if (read_shards(index, err) < 0)
        return -1;
    if (cache && keeps)
        tar_cache_save(index, cache);
    return 0;
}

#else

bool tar_index_built(void)
{
    return false;
}

int tar_index_open(struct tar_index *index, const char *spec, const char *cache, bool keeps,
                   struct err *err)
{
    (void)index;
    (void)cache;
    (void)keeps;
    return err_set(err, "%s: this build is without libarchive", spec);
}

#endif
