/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: attention by cuDNN's fused kernels. They are asked for by the operations that they stand
 * for, one by one, in the form that cuDNN's matcher knows; what is between them has no place in memory.
 */
#include "kernels/cuda/module_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define WORKSPACE_LIMIT ((int64_t)1 << 30)
#define MOST_OPERATIONS 24

_Static_assert(sizeof(struct cuda_sdpa) == 16 * sizeof(int64_t) + sizeof(double),
               "compared as bytes");

struct cuda_sdpa_kernel {
    struct cuda_sdpa what;
    const struct cudnn_plan *plan;
    struct cuda_sdpa_args args;         /* of 'pack' */
    cudnnBackendDescriptor_t pack;      /* NULL: it never ran */
    float scale, one, hidden;           /* which the pack points to */
};

/* Names of the operands within a graph; what has no place is numbered from VIRTUAL on. SUMS is a row's sum
 * of dy * y, in the workspace.
 */
enum { Q = 1, K, V, Y, SAVED, DY, DQ, DK, DV, MASK, SUMS, SCALE, ONE, HIDDEN, VIRTUAL };

struct graph {
    struct cudnn_graph made;
    const struct cuda_sdpa *what;
    int64_t next;
    int n;
    cudnnBackendDescriptor_t operations[MOST_OPERATIONS];
};

typedef cudnnBackendDescriptor_t tensor;

/* Tensors ---------------------------------------------------------------------------------- */

enum order { BY_ROWS, BY_COLUMNS };

static tensor add_tensor(struct graph *g, int64_t name, cudnnDataType_t type, const int64_t dim[4],
                         const int64_t stride[4])
{
    struct cudnn_tensor t = { .name = name, .type = type, .rank = 4, .is_virtual = name >= VIRTUAL,
                              .by_value = name >= SCALE && name < VIRTUAL };

    memcpy(t.dim, dim, 4 * sizeof(*dim));
    memcpy(t.stride, stride, 4 * sizeof(*stride));
    return cudnn_add_tensor(&g->made, &t);
}

/* Stored as [batch, heads, rows, columns], turned as [batch, rows, heads, columns]; BY_COLUMNS: what is
 * stored so is described with its rows as columns.
 */
static tensor stored(struct graph *g, int64_t name, cudnnDataType_t type, int64_t heads, int64_t rows,
                     int64_t columns, bool turned, enum order order)
{
    int64_t head = turned ? columns : rows * columns, row = turned ? heads * columns : columns;
    int64_t dim[4] = { g->what->batch, heads, rows, columns };
    int64_t stride[4] = { heads * rows * columns, head, row, 1 };

    if (order == BY_COLUMNS) {
        dim[2] = columns;
        dim[3] = rows;
        stride[2] = 1;
        stride[3] = row;
    }
    return add_tensor(g, name, type, dim, stride);
}

/* What has a head for each of the queries', or no place. */
static tensor matrix(struct graph *g, int64_t name, cudnnDataType_t type, int64_t rows, int64_t columns)
{
    return stored(g, name, type, g->what->heads, rows, columns, false, BY_ROWS);
}

