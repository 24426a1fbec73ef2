/* SPDX-License-Identifier: MIT */
#include "graph/onnx.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"
#include "graph/external.h"
#include "graph/wire.h"

/* Field numbers of TensorProto. */
enum { FLOAT_DATA = 4, INT32_DATA = 5, INT64_DATA = 7, RAW_DATA = 9, DOUBLE_DATA = 10,
       UINT64_DATA = 11 };

enum { LOCATION_EXTERNAL = 1, MASK_LOOK = 4096 };

static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t field;     /* where typed data of it stands */
} types[] = {
    { "undefined", DTYPE_NONE, 0 },         { "float32", DTYPE_F32, FLOAT_DATA },
    { "uint8", DTYPE_U8, INT32_DATA },      { "int8", DTYPE_I8, INT32_DATA },
    { "uint16", DTYPE_U16, INT32_DATA },    { "int16", DTYPE_I16, INT32_DATA },
    { "int32", DTYPE_I32, INT32_DATA },     { "int64", DTYPE_I64, INT64_DATA },
    { "string", DTYPE_NONE, 0 },            { "bool", DTYPE_BOOL, INT32_DATA },
    { "float16", DTYPE_F16, INT32_DATA },    { "float64", DTYPE_F64, DOUBLE_DATA },
    { "uint32", DTYPE_U32, UINT64_DATA },   { "uint64", DTYPE_U64, UINT64_DATA },
    { "complex64", DTYPE_NONE, 0 },         { "complex128", DTYPE_NONE, 0 },
    { "bfloat16", DTYPE_BF16, INT32_DATA },         { "float8e4m3fn", DTYPE_NONE, 0 },
    { "float8e4m3fnuz", DTYPE_NONE, 0 },    { "float8e5m2", DTYPE_NONE, 0 },
    { "float8e5m2fnuz", DTYPE_NONE, 0 },    { "uint4", DTYPE_NONE, 0 },
    { "int4", DTYPE_NONE, 0 },              { "float4e2m1", DTYPE_NONE, 0 },
    { "float8e8m0", DTYPE_NONE, 0 },        { "uint2", DTYPE_NONE, 0 },
    { "int2", DTYPE_NONE, 0 },
};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

enum dtype onnx_dtype(int32_t data_type)
{
    return data_type >= 0 && data_type < N_TYPES ? types[data_type].dtype : DTYPE_NONE;
}

const char *onnx_dtype_name(int32_t data_type)
{
    return data_type >= 0 && data_type < N_TYPES ? types[data_type].name : "a newer type";
}

static int read_shape(const OnnxFile__Tensor *proto, struct onnx_tensor *tensor,
                      struct err *err)
{
    size_t elements = 1, i;

    if (proto->n_dims > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    tensor->shape.rank = (int)proto->n_dims;
    for (i = 0; i < proto->n_dims; i++) {
        if (proto->dims[i] < 0 || size_mul(elements, (size_t)proto->dims[i], &elements))
            return err_set(err, "a dimension of %" PRId64 " is out of range", proto->dims[i]);
        tensor->shape.dim[i] = proto->dims[i];
    }
    if (size_mul(elements, dtype_size(tensor->dtype), &tensor->size) ||
        tensor->size > (size_t)INT64_MAX)
        return err_set(err, "it is too large");
    return 0;
}

static int parse_number(const char *text, uint64_t *number)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *end || errno ? -1 : 0;
}

static int read_external(struct onnx *onnx, const OnnxFile__Tensor *proto,
                         struct onnx_tensor *tensor, struct err *err)
{
    const char *location = NULL;
    uint64_t offset = 0, length = tensor->size;
    bool absent = false;
    int64_t elements;
    size_t i;

    for (i = 0; i < proto->n_external_data; i++) {
        const char *key = proto->external_data[i]->key, *value = proto->external_data[i]->value;
        uint64_t *number = !key ? NULL : strcmp(key, "offset") == 0 ? &offset
                         : strcmp(key, "length") == 0 ? &length : NULL;

        absent |= key && strcmp(key, "absent") == 0;
        if (key && strcmp(key, "location") == 0)
            location = value;
        else if (number && (!value || parse_number(value, number)))
            return err_set(err, "its external %s is no number", key);
    }
    if (!location)
        return err_set(err, "its external data has no location");
    if (length != tensor->size)
        return err_set(err, "%zu bytes of external data expected, %" PRIu64 " given",
                       tensor->size, length);
    if (!absent)
        return external_data(onnx->external, location, offset, length, &tensor->data, err);
    if (!dtype_is_float(tensor->dtype))
        return err_set(err, "only floating weights may be absent, not %s",
                       dtype_name(tensor->dtype));
    return dims_elements(&tensor->shape, &elements, err);
}

