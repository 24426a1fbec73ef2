/* SPDX-License-Identifier: MIT */
#include "graph/fold.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"
#include "graph/integer.h"

enum reshape { RESHAPE, SQUEEZE, UNSQUEEZE, FLATTEN, SAME };

static int constant_list(const struct fold_call *call, const OnnxFile__Attribute *attr,
                         struct err *err)
{
    bool is_float = strstr(attr->name, "float") != NULL, list = attr->name[strlen(attr->name) -
                                                                           1] == 's';
    size_t n = !list ? 1 : is_float ? attr->n_floats : attr->n_ints, i;
    struct shape shape = { .rank = list, .dim = { (int64_t)n } };
    struct tensor *y = call->outputs;

    if (fold_new(call->fold, is_float ? call->fold->real : DTYPE_I64, &shape, y, err))
        return -1;
    for (i = 0; i < n; i++)
        if (is_float)
            y->f[i] = (double)(list ? attr->floats[i] : attr->f);
        else
            y->i[i] = list ? attr->ints[i] : attr->i;
    return 0;
}

/* The tensor of a Constant is loaded by the caller, who knows the file. */
static int run_constant(const struct fold_call *call, struct err *err)
{
    static const char *const names[] = { "value_int", "value_ints", "value_float",
                                         "value_floats" };
    size_t i;

    if (call->n_inputs > 0 && call->inputs[0]) {
        *call->outputs = *call->inputs[0];
        return 0;
    }
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (onnx_attr(call->node, names[i]))
            return constant_list(call, onnx_attr(call->node, names[i]), err);
    return err_set(err, "a constant of this kind is not supported");
}

static int shape_from(const struct fold_call *call, int index, struct shape *shape,
                      struct err *err)
{
    const int64_t *dims = NULL;
    int n = fold_ints(call, index, NULL, &dims, err);

    if (n == -2)
        return -1;
    if (n < 0 || n > GRAPH_MAX_RANK)
        return err_set(err, "input %d is no shape", index);
    shape->rank = n;
    if (n)
        memcpy(shape->dim, dims, (size_t)n * sizeof(*dims));
    return 0;
}

/* inputs[1] is the value's tensor, where the caller found one. */
static int run_constant_of_shape(const struct fold_call *call, struct err *err)
{
    const struct tensor *value = call->n_inputs > 1 ? call->inputs[1] : NULL;
    struct tensor *y = call->outputs;
    struct shape shape;
    int64_t i;

    if (value && value->n != 1)
        return err_set(err, "its value has %d elements", (int)value->n);
    if (shape_from(call, 0, &shape, err) ||
        fold_new(call->fold, value ? value->dtype : call->fold->real, &shape, y, err))
        return -1;
    for (i = 0; value && i < y->n; i++)
        fold_copy(value, 0, y, i);
    return 0;
}

static int run_shape(const struct fold_call *call, struct err *err)
{
    const struct shape *shape = &call->inputs[0]->shape;
    int64_t start = onnx_int(call->node, "start", 0);
    int64_t end = onnx_int(call->node, "end", shape->rank), n, i;
    struct tensor *y = call->outputs;

    n = dims_slice(shape->rank, &start, &end, 1);
    if (fold_new(call->fold, DTYPE_I64, &(struct shape){ 1, { n } }, y, err))
        return -1;
    for (i = 0; i < n; i++)
        y->i[i] = shape->dim[start + i];
    return 0;
}

static int run_size(const struct fold_call *call, struct err *err)
{
    if (fold_new(call->fold, DTYPE_I64, &(struct shape){ 0 }, call->outputs, err))
        return -1;
    return dims_elements(&call->inputs[0]->shape, call->outputs->i, err);
}

