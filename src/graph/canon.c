/* SPDX-License-Identifier: MIT */
#include "graph/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/canon.h"
#include "graph/dims.h"
#include "graph/names.h"
#include "graph/op.h"

/* Operators whose form is the same in all opsets: inputs and plain attributes. */
static int copy_node(struct build *build, const struct onnx_node *node, struct err *err)
{
    size_t n = node->proto->n_input, i;
    int *ids = mem_new(n, sizeof(*ids)), id = -1;

    for (i = 0; i < n; i++) {
        ids[i] = node->inputs[i] < 0 ? -1 : build_value(build, node->inputs[i], err);
        if (node->inputs[i] >= 0 && ids[i] < 0) {
            free(ids);
            return -1;
        }
    }
    if (node->proto->n_output == 1)
        id = build_emit(build, node, node->proto->op_type, (int)n, ids, 1, err);
    else
        err_set(err, "%zu outputs are not supported", node->proto->n_output);
    free(ids);
    for (i = 0; i < node->proto->n_attribute && id >= 0; i++) {
        const OnnxFile__Attribute *attr = node->proto->attribute[i];

        if (attr->name && attr->has_i)
            build_set_int(build, id, attr->name, attr->i);
        else if (attr->name && attr->has_f)
            build_set_float(build, id, attr->name, (double)attr->f);
    }
    return id < 0 ? -1 : build_settle(build, id, err);
}

static int alias_node(struct build *build, const struct onnx_node *node, struct err *err)
{
    if (canon_input(build, node, 0, err) < 0)
        return -1;
    build_alias(build, node, 0);
    return 0;
}

/* A node that only gives its input another shape; nothing at all where that is the old one. */
static int emit_shape(struct build *build, const struct onnx_node *node, const char *op,
                      const struct shape shapes[BUILD_TWINS], struct err *err)
{
    int input = canon_input(build, node, 0, err), t, id;

    if (input < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS; t++)
        if (!shape_equal(&shapes[t], canon_shape_of(build, input, t)))
            break;
    if (t == BUILD_TWINS)
        return alias_node(build, node, err);
    id = build_emit(build, node, op, 1, &input, 1, err);
    for (t = 0; t < BUILD_TWINS && id >= 0; t++)
        graph_set_ints(build->graph[t], id, "shape", shapes[t].rank, shapes[t].dim);
    if (id >= 0 && *op == 'E' && shape_equal(&shapes[0], &shapes[1]))
        build_set_int(build, id, "fixed", 1);
    return id < 0 ? -1 : build_settle(build, id, err);
}

static bool is_literal(struct build *build, const struct onnx_node *node, int input)
{
    const struct tensor *a = build_const(build, node->inputs[input], 0);

    return a && fold_equal(a, build_const(build, node->inputs[input], 1));
}

static int canon_reshape_node(struct build *build, const struct onnx_node *node,
                              struct err *err)
{
    bool expand = strcmp(node->proto->op_type, "Expand") == 0;
    bool zero = onnx_int(node->proto, "allowzero", 0) != 0;
    int input = canon_input(build, node, 0, err), t, n;
    struct shape shapes[BUILD_TWINS];
    const int64_t *dims = NULL;

    if (input < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS; t++) {
        n = canon_ints(build, node, 1, NULL, t, &dims, err);
        if (n < 0)
            return n == -2 ? -1 : err_set(err, "input 1 is missing");
        if (expand ? canon_expand(build, input, t, n, dims, is_literal(build, node, 1),
                                  &shapes[t], err)
                   : canon_reshape(build, input, t, n, dims, is_literal(build, node, 1), zero,
                                   &shapes[t], err))
            return -1;
    }
    return emit_shape(build, node, expand ? "Expand" : "Reshape", shapes, err);
}

/* Without axes a squeeze means all of length 1: at batch 2, so not the batch. */
static int unit_axes(const struct build *build, int input, int64_t *axes)
{
    const struct shape *shape = canon_shape_of(build, input, 1);
    int i, n = 0;

    for (i = 0; i < shape->rank; i++)
        if (shape->dim[i] == 1)
            axes[n++] = i;
    return n;
}

