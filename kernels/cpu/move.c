/* SPDX-License-Identifier: MIT */
/* Moving elements: Transpose, Concat, Split, Gather and its gradient. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cpu/cpu.h"

/* Transpose --------------------------------------------------------------------------- */

/* The result, axis by axis after merging, with the input's strides. Its last axis has the
 * length 'rows'; 'columns' is the length of the axis along which the input is contiguous.
 */
struct transpose_kernel {
    struct kernel base;
    int rank;                   /* of the axes outside the two above */
    int64_t dim[GRAPH_MAX_RANK], in[GRAPH_MAX_RANK], out[GRAPH_MAX_RANK];
    int64_t outer, rows, columns, row_in, column_out;
    bool copies;                /* the last axis is contiguous on both sides: 'rows' elements */
};

enum { COLUMNS = 64 };

struct transpose_run {
    const struct transpose_kernel *k;
    const float *x;
    float *y;
    int64_t blocks;
};

/* Where piece 'i' of the outer axes begins on both sides. */
struct place {
    int64_t at[GRAPH_MAX_RANK], x, y;
};

static void place_start(const struct transpose_kernel *k, int64_t i, struct place *p)
{
    p->x = p->y = 0;
    for (int d = k->rank - 1; d >= 0; d--) {
        p->at[d] = i % k->dim[d];
        p->x += p->at[d] * k->in[d];
        p->y += p->at[d] * k->out[d];
        i /= k->dim[d];
    }
}

static void place_next(const struct transpose_kernel *k, struct place *p)
{
    for (int d = k->rank - 1; d >= 0; d--) {
        p->x += k->in[d];
        p->y += k->out[d];
        if (++p->at[d] < k->dim[d])
            return;
        p->at[d] = 0;
        p->x -= k->dim[d] * k->in[d];
        p->y -= k->dim[d] * k->out[d];
    }
}

static void transpose_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct transpose_run *r = context;
    const struct transpose_kernel *k = r->k;
    int64_t block = begin % r->blocks;
    struct place p;

    (void)thread;
    place_start(k, begin / r->blocks, &p);
    for (int64_t i = begin; i < end; i++) {
        int64_t c = block * COLUMNS;
        int64_t width = k->columns - c < COLUMNS ? k->columns - c : COLUMNS;

        if (k->copies)
            memcpy(r->y + p.y, r->x + p.x, (size_t)k->rows * sizeof(float));
        else
            k->base.device->simd->transpose((size_t)k->rows, (size_t)width, r->x + p.x + c,
                                            (size_t)k->row_in, r->y + p.y + c * k->column_out,
                                            (size_t)k->column_out);
        if (++block == r->blocks) {
            block = 0;
            place_next(k, &p);
        }
    }
}

static int transpose_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct transpose_kernel *k = (const struct transpose_kernel *)kernel;
    struct transpose_run run = { k, args->inputs[0], args->outputs[0],
                                 (k->columns + COLUMNS - 1) / COLUMNS };
    int64_t width = k->columns < COLUMNS ? k->columns : COLUMNS;

    (void)err;
    cpu_parallel(kernel->device, k->outer * run.blocks, cpu_rows_grain(k->rows * width),
                 transpose_pieces, &run);
    return 0;
}

struct axes {
    int n;
    int64_t dim[GRAPH_MAX_RANK], in[GRAPH_MAX_RANK], out[GRAPH_MAX_RANK];
};

/* Axes of the result that stay neighbours in the input become one. */
static void collect_axes(const struct shape *x, const int64_t *perm, struct axes *a)
{
    int64_t stride[GRAPH_MAX_RANK], step = 1;

    for (int i = x->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= x->dim[i];
    }
    a->n = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t d = x->dim[perm[i]], s = stride[perm[i]];

        if (d == 1)
            continue;
        if (a->n > 0 && a->in[a->n - 1] == s * d) {
            a->dim[a->n - 1] *= d;
            a->in[a->n - 1] = s;
            continue;
        }
        a->dim[a->n] = d;
        a->in[a->n++] = s;
    }
    step = 1;
    for (int i = a->n - 1; i >= 0; i--) {
        a->out[i] = step;
        step *= a->dim[i];
    }
}

