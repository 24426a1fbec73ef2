/* SPDX-License-Identifier: MIT */
/* Convolutions, pools and batch normalisation. */
#include "graph/canon.h"
#include "graph/op.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"

enum { MAX_SPATIAL = GRAPH_MAX_RANK - 2 };

struct window {
    int n;      /* spatial dimensions */
    int64_t kernel[MAX_SPATIAL], strides[MAX_SPATIAL], dilations[MAX_SPATIAL],
        pads[2 * MAX_SPATIAL];
};

static int read_list(const struct onnx_node *node, const char *name, int n, int64_t def,
                     int64_t *list, struct err *err)
{
    const int64_t *given = NULL;
    int count = onnx_ints(node->proto, name, &given), i;

    if (count >= 0 && count != n)
        return err_set(err, "%s has %d entries, not %d", name, count, n);
    for (i = 0; i < n; i++) {
        list[i] = count < 0 ? def : given[i];
        if (list[i] < 0 || list[i] > INT32_MAX)
            return err_set(err, "%s of %" PRId64 " is out of range", name, list[i]);
    }
    return 0;
}

/* auto_pad: as many outputs as the stride gives, the odd pad at the end (UPPER) or start. */
static int pad_same(const struct shape *shape, bool upper, struct window *w, struct err *err)
{
    int i;

    for (i = 0; i < w->n; i++) {
        int64_t in = shape->dim[i + 2], out, total;

        if (w->strides[i] == 0)
            return err_set(err, "a stride of 0");
        out = (in + w->strides[i] - 1) / w->strides[i];
        total = (out - 1) * w->strides[i] + (w->kernel[i] - 1) * w->dilations[i] + 1 - in;
        total = total < 0 ? 0 : total;
        w->pads[i] = upper ? total / 2 : total - total / 2;
        w->pads[w->n + i] = total - w->pads[i];
    }
    return 0;
}

static int read_window(const struct onnx_node *node, const struct shape *shape,
                       const struct shape *weights, struct window *w, struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    const int64_t *given;
    int i;

    w->n = shape->rank - 2;
    if (w->n < 1)
        return err_set(err, "an input of %d dimensions", shape->rank);
    if (!weights && onnx_ints(proto, "kernel_shape", &given) < 0)
        return err_set(err, "kernel_shape is missing");
    if (read_list(node, "kernel_shape", w->n, 1, w->kernel, err) ||
        read_list(node, "strides", w->n, 1, w->strides, err) ||
        read_list(node, "dilations", w->n, 1, w->dilations, err) ||
        read_list(node, "pads", 2 * w->n, 0, w->pads, err))
        return -1;
    for (i = 0; weights && i < w->n; i++) {
        if (weights->rank != shape->rank ||
            (onnx_ints(proto, "kernel_shape", &given) >= 0 &&
             w->kernel[i] != weights->dim[i + 2]))
            return err_set(err, "kernel_shape does not fit the weights");
        w->kernel[i] = weights->dim[i + 2];
    }
    if (onnx_string_is(proto, "auto_pad", "SAME_UPPER", false) ||
        onnx_string_is(proto, "auto_pad", "SAME_LOWER", false))
        return pad_same(shape, onnx_string_is(proto, "auto_pad", "SAME_UPPER", false), w, err);
    if (onnx_string_is(proto, "auto_pad", "VALID", false))
        memset(w->pads, 0, sizeof(w->pads));
    else if (!onnx_string_is(proto, "auto_pad", "NOTSET", true))
        return err_set(err, "its auto_pad is not known");
    return 0;
}

static void set_window(struct build *build, int id, const struct onnx_node *node,
                       const struct window *w)
{
    const char *op = build->graph[0]->nodes[id].op->name;

    build_set_ints(build, id, "kernel_shape", w->n, w->kernel);
    build_set_ints(build, id, "strides", w->n, w->strides);
    build_set_ints(build, id, "dilations", w->n, w->dilations);
    build_set_ints(build, id, "pads", 2 * w->n, w->pads);
    if (strncmp(op, "Conv", 4) == 0)
        build_set_int(build, id, "group", onnx_int(node->proto, "group", 1));
    else
        build_set_int(build, id, "ceil_mode", onnx_int(node->proto, "ceil_mode", 0));
    if (strcmp(op, "AveragePool") == 0)
        build_set_int(build, id, "count_include_pad",
                      onnx_int(node->proto, "count_include_pad", 0));
}

