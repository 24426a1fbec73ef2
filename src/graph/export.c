/* SPDX-License-Identifier: MIT */
#include "graph/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/model_private.h"
#include "graph/onnx_wire.h"

/* Fields of TensorProto that say where data are. */
enum { RAW_DATA = 9, EXTERNAL_DATA = 13, DATA_LOCATION = 14 };

/* The copy of the file: all of it as it was, but tensors with external data get them inside. */
struct copy {
    const struct onnx *onnx;
    unsigned char *bytes;
    size_t size, room;
    int n_tensors;          /* initializers copied so far */
    size_t *data;           /* where their data stand in the copy; 0: decoded elsewhere */
    size_t growth;          /* bytes of all external data */
};

/* A field as it stands in the file, which was checked when it was opened. */
struct field {
    const unsigned char *start, *payload, *end;
    uint64_t number;
};

static struct field read_field(const unsigned char *at, const unsigned char *end)
{
    struct field field = { .start = at };
    uint64_t tag = 0, length = 0;

    at = wire_varint(at, end, &tag);
    field.number = tag >> 3;
    switch (tag & 7) {
    case 0:
        field.payload = at;
        field.end = wire_varint(at, end, &length);
        break;
    case 1:
    case 5:
        field.payload = at;
        field.end = at + ((tag & 7) == 1 ? 8 : 4);
        break;
    default:
        field.payload = wire_varint(at, end, &length);
        field.end = field.payload + length;
    }
    return field;
}

static void put(struct copy *copy, const void *bytes, size_t size)
{
    /* There is room: everything was counted beforehand. */
    if (size)
        memcpy(copy->bytes + copy->size, bytes, size);
    copy->size += size;
}

static void put_field(struct copy *copy, const struct field *field)
{
    put(copy, field->start, (size_t)(field->end - field->start));
}

static size_t put_varint(struct copy *copy, uint64_t value)
{
    unsigned char text[10];
    size_t n = wire_put_varint(text, value);

    put(copy, text, n);
    return n;
}

static size_t begin(struct copy *copy, uint64_t number)
{
    static const unsigned char length[WIRE_LENGTH_SIZE];

    put_varint(copy, number << 3 | 2);
    put(copy, length, sizeof(length));
    return copy->size;
}

static void finish(struct copy *copy, size_t start)
{
    wire_put_length(copy->bytes + start - WIRE_LENGTH_SIZE, copy->size - start);
}

static bool is_external(const struct onnx_tensor *tensor, const OnnxFile__Tensor *proto)
{
    return !tensor->in_file && proto->data_location == 1;
}

static void embed(struct copy *copy, const struct field *field,
                  const struct onnx_tensor *tensor)
{
    const unsigned char *at = field->payload;
    size_t start = begin(copy, field->number);

    while (at < field->end) {
        struct field inner = read_field(at, field->end);

        at = inner.end;
        if (inner.number != EXTERNAL_DATA && inner.number != DATA_LOCATION)
            put_field(copy, &inner);
    }
    put_varint(copy, RAW_DATA << 3 | 2);
    put_varint(copy, tensor->size);
    copy->data[copy->n_tensors] = copy->size;
    /* What is absent is given by the caller, or patch_tensor() refuses. */
    if (tensor->data) {
        put(copy, tensor->data, tensor->size);
    } else {
        memset(copy->bytes + copy->size, 0, tensor->size);
        copy->size += tensor->size;
    }
    finish(copy, start);
}

static void copy_tensor(struct copy *copy, const struct field *field)
{
    const struct onnx *onnx = copy->onnx;
    const struct onnx_tensor *tensor = &onnx->initializers[copy->n_tensors];

    if (is_external(tensor, onnx->model->graph->initializer[copy->n_tensors])) {
        embed(copy, field, tensor);
    } else {
        if (tensor->in_file && tensor->size)
            copy->data[copy->n_tensors] = copy->size + (size_t)(tensor->data - field->start);
        put_field(copy, field);
    }
    copy->n_tensors++;
}