static int squeezed_shape(struct build *build, const struct onnx_node *node, int input,
                          int which, struct shape *shape, struct err *err)
{
    const char *op = node->proto->op_type;
    const struct shape *from = canon_shape_of(build, input, which);
    const int64_t *axes = NULL;
    int64_t units[GRAPH_MAX_RANK];
    int n;

    if (*op == 'F')
        return dims_flatten(from, onnx_int(node->proto, "axis", 1), shape, err);
    n = canon_ints(build, node, 1, "axes", which, &axes, err);
    if (n == -2)
        return -1;
    if (*op == 'U')
        return dims_unsqueeze(from, n < 0 ? 0 : n, axes, shape, err);
    if (n <= 0) {
        n = unit_axes(build, input, units);
        axes = units;
    }
    if (n == 0) {
        *shape = *from;
        return 0;
    }
    return dims_squeeze(from, n, axes, shape, err);
}

/* Squeeze, Unsqueeze and Flatten */
static int canon_squeeze(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), t;
    struct shape shapes[BUILD_TWINS];

    for (t = 0; t < BUILD_TWINS; t++)
        if (input < 0 || squeezed_shape(build, node, input, t, &shapes[t], err))
            return -1;
    return emit_shape(build, node, "Reshape", shapes, err);
}

static int canon_transpose(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), rank, n, id, i;
    const int64_t *given = NULL;
    int64_t perm[GRAPH_MAX_RANK];

    if (input < 0)
        return -1;
    rank = canon_shape_of(build, input, 0)->rank;
    n = onnx_ints(node->proto, "perm", &given);
    if (n >= 0 && n != rank)
        return err_set(err, "perm has %d entries for %d dimensions", n, rank);
    for (i = 0; i < rank; i++)
        perm[i] = n < 0 ? rank - 1 - i : given[i];
    id = build_emit(build, node, "Transpose", 1, &input, 1, err);
    if (id < 0)
        return -1;
    build_set_ints(build, id, "perm", rank, perm);
    return build_settle(build, id, err);
}

/* An axis attribute made >= 0. */
static int emit_axis(struct build *build, const struct onnx_node *node, int64_t def,
                     int n_inputs, struct err *err)
{
    int axis, id, input = canon_input(build, node, 0, err);

    if (input < 0 || dims_axis(onnx_int(node->proto, "axis", def),
                               canon_shape_of(build, input, 0)->rank, &axis, err))
        return -1;
    id = canon_emit(build, node, node->proto->op_type, n_inputs, err);
    if (id >= 0)
        build_set_int(build, id, "axis", axis);
    return id;
}

static int canon_softmax(struct build *build, const struct onnx_node *node, struct err *err)
{
    bool flattens = node->opset < 13;
    int id = emit_axis(build, node, flattens ? 1 : -1, 1, err), i;
    const struct shape *shape;

    if (id < 0)
        return -1;
    shape = canon_shape_of(build, build->graph[0]->nodes[id].inputs[0], 1);
    for (i = (int)node_int(&build->graph[0]->nodes[id], "axis", 0) + 1; i < shape->rank; i++)
        if (flattens && shape->dim[i] != 1)
            return err_set(err, "before opset 13 only the last axis is supported");
    return build_settle(build, id, err);
}

static int canon_concat(struct build *build, const struct onnx_node *node, struct err *err)
{
    size_t n = node->proto->n_input, i;
    int *ids = mem_new(n, sizeof(*ids)), axis, id = -1, result = -1;

    for (i = 0; i < n; i++) {
        ids[i] = canon_input(build, node, (int)i, err);
        if (ids[i] < 0)
            goto cleanup;
    }
    if (!n) {
        err_set(err, "it has no inputs");
        goto cleanup;
    }
    if (dims_axis(onnx_int(node->proto, "axis", 0), canon_shape_of(build, ids[0], 0)->rank,
                  &axis, err))
        goto cleanup;
    id = build_emit(build, node, "Concat", (int)n, ids, 1, err);
    if (id < 0)
        goto cleanup;
    build_set_int(build, id, "axis", axis);
    result = build_settle(build, id, err);
cleanup:
    free(ids);
    return result;
}

/* Indices: int64, and constants without negative ones. */
static int gather_indices(struct build *build, const struct onnx_node *node, int axis, int data,
                          struct err *err)
{
    int v = node->inputs[1], t;
    struct tensor indices[BUILD_TWINS];
    int64_t i;

    if (!build_const(build, v, 0))
        return canon_input(build, node, 1, err);
    for (t = 0; t < BUILD_TWINS; t++) {
        const struct tensor *from = build_const(build, v, t);
        int64_t length = canon_shape_of(build, data, t)->dim[axis];

        if (!from->i)
            return err_set(err, "indices of type %s", dtype_name(from->dtype));
        if (fold_new(&build->fold[t], DTYPE_I64, &from->shape, &indices[t], err))
            return -1;
        for (i = 0; i < from->n; i++) {
            indices[t].i[i] = from->i[i] + (from->i[i] < 0 ? length : 0);
            if (indices[t].i[i] < 0 || indices[t].i[i] >= length)
                return err_set(err, "index %" PRId64 " is out of range", from->i[i]);
        }
    }
    return build_add_const(build, NULL, indices, err);
}

