/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"
#include "train/checkpoint_private.h"
#include "train/optimizer.h"
#include "train/shard.h"

/* Reading state.json ------------------------------------------------------------------ */

static int read_optimizer(struct checkpoint *c, struct json_reader *top, struct err *err)
{
    struct optimizer_args *o = &c->state.optimizer;
    const double trust = 0.001;     /* where it is not said */
    const json_t *object;
    struct json_reader r;
    const char *name;

    if (json_get_object(top, "optimizer", true, &object, err) < 0 ||
        json_reader_sub(&r, top, "optimizer", -1, object, err) < 0 ||
        json_get_string(&r, "name", true, NULL, &name, err) < 0 ||
        json_get_number(&r, "lr", -1e30, 1e30, NULL, &o->lr, err) < 0 ||
        json_get_number(&r, "momentum", -1e30, 1e30, NULL, &o->momentum, err) < 0 ||
        json_get_number(&r, "beta1", 0, 1, NULL, &o->beta1, err) < 0 ||
        json_get_number(&r, "beta2", 0, 1, NULL, &o->beta2, err) < 0 ||
        json_get_number(&r, "epsilon", 0, 1e30, NULL, &o->epsilon, err) < 0 ||
        json_get_number(&r, "weight_decay", -1e30, 1e30, NULL, &o->weight_decay, err) < 0 ||
        json_get_number(&r, "trust_coefficient", 0, 1e30, &trust, &o->trust, err) < 0 ||
        json_reader_end(&r, err) < 0)
        return -1;
    if (optimizer_from_name(name, &o->kind) < 0)
        return json_error(&r, "name", err, "\"%s\" is not known", name);
    return 0;
}

static int read_best(struct checkpoint *c, struct json_reader *top, struct err *err)
{
    struct checkpoint_best *b = &c->state.best;
    const json_t *object;
    struct json_reader r;
    const char *metric;

    if (json_get_object(top, "best", false, &object, err) < 0)
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&r, top, "best", -1, object, err) < 0 ||
        json_get_string(&r, "metric", true, NULL, &metric, err) < 0 ||
        json_get_number(&r, "value", -1e300, 1e300, NULL, &b->value, err) < 0 ||
        json_get_int(&r, "step", 1, INT64_MAX, NULL, &b->step, err) < 0 ||
        json_reader_end(&r, err) < 0)
        return -1;
    b->by = strcmp(metric, "accuracy") == 0 ? BEST_ACCURACY : BEST_LOSS;
    if (b->by == BEST_LOSS && strcmp(metric, "loss") != 0)
        return json_error(&r, "metric", err, "expected loss or accuracy");
    return 0;
}

static int read_scale(struct checkpoint *c, struct json_reader *top, struct err *err)
{
    struct loss_scale *s = &c->state.scale;
    const json_t *object;
    struct json_reader r;

    if (json_get_object(top, "loss_scale", false, &object, err) < 0)
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&r, top, "loss_scale", -1, object, err) < 0 ||
        json_get_number(&r, "factor", 0, LOSS_SCALE_MOST, NULL, &s->factor, err) < 0 ||
        json_get_int(&r, "good_steps", 0, LOSS_SCALE_STEPS - 1, NULL, &s->good, err) < 0 ||
        json_get_int(&r, "skipped_steps", 0, INT64_MAX, NULL, &s->skipped, err) < 0 ||
        json_reader_end(&r, err) < 0)
        return -1;
    return s->factor <= 0 || loss_scale_valid(s->factor)
               ? 0 : json_error(&r, "factor", err, "expected 0 or a power of 2 from 1");
}

static int read_model(struct checkpoint *c, struct json_reader *top, struct err *err)
{
    const json_t *object;
    struct json_reader r;

    if (json_get_object(top, "model", true, &object, err) < 0 ||
        json_reader_sub(&r, top, "model", -1, object, err) < 0 ||
        json_get_string(&r, "path", true, NULL, &c->state.model_path, err) < 0 ||
        json_get_string(&r, "xxh3", true, NULL, &c->state.model_hash, err) < 0)
        return -1;
    return json_reader_end(&r, err);
}

