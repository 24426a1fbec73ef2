/* SPDX-License-Identifier: MIT */
#include "train/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#define HEADER_MAX ((uint64_t)100 << 20)

struct safetensors {
    char *path;
    struct file_map map;
    json_t *header;                     /* owns names and types */
    int n;
    struct safetensors_tensor *tensors; /* by offset */
};

static const struct type_name {
    const char *name;
    enum dtype dtype;
    size_t size;
} types[] = {
    { "F32", DTYPE_F32, 4 },  { "F64", DTYPE_F64, 8 },  { "I64", DTYPE_I64, 8 },
    { "I32", DTYPE_I32, 4 },  { "U8", DTYPE_U8, 1 },    { "BOOL", DTYPE_BOOL, 1 },
    { "F16", DTYPE_F16, 2 },  { "BF16", DTYPE_BF16, 2 }, { "I16", DTYPE_I16, 2 },
    { "I8", DTYPE_I8, 1 },    { "U16", DTYPE_U16, 2 },  { "U32", DTYPE_U32, 4 },
    { "U64", DTYPE_U64, 8 },  { "F8_E4M3", DTYPE_NONE, 1 }, { "F8_E5M2", DTYPE_NONE, 1 },
};

static const struct type_name *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

static const char *type_of(enum dtype dtype)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].dtype == dtype && dtype != DTYPE_NONE)
            return types[i].name;
    return NULL;
}

static int tensor_error(const struct safetensors *file, const char *name, struct err *err,
                        const char *text)
{
    return err_set(err, "%s: tensor \"%s\": %s", file->path, name, text);
}

/* A non-negative JSON integer. */
static int get_size(const json_t *value, size_t *size)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *size = (size_t)json_integer_value(value);
    return 0;
}

static int read_shape(const struct safetensors *file, const char *name, const json_t *json,
                      size_t element, struct safetensors_tensor *t, struct err *err)
{
    size_t bytes = element;

    if (!json_is_array(json))
        return tensor_error(file, name, err, "shape: expected a list of sizes");
    if (json_array_size(json) > GRAPH_MAX_RANK)
        return tensor_error(file, name, err, "shape: more than 8 dimensions");
    t->shape.rank = (int)json_array_size(json);
    for (int i = 0; i < t->shape.rank; i++) {
        size_t dim;

        if (get_size(json_array_get(json, (size_t)i), &dim) < 0)
            return tensor_error(file, name, err, "shape: expected non-negative integers");
        if (size_mul(bytes, dim, &bytes) < 0 || bytes > INT64_MAX)
            return tensor_error(file, name, err, "shape: too large");
        t->shape.dim[i] = (int64_t)dim;
    }
    t->bytes = bytes;
    return 0;
}

static int read_tensor(const struct safetensors *file, const char *name, const json_t *json,
                       size_t data_at, struct safetensors_tensor *t, struct err *err)
{
    const char *type = json_string_value(json_object_get(json, "dtype"));
    const json_t *offsets = json_object_get(json, "data_offsets");
    size_t begin, end, room = file->map.size - data_at;
    const struct type_name *known;

    if (!json_is_object(json) || json_object_size(json) != 3 || !type)
        return tensor_error(file, name, err, "expected dtype, shape and data_offsets");
    known = find_type(type);
    if (!known)
        return tensor_error(file, name, err, "dtype: not known");
    *t = (struct safetensors_tensor){ .name = name, .type = known->name,
                                      .dtype = known->dtype };
    if (read_shape(file, name, json_object_get(json, "shape"), known->size, t, err) < 0)
        return -1;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        get_size(json_array_get(offsets, 0), &begin) < 0 ||
        get_size(json_array_get(offsets, 1), &end) < 0)
        return tensor_error(file, name, err, "data_offsets: expected [begin, end]");
    if (begin > end || end > room)
        return tensor_error(file, name, err, "data_offsets: outside of the file");
    if (end - begin != t->bytes)
        return tensor_error(file, name, err, "data_offsets: do not agree with dtype and shape");
    t->data = file->map.data + data_at + begin;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    const char *px = x->data, *py = y->data;

    if (px != py)
        return px < py ? -1 : 1;
    if (x->bytes != y->bytes)   /* empty tensors before the one that starts there */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte belongs to exactly one tensor. */