static int canon_gather(struct build *build, const struct onnx_node *node, struct err *err)
{
    int ids[2], axis, id, picked;

    ids[0] = canon_input(build, node, 0, err);
    if (ids[0] < 0 || node->proto->n_input < 2 || node->inputs[1] < 0)
        return ids[0] < 0 ? -1 : err_set(err, "input 1 is missing");
    if (dims_axis(onnx_int(node->proto, "axis", 0), canon_shape_of(build, ids[0], 0)->rank,
                  &axis, err))
        return -1;
    picked = axis ? 1 : canon_pick(build, node, ids[0], err);
    if (picked <= 0)
        return picked;
    ids[1] = gather_indices(build, node, axis, ids[0], err);
    if (ids[1] < 0)
        return -1;
    id = build_emit(build, node, "Gather", 2, ids, 1, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", axis);
    return build_settle(build, id, err);
}

static int cast_to(struct build *build, const struct onnx_node *node, enum dtype dtype,
                   struct err *err)
{
    int input = canon_input(build, node, 0, err), id;

    if (input < 0)
        return -1;
    if (dtype_is_float(dtype))
        dtype = build->options->real;
    if (build->graph[0]->values[input].dtype == dtype)
        return alias_node(build, node, err);
    id = build_emit(build, node, "Cast", 1, &input, 1, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "to", dtype);
    return build_settle(build, id, err);
}

static int canon_cast(struct build *build, const struct onnx_node *node, struct err *err)
{
    int64_t to = onnx_int(node->proto, "to", 0);
    enum dtype dtype = to > 0 && to < 64 ? onnx_dtype((int32_t)to) : DTYPE_NONE;

    if (dtype == DTYPE_NONE)
        return err_set(err, "a cast to %s is not supported",
                       onnx_dtype_name(to > 0 && to < 64 ? (int32_t)to : 0));
    return cast_to(build, node, dtype, err);
}

/* torch.export gives a Conv without bias a constant zero cast like its input. */
static int canon_cast_like(struct build *build, const struct onnx_node *node, struct err *err)
{
    int like = canon_input(build, node, 1, err);

    return like < 0 ? -1 : cast_to(build, node, build->graph[0]->values[like].dtype, err);
}

/* Nothing is dropped: the output is the input, and the mask, if anybody reads it, true. */
static int keep_all(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), t;
    struct tensor mask[BUILD_TWINS];
    int64_t i;

    if (input < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS && canon_read(build, node, 1); t++) {
        if (fold_new(&build->fold[t], DTYPE_BOOL, canon_shape_of(build, input, t), &mask[t],
                     err))
            return -1;
        for (i = 0; i < mask[t].n; i++)
            mask[t].i[i] = 1;
        build->items[node->outputs[1]].kind = ITEM_CONST;
        build->items[node->outputs[1]].id = -1;
        build->items[node->outputs[1]].constant[t] = mask[t];
    }
    return alias_node(build, node, err);
}

static int canon_dropout(struct build *build, const struct onnx_node *node, struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    const struct tensor *given = NULL, *training = NULL;
    double ratio = onnx_float(proto, "ratio", 0.5);
    bool trains, read = canon_read(build, node, 1) > 0;
    int id;

    if (proto->n_input > 1 && node->inputs[1] >= 0) {
        given = build_literal(build, node->inputs[1], 0);
        if (!given || !given->f || given->n != 1)
            return err_set(err, "its ratio is no constant");
        ratio = given->f[0];
    }
    if (proto->n_input > 2)
        training = build_const(build, node->inputs[2], 0);
    if (!(ratio >= 0 && ratio < 1))
        return err_set(err, "a ratio of %g", ratio);
    trains = training && training->i && training->n && training->i[0];
    if (ratio == 0 || (!trains && read))
        return keep_all(build, node, err);
    if (node->opset >= 12 && !trains && build->n_dropouts++ == 0)
        build->first_dropout = node->name;
    id = canon_input(build, node, 0, err);
    id = id < 0 ? -1 : build_emit(build, node, "Dropout", 1, &id, read ? 2 : 1, err);
    if (id < 0)
        return -1;
    build_set_float(build, id, "ratio", ratio);
    return build_settle(build, id, err);
}