static int read_state(struct checkpoint *c, struct json_reader *r, struct err *err)
{
    struct checkpoint_state *s = &c->state;
    const json_t *plan;
    const char *random;
    int64_t seed;

    if (json_get_int(r, "step", 0, INT64_MAX, NULL, &s->step, err) < 0 ||
        json_get_int(r, "data_samples", 1, INT64_MAX, NULL, &s->data_samples, err) < 0 ||
        json_get_int(r, "global_batch", 1, INT64_MAX, NULL, &s->global_batch, err) < 0 ||
        json_get_int(r, "batchnorm_samples", 0, INT64_MAX, NULL, &s->batchnorm_samples,
                     err) < 0 ||
        json_get_string(r, "random", true, NULL, &random, err) < 0 ||
        json_get_int(r, "seed", INT64_MIN, INT64_MAX, NULL, &seed, err) < 0 ||
        json_get_bool(r, "shuffle", NULL, &s->shuffle, err) < 0 ||
        json_get_string(r, "precision", true, NULL, &s->precision, err) < 0 ||
        json_get_string(r, "loss", false, NULL, &s->loss, err) < 0 ||
        json_get_object(r, "plan", false, &plan, err) < 0 || read_optimizer(c, r, err) < 0 ||
        recipe_from_json(&s->recipe, r, &c->no_decay, err) < 0 ||
        read_scale(c, r, err) < 0 || read_best(c, r, err) < 0 || read_model(c, r, err) < 0)
        return -1;
    s->seed = (uint64_t)seed;
    s->plan = (json_t *)plan;
    return 0;
}

/* Reading the tensors ----------------------------------------------------------------- */

static int read_kind(const struct json_reader *r, const char *text, enum checkpoint_kind *kind,
                     struct err *err)
{
    for (int i = 0; i < CHECKPOINT_KINDS; i++) {
        if (strcmp(shard_kinds[i], text) == 0) {
            *kind = (enum checkpoint_kind)i;
            return 0;
        }
    }
    return json_error(r, "kind", err, "expected value, m, v, ema or previous");
}

static int read_dtype(const struct json_reader *r, const char *text, enum dtype *dtype,
                      struct err *err)
{
    for (int i = DTYPE_F32; i <= DTYPE_F64; i++) {
        if (strcmp(dtype_name((enum dtype)i), text) == 0) {
            *dtype = (enum dtype)i;
            return 0;
        }
    }
    return json_error(r, "dtype", err, "expected float32 or float64");
}

static int read_shape(const struct json_reader *r, const json_t *array, struct shape *shape,
                      struct err *err)
{
    size_t bytes = sizeof(double);

    if (json_array_size(array) > GRAPH_MAX_RANK)
        return json_error(r, "shape", err, "more than %d dimensions", GRAPH_MAX_RANK);
    shape->rank = (int)json_array_size(array);
    for (int i = 0; i < shape->rank; i++) {
        const json_t *dim = json_array_get(array, (size_t)i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0 ||
            size_mul(bytes, (size_t)json_integer_value(dim), &bytes) < 0 || bytes > INT64_MAX)
            return json_error(r, "shape", err, "expected sizes");
        shape->dim[i] = json_integer_value(dim);
    }
    return 0;
}

static struct saved *saved_tensor(struct checkpoint *c, const char *name,
                                  enum checkpoint_kind kind)
{
    int i = checkpoint_find(c, name, kind);
    struct saved *t;

    if (i >= 0)
        return &c->tensors[i];
    t = mem_push((void **)&c->tensors, &c->n, sizeof(*t));
    t->name = name;
    t->kind = kind;
    return t;
}

