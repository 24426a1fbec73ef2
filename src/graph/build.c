/* SPDX-License-Identifier: MIT */
#include "graph/build.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"
#include "graph/memo.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/ops/infer.h"

#define FOLD_BUDGET ((int64_t)1 << 27)
#define MAX_BATCH ((int64_t)1 << 24)

void build_note(struct build *build, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    build->note(build->user, text);
}

/* Values ------------------------------------------------------------------------------ */

const struct tensor *build_const(struct build *build, int v, int which)
{
    if (v < 0 || build->items[v].kind != ITEM_CONST)
        return NULL;
    return &build->items[v].constant[which];
}

const struct tensor *build_literal(struct build *build, int v, int which)
{
    const struct tensor *constant = build_const(build, v, which);
    const struct onnx_value *value = v < 0 ? NULL : &build->onnx->values[v];
    struct tensor *tensor;

    if (constant || !value || value->kind != ONNX_INITIALIZER)
        return constant;
    tensor = arena_alloc(build->fold[which].arena, 1, sizeof(*tensor));
    if (fold_load(&build->fold[which], &build->onnx->initializers[value->index], tensor, NULL))
        return NULL;
    return tensor;
}

/* The batch of a constant that is as long as the batch along one axis, the same for each
 * sample. Anything else that changes with the batch cannot be split.
 */
static int constant_batch(const struct build *build, const char *name,
                          const struct tensor constant[BUILD_TWINS], struct batch *batch,
                          struct err *err)
{
    const struct tensor *a = &constant[0], *b = &constant[1];
    int64_t samples = build->graph[1]->batch, e;
    int axis = -1, i;

    *batch = (struct batch){ 0 };
    if (fold_equal(a, b))
        return 0;
    for (i = 0; i < b->shape.rank && a->shape.rank == b->shape.rank; i++)
        if (a->shape.dim[i] != b->shape.dim[i])
            axis = axis < 0 && b->shape.dim[i] == samples ? i : b->shape.rank;
    if (axis < 0 || axis >= b->shape.rank || a->dtype != b->dtype)
        return err_set(err, "\"%.200s\" changes with the batch size", name);
    *batch = (struct batch){ 1, 1, axis + 1 };
    for (i = 0; i < b->shape.rank; i++)
        if (i < axis)
            batch->outer *= b->shape.dim[i];
        else if (i > axis)
            batch->inner *= b->shape.dim[i];
    for (e = 0; e < b->n; e++) {
        int64_t first = e / (samples * batch->inner) * samples * batch->inner +
                        e % batch->inner;

        if (b->f ? memcmp(&b->f[e], &b->f[first], sizeof(*b->f)) != 0 : b->i[e] != b->i[first])
            return err_set(err, "\"%.200s\" is another constant for each sample", name);
    }
    return 0;
}

int build_add_const(struct build *build, const char *name,
                    const struct tensor constant[BUILD_TWINS], struct err *err)
{
    struct batch batch;
    int t, id = -1;

    if (constant_batch(build, name ? name : "a constant", constant, &batch, err))
        return -1;
    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];

        id = graph_add_value(graph, name, VALUE_CONST, constant[t].dtype, &constant[t].shape,
                             batch);
        graph->values[id].data = fold_bytes(&constant[t], graph->arena);
    }
    return id;
}

static int add_parameter(struct build *build, int index)
{
    const struct onnx_tensor *tensor = &build->onnx->initializers[index];
    int t, id = -1;

    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];

        id = graph_add_value(graph, tensor->name, VALUE_PARAM, graph->real, &tensor->shape,
                             (struct batch){ 0 });
        graph->values[id].data = tensor->data;
        graph->values[id].file_dtype = tensor->dtype;
        graph->values[id].large = build->onnx->large[index];
        graph->values[id].frozen = build->freeze[index] != FREEZE_NOT;
        graph->values[id].no_decay = build->no_decay[index];
    }
    return id;
}