static int canon_gelu(struct build *build, const struct onnx_node *node, struct err *err)
{
    bool tangens = onnx_string_is(node->proto, "approximate", "tanh", false);
    int id;

    if (!tangens && !onnx_string_is(node->proto, "approximate", "none", true))
        return err_set(err, "its approximation is not known");
    id = canon_emit(build, node, "Gelu", 1, err);
    if (id < 0)
        return -1;
    build_set_string(build, id, "approximate", tangens ? "tanh" : "none");
    return build_settle(build, id, err);
}

/* An integer exponent becomes one of the run's floating type. */
static int canon_pow(struct build *build, const struct onnx_node *node, struct err *err)
{
    struct tensor exponents[BUILD_TWINS];
    int ids[2], t, id;
    int64_t i;

    ids[0] = canon_input(build, node, 0, err);
    if (ids[0] >= 0 && (node->proto->n_input != 2 || !build_const(build, node->inputs[1], 0) ||
                        build_const(build, node->inputs[1], 0)->f ||
                        !dtype_is_float(build->graph[0]->values[ids[0]].dtype)))
        return copy_node(build, node, err);
    for (t = 0; t < BUILD_TWINS && ids[0] >= 0; t++) {
        const struct tensor *from = build_const(build, node->inputs[1], t);

        if (fold_new(&build->fold[t], build->options->real, &from->shape, &exponents[t], err))
            return -1;
        for (i = 0; i < from->n; i++)
            exponents[t].f[i] = fold_number(from, i);
    }
    ids[1] = ids[0] < 0 ? -1 : build_add_const(build, NULL, exponents, err);
    if (ids[1] < 0)
        return -1;
    id = build_emit(build, node, "Pow", 2, ids, 1, err);
    return id < 0 ? -1 : build_settle(build, id, err);
}

/* No gradient flows through integers: what becomes of them are the larger, or a choice. */
static int canon_rectify(struct build *build, const struct onnx_node *node, struct err *err)
{
    int x = canon_input(build, node, 0, err), zero, scaled, negative;

    if (x < 0 || dtype_is_float(build->graph[0]->values[x].dtype))
        return x < 0 ? -1 : copy_node(build, node, err);
    zero = canon_scalar(build, build->graph[0]->values[x].dtype, 0, err);
    if (zero < 0)
        return -1;
    if (strcmp(node->proto->op_type, "Relu") == 0) {
        x = canon_step(build, node, "Max", 2, (int[]){ x, zero }, err);
        return x < 0 ? -1 : canon_result(build, node, 0, x);
    }
    scaled = canon_input(build, node, 1, err);
    scaled = scaled < 0 ? -1 : canon_step(build, node, "Mul", 2, (int[]){ x, scaled }, err);
    negative = scaled < 0 ? -1 : canon_step(build, node, "Less", 2, (int[]){ x, zero }, err);
    x = negative < 0 ? -1 : canon_step(build, node, "Where", 3,
                                       (int[]){ negative, scaled, x }, err);
    return x < 0 ? -1 : canon_result(build, node, 0, x);
}

/* The table --------------------------------------------------------------------------- */