static int check_cover(const struct safetensors *file, size_t data_at, struct err *err)
{
    const unsigned char *at = file->map.data + data_at;

    for (int i = 0; i < file->n; i++) {
        const struct safetensors_tensor *t = &file->tensors[i];

        if ((const unsigned char *)t->data < at)
            return tensor_error(file, t->name, err, "overlaps another tensor");
        if ((const unsigned char *)t->data > at)
            return tensor_error(file, t->name, err, "bytes before it belong to no tensor");
        at += t->bytes;
    }
    if (at != file->map.data + file->map.size)
        return err_set(err, "%s: bytes at the end belong to no tensor", file->path);
    return 0;
}

/* Names stand in messages of one line. */
static bool printable(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127)
            return false;
    return true;
}

static int check_metadata(const struct safetensors *file, const json_t *json, struct err *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(json))
        return err_set(err, "%s: __metadata__: expected an object of strings", file->path);
    json_object_foreach((json_t *)json, key, value)
        if (!json_is_string(value))
            return err_set(err, "%s: __metadata__: a value is not a string", file->path);
    return 0;
}

static int read_header(struct safetensors *file, struct err *err)
{
    uint64_t size = 0;
    json_error_t bad;
    const char *key;
    json_t *value;

    if (file->map.size < 8)
        return err_set(err, "%s: too short for a safetensors file", file->path);
    for (int i = 7; i >= 0; i--)
        size = size << 8 | file->map.data[i];
    if (size > HEADER_MAX || size > file->map.size - 8)
        return err_set(err, "%s: header of %llu bytes does not fit in the file", file->path,
                       (unsigned long long)size);
    file->header = json_loadb((const char *)file->map.data + 8, (size_t)size,
                              JSON_REJECT_DUPLICATES, &bad);
    if (!file->header)
        return err_set(err, "%s: header: no JSON from byte %d on", file->path, bad.position);
    if (!json_is_object(file->header))
        return err_set(err, "%s: header: expected an object", file->path);
    file->tensors = mem_new(json_object_size(file->header), sizeof(*file->tensors));
    json_object_foreach(file->header, key, value) {
        if (strcmp(key, "__metadata__") == 0) {
            if (check_metadata(file, value, err) < 0)
                return -1;
        } else if (!printable(key)) {
            return err_set(err, "%s: header: control characters in a name", file->path);
        } else {
            if (read_tensor(file, key, value, 8 + (size_t)size, &file->tensors[file->n],
                            err) < 0)
                return -1;
            file->n++;
        }
    }
    qsort(file->tensors, (size_t)file->n, sizeof(*file->tensors), by_offset);
    return check_cover(file, 8 + (size_t)size, err);
}

struct safetensors *safetensors_open(const char *path, struct err *err)
{
    struct safetensors *file = mem_new(1, sizeof(*file));

    file->path = mem_strdup(path);
    if (file_map_open(path, &file->map, err) < 0 || read_header(file, err) < 0) {
        safetensors_close(file);
        return NULL;
    }
    return file;
}

struct safetensors *safetensors_open_head(const char *path, const void *head, size_t bytes,
                                          size_t size, struct err *err)
{
    struct safetensors *file = mem_new(1, sizeof(*file));
    int bad = file_map_blank(size, &file->map, err);

    file->path = mem_strdup(path);
    if (!bad && bytes > size)
        bad = err_set(err, "%s: %zu bytes of its %zu were sent", path, bytes, size);
    if (!bad && bytes > 0)
        memcpy((void *)(uintptr_t)file->map.data, head, bytes);
    if (bad || read_header(file, err) < 0) {
        safetensors_close(file);
        return NULL;
    }
    return file;
}

