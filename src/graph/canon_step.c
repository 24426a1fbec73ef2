/* SPDX-License-Identifier: MIT */
/* Moves that operators which become several are made of. */
#include "graph/canon.h"

int canon_typed(struct build *build, const struct onnx_node *node, int x, enum dtype dtype,
                struct err *err)
{
    int id;

    if (build->graph[0]->values[x].dtype == dtype)
        return x;
    id = canon_new(build, node, "Cast", 1, &x, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "to", dtype);
    return canon_settle(build, id, err);
}

int canon_shaped(struct build *build, const struct onnx_node *node, int x,
                 const struct shape shapes[BUILD_TWINS], struct err *err)
{
    int id, t;

    if (shape_equal(canon_shape_of(build, x, 0), &shapes[0]))
        return x;
    id = canon_new(build, node, "Reshape", 1, &x, err);
    for (t = 0; t < BUILD_TWINS && id >= 0; t++)
        graph_set_ints(build->graph[t], id, "shape", shapes[t].rank, shapes[t].dim);
    return id < 0 ? -1 : canon_settle(build, id, err);
}

int canon_permuted(struct build *build, const struct onnx_node *node, int x,
                   const int64_t *perm, struct err *err)
{
    int rank = canon_shape_of(build, x, 0)->rank, id, i;

    for (i = 0; i < rank && perm[i] == i; i++)
        ;
    if (i == rank)
        return x;
    id = canon_new(build, node, "Transpose", 1, &x, err);
    if (id < 0)
        return -1;
    build_set_ints(build, id, "perm", rank, perm);
    return canon_settle(build, id, err);
}

int canon_joined(struct build *build, const struct onnx_node *node, int n, const int *parts,
                 int axis, struct err *err)
{
    int id = canon_new(build, node, "Concat", n, parts, err);

    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", axis);
    return canon_settle(build, id, err);
}

int canon_cut(struct build *build, const struct onnx_node *node, int x, int64_t axis,
              int64_t start, int64_t end, int64_t step, struct err *err)
{
    int id = canon_new(build, node, "Slice", 1, &x, err);

    if (id < 0)
        return -1;
    build_set_ints(build, id, "starts", 1, &start);
    build_set_ints(build, id, "ends", 1, &end);
    build_set_ints(build, id, "axes", 1, &axis);
    build_set_ints(build, id, "steps", 1, &step);
    return canon_settle(build, id, err);
}