static const struct canon {
    const char *name;
    const char *needs;      /* entry of the operator table, NULL: none */
    int (*run)(struct build *build, const struct onnx_node *node, struct err *err);
} table[] = {
    { "Identity", NULL, alias_node },
    { "Reshape", "Reshape", canon_reshape_node },
    { "Expand", "Expand", canon_reshape_node },
    { "Squeeze", "Reshape", canon_squeeze },
    { "Unsqueeze", "Reshape", canon_squeeze },
    { "Flatten", "Reshape", canon_squeeze },
    { "Transpose", "Transpose", canon_transpose },
    { "Slice", "Slice", canon_slice },
    { "Split", "Split", canon_split },
    { "Gather", "Gather", canon_gather },
    { "Concat", "Concat", canon_concat },
    { "ReduceMean", "ReduceMean", canon_reduce },
    { "ReduceSum", "ReduceSum", canon_reduce },
    { "ReduceMax", "ReduceMax", canon_reduce },
    { "ReduceMin", "ReduceMin", canon_reduce },
    { "Softmax", "Softmax", canon_softmax },
    { "LogSoftmax", "LogSoftmax", canon_softmax },
    { "LayerNormalization", "LayerNormalization", canon_row_norm },
    { "RMSNormalization", "RMSNormalization", canon_row_norm },
    { "GroupNormalization", "GroupNormalization", canon_group_norm },
    { "InstanceNormalization", "GroupNormalization", canon_group_norm },
    { "BatchNormalization", "BatchNormalization", canon_batch_norm },
    { "Conv", "Conv", canon_window },
    { "ConvTranspose", "ConvTranspose", canon_conv_transpose },
    { "ReduceL1", "ReduceSum", canon_reduce_of },
    { "ReduceL2", "ReduceL2", canon_reduce },
    { "ReduceSumSquare", "ReduceSum", canon_reduce_of },
    { "ReduceLogSum", "ReduceSum", canon_reduce_of },
    { "ReduceLogSumExp", "ReduceMax", canon_log_sum_exp },
    { "MaxPool", "MaxPool", canon_window },
    { "GlobalMaxPool", "MaxPool", canon_global_max_pool },
    { "AveragePool", "AveragePool", canon_window },
    { "Dropout", "Dropout", canon_dropout },
    { "Cast", "Cast", canon_cast },
    { "CastLike", "Cast", canon_cast_like },
    { "Pad", "Pad", canon_pad },
    { "Tile", "Gather", canon_tile },
    { "Einsum", "MatMul", canon_einsum },
    { "LSTM", "MatMul", canon_recurrent },
    { "GRU", "MatMul", canon_recurrent },
    { "RNN", "MatMul", canon_recurrent },
    { "Attention", "Softmax", canon_attention },
    { "RotaryEmbedding", "Mul", canon_rotary },
    { "Resize", "MatMul", canon_resize },
    { "Upsample", "MatMul", canon_resize },
    { "GatherElements", "GatherElements", canon_element },
    { "ScatterElements", "ScatterElements", canon_element },
    { "Scatter", "ScatterElements", canon_element },
    { "GatherND", "GatherND", canon_element },
    { "ScatterND", "ScatterND", canon_element },
    { "CumSum", "CumSum", canon_cumsum },
    { "ArgMax", "ArgMax", canon_argmax },
    { "ArgMin", "ArgMax", canon_argmax },
    { "TopK", "TopK", canon_topk },
    { "Trilu", "Where", canon_trilu },
    { "OneHot", "Equal", canon_one_hot },
    { "Gelu", "Gelu", canon_gelu },
    { "Relu", "Relu", canon_rectify },
    { "PRelu", "PRelu", canon_rectify },
    { "Pow", "Pow", canon_pow },
    { "Mod", "Mod", canon_mod },
    { "LeakyRelu", "LeakyRelu", canon_curve },
    { "Elu", "Elu", canon_curve },
    { "Celu", "Celu", canon_curve },
    { "Selu", "Selu", canon_curve },
    { "HardSigmoid", "HardSigmoid", canon_curve },
    { "Swish", "Swish", canon_curve },
    { "Clip", "Clip", canon_clip },
    { "Max", "Max", canon_chain },
    { "Min", "Min", canon_chain },
    { "Sum", "Add", canon_chain },
    { "If", NULL, control_if },
    { "Loop", NULL, control_loop },
    { "SoftmaxCrossEntropyLoss", "CrossEntropySum", canon_cross_entropy },
    { "NegativeLogLikelihoodLoss", "CrossEntropySum", canon_cross_entropy },
};

static const struct canon *find_canon(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (names_same(table[i].name, name))
            return &table[i];
    return NULL;
}

static bool is_in_files(const struct op *op)
{
    return op && !(op->flags & (OP_INTERNAL | OP_FOLD));
}

static struct build_kind find_kind(const char *op)
{
    struct build_kind kind = { op_find(op), find_canon(op), .folds = fold_knows(op) };

    if (kind.folds)
        kind.known = true;
    else if (kind.canon)
        kind.known = !kind.canon->needs || op_find(kind.canon->needs);
    else
        kind.known = is_in_files(kind.op);
    return kind;
}

struct build_kind canon_kind(struct build *build, const char *op)
{
    int id = names_find(build->kind_names, op);

    if (id < 0) {
        id = build->n_kinds;
        *(struct build_kind *)mem_push((void **)&build->kinds, &build->n_kinds,
                                       sizeof(*build->kinds)) = find_kind(op);
        names_put(build->kind_names, op, id);
    }
    return build->kinds[id];
}

int canon_node(struct build *build, const struct onnx_node *node, struct err *err)
{
    const struct build_kind kind = canon_kind(build, node->proto->op_type);
    const struct canon *canon = kind.canon;

    if (!canon && !is_in_files(kind.op))
        return err_set(err, "supported only where its inputs are constants");
    if (node->proto->n_output < 1 || (node->outputs[0] < 0 && canon &&
                                      canon->run != canon_recurrent &&
                                      canon->run != control_loop))
        return err_set(err, "it has no first output");
    return canon ? canon->run(build, node, err) : copy_node(build, node, err);
}
