/* SPDX-License-Identifier: MIT */
/* Normalisation within a sample. */
#include "graph/canon.h"

#include <string.h>

#include "base/err.h"
#include "graph/dims.h"

/* A scale or bias under a shape that it broadcasts to: of the normalised axes, or one number
 * for each group. -1 with 'err'.
 */
static int widen(struct build *build, const struct onnx_node *node, int id,
                 const struct shape *first, const struct shape *wide, const struct shape *last,
                 struct err *err)
{
    static const char *const ops[] = { "Reshape", "Expand", "Reshape" };
    const struct shape *shapes[] = { first, wide, last };
    int i;

    if (shape_equal(canon_shape_of(build, id, 0), last))
        return id;
    for (i = 0; i < 3 && id >= 0; i++) {
        if (shape_equal(canon_shape_of(build, id, 0), shapes[i]))
            continue;
        id = canon_new(build, node, ops[i], 1, &id, err);
        if (id < 0)
            return -1;
        build_set_ints(build, id, "shape", shapes[i]->rank, shapes[i]->dim);
        if (i == 1)
            build_set_int(build, id, "fixed", 1);
        id = canon_settle(build, id, err);
    }
    return id;
}

/* LayerNormalization and RMSNormalization. The statistics may be outputs of the model. */
int canon_row_norm(struct build *build, const struct onnx_node *node, struct err *err)
{
    bool rms = strcmp(node->proto->op_type, "RMSNormalization") == 0;
    int ids[3] = { canon_input(build, node, 0, err), -1, -1 }, axis, i, id, n_outputs = 1;
    struct shape normal = { 0 };

    if (ids[0] < 0 || dims_axis(onnx_int(node->proto, "axis", -1),
                                canon_shape_of(build, ids[0], 0)->rank, &axis, err))
        return -1;
    for (i = axis; i < canon_shape_of(build, ids[0], 0)->rank; i++)
        normal.dim[normal.rank++] = canon_shape_of(build, ids[0], 0)->dim[i];
    for (i = 1; i < (rms ? 2 : 3); i++) {
        if (i == 2 && ((int)node->proto->n_input < 3 || node->inputs[2] < 0))
            break;
        ids[i] = canon_input(build, node, i, err);
        if (ids[i] >= 0)
            ids[i] = widen(build, node, ids[i], canon_shape_of(build, ids[i], 0), &normal,
                           &normal, err);
        if (ids[i] < 0)
            return -1;
    }
    for (i = 1; i < 3 && !rms; i++)
        if (canon_read(build, node, i))
            n_outputs = 3;
    id = build_emit(build, node, node->proto->op_type, ids[2] < 0 ? 2 : 3, ids, n_outputs, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", axis);
    build_set_float(build, id, "epsilon", onnx_float(node->proto, "epsilon", 1e-5));
    return build_settle(build, id, err);
}

/* GroupNormalization, and InstanceNormalization, whose groups are of one channel. */
int canon_group_norm(struct build *build, const struct onnx_node *node, struct err *err)
{
    bool instance = strcmp(node->proto->op_type, "InstanceNormalization") == 0;
    int64_t groups = onnx_int(node->proto, "num_groups", 0), channels;
    struct shape column = { 2, { 0 } }, table = { 2, { 0 } }, flat = { 1, { 0 } };
    int ids[3], i, id;

    for (i = 0; i < 3; i++) {
        ids[i] = canon_input(build, node, i, err);
        if (ids[i] < 0)
            return -1;
    }
    if (canon_shape_of(build, ids[0], 0)->rank < 2)
        return err_set(err, "its input has no channels");
    channels = canon_shape_of(build, ids[0], 0)->dim[1];
    groups = instance ? channels : groups;
    if (groups < 1 || channels % groups)
        return err_set(err, "the channels do not make its groups");
    /* Up to opset 20 there is one scale for each group. */
    column = (struct shape){ 2, { groups, 1 } };
    table = (struct shape){ 2, { groups, channels / groups } };
    flat = (struct shape){ 1, { channels } };
    for (i = 1; i < 3 && !instance; i++)
        if (canon_shape_of(build, ids[i], 0)->rank == 1 &&
            canon_shape_of(build, ids[i], 0)->dim[0] == groups) {
            ids[i] = widen(build, node, ids[i], &column, &table, &flat, err);
            if (ids[i] < 0)
                return -1;
        }
    id = build_emit(build, node, "GroupNormalization", 3, ids, 1, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "num_groups", groups);
    build_set_float(build, id, "epsilon", onnx_float(node->proto, "epsilon", 1e-5));
    return build_settle(build, id, err);
}
