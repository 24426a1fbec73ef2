/* SPDX-License-Identifier: MIT */
/* Constants picked by tuples of indices, and running sums: what torch.vmap makes masks of. */
#include "graph/fold.h"

#include "base/err.h"
#include "graph/dims.h"

/* Shapes around the tuples of a GatherND: 'groups' times 'rows' tuples, each naming 'inner'
 * elements among the 'size' of its group.
 */
struct picked {
    int lead, n;
    int64_t groups, rows, inner, size;
    struct shape shape;     /* of the result */
};

static int64_t product(const struct shape *shape, int first, int last)
{
    int64_t n = 1;
    int i;

    for (i = first; i < last; i++)
        n *= shape->dim[i];
    return n;
}

static int pick_shape(const struct fold_call *call, struct picked *p, struct err *err)
{
    const struct shape *x = &call->inputs[0]->shape, *index = &call->inputs[1]->shape;
    int64_t lead = onnx_int(call->node, "batch_dims", 0), n;
    int i;

    n = index->rank ? index->dim[index->rank - 1] : 0;
    if (call->inputs[1]->f || lead < 0 || lead >= index->rank || n < 1 || n > x->rank - lead)
        return err_set(err, "the indices do not fit the data");
    *p = (struct picked){ .lead = (int)lead, .n = (int)n };
    for (i = 0; i < p->lead; i++)
        if (index->dim[i] != x->dim[i])
            return err_set(err, "the indices do not fit the data along axis %d", i);
    p->groups = product(x, 0, p->lead);
    p->rows = product(index, p->lead, index->rank - 1);
    p->inner = product(x, p->lead + p->n, x->rank);
    p->size = product(x, p->lead, x->rank);
    if (index->rank - 1 + x->rank - p->lead - p->n > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    for (i = 0; i < index->rank - 1; i++)
        p->shape.dim[p->shape.rank++] = index->dim[i];
    for (i = p->lead + p->n; i < x->rank; i++)
        p->shape.dim[p->shape.rank++] = x->dim[i];
    return 0;
}

static int run_gather_nd(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0], *index = call->inputs[1];
    struct picked p;
    int64_t t, i, e = 0;
    int k;

    if (pick_shape(call, &p, err) ||
        fold_new(call->fold, x->dtype, &p.shape, call->outputs, err))
        return -1;
    for (t = 0; t < p.groups * p.rows; t++) {
        int64_t offset = 0;

        for (k = 0; k < p.n; k++) {
            int64_t length = x->shape.dim[p.lead + k], at = index->i[t * p.n + k];

            at += at < 0 ? length : 0;
            if (at < 0 || at >= length)
                return err_set(err, "an index is out of range");
            offset = offset * length + at;
        }
        for (i = 0; i < p.inner; i++)
            fold_copy(x, t / p.rows * p.size + offset * p.inner + i, call->outputs, e++);
    }
    return 0;
}

/* y[to] = y[before] + x[from]; 'before' -1: nothing. */
static void add_up(const struct tensor *x, int64_t from, struct tensor *y, int64_t before,
                   int64_t to)
{
    if (x->f)
        y->f[to] = fold_round(x->dtype, x->f[from] + (before < 0 ? 0 : y->f[before]));
    else
        y->i[to] = dtype_wrap(x->dtype, (int64_t)((uint64_t)x->i[from] +
                                                  (before < 0 ? 0 : (uint64_t)y->i[before])));
}

static int run_cumsum(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0], *given = call->inputs[1];
    bool exclusive = onnx_int(call->node, "exclusive", 0) != 0;
    bool reverse = onnx_int(call->node, "reverse", 0) != 0;
    struct tensor *y = call->outputs;
    int64_t lines, length, inner, line, k;
    int axis;

    if (given->f || given->n != 1)
        return err_set(err, "its axis is no integer");
    if (dims_axis(given->i[0], x->shape.rank, &axis, err) ||
        fold_new(call->fold, x->dtype, &x->shape, y, err))
        return -1;
    length = x->shape.dim[axis];
    inner = product(&x->shape, axis + 1, x->shape.rank);
    lines = length ? x->n / length : 0;
    for (line = 0; line < lines; line++) {
        int64_t first = line / inner * length * inner + line % inner, step = inner, before = -1;

        if (reverse) {
            first += (length - 1) * inner;
            step = -inner;
        }
        for (k = exclusive; k < length; k++) {
            add_up(x, first + (k - exclusive) * step, y, before, first + k * step);
            before = first + k * step;
        }
    }
    return 0;
}

const struct fold_op fold_index[] = {
    { "GatherND", 2, run_gather_nd, 0 },
    { "CumSum", 2, run_cumsum, 0 },
    { NULL, 0, NULL, 0 },
};
