/* SPDX-License-Identifier: MIT */
#include "graph/onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/external.h"
#include "graph/names.h"
#include "graph/onnx_wire.h"
#include "graph/wire.h"

int onnx_find(const struct onnx *onnx, const char *name)
{
    return names_find(onnx->names, name);
}

const char *onnx_domain(const char *domain)
{
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

const char *onnx_text(const char *text)
{
    return text ? text : "";
}

int64_t onnx_import(size_t n, OnnxFile__OperatorSet *const *sets, const char *domain)
{
    int64_t version = 0;
    size_t i;

    for (i = 0; i < n; i++)
        if (strcmp(onnx_domain(sets[i]->domain), onnx_domain(domain)) == 0)
            version = sets[i]->version;
    return version;
}

static int check_opset(struct onnx *onnx, struct err *err)
{
    onnx->opset = onnx_import(onnx->model->n_opset_import, onnx->model->opset_import, "");
    if (onnx->opset < ONNX_MIN_OPSET || onnx->opset > ONNX_MAX_OPSET)
        return err_set(err, "opset %" PRId64 " is not supported, only %d to %d", onnx->opset,
                       ONNX_MIN_OPSET, ONNX_MAX_OPSET);
    return 0;
}

int onnx_add_value(struct onnx *onnx, struct names *names, const char *name,
                   struct onnx_value value, struct err *err)
{
    int id = onnx->n_values;

    if (!name || !*name)
        return err_set(err, "a value has no name");
    if (names_find(names, name) >= 0)
        return err_set(err, "two values are named \"%.200s\"", name);
    *(struct onnx_value *)mem_push((void **)&onnx->values, &onnx->n_values, sizeof(value)) =
        value;
    names_put(names, name, id);
    return id;
}

static int add_value(struct onnx *onnx, const char *name, enum onnx_kind kind, int index,
                     struct err *err)
{
    struct onnx_value value = { name, kind, index, .body = &onnx->main };

    return onnx_add_value(onnx, onnx->names, name, value, err);
}

static int read_initializers(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    size_t i;

    for (i = 0; i < graph->n_initializer; i++) {
        const OnnxFile__Tensor *proto = graph->initializer[i];
        struct onnx_tensor tensor;

        if (add_value(onnx, proto->name, ONNX_INITIALIZER, (int)i, err) < 0 ||
            onnx_tensor_read(onnx, proto, &tensor, err))
            return -1;
        *(struct onnx_tensor *)mem_push((void **)&onnx->initializers, &onnx->n_initializers,
                                        sizeof(tensor)) = tensor;
    }
    return 0;
}

static int read_input_shape(const OnnxFile__Shape *proto, struct onnx_input *input,
                            struct err *err)
{
    size_t i;

    if (proto->n_dim > GRAPH_MAX_RANK)
        return err_set(err, "input \"%.200s\" has more than %d dimensions", input->name,
                       GRAPH_MAX_RANK);
    input->shape.rank = (int)proto->n_dim;
    input->has_shape = true;
    for (i = 0; i < proto->n_dim; i++) {
        const OnnxFile__Dimension *dim = proto->dim[i];

        if (dim->has_dim_value && (dim->dim_value < 0 || dim->dim_value > INT32_MAX))
            return err_set(err, "input \"%.200s\": a dimension of %" PRId64 " is out of range",
                           input->name, dim->dim_value);
        input->shape.dim[i] = dim->has_dim_value && dim->dim_value ? dim->dim_value : -1;
    }
    return 0;
}

static int read_input(struct onnx *onnx, const OnnxFile__ValueInfo *proto, struct err *err)
{
    const OnnxFile__TensorType *type = proto->type ? proto->type->tensor_type : NULL;
    struct onnx_input *input;
    int id;

    /* Old files list their initializers here, too. */
    id = proto->name ? names_find(onnx->names, proto->name) : -1;
    if (id >= 0 && onnx->values[id].kind == ONNX_INITIALIZER)
        return 0;
    id = add_value(onnx, proto->name, ONNX_INPUT, onnx->n_inputs, err);
    if (id < 0)
        return -1;
    input = mem_push((void **)&onnx->inputs, &onnx->n_inputs, sizeof(*input));
    input->name = proto->name;
    input->value = id;
    input->type = type ? onnx_dtype_name(type->elem_type) : NULL;
    input->dtype = type ? onnx_dtype(type->elem_type) : DTYPE_NONE;
    return type && type->shape ? read_input_shape(type->shape, input, err) : 0;
}

/* The structure, and the tensors that are no weights. */
static int hash_model(struct onnx *onnx, struct err *err)
{
    struct wire_copy copy = { 0 };
    size_t room;
    int i;

    if (wire_strip(onnx->map.data, onnx->map.size, &onnx_wire_hashed, false, &copy, err))
        return -1;
    room = copy.size;
    for (i = 0; i < onnx->n_initializers; i++) {
        const struct onnx_tensor *t = &onnx->initializers[i];

        if (dtype_is_float(t->dtype) || t->size == 0)
            continue;
        if (copy.size + t->size > room) {
            room = 2 * (copy.size + t->size);
            copy.bytes = mem_resize(copy.bytes, room, 1);
        }
        memcpy(copy.bytes + copy.size, t->data, t->size);
        copy.size += t->size;
    }
    file_hash(copy.bytes, copy.size, onnx->hash);
    free(copy.bytes);
    return 0;
}

/* A model is many small messages, which come and go together. */
static void *message_alloc(void *arena, size_t size)
{
    return arena_alloc(arena, size, 1);
}

static void message_free(void *arena, void *message)
{
    (void)arena;
    (void)message;
}

static int unpack(struct onnx *onnx, struct err *err)
{
    ProtobufCAllocator allocator = { message_alloc, message_free, onnx->arena };
    struct wire_copy copy = { 0 };

    if (wire_strip(onnx->map.data, onnx->map.size, &onnx_wire_model, true, &copy, err))
        return -1;
    onnx->model = onnx_file__model__unpack(&allocator, copy.size, copy.bytes);
    free(copy.bytes);
    if (!onnx->model)
        return err_set(err, "this is no ONNX model");
    if (!onnx->model->graph)
        return err_set(err, "the model has no graph");
    return 0;
}

static int read_graph(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    size_t i;

    if (check_opset(onnx, err) || read_initializers(onnx, err))
        return -1;
    for (i = 0; i < graph->n_input; i++)
        if (read_input(onnx, graph->input[i], err))
            return -1;
    if (onnx_read_nodes(onnx, err))
        return -1;
    onnx_find_large(onnx);
    onnx_find_constants(onnx);
    return hash_model(onnx, err);
}

struct onnx *onnx_new(const char *path)
{
    struct onnx *onnx = mem_new(1, sizeof(*onnx));

    onnx->path = mem_strdup(path);
    onnx->arena = arena_new();
    onnx->names = names_new();
    onnx->external = external_new(path);
    return onnx;
}

int onnx_read(struct onnx *onnx, struct err *err)
{
    return unpack(onnx, err) || read_graph(onnx, err) ? err_prefix(err, "%s", onnx->path) : 0;
}

struct onnx *onnx_open(const char *path, struct err *err)
{
    struct onnx *onnx = onnx_new(path);

    if (file_map_open(path, &onnx->map, err) || onnx_read(onnx, err)) {
        onnx_close(onnx);
        return NULL;
    }
    onnx_find_copies(onnx);
    return onnx;
}

void onnx_drop(const struct onnx *onnx, const void *data, size_t bytes)
{
    file_map_drop(&onnx->map, data, bytes);
    external_drop(onnx->external, data, bytes);
}

void onnx_close(struct onnx *onnx)
{
    if (!onnx)
        return;
    external_free(onnx->external);
    names_free(onnx->names);
    arena_free(onnx->arena);
    file_map_close(&onnx->map);
    free(onnx->values);
    free(onnx->inputs);
    free(onnx->initializers);
    free(onnx->large);
    free(onnx->copy_of);
    free(onnx->constant);
    free(onnx->origin);
    free(onnx->computed);
    free(onnx->path);
    free(onnx);
}