static int run_reshape(const struct fold_call *call, struct err *err)
{
    const struct shape *from = &call->inputs[0]->shape;
    const int64_t *list = NULL;
    struct tensor y = *call->inputs[0];
    int n = call->kind == FLATTEN || call->kind == SAME
                ? -1 : fold_ints(call, 1, "axes", &list, err);
    int result = 0;

    if (n == -2)
        return -1;
    if (n < 0 && (call->kind == RESHAPE || call->kind == UNSQUEEZE))
        return err_set(err, "input 1 is missing");
    if (call->kind == RESHAPE)
        result = dims_reshape(from, n, list, onnx_int(call->node, "allowzero", 0) != 0,
                              &y.shape, err);
    else if (call->kind == SQUEEZE)
        result = dims_squeeze(from, n < 0 ? 0 : n, list, &y.shape, err);
    else if (call->kind == UNSQUEEZE)
        result = dims_unsqueeze(from, n, list, &y.shape, err);
    else if (call->kind == FLATTEN)
        result = dims_flatten(from, onnx_int(call->node, "axis", 1), &y.shape, err);
    if (result)
        return -1;
    *call->outputs = y;
    return 0;
}

static int broadcast_to(const struct fold_call *call, const struct shape *shape,
                        struct err *err)
{
    struct tensor *y = call->outputs;
    const struct tensor *x = call->inputs[0];
    int64_t i;

    if (fold_new(call->fold, x->dtype, shape, y, err))
        return -1;
    for (i = 0; i < y->n; i++)
        fold_copy(x, fold_source(&x->shape, shape, i), y, i);
    return 0;
}

static int run_expand(const struct fold_call *call, struct err *err)
{
    struct shape shape;

    if (shape_from(call, 1, &shape, err) ||
        dims_broadcast(&call->inputs[0]->shape, &shape, &shape, err))
        return -1;
    return broadcast_to(call, &shape, err);
}

static int run_transpose(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    const int64_t *perm = NULL;
    int rank = x->shape.rank, n = onnx_ints(call->node, "perm", &perm), i;
    int64_t stride[GRAPH_MAX_RANK + 1], step[GRAPH_MAX_RANK], e, rest, offset;
    struct shape shape = { .rank = rank };
    unsigned seen = 0;

    if (n >= 0 && n != rank)
        return err_set(err, "perm has %d entries for %d dimensions", n, rank);
    for (stride[rank] = 1, i = rank - 1; i >= 0; i--)
        stride[i] = stride[i + 1] * x->shape.dim[i];
    for (i = 0; i < rank; i++) {
        int64_t axis = n < 0 ? rank - 1 - i : perm[i];

        if (axis < 0 || axis >= rank || seen & 1u << axis)
            return err_set(err, "perm is no permutation");
        seen |= 1u << axis;
        shape.dim[i] = x->shape.dim[axis];
        step[i] = stride[axis + 1];
    }
    if (fold_new(call->fold, x->dtype, &shape, call->outputs, err))
        return -1;
    for (e = 0; e < x->n; e++) {
        for (i = rank - 1, rest = e, offset = 0; i >= 0; rest /= shape.dim[i], i--)
            offset += rest % shape.dim[i] * step[i];
        fold_copy(x, offset, call->outputs, e);
    }
    return 0;
}

/* Outer, length and inner of a tensor around an axis. */
static void around(const struct shape *shape, int axis, int64_t *outer, int64_t *inner)
{
    int i;

    for (i = 0, *outer = *inner = 1; i < shape->rank; i++)
        if (i < axis)
            *outer *= shape->dim[i];
        else if (i > axis)
            *inner *= shape->dim[i];
}