/* A transposed copy is computed from what it is a copy of, and so trained as one. */
static int add_copy(struct build *build, int copy, int of, struct err *err)
{
    const struct onnx_tensor *tensor = &build->onnx->initializers[copy];
    const char *original = build->onnx->initializers[of].name;
    int from = build_value(build, onnx_find(build->onnx, original), err), t, id = -1, node;

    if (from < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];

        id = graph_add_value(graph, tensor->name, VALUE_NODE, graph->real, &tensor->shape,
                             (struct batch){ 0 });
        node = graph_add_node(graph, tensor->name, op_find("Transpose"), 1, &from, 1, &id);
        graph_set_ints(graph, node, "perm", 2, (const int64_t[]){ 1, 0 });
        if (op_infer(graph, node, err))
            return -1;
    }
    build_note(build, "\"%.200s\" is a transposed copy of \"%.200s\": trained as one (tied)",
               tensor->name, original);
    return id;
}

/* By which two constants are known to lie in the same memory. */
static const char *memory_name(const struct build *build,
                               const struct tensor constant[BUILD_TWINS])
{
    const void *at[BUILD_TWINS];
    char shapes[BUILD_TWINS][160];

    for (int t = 0; t < BUILD_TWINS; t++) {
        at[t] = constant[t].f ? (const void *)constant[t].f : (const void *)constant[t].i;
        shape_text(&constant[t].shape, shapes[t], sizeof(shapes[t]));
    }
    return arena_printf(build->fold[0].arena, "%d %p %s, %d %p %s", (int)constant[0].dtype,
                        at[0], shapes[0], (int)constant[1].dtype, at[1], shapes[1]);
}

/* What was folded once is one constant, however many nodes of the file make it. */
static int shared_const(struct build *build, const char *name,
                        const struct tensor constant[BUILD_TWINS], struct err *err)
{
    const char *memory = memory_name(build, constant);
    int id = names_find(build->consts, memory);

    if (id >= 0)
        return id;
    id = build_add_const(build, name, constant, err);
    if (id >= 0)
        names_put(build->consts, memory, id);
    return id;
}

int build_value(struct build *build, int v, struct err *err)
{
    struct build_item *item = &build->items[v];
    const struct onnx_value *value = &build->onnx->values[v];

    if (item->kind == ITEM_NONE && value->kind == ONNX_INITIALIZER &&
        build->onnx->copy_of[value->index] >= 0) {
        item->id = add_copy(build, value->index, build->onnx->copy_of[value->index], err);
        item->kind = ITEM_VALUE;
    } else if (item->kind == ITEM_NONE && value->kind == ONNX_INITIALIZER) {
        item->kind = ITEM_VALUE;
        item->id = add_parameter(build, value->index);
    } else if (item->kind == ITEM_CONST && item->id < 0) {
        item->id = shared_const(build, value->name, item->constant, err);
    } else if (item->kind == ITEM_NONE) {
        return err_set(err, "\"%.200s\" is not there", value->name);
    }
    return item->id;
}

void build_alias(struct build *build, const struct onnx_node *node, int input)
{
    struct build_item *from = &build->items[node->inputs[input]];
    struct build_item *to = &build->items[node->outputs[0]];

    *to = *from;
}

/* Nodes ------------------------------------------------------------------------------- */

int build_emit(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               const int *inputs, int n_outputs, struct err *err)
{
    const struct op *found = canon_kind(build, op).op;
    int outputs[16], t, o, id = -1;

    if (!found || n_outputs > 16)
        return err_set(err, "operator %s with %d outputs is not supported", op, n_outputs);
    for (t = 0; t < BUILD_TWINS; t++) {
        for (o = 0; o < n_outputs; o++) {
            int v = o < (int)node->proto->n_output ? node->outputs[o] : -1;

            outputs[o] = graph_add_value(build->graph[t],
                                         v < 0 ? NULL : build->onnx->values[v].name,
                                         VALUE_NODE, DTYPE_NONE, &(struct shape){ 0 },
                                         (struct batch){ 0 });
            if (v >= 0)
                build->items[v] = (struct build_item){ .kind = ITEM_VALUE, .id = outputs[o] };
        }
        id = graph_add_node(build->graph[t], node->name, found, n_inputs, inputs, n_outputs,
                            outputs);
    }
    return id;
}