const void *safetensors_head(const struct safetensors *file, size_t *bytes)
{
    *bytes = file->n > 0 ? (size_t)((const unsigned char *)file->tensors[0].data - file->map.data)
                         : file->map.size;
    return file->map.data;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    free(file->tensors);
    json_decref(file->header);
    file_map_close(&file->map);
    free(file->path);
    free(file);
}

const char *safetensors_path(const struct safetensors *file)
{
    return file->path;
}

const struct file_map *safetensors_map(const struct safetensors *file)
{
    return &file->map;
}

int safetensors_count(const struct safetensors *file)
{
    return file->n;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int index)
{
    return &file->tensors[index];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file,
                                                  const char *name)
{
    for (int i = 0; i < file->n; i++)
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    return NULL;
}

void safetensors_hash(const struct safetensors *file, char hex[17])
{
    file_hash(file->map.data, file->map.size, hex);
}

static size_t tensor_bytes(const struct safetensors_tensor *t)
{
    return (size_t)shape_elements(&t->shape) * dtype_size(t->dtype);
}

/* Header text padded with spaces, so that the data begins on a multiple of 8. */
static char *make_header(int n, const struct safetensors_tensor *tensors, size_t *size)
{
    json_t *top = json_object();
    size_t at = 0, length, padded;
    char *text, *header;

    for (int i = 0; i < n; i++) {
        const struct safetensors_tensor *t = &tensors[i];
        json_t *dims = json_array();

        for (int d = 0; d < t->shape.rank; d++)
            json_array_append_new(dims, json_integer(t->shape.dim[d]));
        json_object_set_new(top, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_of(t->dtype),
                                      "shape", dims, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + tensor_bytes(t))));
        at += tensor_bytes(t);
    }
    text = json_dumps(top, JSON_COMPACT);
    json_decref(top);
    length = strlen(text);
    padded = (length + 7) & ~(size_t)7;
    header = mem_new(8 + padded, 1);
    for (int i = 0; i < 8; i++)
        header[i] = (char)(padded >> (8 * i) & 0xff);
    memcpy(header + 8, text, length);
    memset(header + 8 + length, ' ', padded - length);
    free(text);
    *size = 8 + padded;
    return header;
}

int safetensors_write(const char *path, int n, const struct safetensors_tensor *tensors,
                      struct err *err)
{
    size_t size;
    char *header;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), bad;

    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    header = make_header(n, tensors, &size);
    bad = file_write_all(fd, path, header, size, err);
    for (int i = 0; i < n && !bad; i++)
        bad = file_write_all(fd, path, tensors[i].data, tensor_bytes(&tensors[i]), err);
    free(header);
    if (!bad && fsync(fd))
        bad = err_set(err, "%s: %s", path, strerror(errno));
    if (close(fd) && !bad)
        bad = err_set(err, "%s: %s", path, strerror(errno));
    if (bad)
        unlink(path);
    return bad;
}

int safetensors_replace(const char *path, int n, const struct safetensors_tensor *tensors,
                        struct err *err)
{
    char *target, *temporary;
    struct stat status;
    int bad;

    if (file_check_link(path, err) < 0)
        return -1;
    /* A link stays a link: what it points to is replaced. */
    target = realpath(path, NULL);
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        free(target);
        return err_set(err, "%s: not a regular file", path);
    }
    temporary = mem_printf("%s.tmp-%ld", target ? target : path, (long)getpid());
    bad = safetensors_write(temporary, n, tensors, err);
    if (!bad && rename(temporary, target ? target : path) < 0) {
        bad = err_set(err, "%s: %s", path, strerror(errno));
        unlink(temporary);
    }
    free(temporary);
    free(target);
    return bad;
}