static int run_gather(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0], *index = call->inputs[1];
    struct shape shape = { 0 };
    int64_t outer, inner, o, k, i, e = 0;
    int axis, d;

    if (index->f)
        return err_set(err, "indices of type %s", dtype_name(index->dtype));
    if (dims_axis(onnx_int(call->node, "axis", 0), x->shape.rank, &axis, err))
        return -1;
    if (x->shape.rank - 1 + index->shape.rank > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    for (d = 0; d < axis; d++)
        shape.dim[shape.rank++] = x->shape.dim[d];
    for (d = 0; d < index->shape.rank; d++)
        shape.dim[shape.rank++] = index->shape.dim[d];
    for (d = axis + 1; d < x->shape.rank; d++)
        shape.dim[shape.rank++] = x->shape.dim[d];
    if (fold_new(call->fold, x->dtype, &shape, call->outputs, err))
        return -1;
    around(&x->shape, axis, &outer, &inner);
    for (o = 0; o < outer && inner; o++)
        for (k = 0; k < index->n; k++) {
            int64_t at = index->i[k], length = x->shape.dim[axis];

            at += at < 0 ? length : 0;
            if (at < 0 || at >= length)
                return err_set(err, "an index is out of range");
            for (i = 0; i < inner; i++)
                fold_copy(x, (o * length + at) * inner + i, call->outputs, e++);
        }
    return 0;
}

static int concat_shape(const struct fold_call *call, int *axis, struct shape *shape,
                        struct err *err)
{
    int i, d;

    *shape = call->inputs[0]->shape;
    if (dims_axis(onnx_int(call->node, "axis", 0), shape->rank, axis, err))
        return -1;
    for (i = 1; i < call->n_inputs; i++) {
        const struct tensor *x = call->inputs[i];

        if (!x || x->dtype != call->inputs[0]->dtype || x->shape.rank != shape->rank)
            return err_set(err, "input %d does not fit the first", i);
        for (d = 0; d < shape->rank; d++)
            if (d != *axis && x->shape.dim[d] != shape->dim[d])
                return err_set(err, "input %d does not fit the first", i);
        shape->dim[*axis] += x->shape.dim[*axis];
    }
    return 0;
}

static int run_concat(const struct fold_call *call, struct err *err)
{
    struct shape shape;
    int64_t outer, inner, o, e, to = 0;
    int axis, i;

    if (concat_shape(call, &axis, &shape, err) ||
        fold_new(call->fold, call->inputs[0]->dtype, &shape, call->outputs, err))
        return -1;
    around(&shape, axis, &outer, &inner);
    for (o = 0; o < outer && call->outputs->n; o++)
        for (i = 0; i < call->n_inputs; i++) {
            int64_t n = call->inputs[i]->shape.dim[axis] * inner;

            for (e = 0; e < n; e++)
                fold_copy(call->inputs[i], o * n + e, call->outputs, to++);
        }
    return 0;
}

/* One axis of an input cut to 'n' elements from 'start' with 'step'. */
static int cut(const struct fold_call *call, const struct tensor *x, int axis, int64_t start,
               int64_t step, int64_t n, struct tensor *y, struct err *err)
{
    struct shape shape = x->shape;
    int64_t outer, inner, o, k, i, e = 0;

    shape.dim[axis] = n;
    if (fold_new(call->fold, x->dtype, &shape, y, err))
        return -1;
    around(&shape, axis, &outer, &inner);
    for (o = 0; o < outer && y->n; o++)
        for (k = 0; k < n; k++)
            for (i = 0; i < inner; i++)
                fold_copy(x, (o * x->shape.dim[axis] + start + k * step) * inner + i, y, e++);
    return 0;
}

static int run_slice(const struct fold_call *call, struct err *err)
{
    bool listed = onnx_attr(call->node, "starts") != NULL;
    const int64_t *starts = NULL, *ends = NULL, *axes = NULL, *steps = NULL;
    int n = fold_ints(call, listed ? -1 : 1, "starts", &starts, err);
    int n_ends = fold_ints(call, listed ? -1 : 2, "ends", &ends, err);
    int n_axes = fold_ints(call, listed ? -1 : 3, "axes", &axes, err);
    int n_steps = fold_ints(call, listed ? -1 : 4, NULL, &steps, err);
    struct tensor x = *call->inputs[0], y;
    int i, axis;

    if (n == -2 || n_ends == -2 || n_axes == -2 || n_steps == -2)
        return -1;
    if (n < 0 || n != n_ends || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n))
        return err_set(err, "starts, ends, axes and steps of different lengths");
    for (i = 0; i < n; i++) {
        int64_t start = starts[i], end = ends[i], step = n_steps < 0 ? 1 : steps[i], length;

        if (dims_axis(n_axes < 0 ? i : axes[i], x.shape.rank, &axis, err))
            return -1;
        if (step == 0)
            return err_set(err, "a step of 0");
        length = dims_slice(x.shape.dim[axis], &start, &end, step);
        if (cut(call, &x, axis, start, length > 1 ? step : 1, length, &y, err))
            return -1;
        x = y;
    }
    *call->outputs = x;
    return 0;
}

