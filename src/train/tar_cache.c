/* SPDX-License-Identifier: MIT */
#include "train/tar_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/cache.h"
#include "train/tar_index.h"

#define MAGIC "TASUKIX"
#define VERSION 1
#define SUM 16                      /* XXH3 of all before, at the end */
#define MAX_SIDE 65535              /* of a JPEG */
#define MAX_LABEL 999999999

/* The file: this, 'shards' times a struct age, 'samples' times a struct entry, names of the samples
 * and texts about the bad ones, each with its 0, and the checksum. Numbers are the machine's:
 * another one's version is not ours.
 */
struct head {
    char magic[8];
    int64_t version, shards, samples, bad, named, text;
};

struct age {
    uint64_t size;
    int64_t seconds, nanoseconds;
};

struct entry {
    uint64_t offset, size;
    int64_t label;
    int32_t shard, width, height, zero;
};

static struct age age_of(const struct file_map *map)
{
    return (struct age){ map->stamp.size, map->stamp.seconds, map->stamp.nanoseconds };
}

/* Named after the archives, as they were given and where that is; NULL without xxhash. */
static char *find_path(const struct tar_index *index, const char *directory)
{
    struct file_sum *sum = file_sum_new();
    char hex[17];

    for (int i = 0; i < index->n_shards; i++) {
        char *real = realpath(index->paths[i], NULL);

        file_sum_add(sum, index->paths[i], strlen(index->paths[i]) + 1);
        if (real)
            file_sum_add(sum, real, strlen(real) + 1);
        free(real);
    }
    file_sum_end(sum, hex);
    return hex[0] ? cache_path(directory, "tar", hex, ".index") : NULL;
}

/* Saving ------------------------------------------------------------------------------- */

static int64_t text_size(const struct tar_index *index)
{
    size_t size = 0;

    for (int64_t i = 0; i < index->n; i++)
        size += strlen(index->samples[i].name) + 1;
    for (int i = 0; i < index->n_named; i++)
        size += strlen(index->bad[i]) + 1;
    return (int64_t)size;
}

static void put_index(const struct tar_index *index, FILE *out)
{
    struct head head = { MAGIC, VERSION, index->n_shards, index->n, index->n_bad,
                         index->n_named, text_size(index) };

    fwrite(&head, sizeof(head), 1, out);
    for (int i = 0; i < index->n_shards; i++) {
        struct age age = age_of(&index->maps[i]);

        fwrite(&age, sizeof(age), 1, out);
    }
    for (int64_t i = 0; i < index->n; i++) {
        const struct tar_sample *s = &index->samples[i];
        struct entry entry = { (uint64_t)(s->bytes - index->maps[s->shard].data), s->size,
                               s->label, s->shard, s->width, s->height, 0 };

        fwrite(&entry, sizeof(entry), 1, out);
    }
    for (int64_t i = 0; i < index->n; i++)
        fwrite(index->samples[i].name, strlen(index->samples[i].name) + 1, 1, out);
    for (int i = 0; i < index->n_named; i++)
        fwrite(index->bad[i], strlen(index->bad[i]) + 1, 1, out);
}

void tar_cache_save(const struct tar_index *index, const char *directory)
{
    char *path = find_path(index, directory), *bytes = NULL, hex[17];
    struct err ignored = { 0 };
    size_t size = 0;
    int turn;
    FILE *out = path ? open_memstream(&bytes, &size) : NULL;

    if (out) {
        put_index(index, out);
        fflush(out);
        file_hash(bytes, size, hex);
        fwrite(hex, SUM, 1, out);
        /* One that leaves no room for others is read from the archives each time. */
        if (fclose(out) == 0 && size <= (uint64_t)cache_limit() / 2 &&
            (turn = cache_enter(directory)) >= 0) {
            file_write(path, bytes, size, &ignored);
            cache_leave(directory, turn);
        }
    }
    free(bytes);
    free(path);
}

/* Loading ------------------------------------------------------------------------------ */

/* Is it a whole file of ours, and of these archives? */
static bool check_file(const struct tar_index *index, const struct file_map *file,
                       struct head *head)
{
    size_t ages = (size_t)index->n_shards * sizeof(struct age), left;
    char hex[17];