/* Typed integers, and the bits of small floating types, stand as packed base-128 numbers. */
static int decode_integers(struct onnx *onnx, const unsigned char *at, size_t bytes,
                           struct onnx_tensor *tensor, struct err *err)
{
    const unsigned char *end = at + bytes;
    enum dtype dtype = dtype_is_float(tensor->dtype) ? DTYPE_U16 : tensor->dtype;
    size_t elements = tensor->size / dtype_size(dtype), i;
    unsigned char *to;
    uint64_t value;

    if (elements > bytes)
        return err_set(err, "fewer elements than its shape says");
    to = arena_alloc(onnx->arena, tensor->size ? tensor->size : 1, 1);
    for (i = 0; i < elements; i++) {
        at = wire_varint(at, end, &value);
        if (!at)
            return err_set(err, "fewer elements than its shape says");
        dtype_put_whole(dtype, to, (int64_t)i, (int64_t)value);
    }
    if (at != end)
        return err_set(err, "more elements than its shape says");
    tensor->data = to;
    return 0;
}

static int read_data(struct onnx *onnx, const OnnxFile__Tensor *proto,
                     struct onnx_tensor *tensor, struct err *err)
{
    const unsigned char *at = onnx->map.data + proto->data_offset;
    size_t bytes = (size_t)proto->data_size;
    uint32_t field = proto->data_field;

    if (proto->data_location == LOCATION_EXTERNAL)
        return read_external(onnx, proto, tensor, err);
    if (proto->n_external_data)
        return err_set(err, "external data without saying so in data_location");
    if (!proto->has_data_field && tensor->size)
        return err_set(err, "it has no data");
    if (proto->has_data_field && field != RAW_DATA && field != types[proto->data_type].field)
        return err_set(err, "its data is of another type");
    if (field == INT32_DATA || field == INT64_DATA || field == UINT64_DATA)
        return decode_integers(onnx, at, bytes, tensor, err);
    if (bytes != tensor->size)
        return err_set(err, "%zu bytes expected by its shape, %zu given", tensor->size, bytes);
    tensor->data = at;
    tensor->in_file = true;
    return 0;
}

int onnx_tensor_read(struct onnx *onnx, const OnnxFile__Tensor *proto,
                     struct onnx_tensor *tensor, struct err *err)
{
    struct onnx_tensor result = { .name = proto->name ? proto->name : "" };

    result.dtype = onnx_dtype(proto->data_type);
    if (result.dtype == DTYPE_NONE)
        return err_set(err, "tensor \"%s\": elements of type %s are not supported", result.name,
                       onnx_dtype_name(proto->data_type));
    if (read_shape(proto, &result, err) || read_data(onnx, proto, &result, err))
        return err_prefix(err, "tensor \"%s\"", result.name);
    *tensor = result;
    return 0;
}

static bool has_from(const struct onnx_tensor *tensor, double least)
{
    size_t elements = tensor->size / dtype_size(tensor->dtype), i;

    for (i = 0; i < elements && i < MASK_LOOK; i++)
        if (fabs(dtype_real(tensor->dtype, tensor->data, (int64_t)i)) >= least)
            return true;
    return false;
}

bool onnx_is_mask(const struct onnx_tensor *tensor)
{
    return has_from(tensor, HUGE_VAL);
}

bool onnx_exceeds_half(const struct onnx_tensor *tensor)
{
    return has_from(tensor, DTYPE_F16_END);
}

/* Attributes -------------------------------------------------------------------------- */

const OnnxFile__Attribute *onnx_attr(const OnnxFile__Node *node, const char *name)
{
    size_t i;

    for (i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name && strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    return NULL;
}

int64_t onnx_int(const OnnxFile__Node *node, const char *name, int64_t def)
{
    const OnnxFile__Attribute *attr = onnx_attr(node, name);

    return attr && attr->has_i ? attr->i : def;
}

double onnx_float(const OnnxFile__Node *node, const char *name, double def)
{
    const OnnxFile__Attribute *attr = onnx_attr(node, name);

    return attr && attr->has_f ? (double)attr->f : def;
}

int onnx_ints(const OnnxFile__Node *node, const char *name, const int64_t **values)
{
    const OnnxFile__Attribute *attr = onnx_attr(node, name);

    if (!attr)
        return -1;
    *values = attr->ints;
    return attr->n_ints > INT32_MAX ? -1 : (int)attr->n_ints;
}

bool onnx_string_is(const OnnxFile__Node *node, const char *name, const char *text,
                    bool if_absent)
{
    const OnnxFile__Attribute *attr = onnx_attr(node, name);

    if (!attr || !attr->has_s)
        return if_absent;
    return attr->s.len == strlen(text) && memcmp(attr->s.data, text, attr->s.len) == 0;
}