static int run_split(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    const int64_t *sizes = NULL;
    int n = fold_ints(call, 1, "split", &sizes, err), axis, i;
    int64_t at = 0, length, part;

    if (n == -2 || dims_axis(onnx_int(call->node, "axis", 0), x->shape.rank, &axis, err))
        return -1;
    length = x->shape.dim[axis];
    part = (length + call->n_outputs - 1) / call->n_outputs;
    if (n >= 0 && n != call->n_outputs)
        return err_set(err, "%d sizes for %d outputs", n, call->n_outputs);
    for (i = 0; i < call->n_outputs; i++) {
        int64_t size = n >= 0 ? sizes[i] : part < length - at ? part : length - at;

        if (size < 0 || size > length - at)
            return err_set(err, "the sizes do not add up");
        if (cut(call, x, axis, at, 1, size, &call->outputs[i], err))
            return -1;
        at += size;
    }
    return at == length ? 0 : err_set(err, "the sizes do not add up");
}

/* A double holds 53 bits of start and limit. */
static double count_integers(enum dtype dtype, int64_t start, int64_t limit, int64_t delta)
{
    bool up = integer_order(dtype, delta, 0) > 0;
    uint64_t from = (uint64_t)(up ? start : limit), to = (uint64_t)(up ? limit : start);
    uint64_t step = up ? (uint64_t)delta : 0 - (uint64_t)delta;

    if (integer_order(dtype, (int64_t)to, (int64_t)from) <= 0)
        return 0;
    return (double)((to - from - 1) / step) + 1;
}

static int run_range(const struct fold_call *call, struct err *err)
{
    const struct tensor *start = call->inputs[0], *limit = call->inputs[1],
                        *delta = call->inputs[2];
    double n;
    int64_t i;

    if (start->n != 1 || limit->n != 1 || delta->n != 1 || start->dtype != limit->dtype ||
        start->dtype != delta->dtype)
        return err_set(err, "start, limit and delta are not scalars of one type");
    if (start->f ? delta->f[0] == 0 : delta->i[0] == 0)
        return err_set(err, "a delta of 0");
    n = start->f ? ceil((limit->f[0] - start->f[0]) / delta->f[0])
                 : count_integers(start->dtype, start->i[0], limit->i[0], delta->i[0]);
    if (!(n <= (double)FOLD_MAX_ELEMENTS))
        return err_set(err, "the range is too long");
    if (fold_new(call->fold, start->dtype,
                 &(struct shape){ 1, { n > 0 ? (int64_t)n : 0 } }, call->outputs, err))
        return -1;
    for (i = 0; i < call->outputs->n; i++)
        if (start->f)
            call->outputs->f[i] = fold_round(start->dtype,
                                             start->f[0] + (double)i * delta->f[0]);
        else
            call->outputs->i[i] = dtype_wrap(
                start->dtype, (int64_t)((uint64_t)start->i[0] +
                                        (uint64_t)i * (uint64_t)delta->i[0]));
    return 0;
}

