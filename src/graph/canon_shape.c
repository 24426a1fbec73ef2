/* SPDX-License-Identifier: MIT */
/* Shapes that a file spells out, and the batch size of the export that may be in them. */
#include "graph/build.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "graph/dims.h"

/* Value 'id' as it was when the file was exported. */
static struct shape exported_shape(const struct build *build, int id)
{
    const struct value *a = &build->graph[0]->values[id], *b = &build->graph[1]->values[id];
    struct shape shape = a->shape;
    int i;

    for (i = 0; i < shape.rank; i++)
        if (b->shape.dim[i] != shape.dim[i])
            shape.dim[i] = shape.dim[i] / build->graph[0]->batch * build->file_batch;
    return shape;
}

/* In a shape whose flattened samples lie at [outer, file batch, inner], exchange the batch
 * size in the first dimension that can hold it.
 */
static int exchange_batch(const struct build *build, const struct value *value, int64_t batch,
                          struct shape *shape, struct err *err)
{
    int64_t before = 1, left;
    int i;

    for (i = 0; i < shape->rank && before && value->batch.outer % before == 0; i++) {
        left = value->batch.outer / before;
        if (shape->dim[i] && shape->dim[i] % (left * build->file_batch) == 0) {
            shape->dim[i] = shape->dim[i] / build->file_batch * batch;
            return 0;
        }
        before *= shape->dim[i];
    }
    return err_set(err, "its shape has the batch size %" PRId64 " of the export in it and does "
                   "not keep the samples apart", build->file_batch);
}

int canon_reshape(const struct build *build, int id, int which, int n, const int64_t *dims,
                  bool literal, bool allow_zero, struct shape *result, struct err *err)
{
    const struct value *value = &build->graph[which]->values[id];
    struct shape from, shape;

    if (!literal || !build->file_batch || value->batch.outer == 0 ||
        value->batch.outer > DIMS_MAX_ELEMENTS / build->file_batch)
        return dims_reshape(&value->shape, n, dims, allow_zero, result, err);
    from = exported_shape(build, id);
    if (dims_reshape(&from, n, dims, allow_zero, &shape, err) ||
        exchange_batch(build, value, build->graph[which]->batch, &shape, err))
        return -1;
    *result = shape;
    return 0;
}

int canon_expand(const struct build *build, int id, int which, int n, const int64_t *dims,
                 bool literal, struct shape *result, struct err *err)
{
    const struct value *value = &build->graph[which]->values[id];
    struct shape target = { .rank = n }, from;
    int i, k;

    if (n > GRAPH_MAX_RANK)
        return err_set(err, "more than %d dimensions", GRAPH_MAX_RANK);
    if (n)
        memcpy(target.dim, dims, (size_t)n * sizeof(*dims));
    for (i = 0; i < n; i++)
        if (dims[i] < 0)
            return err_set(err, "a shape with %" PRId64 " in it", dims[i]);
    if (literal && build->file_batch) {
        from = exported_shape(build, id);
        for (i = 0; i < n; i++) {
            k = i - (n - from.rank);
            /* A dimension that follows the batch stays what it is. */
            if (k >= 0 && from.dim[k] != value->shape.dim[k] && target.dim[i] == from.dim[k])
                target.dim[i] = 1;
        }
        if (value->batch.outer == 0 && build->file_batch > 1 && n > 0 &&
            dims[0] == build->file_batch && (n > from.rank || from.dim[0] == 1))
            target.dim[0] = build->graph[which]->batch;
    }
    return dims_broadcast(&value->shape, &target, result, err);
}