static void copy_graph(struct copy *copy, const struct field *field)
{
    const unsigned char *at = field->payload;
    size_t start = copy->size + (size_t)(field->payload - field->start);

    /* Without external data not even the length changes. */
    if (copy->growth)
        start = begin(copy, field->number);
    else
        put(copy, field->start, (size_t)(field->payload - field->start));
    while (at < field->end) {
        struct field inner = read_field(at, field->end);

        at = inner.end;
        if (inner.number == ONNX_GRAPH_INITIALIZER)
            copy_tensor(copy, &inner);
        else
            put_field(copy, &inner);
    }
    if (copy->growth)
        finish(copy, start);
}

static void copy_model(struct copy *copy)
{
    const unsigned char *at = copy->onnx->map.data, *end = at + copy->onnx->map.size;

    while (at < end) {
        struct field field = read_field(at, end);

        at = field.end;
        if (field.number == ONNX_MODEL_GRAPH)
            copy_graph(copy, &field);
        else
            put_field(copy, &field);
    }
}

typedef int get_function(void *user, const char *name, enum dtype dtype, size_t elements,
                         void *data, struct err *err);

/* 'from' is the original of the transposed copy 'tensor'. */
static void transpose(const struct onnx_tensor *tensor, const unsigned char *from,
                      unsigned char *to)
{
    size_t size = dtype_size(tensor->dtype), rows = (size_t)tensor->shape.dim[0];
    size_t columns = (size_t)tensor->shape.dim[1], r, c;

    for (r = 0; r < rows; r++)
        for (c = 0; c < columns; c++)
            memcpy(to + (r * columns + c) * size, from + (c * rows + r) * size, size);
}

/* Current values of one initializer; a transposed copy has those of its original. */
static int patch_tensor(struct copy *copy, int index, get_function *get, void *user,
                        struct err *err)
{
    const struct onnx_tensor *tensor = &copy->onnx->initializers[index];
    int of = copy->onnx->copy_of[index], result;
    const char *name = of < 0 ? tensor->name : copy->onnx->initializers[of].name;
    /* The copy's bytes are not aligned. */
    void *data = mem_try(tensor->size, 1, err);

    if (!data)
        return -1;
    result = get(user, name, tensor->dtype, tensor->size / dtype_size(tensor->dtype), data,
                 err);
    if (result == 0 && of >= 0)
        transpose(tensor, data, copy->bytes + copy->data[index]);
    else if (result == 0)
        memcpy(copy->bytes + copy->data[index], data, tensor->size);
    else if (result > 0 && !tensor->data && tensor->size)
        result = err_set(err, "\"%.200s\" has no values, neither here nor in the model", name);
    free(data);
    return result < 0 ? -1 : 0;
}

static int patch(struct copy *copy, get_function *get, void *user, struct err *err)
{
    int i;

    for (i = 0; i < copy->n_tensors; i++)
        if (copy->data[i] && dtype_is_float(copy->onnx->initializers[i].dtype) &&
            patch_tensor(copy, i, get, user, err))
            return -1;
    return 0;
}

int model_export(struct model *model, const char *path,
                 int (*get)(void *user, const char *name, enum dtype dtype, size_t elements,
                            void *data, struct err *err),
                 void *user, struct err *err)
{
    const struct onnx *onnx = model->onnx;
    struct copy copy = { .onnx = onnx };
    int i, result = -1;

    for (i = 0; i < (int)onnx->main.proto->n_initializer; i++)
        if (is_external(&onnx->initializers[i], onnx->model->graph->initializer[i]) &&
            (size_add(copy.growth, onnx->initializers[i].size, &copy.growth) ||
             size_add(copy.growth, 64, &copy.growth)))
            return err_set(err, "%s: too large", path);
    if (size_add(copy.growth, onnx->map.size + 64, &copy.room) ||
        (copy.growth && copy.room > WIRE_MAX_SIZE))
        return err_set(err, "%s: with its external data the model would exceed the 2 GiB of "
                       "one ONNX file", path);
    copy.bytes = mem_try(copy.room, 1, err);
    if (!copy.bytes)
        return -1;
    copy.data = mem_new((size_t)onnx->n_initializers, sizeof(*copy.data));
    copy_model(&copy);
    if (!patch(&copy, get, user, err))
        result = file_write(path, copy.bytes, copy.size, err);
    free(copy.bytes);
    free(copy.data);
    return result;
}
