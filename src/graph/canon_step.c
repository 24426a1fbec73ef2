/* SPDX-License-Identifier: MIT */
/* What canon.c and canon_*.c are written with. */
#include "graph/canon.h"

#include "base/err.h"
#include "graph/op.h"

const struct shape *canon_shape_of(const struct build *build, int id, int which)
{
    return &build->graph[which]->values[id].shape;
}

int canon_input(struct build *build, const struct onnx_node *node, int index, struct err *err)
{
    if (index >= (int)node->proto->n_input || node->inputs[index] < 0)
        return err_set(err, "input %d is missing", index);
    return build_value(build, node->inputs[index], err);
}

int canon_constant(struct build *build, const struct onnx_node *node, int index,
                   struct err *err)
{
    int v = index < (int)node->proto->n_input ? node->inputs[index] : -1, t, id;
    struct tensor copy[BUILD_TWINS];

    if (v < 0 || build->items[v].kind != ITEM_NONE)
        return canon_input(build, node, index, err);
    for (t = 0; t < BUILD_TWINS; t++) {
        const struct tensor *literal = build_literal(build, v, t);

        if (!literal)
            return canon_input(build, node, index, err);
        copy[t] = *literal;
    }
    id = build_add_const(build, build->onnx->values[v].name, copy, err);
    if (id >= 0)
        build->items[v] = (struct build_item){ .kind = ITEM_VALUE, .id = id };
    return id;
}

int canon_read(const struct build *build, const struct onnx_node *node, int output)
{
    return output < (int)node->proto->n_output && node->outputs[output] >= 0
               ? build->onnx->values[node->outputs[output]].readers : 0;
}

int canon_ints(struct build *build, const struct onnx_node *node, int input, const char *attr,
               int which, const int64_t **values, struct err *err)
{
    const struct tensor *constant;
    int n;

    if (input < 0 || input >= (int)node->proto->n_input || node->inputs[input] < 0) {
        n = attr ? onnx_ints(node->proto, attr, values) : -1;
    } else {
        constant = build_const(build, node->inputs[input], which);
        if (!constant || !constant->i || constant->shape.rank > 1) {
            err_set(err, "input %d is no constant list of integers", input);
            return -2;
        }
        n = constant->n > 64 ? 65 : (int)constant->n;
        *values = constant->i;
    }
    if (n > 64) {
        err_set(err, "a list of more than 64 integers");
        return -2;
    }
    return n;
}

int canon_emit(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               struct err *err)
{
    int ids[4], i;

    for (i = 0; i < n_inputs; i++) {
        ids[i] = -1;
        if (i < (int)node->proto->n_input && node->inputs[i] >= 0) {
            ids[i] = canon_input(build, node, i, err);
            if (ids[i] < 0)
                return -1;
        }
    }
    while (n_inputs && ids[n_inputs - 1] < 0)
        n_inputs--;
    return build_emit(build, node, op, n_inputs, ids, 1, err);
}

int canon_new(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
              const int *inputs, struct err *err)
{
    const struct op *found = op_find(op);
    int t, id = -1;

    if (!found)
        return err_set(err, "operator %s is not supported", op);
    for (t = 0; t < BUILD_TWINS; t++) {
        id = graph_add_node(build->graph[t], node->name, found, n_inputs, inputs, 0, NULL);
        graph_add_output(build->graph[t], id);
    }
    return id;
}

int canon_settle(struct build *build, int id, struct err *err)
{
    return build_settle(build, id, err) ? -1 : build->graph[0]->nodes[id].outputs[0];
}

int canon_step(struct build *build, const struct onnx_node *node, const char *op, int n_inputs,
               const int *inputs, struct err *err)
{
    int id = canon_new(build, node, op, n_inputs, inputs, err);

    return id < 0 ? -1 : canon_settle(build, id, err);
}

int canon_result(struct build *build, const struct onnx_node *node, int output, int value)
{
    int v = output < (int)node->proto->n_output ? node->outputs[output] : -1, t;

    if (v < 0)
        return 0;
    for (t = 0; t < BUILD_TWINS; t++)
        graph_rename_value(build->graph[t], value, build->onnx->values[v].name);
    build->items[v] = (struct build_item){ .kind = ITEM_VALUE, .id = value };
    return 0;
}

/* Moves ------------------------------------------------------------------------------- */

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