    if (file->size < sizeof(*head) + ages + SUM)
        return false;
    file_hash(file->data, file->size - SUM, hex);
    memcpy(head, file->data, sizeof(*head));
    left = file->size - sizeof(*head) - ages - SUM;
    if (memcmp(hex, file->data + file->size - SUM, SUM) != 0 ||
        memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0 || head->version != VERSION ||
        head->shards != index->n_shards || head->samples < 0 ||
        (uint64_t)head->samples > left / sizeof(struct entry) || head->named < 0 ||
        head->named > head->bad || head->named > TAR_INDEX_NAMED)
        return false;
    left -= (size_t)head->samples * sizeof(struct entry);
    if (head->text < 0 || (uint64_t)head->text != left)
        return false;
    for (int i = 0; i < index->n_shards; i++) {
        struct age now = age_of(&index->maps[i]);

        if (memcmp(&now, file->data + sizeof(*head) + (size_t)i * sizeof(now), sizeof(now)))
            return false;
    }
    return true;
}

static bool check_entry(const struct tar_index *index, const struct entry *e)
{
    size_t size;

    if (e->shard < 0 || e->shard >= index->n_shards)
        return false;
    size = index->maps[e->shard].size;
    return e->offset <= size && e->size <= size - e->offset && e->width > 0 &&
           e->width <= MAX_SIDE && e->height > 0 && e->height <= MAX_SIDE && e->label >= 0 &&
           e->label <= MAX_LABEL;
}

/* The next text, up to its 0; NULL where there is none. */
static char *take_text(const char **at, size_t *left)
{
    const char *end = memchr(*at, '\0', *left);
    char *text;

    if (!end)
        return NULL;
    text = mem_strdup(*at);
    *left -= (size_t)(end + 1 - *at);
    *at = end + 1;
    return text;
}

/* As far as it is right: all of it, or 'found' is to be cleared. */
static bool read_index(const struct tar_index *index, const struct file_map *file,
                       const struct head *head, struct tar_index *found)
{
    const unsigned char *entries = file->data + sizeof(*head) +
                                   (size_t)index->n_shards * sizeof(struct age);
    const char *at = (const char *)entries + (size_t)head->samples * sizeof(struct entry);
    size_t left = (size_t)head->text;
    struct err ignored = { 0 };

    found->samples = mem_try((size_t)head->samples, sizeof(*found->samples), &ignored);
    if (!found->samples)
        return false;
    found->room = head->samples;
    for (int64_t i = 0; i < head->samples; i++) {
        struct entry e;
        char *name;

        memcpy(&e, entries + (size_t)i * sizeof(e), sizeof(e));
        if (!check_entry(index, &e) || !(name = take_text(&at, &left)))
            return false;
        found->samples[found->n++] = (struct tar_sample){
            name, index->maps[e.shard].data + e.offset, (size_t)e.size, e.shard, e.width,
            e.height, e.label,
        };
    }
    for (int64_t i = 0; i < head->named; i++) {
        char *text = take_text(&at, &left);

        if (!text)
            return false;
        *(char **)mem_push((void **)&found->bad, &found->n_named, sizeof(char *)) = text;
    }
    found->n_bad = head->bad;
    return left == 0;
}

static bool load(struct tar_index *index, const char *path)
{
    struct tar_index found = { 0 };
    struct file_map file = { 0 };
    struct err ignored = { 0 };
    struct head head;
    bool good = file_map_open(path, &file, &ignored) == 0 && check_file(index, &file, &head) &&
                read_index(index, &file, &head, &found);

    if (good) {
        found.n_shards = index->n_shards;
        found.paths = index->paths;
        found.maps = index->maps;
        *index = found;
        cache_touch(path);
    } else {
        tar_index_clear(&found);
    }
    file_map_close(&file);
    return good;
}

bool tar_cache_load(struct tar_index *index, const char *directory)
{
    char *path = find_path(index, directory), *site = path ? cache_site_path(path) : NULL;
    bool good = path && (load(index, path) || (site && load(index, site)));

    free(site);
    free(path);
    return good;
}