/* What the file itself says of a piece. */
static int find_data(const struct safetensors *shard, const struct json_reader *r,
                     const struct saved *one, const char *key, struct extent *part,
                     struct err *err)
{
    const struct safetensors_tensor *data = safetensors_find(shard, key);

    if (!data)
        return json_error(r, "key", err, "%s has no tensor \"%s\"", safetensors_path(shard),
                          key);
    if (data->dtype != one->dtype || shape_elements(&data->shape) != part->count)
        return json_error(r, "key", err, "%s: tensor \"%s\" is of another type or size",
                          safetensors_path(shard), key);
    part->data = data->data;
    return 0;
}

static int add_part(struct checkpoint *c, const struct json_reader *r, const struct saved *one,
                    const char *key, struct extent part, struct err *err)
{
    const struct safetensors *shard = c->shards[part.file];
    struct saved *t = saved_tensor(c, one->name, one->kind);
    int64_t size = shape_elements(&one->shape);

    if (t->n_parts == 0) {
        t->dtype = one->dtype;
        t->shape = one->shape;
    }
    if (t->dtype != one->dtype || !shape_equal(&t->shape, &one->shape))
        return json_error(r, "shape", err, "two pieces of \"%s\" disagree", one->name);
    if (part.start > size || part.count > size - part.start)
        return json_error(r, "count", err, "\"%s\" has %lld elements", one->name,
                          (long long)size);
    if (shard && find_data(shard, r, one, key, &part, err) < 0)
        return -1;
    *(struct extent *)mem_push((void **)&t->parts, &t->n_parts, sizeof(part)) = part;
    return 0;
}

static int read_piece(struct checkpoint *c, const struct json_reader *parent, int index,
                      const json_t *object, struct err *err)
{
    struct json_reader r;
    struct saved one = { 0 };
    struct extent part = { .file = c->n_shards - 1 };
    const char *kind, *dtype, *key;
    const json_t *shape;

    if (json_reader_sub(&r, parent, "pieces", index, object, err) < 0 ||
        json_get_string(&r, "name", true, NULL, &one.name, err) < 0 ||
        json_get_string(&r, "kind", true, NULL, &kind, err) < 0 ||
        json_get_string(&r, "dtype", true, NULL, &dtype, err) < 0 ||
        json_get_string(&r, "key", true, NULL, &key, err) < 0 ||
        json_get_array(&r, "shape", true, &shape, err) < 0 ||
        json_get_int(&r, "start", 0, INT64_MAX, NULL, &part.start, err) < 0 ||
        json_get_int(&r, "count", 0, INT64_MAX, NULL, &part.count, err) < 0 ||
        json_reader_end(&r, err) < 0 || read_kind(&r, kind, &one.kind, err) < 0 ||
        read_dtype(&r, dtype, &one.dtype, err) < 0 ||
        read_shape(&r, shape, &one.shape, err) < 0)
        return -1;
    return add_part(c, &r, &one, key, part, err);
}

static int check_size(const char *path, int64_t bytes, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    if (st.st_size != bytes)
        return err_set(err, "%s: damaged: it has %lld bytes, state.json says %lld", path,
                       (long long)st.st_size, (long long)bytes);
    return 0;
}

static int check_hash(const struct safetensors *shard, const char *hash, struct err *err)
{
    char hex[17];

    safetensors_hash(shard, hex);
    if (!*hash || !*hex || strcmp(hash, hex) == 0)
        return 0;
    return err_set(err, "%s: damaged: its checksum is %s, state.json says %s",
                   safetensors_path(shard), hex, hash);
}