static cudnnDataType_t narrow_type(const struct graph *g)
{
    return g->what->narrow == CUDA_FLOAT16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

/* 'name' is that of an operand in memory, as which this is stored, and its own but for VIRTUAL. */
static tensor like(struct graph *g, int64_t as, int64_t name, enum order order)
{
    static const enum cuda_sdpa_operand numbers[] = {
        [Q] = CUDA_SDPA_Q, [K] = CUDA_SDPA_K, [V] = CUDA_SDPA_V, [Y] = CUDA_SDPA_Y,
        [DY] = CUDA_SDPA_DY, [DQ] = CUDA_SDPA_DQ, [DK] = CUDA_SDPA_DK, [DV] = CUDA_SDPA_DV,
    };
    const struct cuda_sdpa *w = g->what;
    bool of_keys = as == K || as == V || as == DK || as == DV;
    bool of_values = as == V || as == Y || as == DY || as == DV;

    return stored(g, name, narrow_type(g), of_keys ? w->heads / w->group : w->heads,
                  of_keys ? w->n : w->m, of_values ? w->e : w->d, w->turned >> numbers[as] & 1, order);
}

static tensor operand(struct graph *g, int64_t name)
{
    return like(g, name, name, BY_ROWS);
}

static tensor scores(struct graph *g, cudnnDataType_t type)
{
    return matrix(g, g->next++, type, g->what->m, g->what->n);
}

/* A number for each query. */
static tensor column(struct graph *g, int64_t name)
{
    return matrix(g, name < VIRTUAL ? name : g->next++, CUDNN_DATA_FLOAT, g->what->m, 1);
}

static tensor number(struct graph *g, int64_t name)
{
    const int64_t one[4] = { 1, 1, 1, 1 };

    return add_tensor(g, name, CUDNN_DATA_FLOAT, one, one);
}

/* Operations ------------------------------------------------------------------------------- */

static void add_operation(struct graph *g, cudnnBackendDescriptorType_t type,
                          const struct cudnn_attribute *list, int n)
{
    cudnnBackendDescriptor_t made = cudnn_add(&g->made, type, list, n);

    if (!g->made.failed && g->n < MOST_OPERATIONS)
        g->operations[g->n++] = made;
}

/* y = f(x, b), where t chooses between them; what is NULL is left out. 'axis': of an index, else -1. */
static tensor pointwise(struct graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                        int64_t axis, tensor x, tensor b, tensor t, tensor y)
{
    const struct cudnn_attribute how[] = {
        { CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode },
        { CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type },
        { CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis },
    };
    cudnnBackendDescriptor_t desc =
        cudnn_add(&g->made, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, how, axis < 0 ? 2 : 3);
    struct cudnn_attribute list[5] = {
        { CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &desc },
        { CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x },
        { CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y },
    };
    int n = 3;

    if (b)
        list[n++] = (struct cudnn_attribute){ CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b };
    if (t)
        list[n++] = (struct cudnn_attribute){ CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t };
    add_operation(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, list, n);
    return y;
}

static tensor combine(struct graph *g, cudnnPointwiseMode_t mode, tensor x, tensor b, tensor y)
{
    return pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

static void multiply(struct graph *g, tensor a, tensor b, tensor c)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const struct cudnn_attribute how[] = {
        { CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
    };
    cudnnBackendDescriptor_t desc = cudnn_add(&g->made, CUDNN_BACKEND_MATMUL_DESCRIPTOR, how, COUNT(how));
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a },
        { CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b },
        { CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c },
        { CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &desc },
    };

    add_operation(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, list, COUNT(list));
}

/* To the shape of y. */
static tensor reduce(struct graph *g, cudnnReduceTensorOp_t kind, tensor x, tensor y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const struct cudnn_attribute how[] = {
        { CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind },
        { CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type },
    };
    cudnnBackendDescriptor_t desc =
        cudnn_add(&g->made, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, how, COUNT(how));
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x },
        { CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y },
        { CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &desc },
    };

    add_operation(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, list, COUNT(list));
    return y;
}

/* The same, read the other way round: y is narrow. */
static tensor transpose(struct graph *g, tensor x, tensor y)
{
    const struct cudnn_attribute list[] = {
        { CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x },
        { CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y },
    };

    add_operation(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, list, COUNT(list));
    return y;
}

/* Graphs ----------------------------------------------------------------------------------- */

#define REAL CUDNN_DATA_FLOAT

static tensor new_scores(struct graph *g)
{
    return scores(g, REAL);
}

/* A query's row reaches a key's column only if that is not behind it. */
static tensor hide(struct graph *g, tensor x)
{
    tensor row, column_index, seen;

    if (!g->what->causal)
        return x;
    row = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, REAL, 2, x, NULL, NULL,
                    scores(g, CUDNN_DATA_INT32));
    column_index = pointwise(g, CUDNN_POINTWISE_GEN_INDEX, REAL, 3, x, NULL, NULL,
                             scores(g, CUDNN_DATA_INT32));
    seen = pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column_index, NULL,
                     scores(g, CUDNN_DATA_BOOLEAN));
    return pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, REAL, -1, x, number(g, HIDDEN), seen,
                     new_scores(g));
}

static tensor scaled_scores(struct graph *g, tensor q, tensor k)
{
    tensor x = new_scores(g);

    multiply(g, q, k, x);
    return combine(g, CUDNN_POINTWISE_MUL, x, number(g, SCALE), new_scores(g));
}