static int run_tile(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    struct tensor y;
    struct shape repeats, out = x->shape;
    int64_t e, rest, offset, stride;
    int d;

    if (shape_from(call, 1, &repeats, err))
        return -1;
    if (repeats.rank != x->shape.rank)
        return err_set(err, "%d repeats for %d dimensions", repeats.rank, x->shape.rank);
    for (d = 0; d < out.rank; d++)
        if (repeats.dim[d] < 0 ||
            __builtin_mul_overflow(out.dim[d], repeats.dim[d], &out.dim[d]))
            return err_set(err, "repeats are out of range");
    if (fold_new(call->fold, x->dtype, &out, &y, err))
        return -1;
    for (e = 0; e < y.n; e++) {
        for (d = out.rank - 1, rest = e, offset = 0, stride = 1; d >= 0; d--) {
            offset += rest % out.dim[d] % x->shape.dim[d] * stride;
            rest /= out.dim[d];
            stride *= x->shape.dim[d];
        }
        fold_copy(x, offset, &y, e);
    }
    *call->outputs = y;
    return 0;
}

static int run_trilu(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0], *k = call->n_inputs > 1 ? call->inputs[1] : NULL;
    bool upper = onnx_int(call->node, "upper", 1) != 0;
    int64_t diagonal = 0, columns, rows, e;
    int rank = x->shape.rank;

    if (rank < 2 || (k && (k->f || k->n != 1)))
        return err_set(err, "a matrix and a diagonal are expected");
    diagonal = k ? k->i[0] : 0;
    if (diagonal > FOLD_MAX_ELEMENTS || diagonal < -FOLD_MAX_ELEMENTS)
        diagonal = diagonal < 0 ? -FOLD_MAX_ELEMENTS : FOLD_MAX_ELEMENTS;
    if (fold_new(call->fold, x->dtype, &x->shape, call->outputs, err))
        return -1;
    columns = x->shape.dim[rank - 1];
    rows = x->shape.dim[rank - 2];
    for (e = 0; e < x->n; e++) {
        int64_t over = e % columns - e / columns % rows - diagonal;

        if (upper ? over >= 0 : over <= 0)
            fold_copy(x, e, call->outputs, e);
    }
    return 0;
}

/* The coordinates of each element that is not 0, one row for each axis. */
static int run_nonzero(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    int64_t n = 0, e, at, rest;
    int d, rank = x->shape.rank;

    for (e = 0; e < x->n; e++)
        n += x->f ? x->f[e] != 0 : x->i[e] != 0;
    if (fold_new(call->fold, DTYPE_I64, &(struct shape){ 2, { rank, n } }, call->outputs, err))
        return -1;
    for (e = at = 0; e < x->n; e++) {
        if (!(x->f ? x->f[e] != 0 : x->i[e] != 0))
            continue;
        for (d = rank - 1, rest = e; d >= 0; rest /= x->shape.dim[d--])
            call->outputs->i[d * n + at] = rest % x->shape.dim[d];
        at++;
    }
    return 0;
}

const struct fold_op fold_layout[] = {
    { "Constant", 0, run_constant, 0 },
    { "ConstantOfShape", 1, run_constant_of_shape, 0 },
    { "Shape", 1, run_shape, 0 },
    { "Size", 1, run_size, 0 },
    { "Identity", 1, run_reshape, SAME },
    { "Reshape", 2, run_reshape, RESHAPE },
    { "Squeeze", 1, run_reshape, SQUEEZE },
    { "Unsqueeze", 1, run_reshape, UNSQUEEZE },
    { "Flatten", 1, run_reshape, FLATTEN },
    { "Expand", 2, run_expand, 0 },
    { "Transpose", 1, run_transpose, 0 },
    { "Gather", 2, run_gather, 0 },
    { "Concat", 1, run_concat, 0 },
    { "Slice", 1, run_slice, 0 },
    { "Split", 1, run_split, 0 },
    { "Range", 3, run_range, 0 },
    { "Tile", 2, run_tile, 0 },
    { "Trilu", 1, run_trilu, 0 },
    { "NonZero", 1, run_nonzero, 0 },
    { NULL, 0, NULL, 0 },
};
