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

static int check_opset(struct onnx *onnx, struct err *err)
{
    size_t i;

    for (i = 0; i < onnx->model->n_opset_import; i++) {
        const OnnxFile__OperatorSet *set = onnx->model->opset_import[i];

        if (!set->domain || !*set->domain || strcmp(set->domain, "ai.onnx") == 0)
            onnx->opset = set->version;
    }
    if (onnx->opset < ONNX_MIN_OPSET || onnx->opset > ONNX_MAX_OPSET)
        return err_set(err, "opset %" PRId64 " is not supported, only %d to %d", onnx->opset,
                       ONNX_MIN_OPSET, ONNX_MAX_OPSET);
    return 0;
}

static int add_value(struct onnx *onnx, const char *name, enum onnx_kind kind, int index,
                     struct err *err)
{
    int id = onnx->n_values;
    struct onnx_value *value;

    if (!name || !*name)
        return err_set(err, "a value has no name");
    if (names_find(onnx->names, name) >= 0)
        return err_set(err, "two values are named \"%.200s\"", name);
    value = mem_push((void **)&onnx->values, &onnx->n_values, sizeof(*value));
    *value = (struct onnx_value){ .name = name, .kind = kind, .index = index };
    names_put(onnx->names, name, id);
    return id;
}

static int read_initializers(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    size_t i;

    onnx->initializers = mem_new(graph->n_initializer, sizeof(*onnx->initializers));
    for (i = 0; i < graph->n_initializer; i++) {
        const OnnxFile__Tensor *proto = graph->initializer[i];

        if (add_value(onnx, proto->name, ONNX_INITIALIZER, (int)i, err) < 0 ||
            onnx_tensor_read(onnx, proto, &onnx->initializers[i], err))
            return -1;
        onnx->n_initializers++;
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
    input->dtype = type ? onnx_dtype(type->elem_type) : DTYPE_NONE;
    return type && type->shape ? read_input_shape(type->shape, input, err) : 0;
}

static const char *node_name(struct onnx *onnx, const OnnxFile__Node *proto, size_t index)
{
    if (proto->name && *proto->name)
        return proto->name;
    if (proto->n_output && *proto->output[0])
        return proto->output[0];
    return arena_printf(onnx->arena, "node %zu", index);
}

static int read_node_outputs(struct onnx *onnx, int index, struct err *err)
{
    struct onnx_node *node = &onnx->nodes[index];
    size_t i;

    node->inputs = arena_alloc(onnx->arena, node->proto->n_input, sizeof(int));
    node->outputs = arena_alloc(onnx->arena, node->proto->n_output, sizeof(int));
    for (i = 0; i < node->proto->n_output; i++) {
        node->outputs[i] = -1;
        if (!*node->proto->output[i])
            continue;
        node->outputs[i] = add_value(onnx, node->proto->output[i], ONNX_OUTPUT, index, err);
        if (node->outputs[i] < 0)
            return err_prefix(err, "node \"%.200s\"", node->name);
    }
    return 0;
}

static int read_nodes(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    size_t i;

    onnx->nodes = mem_new(graph->n_node, sizeof(*onnx->nodes));
    onnx->n_nodes = (int)graph->n_node;
    for (i = 0; i < graph->n_node; i++) {
        const OnnxFile__Node *proto = graph->node[i];

        onnx->nodes[i].proto = proto;
        onnx->nodes[i].name = node_name(onnx, proto, i);
        if (!proto->op_type || !*proto->op_type)
            return err_set(err, "node \"%.200s\" has no operator", onnx->nodes[i].name);
        if (read_node_outputs(onnx, (int)i, err))
            return -1;
    }
    return 0;
}

static int resolve_node_inputs(struct onnx *onnx, struct onnx_node *node, struct err *err)
{
    size_t i;

    for (i = 0; i < node->proto->n_input; i++) {
        const char *name = node->proto->input[i];

        node->inputs[i] = *name ? names_find(onnx->names, name) : -1;
        if (*name && node->inputs[i] < 0)
            return err_set(err, "node \"%.200s\" reads \"%.200s\", which nothing makes",
                           node->name, name);
        if (*name)
            onnx->values[node->inputs[i]].readers++;
    }
    return 0;
}

static int resolve(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    size_t i;

    for (i = 0; i < graph->n_node; i++)
        if (resolve_node_inputs(onnx, &onnx->nodes[i], err))
            return -1;
    onnx->outputs = mem_new(graph->n_output, sizeof(int));
    for (i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name;
        int id = name ? names_find(onnx->names, name) : -1;

        if (id < 0)
            return err_set(err, "nothing makes the output \"%.200s\"", name ? name : "");
        onnx->values[id].readers++;
        onnx->outputs[onnx->n_outputs++] = id;
    }
    return onnx->n_outputs ? 0 : err_set(err, "the graph has no output");
}

/* Depth first from each node in the order of the file: a file in order stays as it is. */
struct sorter {
    struct onnx *onnx;
    enum { NEW, OPEN, DONE } *state;
    int *stack, *order;
    size_t *next;       /* of the node: which input to look at */
    int depth, n;
};

/* The node to sort before node 'id' can be; -1: none, -2: that is a cycle. */
static int next_needed(struct sorter *s, int id)
{
    const struct onnx_node *node = &s->onnx->nodes[id];

    while (s->next[id] < node->proto->n_input) {
        int v = node->inputs[s->next[id]++], producer;

        if (v < 0 || s->onnx->values[v].kind != ONNX_OUTPUT)
            continue;
        producer = s->onnx->values[v].index;
        if (s->state[producer] == OPEN)
            return -2;
        if (s->state[producer] == NEW)
            return producer;
    }
    return -1;
}

static int sort_from(struct sorter *s, int root, struct err *err)
{
    if (s->state[root] == DONE)
        return 0;
    s->stack[s->depth++] = root;
    while (s->depth) {
        int id = s->stack[s->depth - 1], needed;

        s->state[id] = OPEN;
        needed = next_needed(s, id);
        if (needed == -2)
            return err_set(err, "node \"%.200s\" lies on a cycle", s->onnx->nodes[id].name);
        if (needed >= 0) {
            s->stack[s->depth++] = needed;
            continue;
        }
        s->state[id] = DONE;
        s->order[s->n++] = id;
        s->depth--;
    }
    return 0;
}

static void apply_order(struct onnx *onnx, const int *order)
{
    struct onnx_node *nodes = mem_new((size_t)onnx->n_nodes, sizeof(*nodes));
    size_t o;
    int i;

    for (i = 0; i < onnx->n_nodes; i++) {
        nodes[i] = onnx->nodes[order[i]];
        for (o = 0; o < nodes[i].proto->n_output; o++)
            if (nodes[i].outputs[o] >= 0)
                onnx->values[nodes[i].outputs[o]].index = i;
    }
    free(onnx->nodes);
    onnx->nodes = nodes;
}

static int sort_nodes(struct onnx *onnx, struct err *err)
{
    size_t n = (size_t)onnx->n_nodes;
    struct sorter s = {
        .onnx = onnx,
        .state = mem_new(n, sizeof(*s.state)),
        .stack = mem_new(n, sizeof(*s.stack)),
        .order = mem_new(n, sizeof(*s.order)),
        .next = mem_new(n, sizeof(*s.next)),
    };
    int i, result = 0;

    for (i = 0; i < onnx->n_nodes && !result; i++)
        result = sort_from(&s, i, err);
    if (!result)
        apply_order(onnx, s.order);
    free(s.state);
    free(s.stack);
    free(s.order);
    free(s.next);
    return result;
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

static int unpack(struct onnx *onnx, struct err *err)
{
    struct wire_copy copy = { 0 };

    if (wire_strip(onnx->map.data, onnx->map.size, &onnx_wire_model, true, &copy, err))
        return -1;
    onnx->model = onnx_file__model__unpack(NULL, copy.size, copy.bytes);
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
    onnx_find_copies(onnx);
    onnx_find_constants(onnx);
    if (read_nodes(onnx, err) || resolve(onnx, err) || sort_nodes(onnx, err))
        return -1;
    return hash_model(onnx, err);
}

struct onnx *onnx_open(const char *path, struct err *err)
{
    struct onnx *onnx = mem_new(1, sizeof(*onnx));

    if (file_map_open(path, &onnx->map, err)) {
        free(onnx);
        return NULL;
    }
    onnx->path = mem_strdup(path);
    onnx->arena = arena_new();
    onnx->names = names_new();
    onnx->external = external_new(path);
    if (unpack(onnx, err) || read_graph(onnx, err)) {
        err_prefix(err, "%s", path);
        onnx_close(onnx);
        return NULL;
    }
    return onnx;
}

void onnx_close(struct onnx *onnx)
{
    if (!onnx)
        return;
    if (onnx->model)
        onnx_file__model__free_unpacked(onnx->model, NULL);
    external_free(onnx->external);
    names_free(onnx->names);
    arena_free(onnx->arena);
    file_map_close(&onnx->map);
    free(onnx->values);
    free(onnx->inputs);
    free(onnx->initializers);
    free(onnx->copy_of);
    free(onnx->constant);
    free(onnx->origin);
    free(onnx->nodes);
    free(onnx->outputs);
    free(onnx->path);
    free(onnx);
}