static void split_axes(struct transpose_kernel *k, const struct axes *a)
{
    k->outer = k->rows = k->columns = 1;
    k->copies = a->n == 0 || a->in[a->n - 1] == 1;
    if (a->n > 0) {
        k->rows = a->dim[a->n - 1];
        k->row_in = a->in[a->n - 1];
    }
    for (int i = 0; i < a->n - 1; i++) {
        if (a->in[i] == 1) {
            k->columns = a->dim[i];
            k->column_out = a->out[i];
            continue;
        }
        k->dim[k->rank] = a->dim[i];
        k->in[k->rank] = a->in[i];
        k->out[k->rank++] = a->out[i];
        k->outer *= a->dim[i];
    }
}

int cpu_make_transpose(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct value *x = cpu_input(build, 0);
    const struct attr *attr = node_attr(cpu_node(build), "perm");
    int64_t perm[GRAPH_MAX_RANK];
    struct transpose_kernel *k;
    struct axes axes;

    (void)err;
    if (!cpu_all_plain(build) || x->dtype != DTYPE_F32 || shape_elements(&x->shape) == 0)
        return 0;
    for (int i = 0; i < x->shape.rank; i++) {
        perm[i] = attr ? attr->ints[i] : x->shape.rank - 1 - i;
        perm[i] += perm[i] < 0 ? x->shape.rank : 0;
    }
    k = cpu_kernel_new(build, sizeof(*k), transpose_run);
    *kernel = &k->base;
    collect_axes(&x->shape, perm, &axes);
    split_axes(k, &axes);
    return 0;
}

/* Concat and Split ---------------------------------------------------------------------- */

/* Rows, and the pieces of which each is put together. */
struct pieces_kernel {
    struct kernel base;
    bool split;
    int64_t rows, row;  /* elements of a row */
    int n;
    int64_t length[];   /* elements of each piece */
};

struct pieces_run {
    const struct pieces_kernel *k;
    const struct kernel_args *args;
};

static void move_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct pieces_run *r = context;
    const struct pieces_kernel *k = r->k;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * k->row;

        for (int j = 0; j < k->n; at += k->length[j++]) {
            int64_t own = i * k->length[j];
            size_t bytes = (size_t)k->length[j] * sizeof(float);

            if (!k->split)
                memcpy((float *)r->args->outputs[0] + at,
                       (const float *)r->args->inputs[j] + own, bytes);
            else
                memcpy((float *)r->args->outputs[j] + own,
                       (const float *)r->args->inputs[0] + at, bytes);
        }
    }
}

static int pieces_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct pieces_kernel *k = (const struct pieces_kernel *)kernel;
    struct pieces_run run = { k, args };

    (void)err;
    cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->row), move_pieces, &run);
    return 0;
}

int cpu_make_pieces(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    bool split = strcmp(cpu_node(build)->op->name, "Split") == 0;
    const struct value *whole = split ? cpu_input(build, 0) : cpu_output(build, 0);
    int n = split ? cpu_node(build)->n_outputs : cpu_node(build)->n_inputs;
    int64_t axis = node_int(cpu_node(build), "axis", 0), after = 1;
    struct pieces_kernel *k;

    (void)err;
    axis += axis < 0 ? whole->shape.rank : 0;
    if (!cpu_all_plain(build) || whole->dtype != DTYPE_F32 ||
        shape_elements(&whole->shape) == 0)
        return 0;
    for (int i = 0; i < n; i++)
        if (!(split ? cpu_output(build, i) : cpu_input(build, i)))
            return 0;
    k = cpu_kernel_new(build, sizeof(*k) + (size_t)n * sizeof(k->length[0]), pieces_run);
    *kernel = &k->base;
    for (int64_t i = axis + 1; i < whole->shape.rank; i++)
        after *= whole->shape.dim[i];
    k->split = split;
    k->row = whole->shape.dim[axis] * after;
    k->rows = shape_elements(&whole->shape) / k->row;
    k->n = n;
    for (int i = 0; i < n; i++)
        k->length[i] = (split ? cpu_output(build, i) : cpu_input(build, i))->shape.dim[axis] *
                       after;
    return 0;
}

/* Gather ------------------------------------------------------------------------------ */

/* x is [before, length, after]; y is [before, count, after]. */
struct gather_kernel {
    struct kernel base;
    char *name;
    int64_t before, length, after, count;
    bool wide;                  /* indices are int64 */
};

