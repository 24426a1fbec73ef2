/* SPDX-License-Identifier: MIT */
#include "graph/dims.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"

int dims_elements(const struct shape *shape, int64_t *elements, struct err *err)
{
    int64_t n = 1, room = 1;
    int i;

    /* Strides must not overflow even where a dimension is 0. */
    for (i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dim[i];

        if (dim < 0 || dim > DIMS_MAX_ELEMENTS ||
            __builtin_mul_overflow(room, dim ? dim : 1, &room) || room > DIMS_MAX_ELEMENTS)
            return err_set(err, "a tensor of this size is too large");
        n *= dim;
    }
    *elements = n;
    return 0;
}

int dims_axis(int64_t axis, int rank, int *result, struct err *err)
{
    if (axis < -rank || axis >= rank)
        return err_set(err, "axis %" PRId64 " of %d dimensions", axis, rank);
    *result = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

int dims_axes(int n, const int64_t *axes, int rank, bool all, int *n_result, int *result,
              struct err *err)
{
    bool taken[GRAPH_MAX_RANK] = { false };
    int i, axis;

    for (i = 0; i < n; i++) {
        if (dims_axis(axes[i], rank, &axis, err))
            return -1;
        if (taken[axis])
            return err_set(err, "axis %d is given twice", axis);
        taken[axis] = true;
    }
    for (i = 0, *n_result = 0; i < rank; i++)
        if (taken[i] || (n == 0 && all))
            result[(*n_result)++] = i;
    return 0;
}

int dims_reshape(const struct shape *from, int n, const int64_t *dims, bool allow_zero,
                 struct shape *result, struct err *err)
{
    struct shape shape = { .rank = n };
    int64_t elements, known = 1;
    int i, rest = -1;

    if (n > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    if (dims_elements(from, &elements, err))
        return -1;
    for (i = 0; i < n; i++) {
        shape.dim[i] = dims[i];
        if (dims[i] == 0 && !allow_zero) {
            if (i >= from->rank)
                return err_set(err, "dimension %d is to be copied, but there is none", i);
            shape.dim[i] = from->dim[i];
        }
        if (dims[i] < -1 || (dims[i] == -1 && rest >= 0))
            return err_set(err, "a shape with %" PRId64 " in it", dims[i]);
        if (dims[i] == -1)
            rest = i;
        else if (__builtin_mul_overflow(known, shape.dim[i], &known))
            return err_set(err, "a tensor of this size is too large");
    }
    if (rest >= 0) {
        if (known == 0 || elements % known)
            return err_set(err, "%" PRId64 " elements do not divide by %" PRId64, elements,
                           known);
        shape.dim[rest] = elements / known;
    } else if (known != elements) {
        return err_set(err, "%" PRId64 " elements do not fit a shape of %" PRId64, elements,
                       known);
    }
    *result = shape;
    return 0;
}

int dims_squeeze(const struct shape *from, int n, const int64_t *axes, struct shape *result,
                 struct err *err)
{
    int chosen[GRAPH_MAX_RANK], n_chosen, i, c;
    struct shape shape = { 0 };

    if (dims_axes(n, axes, from->rank, false, &n_chosen, chosen, err))
        return -1;
    for (i = c = 0; i < from->rank; i++) {
        bool named = c < n_chosen && chosen[c] == i;

        c += named;
        if (named && from->dim[i] != 1)
            return err_set(err, "axis %d is %" PRId64 " long and cannot be squeezed", i,
                           from->dim[i]);
        if (!named && (n > 0 || from->dim[i] != 1))
            shape.dim[shape.rank++] = from->dim[i];
    }
    *result = shape;
    return 0;
}

int dims_unsqueeze(const struct shape *from, int n, const int64_t *axes, struct shape *result,
                   struct err *err)
{
    int chosen[GRAPH_MAX_RANK], n_chosen, i, c = 0, f = 0;
    struct shape shape = { .rank = from->rank + n };

    if (n > GRAPH_MAX_RANK || shape.rank > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    if (dims_axes(n, axes, shape.rank, false, &n_chosen, chosen, err))
        return -1;
    for (i = 0; i < shape.rank; i++) {
        bool named = c < n_chosen && chosen[c] == i;

        c += named;
        shape.dim[i] = named ? 1 : from->dim[f++];
    }
    *result = shape;
    return 0;
}

int dims_flatten(const struct shape *from, int64_t axis, struct shape *result, struct err *err)
{
    struct shape shape = { .rank = 2, .dim = { 1, 1 } };
    int64_t elements;
    int i;

    if (axis < -from->rank || axis > from->rank)
        return err_set(err, "axis %" PRId64 " of %d dimensions", axis, from->rank);
    if (dims_elements(from, &elements, err))
        return -1;
    axis = axis < 0 ? axis + from->rank : axis;
    for (i = 0; i < from->rank; i++)
        shape.dim[i >= axis] *= from->dim[i];
    *result = shape;
    return 0;
}

int dims_broadcast(const struct shape *a, const struct shape *b, struct shape *result,
                   struct err *err)
{
    struct shape shape = { .rank = a->rank > b->rank ? a->rank : b->rank };
    char ta[160], tb[160];
    int i;

    for (i = 1; i <= shape.rank; i++) {
        int64_t da = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t db = i <= b->rank ? b->dim[b->rank - i] : 1;

        if (da != db && da != 1 && db != 1)
            return err_set(err, "%s and %s do not broadcast", shape_text(a, ta, sizeof(ta)),
                           shape_text(b, tb, sizeof(tb)));
        shape.dim[shape.rank - i] = da == 1 ? db : da;
    }
    *result = shape;
    return 0;
}

int64_t dims_slice(int64_t dim, int64_t *start, int64_t *end, int64_t step)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? dim - 1 : dim;
    int64_t s = *start, e = *end;

    if (s < 0)
        s += dim;
    if (e < 0)
        e += dim;
    s = s < 0 ? 0 : s > high ? high : s;
    e = e < low ? low : e > high + (step < 0) ? high + (step < 0) : e;
    if (step < 0 && dim == 0)
        s = e = -1;
    *start = s;
    *end = e;
    if (step > 0)
        return e > s ? 1 + (e - s - 1) / step : 0;
    /* Negated as unsigned: the step may be the smallest number there is. */
    return s > e ? 1 + (int64_t)((uint64_t)(s - e - 1) / (0 - (uint64_t)step)) : 0;
}