static tensor add_mask(struct graph *g, tensor x)
{
    const int64_t *dim = g->what->mask;
    int64_t stride[4] = { dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1 };

    return g->what->masked
               ? combine(g, CUDNN_POINTWISE_ADD, x, add_tensor(g, MASK, REAL, dim, stride),
                         new_scores(g))
               : x;
}

/* Along the keys, or what else there are columns of. */
static tensor along_rows(struct graph *g, cudnnReduceTensorOp_t kind, tensor x)
{
    return reduce(g, kind, x, column(g, VIRTUAL));
}

static void add_forward(struct graph *g)
{
    tensor x = scaled_scores(g, operand(g, Q), like(g, K, K, BY_COLUMNS)), largest, sum, p;

    x = hide(g, add_mask(g, x));
    largest = along_rows(g, CUDNN_REDUCE_TENSOR_MAX, x);
    x = combine(g, CUDNN_POINTWISE_SUB, x, largest, new_scores(g));
    x = combine(g, CUDNN_POINTWISE_EXP, x, NULL, new_scores(g));
    sum = along_rows(g, CUDNN_REDUCE_TENSOR_ADD, x);
    combine(g, CUDNN_POINTWISE_ADD, largest,
            combine(g, CUDNN_POINTWISE_LOG, sum, NULL, column(g, VIRTUAL)), column(g, SAVED));
    p = combine(g, CUDNN_POINTWISE_DIV, x, sum, scores(g, narrow_type(g)));
    multiply(g, p, operand(g, V), operand(g, Y));
}

static tensor transposed_scores(struct graph *g, tensor x)
{
    const struct cuda_sdpa *w = g->what;

    return transpose(g, x, stored(g, g->next++, narrow_type(g), w->heads, w->m, w->n, false,
                                  BY_COLUMNS));
}

static tensor sums_of(struct graph *g, tensor dy)
{
    const struct cuda_sdpa *w = g->what;
    tensor x = combine(g, CUDNN_POINTWISE_MUL, dy, operand(g, Y),
                       matrix(g, g->next++, REAL, w->m, w->e));

    return combine(g, CUDNN_POINTWISE_MUL, along_rows(g, CUDNN_REDUCE_TENSOR_ADD, x), number(g, ONE),
                   column(g, SUMS));
}

/* For keys or values: summed over the heads that share them. */
static void multiply_for_keys(struct graph *g, tensor transposed, tensor b, int64_t name)
{
    const struct cuda_sdpa *w = g->what;
    tensor each;

    if (w->group == 1) {
        multiply(g, transposed, b, operand(g, name));
        return;
    }
    each = matrix(g, g->next++, narrow_type(g), w->n, name == DV ? w->e : w->d);
    multiply(g, transposed, b, each);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, operand(g, name));
}

static void add_gradient(struct graph *g)
{
    tensor dy = operand(g, DY), q = operand(g, Q), k = like(g, K, K, BY_COLUMNS);
    tensor sums = sums_of(g, dy), x = add_mask(g, scaled_scores(g, q, k)), p;

    x = hide(g, combine(g, CUDNN_POINTWISE_SUB, x, column(g, SAVED), new_scores(g)));
    p = combine(g, CUDNN_POINTWISE_EXP, x, NULL, new_scores(g));
    multiply_for_keys(g, transposed_scores(g, p), dy, DV);
    x = new_scores(g);
    multiply(g, dy, like(g, V, V, BY_COLUMNS), x);
    x = combine(g, CUDNN_POINTWISE_SUB, x, sums, new_scores(g));
    x = combine(g, CUDNN_POINTWISE_MUL, x, p, new_scores(g));
    x = combine(g, CUDNN_POINTWISE_MUL, x, number(g, SCALE), new_scores(g));
    multiply_for_keys(g, transposed_scores(g, x), q, DK);
    k = transpose(g, k, like(g, K, g->next++, BY_ROWS));
    multiply(g, x, k, operand(g, DQ));
}

/* The same bits each time. */
static bool note_fits(const void *what, cudnnBackendNumericalNote_t note)
{
    (void)what;
    return note != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
}