struct gather_run {
    const struct gather_kernel *k;
    const void *indices;
    const float *x;
    float *y;
};

static int64_t index_at(const struct gather_kernel *k, const void *indices, int64_t i)
{
    int64_t at = k->wide ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];

    return at < 0 ? at + k->length : at;
}

static int check_indices(const struct gather_kernel *k, const void *indices, struct err *err)
{
    for (int64_t i = 0; i < k->count; i++) {
        int64_t at = index_at(k, indices, i);

        if (at < 0 || at >= k->length)
            return err_set(err, "node \"%s\": index %lld is not below %lld", k->name,
                           (long long)at, (long long)k->length);
    }
    return 0;
}

static void gather_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct gather_run *r = context;
    const struct gather_kernel *k = r->k;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = i / k->count * k->length + index_at(k, r->indices, i % k->count);

        memcpy(r->y + i * k->after, r->x + from * k->after, (size_t)k->after * sizeof(float));
    }
}

static int gather_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct gather_kernel *k = (const struct gather_kernel *)kernel;
    struct gather_run run = { k, args->inputs[1], args->inputs[0], args->outputs[0] };

    if (check_indices(k, run.indices, err))
        return -1;
    cpu_parallel(kernel->device, k->before * k->count, cpu_rows_grain(k->after), gather_rows,
                 &run);
    return 0;
}

/* Each thread owns columns of dx, so that rows are added in the order of the indices. */
static void scatter_columns(void *context, int64_t begin, int64_t end, int thread)
{
    const struct gather_run *r = context;
    const struct gather_kernel *k = r->k;

    (void)thread;
    for (int64_t i = 0; i < k->before * k->count; i++) {
        int64_t to = i / k->count * k->length + index_at(k, r->indices, i % k->count);

        k->base.device->simd->axpy((size_t)(end - begin), 1, r->x + i * k->after + begin,
                                   r->y + to * k->after + begin);
    }
}

static void clear_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct gather_run *r = context;

    (void)thread;
    memset(r->y + begin, 0, (size_t)(end - begin) * sizeof(float));
}

static int gather_grad_run(struct kernel *kernel, const struct kernel_args *args,
                           struct err *err)
{
    const struct gather_kernel *k = (const struct gather_kernel *)kernel;
    struct gather_run run = { k, args->inputs[1], args->inputs[0], args->outputs[0] };

    if (check_indices(k, run.indices, err))
        return -1;
    if (args->accumulate != ACCUMULATE_YES)
        cpu_parallel(kernel->device, k->before * k->length * k->after, CPU_GRAIN, clear_rows,
                     &run);
    cpu_parallel(kernel->device, k->after, k->count * k->after < CPU_GRAIN ? INT32_MAX : 16,
                 scatter_columns, &run);
    return 0;
}

static void gather_free(struct kernel *kernel)
{
    struct gather_kernel *k = (struct gather_kernel *)kernel;

    free(k->name);
    free(k);
}

static int make_gather(const struct cpu_build *build, const struct value *x,
                       int (*run)(struct kernel *, const struct kernel_args *, struct err *),
                       struct kernel **kernel)
{
    const struct value *indices = cpu_input(build, 1);
    int64_t axis = node_int(cpu_node(build), "axis", 0);
    struct gather_kernel *k;

    if (!cpu_all_plain(build) || x->dtype != DTYPE_F32 ||
        (indices->dtype != DTYPE_I64 && indices->dtype != DTYPE_I32))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), run);
    *kernel = &k->base;
    k->base.free = gather_free;
    k->name = mem_strdup(cpu_node(build)->name);
    k->wide = indices->dtype == DTYPE_I64;
    k->count = shape_elements(&indices->shape);
    axis += axis < 0 ? x->shape.rank : 0;
    k->before = k->after = 1;
    k->length = x->shape.dim[axis];
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis)
            *(i < axis ? &k->before : &k->after) *= x->shape.dim[i];
    return 0;
}

int cpu_make_gather(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    return make_gather(build, cpu_input(build, 0), gather_run, kernel);
}

int cpu_make_gather_grad(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    make_gather(build, cpu_output(build, 0), gather_grad_run, kernel);
    if (*kernel)
        (*kernel)->accumulates = true;
    return 0;
}