void build_set_int(struct build *build, int id, const char *name, int64_t value)
{
    int t;

    for (t = 0; t < BUILD_TWINS; t++)
        graph_set_int(build->graph[t], id, name, value);
}

void build_set_float(struct build *build, int id, const char *name, double value)
{
    int t;

    for (t = 0; t < BUILD_TWINS; t++)
        graph_set_float(build->graph[t], id, name, value);
}

void build_set_ints(struct build *build, int id, const char *name, int n,
                    const int64_t *values)
{
    int t;

    for (t = 0; t < BUILD_TWINS; t++)
        graph_set_ints(build->graph[t], id, name, n, values);
}

void build_set_string(struct build *build, int id, const char *name, const char *value)
{
    int t;

    for (t = 0; t < BUILD_TWINS; t++)
        graph_set_string(build->graph[t], id, name, value);
}

/* A value that reads no sample but is as long as the batch: each sample has its part. */
static int samples_by_shape(const struct build *build, int id, struct value *a,
                            struct value *b, struct err *err)
{
    int64_t samples = build->graph[1]->batch;
    struct batch batch = { 1, 1, 0 };
    int i, axis = -1;

    for (i = 0; i < b->shape.rank && a->shape.rank == b->shape.rank; i++)
        if (a->shape.dim[i] != b->shape.dim[i])
            axis = axis < 0 && b->shape.dim[i] == samples ? i : b->shape.rank;
    if (axis == b->shape.rank || a->shape.rank != b->shape.rank)
        return op_error(build->graph[0], id, err,
                        "the shape of \"%s\" follows the batch in a way that cannot be split",
                        a->name);
    if (axis < 0)
        return 0;
    for (i = 0; i < b->shape.rank; i++)
        if (i < axis)
            batch.outer *= b->shape.dim[i];
        else if (i > axis)
            batch.inner *= b->shape.dim[i];
    batch.place = axis + 1;
    a->batch = b->batch = batch;
    return 0;
}

static int settle_output(const struct build *build, int id, int v, struct err *err)
{
    struct value *a = &build->graph[0]->values[v], *b = &build->graph[1]->values[v];
    struct batch_place place;
    int64_t na, nb;

    if (dims_elements(&a->shape, &na, err) || dims_elements(&b->shape, &nb, err))
        return -1;
    if (b->batch.outer == 0) {
        a->batch = b->batch;
        return samples_by_shape(build, id, a, b, err);
    }
    /* Across axes ("place" 0) is no error before something needs to know. */
    if (b->batch.place == 0 && !batch_find(build->graph[1], id, b, &place, NULL))
        b->batch.place = place.axis + 1;
    a->batch = b->batch;
    if (a->batch.outer * build->graph[0]->batch * a->batch.inner != na ||
        b->batch.outer * build->graph[1]->batch * b->batch.inner != nb)
        return op_error(build->graph[0], id, err, "where the samples of \"%s\" are cannot be "
                        "told", a->name);
    return 0;
}

int build_settle(struct build *build, int id, struct err *err)
{
    const struct node *node;
    int t, o;

    /* The twin first: at batch 1 shapes alone would not show what is wrong. */
    for (t = BUILD_TWINS - 1; t >= 0; t--)
        if (op_infer(build->graph[t], id, err))
            return -1;
    node = &build->graph[0]->nodes[id];
    for (o = 0; o < node->n_outputs; o++)
        if (node->outputs[o] >= 0 && settle_output(build, id, node->outputs[o], err))
            return -1;
    return 0;
}

/* Inputs, initializers, outputs ------------------------------------------------------- */

static const struct model_tensor *find_tensor(const struct model_options *options,
                                              const char *name)
{
    int i;

    for (i = 0; i < options->n_tensors; i++)
        if (strcmp(options->tensors[i].name, name) == 0)
            return &options->tensors[i];
    return NULL;
}

/* Check an input against the data file, and take dimensions from there that the model leaves
 * open.
 */
static int complete_input(const struct build *build, const struct onnx_input *input,
                          struct shape *shape, struct err *err)
{
    const struct model_tensor *tensor = find_tensor(build->options, input->name);
    int lead = build->options->no_batch ? 0 : 1, i;
    char text[160];

