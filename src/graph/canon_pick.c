/* SPDX-License-Identifier: MIT */
/* Indices that name the sample which they stand in. torch.vmap, of which masks are made, writes
 * element k of each sample as the pair (s, k), or as s * length + k of samples that follow each
 * other: such an index is another number for each sample, k is not.
 */
#include "graph/canon.h"

#include <string.h>

/* Is the first of each 'n' numbers, divided by 'length', the row that it stands in? */
static bool names_row(const struct tensor *index, int64_t rows, int64_t n, int64_t length)
{
    int64_t e, row;

    if (!index->i || !index->n || index->shape.rank < 1 || index->shape.dim[0] != rows)
        return false;
    row = index->n / rows;
    for (e = 0; e < index->n; e += n)
        if (index->i[e] < 0 || index->i[e] / length != e / row)
            return false;
    return true;
}

/* [rows, …] or, of tuples, [rows, …, n]: what is left is [rows, …, 1] or [rows, …, n - 1]. */
static int without_row(struct build *build, const struct tensor *index, int which, bool tuples,
                       int64_t n, int64_t length, struct tensor *rest, struct err *err)
{
    struct shape shape = index->shape;
    int64_t e, to = 0;

    if (tuples)
        shape.dim[shape.rank - 1] = n - 1;
    else
        shape.dim[shape.rank++] = 1;
    if (fold_new(&build->fold[which], DTYPE_I64, &shape, rest, err))
        return -1;
    for (e = 0; e < index->n; e++)
        if (!tuples)
            rest->i[to++] = index->i[e] % length;
        else if (e % n)
            rest->i[to++] = index->i[e];
    return 0;
}

/* In graph 'which': the indices inside a sample, and the shape of x that they are for. 0, 1 where
 * they are no such indices, -1 with 'err'.
 */
static int look(struct build *build, const struct tensor *index, const struct shape *x,
                bool tuples, int which, struct tensor *rest, struct shape *apart,
                struct err *err)
{
    int64_t rows = build->graph[which]->batch, n = 1, length = 1;
    int rank = index->shape.rank;

    if (rank < 1 || rank == GRAPH_MAX_RANK || x->rank < 1 || x->rank == GRAPH_MAX_RANK ||
        x->dim[0] < rows || x->dim[0] % rows)
        return 1;
    *apart = *x;
    if (tuples) {
        n = index->shape.dim[rank - 1];
        if (n < 2 || x->dim[0] != rows)
            return 1;
    } else {
        length = x->dim[0] / rows;
        memmove(apart->dim + 2, x->dim + 1, (size_t)(x->rank - 1) * sizeof(*x->dim));
        apart->dim[0] = rows;
        apart->dim[1] = length;
        apart->rank++;
    }
    if (!names_row(index, rows, n, length))
        return 1;
    return without_row(build, index, which, tuples, n, length, rest, err);
}

int canon_pick(struct build *build, const struct onnx_node *node, int x, struct err *err)
{
    bool tuples = strcmp(node->proto->op_type, "GatherND") == 0;
    int v = node->proto->n_input > 1 ? node->inputs[1] : -1, ids[2], t, id, result;
    struct tensor rest[BUILD_TWINS];
    struct shape apart[BUILD_TWINS];

    if (!build_const(build, v, 0) || build->options->no_batch ||
        onnx_int(node->proto, "batch_dims", 0))
        return 1;
    for (t = 0; t < BUILD_TWINS; t++) {
        result = look(build, build_const(build, v, t), canon_shape_of(build, x, t), tuples, t,
                      &rest[t], &apart[t], err);
        if (result)
            return result;
    }
    ids[0] = canon_shaped(build, node, x, apart, err);
    ids[1] = ids[0] < 0 ? -1 : build_add_const(build, NULL, rest, err);
    id = ids[1] < 0 ? -1 : build_emit(build, node, "GatherND", 2, ids, 1, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "batch_dims", 1);
    return build_settle(build, id, err);
}