/* A pool; bytes are pooled as numbers. */
static int emit_pool(struct build *build, const struct onnx_node *node, const char *op,
                     int input, const struct window *w, struct err *err)
{
    enum dtype dtype = build->graph[0]->values[input].dtype;
    bool whole = !dtype_is_float(dtype);
    int id;

    if (whole)
        input = canon_typed(build, node, input, build->options->real, err);
    id = input < 0 ? -1 : canon_new(build, node, op, 1, &input, err);
    if (id < 0)
        return -1;
    set_window(build, id, node, w);
    if (strcmp(op, "MaxPoolIndices") == 0)
        build_set_int(build, id, "storage_order", onnx_int(node->proto, "storage_order", 0));
    id = canon_settle(build, id, err);
    return id >= 0 && whole && strcmp(op, "MaxPoolIndices") != 0
               ? canon_typed(build, node, id, dtype, err) : id;
}

static int emit_conv(struct build *build, const struct onnx_node *node, const struct window *w,
                     struct err *err)
{
    int id = canon_emit(build, node, "Conv", 3, err);

    if (id < 0)
        return -1;
    set_window(build, id, node, w);
    return build_settle(build, id, err);
}

int canon_window(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *op = node->proto->op_type;
    bool conv = strcmp(op, "Conv") == 0;
    const struct shape *weights = NULL;
    int input = canon_input(build, node, 0, err), second, y;
    struct window w;

    if (input < 0)
        return -1;
    if (conv) {
        second = canon_input(build, node, 1, err);
        if (second < 0)
            return -1;
        weights = canon_shape_of(build, second, 0);
    }
    if (read_window(node, canon_shape_of(build, input, 0), weights, &w, err))
        return -1;
    if (conv)
        return emit_conv(build, node, &w, err);
    y = emit_pool(build, node, op, input, &w, err);
    if (y < 0)
        return -1;
    canon_result(build, node, 0, y);
    if (!canon_read(build, node, 1))
        return 0;
    y = emit_pool(build, node, "MaxPoolIndices", input, &w, err);
    return y < 0 ? -1 : canon_result(build, node, 1, y);
}

/* ConvTranspose ----------------------------------------------------------------------- */

/* The shape of the output, from the pads, or the pads from it. */
static int output_shape(const struct onnx_node *node, const struct shape *shape,
                        struct window *w, int64_t *out, struct err *err)
{
    bool upper = onnx_string_is(node->proto, "auto_pad", "SAME_UPPER", false);
    bool same = upper || onnx_string_is(node->proto, "auto_pad", "SAME_LOWER", false);
    int64_t more[MAX_SPATIAL], total;
    const int64_t *given = NULL;
    int n = onnx_ints(node->proto, "output_shape", &given), i;

    if (read_list(node, "output_padding", w->n, 0, more, err))
        return -1;
    if (n == w->n + 2)
        given += 2;
    else if (n >= 0 && n != w->n)
        return err_set(err, "output_shape has %d entries, not %d", n, w->n);
    for (i = 0; i < w->n; i++)
        if (shape->dim[i + 2] > INT32_MAX || w->kernel[i] > INT32_MAX ||
            (n >= 0 && (given[i] < 0 || given[i] > INT32_MAX)))
            return err_set(err, "its output is too large");
    for (i = 0; i < w->n; i++) {
        int64_t full = w->strides[i] * (shape->dim[i + 2] - 1) + more[i] +
                       (w->kernel[i] - 1) * w->dilations[i] + 1;

        out[i] = n >= 0 ? given[i] : same ? shape->dim[i + 2] * w->strides[i]
                                          : full - w->pads[i] - w->pads[w->n + i];
        if (n < 0 && !same)
            continue;
        total = full - out[i] > 0 ? full - out[i] : 0;
        w->pads[i] = upper || !same ? total / 2 : total - total / 2;
        w->pads[w->n + i] = total - w->pads[i];
    }
    return 0;
}

/* The bias is added by itself. */
static int add_bias(struct build *build, const struct onnx_node *node, int y, struct err *err)
{
    int bias = canon_input(build, node, 2, err), id;
    struct shape column;

    if (bias < 0)
        return -1;
    column = *canon_shape_of(build, y, 0);
    for (int i = 0; i < column.rank; i++)
        column.dim[i] = i == 1 ? column.dim[1] : 1;
    id = canon_new(build, node, "Reshape", 1, &bias, err);
    if (id < 0)
        return -1;
    build_set_ints(build, id, "shape", column.rank, column.dim);
    bias = canon_settle(build, id, err);
    return bias < 0 ? -1 : canon_step(build, node, "Add", 2, (int[]){ y, bias }, err);
}