    if (build->options->n_tensors && !tensor)
        return err_set(err, "the data have no tensor \"%.200s\" for this input", input->name);
    if (tensor && dtype_is_float(tensor->dtype) != dtype_is_float(input->dtype))
        return err_set(err, "input \"%.200s\" is %s, its data are %s", input->name,
                       dtype_name(input->dtype), dtype_name(tensor->dtype));
    if (tensor && tensor->shape.rank != shape->rank - lead)
        return err_set(err, "input \"%.200s\" has %d dimensions%s, its data %s", input->name,
                       shape->rank - lead, lead ? " after the batch" : "",
                       shape_text(&tensor->shape, text, sizeof(text)));
    for (i = lead; i < shape->rank; i++) {
        if (shape->dim[i] < 0 && !tensor)
            return err_set(err, "dimension %d of input \"%.200s\" is not fixed", i,
                           input->name);
        if (shape->dim[i] < 0)
            shape->dim[i] = tensor->shape.dim[i - lead];
        if (tensor && tensor->shape.dim[i - lead] != shape->dim[i])
            return err_set(err, "input \"%.200s\": dimension %d is %" PRId64 ", in the data %"
                           PRId64, input->name, i, shape->dim[i], tensor->shape.dim[i - lead]);
    }
    return 0;
}

static int add_input(struct build *build, const struct onnx_input *input, struct err *err)
{
    struct shape shape = input->shape;
    bool samples = !build->options->no_batch;
    int t, i, id = -1;

    if (input->type && input->dtype == DTYPE_NONE)
        return err_set(err, "input \"%.200s\": elements of type %s are not supported",
                       input->name, input->type);
    if (!input->type || !input->has_shape || (samples && shape.rank < 1))
        return err_set(err, "input \"%.200s\" is no tensor with a batch dimension",
                       input->name);
    if (complete_input(build, input, &shape, err))
        return -1;
    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];
        struct batch batch = { 1, 1, 1 };
        int64_t elements;

        if (samples)
            shape.dim[0] = graph->batch;
        if (dims_elements(&shape, &elements, err))
            return err_prefix(err, "input \"%.200s\"", input->name);
        for (i = 1; i < shape.rank; i++)
            batch.inner *= shape.dim[i];
        id = graph_add_value(graph, input->name, VALUE_INPUT,
                             dtype_is_float(input->dtype) ? graph->real : input->dtype, &shape,
                             elements && samples ? batch : (struct batch){ 0 });
    }
    build->items[input->value] = (struct build_item){ .kind = ITEM_VALUE, .id = id };
    return id;
}

static int add_inputs(struct build *build, struct err *err)
{
    const struct onnx *onnx = build->onnx;
    int i, t, id, n = 0;
    int *ids = mem_new((size_t)onnx->n_inputs, sizeof(*ids));

    build->file_batch = -1;
    for (i = 0; i < onnx->n_inputs; i++) {
        int64_t first = onnx->inputs[i].shape.rank ? onnx->inputs[i].shape.dim[0] : -1;

        if (!onnx->values[onnx->inputs[i].value].readers)
            continue;
        id = add_input(build, &onnx->inputs[i], err);
        if (id < 0) {
            free(ids);
            return -1;
        }
        ids[n++] = id;
        build->file_batch = build->file_batch == -1 || build->file_batch == first ? first : 0;
    }
    if (build->file_batch < 0 || build->options->no_batch)
        build->file_batch = 0;
    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];

        graph->n_inputs = n;
        graph->inputs = arena_alloc(graph->arena, (size_t)n, sizeof(*ids));
        if (n)
            memcpy(graph->inputs, ids, (size_t)n * sizeof(*ids));
    }
    free(ids);
    return n || build->options->no_batch ? 0 : err_set(err, "the graph reads no input");
}

/* Exporters lift constants of the code into initializers: single numbers under made-up names,
 * and masks, which are known by their infinities. Those come early; weights are not read here.
 */