/* Or leave it to the rank whose it is. */
static int open_shard(struct checkpoint *c, const struct json_reader *r, const char *name,
                      int64_t bytes, const char *hash, struct err *err)
{
    struct safetensors **shard;
    char *path;
    int bad = 0;

    if (!*name || strchr(name, '/'))
        return json_error(r, "file", err, "expected a file name");
    shard = mem_push((void **)&c->shards, &c->n_shards, sizeof(*shard));
    if ((c->n_shards - 1) % c->ranks != c->rank)
        return 0;
    path = mem_printf("%s/%s", c->path, name);
    if (check_size(path, bytes, err) < 0 || !(*shard = safetensors_open(path, err)))
        bad = -1;
    free(path);
    return bad ? bad : check_hash(*shard, hash, err);
}

static int read_file(struct checkpoint *c, const struct json_reader *top, int index,
                     const json_t *object, struct err *err)
{
    struct json_reader r;
    const char *name, *hash;
    const json_t *pieces;
    int64_t bytes;

    if (json_reader_sub(&r, top, "files", index, object, err) < 0 ||
        json_get_string(&r, "file", true, NULL, &name, err) < 0 ||
        json_get_string(&r, "xxh3", true, NULL, &hash, err) < 0 ||
        json_get_int(&r, "bytes", 0, INT64_MAX, NULL, &bytes, err) < 0 ||
        json_get_array(&r, "pieces", true, &pieces, err) < 0 || json_reader_end(&r, err) < 0 ||
        open_shard(c, &r, name, bytes, hash, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(pieces); i++)
        if (read_piece(c, &r, (int)i, json_array_get(pieces, i), err) < 0)
            return -1;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

static int check_complete(const struct checkpoint *c, struct err *err)
{
    for (int i = 0; i < c->n; i++) {
        struct saved *t = &c->tensors[i];
        int64_t at = 0;

        qsort(t->parts, (size_t)t->n_parts, sizeof(*t->parts), by_start);
        for (int k = 0; k < t->n_parts; k++) {
            if (t->parts[k].start != at)
                return err_set(err, "%s: \"%s\" (%s): elements from %lld are %s", c->state_path,
                               t->name, shard_kinds[t->kind], (long long)at,
                               t->parts[k].start > at ? "missing" : "there twice");
            at += t->parts[k].count;
        }
        if (at != shape_elements(&t->shape))
            return err_set(err, "%s: \"%s\" (%s): elements from %lld are missing",
                           c->state_path, t->name, shard_kinds[t->kind], (long long)at);
    }
    return 0;
}

static int read_files(struct checkpoint *c, const struct json_reader *top,
                      const json_t *files, struct err *err)
{
    for (size_t i = 0; i < json_array_size(files); i++)
        if (read_file(c, top, (int)i, json_array_get(files, i), err) < 0)
            return -1;
    return check_complete(c, err);
}

/* What its figures are, no other file tells. Older ones have no checksum. */
static int check_state(const struct checkpoint *c, struct json_reader *r, struct err *err)
{
    const char *hash;
    char hex[17];

    if (json_get_string(r, "xxh3", false, NULL, &hash, err) < 0)
        return -1;
    checkpoint_state_hash(c->json, hex);
    if (!hash || !*hash || !*hex || strcmp(hash, hex) == 0)
        return 0;
    return err_set(err, "%s: damaged: its checksum is %s, it says %s", c->state_path, hex, hash);
}

int checkpoint_read_state(const char *path, void **text, size_t *size, struct err *err)
{
    char *file = mem_printf("%s/state.json", path);
    struct file_map map;
    int bad = file_map_open(file, &map, err);

    if (!bad && map.size == 0)
        bad = err_set(err, "%s: the file is empty", file);
    free(file);
    if (bad)
        return -1;
    *text = mem_try(map.size, 1, err);
    *size = *text ? map.size : 0;
    if (*text)
        memcpy(*text, map.data, map.size);
    file_map_close(&map);
    return *text ? 0 : -1;
}

static struct checkpoint *read_step(const char *path, const void *text, size_t size,
                                    bool tensors, int rank, int ranks, struct err *err)
{
    struct checkpoint *c = mem_new(1, sizeof(*c));
    struct json_reader r;
    const json_t *files;

    c->path = mem_strdup(path);
    c->state_path = mem_printf("%s/state.json", path);
    c->rank = rank;
    c->ranks = ranks;
    c->json = json_parse(c->state_path, text, size, err);
    if (c->json &&
        json_reader_top(&r, c->state_path, c->json, "tasuki-checkpoint", 1, err) == 0 &&
        check_state(c, &r, err) == 0 && read_state(c, &r, err) == 0 &&
        json_get_array(&r, "files", true, &files, err) == 0 &&
        json_reader_end(&r, err) == 0 && (!tensors || read_files(c, &r, files, err) == 0))
        return c;
    checkpoint_close(c);
    return NULL;
}

struct checkpoint *checkpoint_open_part(const char *path, const void *text, size_t size, int rank,
                                        int ranks, struct err *err)
{
    return read_step(path, text, size, true, rank, ranks, err);
}

static struct checkpoint *open_step(const char *path, bool tensors, struct err *err)
{
    struct checkpoint *c = NULL;
    void *text = NULL;
    size_t size;

    if (checkpoint_read_state(path, &text, &size, err) == 0)
        c = read_step(path, text, size, tensors, 0, 1, err);
    free(text);
    return c;
}

struct checkpoint *checkpoint_open(const char *path, struct err *err)
{
    struct checkpoint *c;
    char *latest;

    if (checkpoint_latest(path, &latest, err) < 0)
        return NULL;
    c = open_step(latest ? latest : path, true, err);
    free(latest);
    return c;
}

int checkpoint_best(const char *directory, struct checkpoint_best *best, struct err *err)
{
    char *path = mem_printf("%s/best", directory), *latest = NULL;
    int bad = checkpoint_names_latest(path) ? checkpoint_latest(path, &latest, err) : 0;
    struct checkpoint *c = bad || !latest ? NULL : open_step(latest, false, err);

    *best = (struct checkpoint_best){ 0 };
    if (c)
        *best = c->state.best;
    bad = bad || (latest && !c);
    checkpoint_close(c);
    free(path);
    free(latest);
    return bad ? -1 : 0;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < checkpoint->n; i++)
        free(checkpoint->tensors[i].parts);
    free(checkpoint->tensors);
    for (int i = 0; i < checkpoint->n_shards; i++)
        safetensors_close(checkpoint->shards[i]);
    free(checkpoint->shards);
    free(checkpoint->no_decay);
    json_decref(checkpoint->json);
    free(checkpoint->state_path);
    free(checkpoint->path);
    free(checkpoint);
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
}

const struct checkpoint_state *checkpoint_state(const struct checkpoint *checkpoint)
{
    return &checkpoint->state;
}

/* Using it ---------------------------------------------------------------------------- */

int checkpoint_count(const struct checkpoint *checkpoint)
{
    return checkpoint->n;
}

const char *checkpoint_name(const struct checkpoint *checkpoint, int index,
                            enum checkpoint_kind *kind, struct shape *shape,
                            enum dtype *dtype)
{
    const struct saved *t = &checkpoint->tensors[index];

    *kind = t->kind;
    *shape = t->shape;
    *dtype = t->dtype;
    return t->name;
}

int checkpoint_find(const struct checkpoint *checkpoint, const char *name,
                    enum checkpoint_kind kind)
{
    for (int i = 0; i < checkpoint->n; i++)
        if (checkpoint->tensors[i].kind == kind &&
            strcmp(checkpoint->tensors[i].name, name) == 0)
            return i;
    return -1;
}

void checkpoint_read(const struct checkpoint *checkpoint, int index, enum dtype dtype,
                     void *data)
{
    const struct saved *t = &checkpoint->tensors[index];

    for (int k = 0; k < t->n_parts; k++)
        dtype_convert(t->dtype, t->parts[k].data, dtype,
                      (char *)data + (size_t)t->parts[k].start * dtype_size(dtype),
                      (size_t)t->parts[k].count);
}
