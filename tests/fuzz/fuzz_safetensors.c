/* SPDX-License-Identifier: MIT */
/* Hostile safetensors files, read as training data. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "read_data.h"
#include "train/data.h"
#include "train/safetensors.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SAMPLES 4

static const char *const types[] = { "F32", "F64", "I64", "I32", "U8", "BOOL", "BF16", "F31" };
static const size_t sizes[] = { 4, 8, 8, 4, 1, 1, 2, 4 };

static json_t *tensor(const char *type, json_t *shape, int64_t begin, int64_t end)
{
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* A header over one to four tensors; '*data' bytes follow it. */
static json_t *valid(struct fuzz *fuzz, size_t *data)
{
    json_t *top = json_object();
    int64_t at = 0;

    for (size_t i = 0, n = 1 + fuzz_below(fuzz, 4); i < n; i++) {
        size_t type = fuzz_below(fuzz, COUNT(types) - 1);
        json_int_t width = (json_int_t)fuzz_below(fuzz, 5);
        int64_t bytes = SAMPLES * width * (int64_t)sizes[type];
        char name[8] = { (char)('a' + i), 0 };

        json_object_set_new(top, name,
                            tensor(types[type], json_pack("[i, I]", SAMPLES, width), at,
                                   at + bytes));
        at += bytes;
    }
    if (fuzz_once_in(fuzz, 4))
        json_object_set_new(top, "__metadata__", json_pack("{s:s}", "format", "pt"));
    *data = (size_t)at;
    return top;
}

static json_t *hostile_value(struct fuzz *fuzz)
{
    switch (fuzz_below(fuzz, 6)) {
    case 0: return json_integer(fuzz_number(fuzz));
    case 1: return json_string(types[fuzz_below(fuzz, COUNT(types))]);
    case 2: return json_pack("[I, I]", (json_int_t)fuzz_number(fuzz),
                             (json_int_t)fuzz_number(fuzz));
    case 3: return json_array();
    case 4: return json_null();
    default: return json_object();
    }
}

static void mutate(struct fuzz *fuzz, json_t *top)
{
    static const char *const keys[] = { "dtype", "shape", "data_offsets", "more" };
    char name[2] = { (char)('a' + fuzz_below(fuzz, 4)), 0 };
    json_t *t = json_object_get(top, name);
    json_t *list = json_object_get(t, fuzz_once_in(fuzz, 2) ? "shape" : "data_offsets");

    switch (fuzz_below(fuzz, 5)) {
    case 0:
        json_object_set_new(t ? t : top, keys[fuzz_below(fuzz, COUNT(keys))],
                            hostile_value(fuzz));
        break;
    case 1:
        json_object_del(t ? t : top, keys[fuzz_below(fuzz, COUNT(keys))]);
        break;
    case 2:
        json_object_set_new(top, name, hostile_value(fuzz));
        break;
    default:
        if (json_array_size(list) > 0)
            json_array_set_new(list, fuzz_below(fuzz, json_array_size(list)),
                               json_integer(fuzz_number(fuzz)));
    }
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    static const unsigned char zeros[4 * SAMPLES * 5 * 8];
    size_t data, n = structured ? fuzz_below(fuzz, 3) : 0, length;
    json_t *top = valid(fuzz, &data);
    unsigned char head[8];
    char *text;

    while (n-- > 0)
        mutate(fuzz, top);
    text = json_dumps(top, JSON_COMPACT);
    length = strlen(text);
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)(length >> 8 * i & 0xff);
    fuzz_put(file, head, sizeof(head));
    fuzz_put(file, text, length);
    fuzz_put(file, zeros, data);
    free(text);
    json_decref(top);
    if (!structured)
        fuzz_damage(fuzz, file);
}

static enum fuzz_result try(const char *path, struct err *err)
{
    struct safetensors *file = safetensors_open(path, err);
    struct data *data;

    if (!file)      /* the container is header and bytes: past its JSON is past the parser */
        return strstr(err->text, "tensor \"") || strstr(err->text, "no tensor")
                   ? FUZZ_REFUSED
                   : FUZZ_UNPARSED;
    safetensors_close(file);
    data = data_open(path, NULL, err);
    if (!data)
        return FUZZ_REFUSED;
    fuzz_read_data(data, NULL);
    data_close(data);
    return FUZZ_ACCEPTED;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "safetensors", ".safetensors", make, try };

    return fuzz_main(&target, argc, argv);
}
