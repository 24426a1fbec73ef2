/* SPDX-License-Identifier: MIT */
/* Hostile state.json beside a shard that is as it should be. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SHARD "shard-0000.safetensors"

static off_t shard_size;

static const char *const keys[] = {
    "schema", "version", "step", "data_samples", "global_batch", "batchnorm_samples", "random",
    "seed", "shuffle", "precision", "optimizer", "model", "plan", "files", "name", "lr",
    "path", "xxh3", "file", "bytes", "pieces", "kind", "dtype", "shape", "start", "count",
    "key", "colour",
};

static const char *const words[] = {
    "w", "b", "value", "m", "v", "float32", "float64", "sgd", "adam", "w@0", "", "../x",
    SHARD, "tasuki-checkpoint", "philox4x32-10",
};

static json_t *piece(const char *name, const char *kind, int start, int count, const char *key)
{
    return json_pack("{s:s, s:s, s:s, s:[i], s:i, s:i, s:s}", "name", name, "kind", kind,
                     "dtype", "float32", "shape", 6, "start", start, "count", count, "key",
                     key);
}

static json_t *valid(void)
{
    json_t *optimizer = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "name", "momentum",
                                  "lr", 0.1, "momentum", 0.9, "beta1", 0.9, "beta2", 0.999,
                                  "epsilon", 1e-8, "weight_decay", 0.0);
    json_t *file = json_pack("{s:s, s:s, s:i, s:[o, o, o]}", "file", SHARD, "xxh3", "",
                             "bytes", (int)shard_size, "pieces", piece("w", "value", 0, 4, "w@0"),
                             piece("w", "value", 4, 2, "w@4"), piece("w", "m", 0, 6, "m"));

    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:o, s:{s:s, s:s}, "
                     "s:[o]}",
                     "schema", "tasuki-checkpoint", "version", 1, "step", 20, "data_samples",
                     72, "global_batch", 24, "batchnorm_samples", 0, "random", "philox4x32-10",
                     "seed", 7, "shuffle", 1, "precision", "float32", "optimizer", optimizer,
                     "model", "path", "model.onnx", "xxh3", "", "files", file);
}

static json_t *hostile_value(struct fuzz *fuzz)
{
    switch (fuzz_below(fuzz, 6)) {
    case 0: return json_integer(fuzz_number(fuzz));
    case 1: return json_integer((json_int_t)fuzz_below(fuzz, 8));
    case 2: return json_string(words[fuzz_below(fuzz, COUNT(words))]);
    case 3: return json_pack("[I]", (json_int_t)fuzz_number(fuzz));
    case 4: return json_real(-0.5);
    default: return json_object();
    }
}

/* The top, a file of it, or a piece of that. */
static json_t *pick(struct fuzz *fuzz, json_t *top)
{
    json_t *file = json_array_get(json_object_get(top, "files"), 0);
    json_t *pieces = json_object_get(file, "pieces");
    json_t *one = json_array_get(pieces, fuzz_below(fuzz, json_array_size(pieces)));

    if (json_is_object(one) && !fuzz_once_in(fuzz, 3))
        return one;
    return json_is_object(file) && fuzz_once_in(fuzz, 3) ? file : top;
}

static void mutate(struct fuzz *fuzz, json_t *top)
{
    json_t *object = pick(fuzz, top);
    const char *key = keys[fuzz_below(fuzz, COUNT(keys))];

    if (json_object_get(object, key) && fuzz_once_in(fuzz, 4))
        json_object_del(object, key);
    else if (json_object_get(object, key) || fuzz_once_in(fuzz, 8))
        json_object_set_new(object, key, hostile_value(fuzz));
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    json_t *top = valid();
    size_t n = structured ? fuzz_below(fuzz, 6) : 0;
    char *text;

    while (n-- > 0)
        mutate(fuzz, top);
    text = json_dumps(top, JSON_INDENT(1));
    fuzz_put(file, text, strlen(text));
    free(text);
    json_decref(top);
    if (!structured)
        fuzz_damage(fuzz, file);
}

static void write_shard(const char *path)
{
    float data[6] = { 1, 2, 3, 4, 5, 6 };
    struct safetensors_tensor tensors[] = {
        { .name = "w@0", .dtype = DTYPE_F32, .shape = { 1, { 4 } }, .data = data },
        { .name = "w@4", .dtype = DTYPE_F32, .shape = { 1, { 2 } }, .data = data + 4 },
        { .name = "m", .dtype = DTYPE_F32, .shape = { 1, { 6 } }, .data = data },
    };
    struct err err = { 0 };

    if (safetensors_write(path, 3, tensors, &err) < 0)
        abort();
}

static void use(const struct checkpoint *c)
{
    for (int i = 0; i < checkpoint_count(c); i++) {
        enum checkpoint_kind kind;
        struct shape shape;
        enum dtype dtype;
        const char *name = checkpoint_name(c, i, &kind, &shape, &dtype);
        void *out = calloc((size_t)shape_elements(&shape) + 1, 8);

        if (checkpoint_find(c, name, kind) != i || !out)
            abort();
        checkpoint_read(c, i, DTYPE_F64, out);
        free(out);
    }
}

/* The file becomes state.json of a directory beside it. */
static enum fuzz_result try(const char *path, struct err *err)
{
    char directory[600], state[640], shard[640];
    struct checkpoint *c;
    json_t *json;

    snprintf(directory, sizeof(directory), "%s.d", path);
    snprintf(state, sizeof(state), "%s/state.json", directory);
    snprintf(shard, sizeof(shard), "%s/%s", directory, SHARD);
    if (mkdir(directory, 0700) < 0 || link(path, state) < 0)
        abort();
    write_shard(shard);
    json = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    c = checkpoint_open(directory, err);
    if (c)
        use(c);
    checkpoint_close(c);
    unlink(state);
    unlink(shard);
    rmdir(directory);
    json_decref(json);
    return c ? FUZZ_ACCEPTED : json ? FUZZ_REFUSED : FUZZ_UNPARSED;
}

/* A true state.json says how long the shard is. */
static void measure_shard(void)
{
    char directory[] = "/tmp/fuzz-checkpoint-XXXXXX", shard[64];
    struct stat st;

    if (!mkdtemp(directory))
        abort();
    snprintf(shard, sizeof(shard), "%s/%s", directory, SHARD);
    write_shard(shard);
    if (stat(shard, &st) < 0)
        abort();
    shard_size = st.st_size;
    unlink(shard);
    rmdir(directory);
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "checkpoint", ".json", make, try };

    measure_shard();
    return fuzz_main(&target, argc, argv);
}