int canon_conv_transpose(struct build *build, const struct onnx_node *node, struct err *err)
{
    int ids[2] = { canon_input(build, node, 0, err), -1 }, id;
    int64_t out[MAX_SPATIAL];
    struct window w;

    if (ids[0] >= 0)
        ids[1] = canon_input(build, node, 1, err);
    if (ids[1] < 0 || read_window(node, canon_shape_of(build, ids[0], 0),
                                  canon_shape_of(build, ids[1], 0), &w, err) ||
        output_shape(node, canon_shape_of(build, ids[0], 0), &w, out, err))
        return -1;
    id = canon_new(build, node, "ConvTranspose", 2, ids, err);
    if (id < 0)
        return -1;
    set_window(build, id, node, &w);
    build_set_ints(build, id, "output_shape", w.n, out);
    id = canon_settle(build, id, err);
    if (id >= 0 && node->proto->n_input > 2 && node->inputs[2] >= 0)
        id = add_bias(build, node, id, err);
    return id < 0 ? -1 : canon_result(build, node, 0, id);
}

/* One window as large as the input. */
int canon_global_max_pool(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), i, y;
    struct window w = { 0 };

    if (input < 0)
        return -1;
    w.n = canon_shape_of(build, input, 0)->rank - 2;
    if (w.n < 1 || w.n > MAX_SPATIAL)
        return err_set(err, "an input of %d dimensions", w.n + 2);
    for (i = 0; i < w.n; i++) {
        w.kernel[i] = canon_shape_of(build, input, 0)->dim[i + 2];
        w.strides[i] = w.dilations[i] = 1;
    }
    y = emit_pool(build, node, "MaxPool", input, &w, err);
    return y < 0 ? -1 : canon_result(build, node, 0, y);
}

/* Statistics that start alike are one initializer in an export for inference, and an Identity
 * gives back the name of each other: they move apart in training.
 */
static int unmerge_stat(struct build *build, const struct onnx_node *node, int index, int merged,
                        struct err *err)
{
    int v = node->inputs[index], t, id = -1;
    const char *name = build->onnx->values[v].name;

    if (strcmp(name, build->graph[0]->values[merged].name) == 0 || build->items[v].id != merged)
        return err_set(err, "its running statistics are shared, which is not supported");
    for (t = 0; t < BUILD_TWINS; t++) {
        const struct value of = build->graph[t]->values[merged];

        id = graph_add_value(build->graph[t], name, VALUE_STAT, of.dtype, &of.shape, of.batch);
        build->graph[t]->values[id].data = of.data;
        build->graph[t]->values[id].file_dtype = of.file_dtype;
        build->graph[t]->values[id].frozen = of.frozen;
    }
    build->items[v].id = id;
    build->n_unmerged++;
    return 0;
}

/* Running statistics are state, whatever else reads them. */
static int make_stat(struct build *build, const struct onnx_node *node, int index,
                     struct err *err)
{
    int id = canon_input(build, node, index, err), t;
    enum value_kind kind;

    if (id < 0)
        return -1;
    kind = build->graph[0]->values[id].kind;
    if (kind != VALUE_PARAM && kind != VALUE_STAT)
        return err_set(err, "its running statistics are no initializers");
    if (kind == VALUE_STAT)
        return unmerge_stat(build, node, index, id, err);
    for (t = 0; t < BUILD_TWINS; t++)
        build->graph[t]->values[id].kind = VALUE_STAT;
    return 0;
}

int canon_batch_norm(struct build *build, const struct onnx_node *node, struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    bool training = node->opset >= 14 ? onnx_int(proto, "training_mode", 0) != 0
                                             : proto->n_output > 1;
    int ids[5], i, id;

    for (i = 1; i < 5; i++)
        if (canon_read(build, node, i))
            return err_set(err, "its statistics are read, which is not supported");
    if (onnx_int(proto, "spatial", 1) != 1)
        return err_set(err, "statistics for each element are not supported");
    if (make_stat(build, node, 3, err) || make_stat(build, node, 4, err))
        return -1;
    if (!training && build->n_norms++ == 0)
        build->first_norm = node->name;
    for (i = 0; i < 5; i++) {
        ids[i] = canon_input(build, node, i, err);
        if (ids[i] < 0)
            return -1;
    }
    id = build_emit(build, node, "BatchNormalization", 5, ids, 1, err);
    if (id < 0)
        return -1;
    build_set_float(build, id, "epsilon", onnx_float(proto, "epsilon", 1e-5));
    build_set_float(build, id, "momentum", onnx_float(proto, "momentum", 0.9));
    return build_settle(build, id, err);
}