static bool is_lifted_constant(const struct build *build, int index)
{
    const struct onnx_tensor *tensor = &build->onnx->initializers[index];
    bool single = tensor->size == dtype_size(tensor->dtype);

    if (!tensor->data)
        return false;
    return (single && (strncmp(tensor->name, "val_", 4) == 0 ||
                       build->freeze[index] == FREEZE_SUBGRAPH)) || onnx_is_mask(tensor);
}

static int load_initializers(struct build *build, struct err *err)
{
    const struct onnx *onnx = build->onnx;
    int v, t;

    for (v = 0; v < onnx->n_values; v++) {
        const struct onnx_value *value = &onnx->values[v];
        const struct onnx_tensor *tensor;

        if (value->kind != ONNX_INITIALIZER || !value->readers)
            continue;
        tensor = &onnx->initializers[value->index];
        if (dtype_is_float(tensor->dtype) && !is_lifted_constant(build, value->index)) {
            /* With what was looked at came whole large pages of the file. */
            if (tensor->data)
                onnx_drop(onnx, tensor->data, tensor->size);
            continue;
        }
        build->items[v].kind = ITEM_CONST;
        build->items[v].id = -1;
        for (t = 0; t < BUILD_TWINS; t++)
            if (fold_load(&build->fold[t], tensor, &build->items[v].constant[t], err))
                return -1;
    }
    return 0;
}

static int set_outputs(struct build *build, struct err *err)
{
    const struct onnx *onnx = build->onnx;
    int i, t, id;

    for (t = 0; t < BUILD_TWINS; t++) {
        struct graph *graph = build->graph[t];

        graph->outputs = arena_alloc(graph->arena, (size_t)onnx->main.n_outputs, sizeof(int));
        graph->n_outputs = onnx->main.n_outputs;
    }
    for (i = 0; i < onnx->main.n_outputs; i++) {
        id = build_value(build, onnx->main.outputs[i], err);
        if (id < 0)
            return -1;
        for (t = 0; t < BUILD_TWINS; t++) {
            build->graph[t]->outputs[i] = id;
            build->graph[t]->values[id].output = true;
        }
    }
    return 0;
}

int build_run(struct build *build, struct err *err)
{
    const struct model_options *options = build->options;
    int t;

    if (options->batch < 1 || options->batch > MAX_BATCH)
        return err_set(err, "a batch of %" PRId64 " samples is out of range", options->batch);
    build->freeze = freeze_resolve(build->onnx, options->n_freeze, options->freeze, err);
    build->no_decay = freeze_match(build->onnx, "--no-decay", options->n_no_decay,
                                   options->no_decay, err);
    if (!build->freeze || !build->no_decay)
        return -1;
    build->items = mem_new((size_t)build->onnx->n_values, sizeof(*build->items));
    for (t = 0; t < BUILD_TWINS; t++) {
        int64_t batch = options->no_batch ? 1 : (t + 1) * options->batch;

        build->graph[t] = t ? graph_new_twin(build->graph[0], batch)
                            : graph_new(batch, options->real);
        /* As many groups in both: statistics of groups are no values of samples. */
        build->graph[t]->batchnorm_samples = (t + 1) * options->batchnorm_samples;
        build->fold[t] = (struct fold){ arena_new(), options->real, FOLD_BUDGET };
    }
    build->memo = memo_new();
    build->consts = names_new();
    build->kind_names = names_new();
    if (add_inputs(build, err) || load_initializers(build, err)) {
        build_list_unknown(build, &build->onnx->main);
        return -1;
    }
    build_nodes(build, &build->onnx->main);
    return build->n_problems ? -1 : set_outputs(build, err);
}

void build_free(struct build *build)
{
    int t, i;

    for (t = 0; t < BUILD_TWINS; t++) {
        graph_free(build->graph[t]);
        arena_free(build->fold[t].arena);
    }
    memo_free(build->memo);
    names_free(build->consts);
    names_free(build->kind_names);
    free(build->kinds);
    free(build->fold_inputs);
    free(build->fold_outputs);
    free(build->items);
    for (i = 0; i < build->n_problems; i++)
        free(build->problems[i].why);
    free(build->problems);
    free(build->freeze);
    free(build->no_decay);
    free(build->losses);
}
