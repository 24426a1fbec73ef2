/* SPDX-License-Identifier: MIT */
#include "graph/fold.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"
#include "graph/names.h"

int fold_new(struct fold *fold, enum dtype dtype, const struct shape *shape,
             struct tensor *tensor, struct err *err)
{
    struct tensor result = { .dtype = dtype, .shape = *shape };

    if (dims_elements(shape, &result.n, err))
        return -1;
    if (result.n > FOLD_MAX_ELEMENTS || result.n > fold->budget)
        return err_set(err, "a constant of this size is too large");
    fold->budget -= result.n;
    if (dtype_is_float(dtype))
        result.f = arena_alloc(fold->arena, (size_t)result.n + 1, sizeof(*result.f));
    else
        result.i = arena_alloc(fold->arena, (size_t)result.n + 1, sizeof(*result.i));
    *tensor = result;
    return 0;
}

double fold_round(enum dtype dtype, double x)
{
    return dtype == DTYPE_F32 ? (double)(float)x : x;
}

int fold_load(struct fold *fold, const struct onnx_tensor *from, struct tensor *tensor,
              struct err *err)
{
    enum dtype dtype = dtype_is_float(from->dtype) ? fold->real : from->dtype;
    int64_t i;

    if (!from->data && from->size)
        return err_set(err, "tensor \"%s\" has no values in this file", from->name);
    if (fold_new(fold, dtype, &from->shape, tensor, err))
        return err_prefix(err, "tensor \"%s\"", from->name);
    if (tensor->i)
        dtype_convert(from->dtype, from->data, DTYPE_I64, tensor->i, (size_t)tensor->n);
    else
        dtype_convert(from->dtype, from->data, DTYPE_F64, tensor->f, (size_t)tensor->n);
    for (i = 0; i < tensor->n && from->dtype == DTYPE_F64; i++)
        tensor->f[i] = fold_round(dtype, tensor->f[i]);
    return 0;
}

const void *fold_bytes(const struct tensor *tensor, struct arena *arena)
{
    void *bytes = arena_alloc(arena, (size_t)tensor->n + 1, dtype_size(tensor->dtype));

    if (tensor->f)
        dtype_convert(DTYPE_F64, tensor->f, tensor->dtype, bytes, (size_t)tensor->n);
    else
        dtype_convert(DTYPE_I64, tensor->i, tensor->dtype, bytes, (size_t)tensor->n);
    return bytes;
}

double fold_number(const struct tensor *tensor, int64_t index)
{
    return tensor->f ? tensor->f[index] : dtype_widen(tensor->dtype, tensor->i[index]);
}

bool fold_equal(const struct tensor *a, const struct tensor *b)
{
    if (a->dtype != b->dtype || !shape_equal(&a->shape, &b->shape))
        return false;
    if (a->f ? a->f == b->f : a->i == b->i)
        return true;
    /* Bytes, so that a NaN equals itself. */
    if (a->f)
        return memcmp(a->f, b->f, (size_t)a->n * sizeof(*a->f)) == 0;
    return memcmp(a->i, b->i, (size_t)a->n * sizeof(*a->i)) == 0;
}

void fold_copy(const struct tensor *a, int64_t from, struct tensor *b, int64_t to)
{
    if (a->f)
        b->f[to] = a->f[from];
    else
        b->i[to] = a->i[from];
}

int64_t fold_source(const struct shape *in, const struct shape *out, int64_t index)
{
    int64_t offset = 0, stride = 1;
    int i;

    if (in->rank == 0)
        return 0;
    if (shape_equal(in, out))
        return index;
    for (i = 1; i <= in->rank; i++) {
        int64_t length = out->dim[out->rank - i], at = index % length;

        index /= length;
        if (in->dim[in->rank - i] != 1)
            offset += at * stride;
        stride *= in->dim[in->rank - i];
    }
    return offset;
}

int fold_ints(const struct fold_call *call, int index, const char *attr,
              const int64_t **values, struct err *err)
{
    const struct tensor *input = index >= 0 && index < call->n_inputs ? call->inputs[index]
                                                                      : NULL;

    if (!input)
        return attr ? onnx_ints(call->node, attr, values) : -1;
    if (!input->i || input->shape.rank > 1 || input->n > 4096) {
        err_set(err, "input %d is no short list of integers", index);
        return -2;
    }
    *values = input->i;
    return (int)input->n;
}

static const struct fold_op *find_op(const char *name)
{
    static const struct fold_op *const families[] = { fold_math, fold_layout, fold_index };
    const struct fold_op *op;
    size_t f;

    for (f = 0; f < sizeof(families) / sizeof(families[0]); f++)
        for (op = families[f]; op->name; op++)
            if (names_same(op->name, name))
                return op;
    return NULL;
}

bool fold_knows(const char *op)
{
    return find_op(op) != NULL;
}

int fold_run(struct fold *fold, const OnnxFile__Node *node, int n_inputs,
             const struct tensor *const *inputs, int n_outputs, struct tensor *outputs,
             struct err *err)
{
    const struct fold_op *op = find_op(node->op_type);
    struct fold_call call = { fold, node, n_inputs, inputs, n_outputs, outputs, op->kind };
    int i;

    for (i = 0; i < op->min_inputs; i++)
        if (i >= n_inputs || !inputs[i])
            return err_set(err, "input %d is missing", i);
    if (n_outputs < 1 || (n_outputs > 1 && strcmp(op->name, "Split") != 0))
        return err_set(err, "%d outputs", n_outputs);
    return op->run(&call, err);
}