static int choose(struct cudnn_plan *p, const void *what, int64_t workspace_limit, struct err *err)
{
    const struct cudnn_choice choice = { note_fits, NULL, workspace_limit, true };
    struct graph g = { .made = { .plan = p, .err = err }, .what = what, .next = VIRTUAL };

    if (g.what->gradient)
        add_gradient(&g);
    else
        add_forward(&g);
    return g.made.failed ? -1 : cudnn_choose(p, g.operations, g.n, &choice, err);
}

static const struct cudnn_family attentions = { "attention", sizeof(struct cuda_sdpa), WORKSPACE_LIMIT,
                                                true, choose };

int cuda_sdpa_new(struct cuda_device *device, const struct cuda_sdpa *sdpa,
                  struct cuda_sdpa_kernel **kernel, struct err *err)
{
    const struct cudnn_plan *p;
    struct cuda_sdpa_kernel *k;

    *kernel = NULL;
    if (cudnn_open(device, err))
        return -1;
    p = cudnn_plan_of(device, &attentions, sdpa);
    if (!p->execution)
        return 0;
    k = *kernel = mem_new(1, sizeof(*k));
    k->what = *sdpa;
    k->plan = p;
    k->scale = (float)sdpa->scale;
    k->one = 1;
    k->hidden = -INFINITY;
    return 0;
}

void cuda_sdpa_free(struct cuda_sdpa_kernel *kernel)
{
    if (!kernel)
        return;
    if (kernel->pack)
        (void)cudnnBackendDestroyDescriptor(kernel->pack);
    free(kernel);
}

/* Running ---------------------------------------------------------------------------------- */

/* Of the sums of a gradient, in front of what cuDNN wants. */
static size_t sums_bytes(const struct cuda_sdpa *what)
{
    size_t bytes = (size_t)(what->batch * what->heads * what->m) * sizeof(float);

    return what->gradient ? (bytes + CUDA_WORKSPACE_ALIGNMENT - 1) & ~(CUDA_WORKSPACE_ALIGNMENT - 1)
                          : 0;
}

size_t cuda_sdpa_workspace(const struct cuda_sdpa_kernel *kernel)
{
    return sums_bytes(&kernel->what) + (size_t)kernel->plan->workspace + CUDA_WORKSPACE_ALIGNMENT;
}

/* Where the operands stay where they are the pack is made once. */
static int make_pack(struct cuda_sdpa_kernel *k, const struct cuda_sdpa_args *args,
                     struct err *err)
{
    const struct cuda_sdpa *what = &k->what;
    char *workspace = cuda_workspace(args->workspace);
    const int64_t ids[] = { Q, K, V, Y, SAVED, SCALE, HIDDEN, MASK, DY, DQ, DK, DV, SUMS, ONE };
    const void *at[] = { args->q, args->k, args->v, args->y, args->saved, &k->scale, &k->hidden,
                         args->mask, args->dy, args->dq, args->dk, args->dv, workspace, &k->one };
    int64_t used[COUNT(ids)];
    const void *used_at[COUNT(ids)];
    int n = 0;

    if (k->pack && memcmp(&k->args, args, sizeof(*args)) == 0)
        return 0;
    for (int i = 0; i < COUNT(ids); i++) {
        if ((i > 7 && !what->gradient) || (ids[i] == HIDDEN && !what->causal) ||
            (ids[i] == MASK && !what->masked))
            continue;
        if (ids[i] < SCALE && (uintptr_t)at[i] % CUDNN_ALIGNMENT)
            return err_set(err, "GPU %s: an operand of an attention is not aligned to %d bytes",
                           k->plan->device->address, CUDNN_ALIGNMENT);
        used[n] = ids[i];
        used_at[n++] = at[i];
    }
    k->args = *args;
    return cudnn_make_pack(k->plan, used, used_at, n, workspace + sums_bytes(what),
                           &k->pack, err);
}

int cuda_sdpa_run(struct cuda_stream *stream, struct cuda_sdpa_kernel *kernel,
                  const struct cuda_sdpa_args *args, struct err *err)
{
    return make_pack(kernel, args, err)
               ? -1
               : cudnn_execute(kernel->plan, stream->stream, kernel->pack, err);
}
