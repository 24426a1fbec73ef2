/* SPDX-License-Identifier: MIT */
/* What moves elements: padding, repeating, picking and putting them by index. */
#include "graph/canon.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "graph/dims.h"

int canon_take(struct build *build, const struct onnx_node *node, int x, int axis,
               const struct tensor index[BUILD_TWINS], struct err *err)
{
    int ids[2] = { x, build_add_const(build, NULL, index, err) }, id;

    if (ids[1] < 0)
        return -1;
    id = canon_new(build, node, "Gather", 2, ids, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", axis);
    return canon_settle(build, id, err);
}

/* Tile -------------------------------------------------------------------------------- */

static int tile_axis(struct build *build, const struct onnx_node *node, int x, int axis,
                     int64_t repeats, struct err *err)
{
    struct tensor index[BUILD_TWINS];
    int64_t length, i;
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        length = canon_shape_of(build, x, t)->dim[axis];
        if (repeats < 0 || repeats > FOLD_MAX_ELEMENTS)
            return err_set(err, "%" PRId64 " repeats", repeats);
        if (fold_new(&build->fold[t], DTYPE_I64,
                     &(struct shape){ 1, { length * repeats } }, &index[t], err))
            return -1;
        for (i = 0; i < length * repeats; i++)
            index[t].i[i] = i % length;
    }
    return canon_take(build, node, x, axis, index, err);
}

int canon_tile(struct build *build, const struct onnx_node *node, struct err *err)
{
    int x = canon_input(build, node, 0, err), first = x, n, axis;
    const int64_t *repeats = NULL;

    n = x < 0 ? -2 : canon_ints(build, node, 1, NULL, 0, &repeats, err);
    if (n == -2)
        return -1;
    if (n != canon_shape_of(build, x, 0)->rank)
        return err_set(err, "its repeats are not one for each axis");
    for (axis = 0; axis < n && x >= 0; axis++)
        if (repeats[axis] != 1)
            x = tile_axis(build, node, x, axis, repeats[axis], err);
    if (x == first)
        build_alias(build, node, 0);
    return x < 0 ? -1 : x == first ? 0 : canon_result(build, node, 0, x);
}

/* Pad --------------------------------------------------------------------------------- */

struct pads {
    int rank;
    int64_t begin[GRAPH_MAX_RANK], end[GRAPH_MAX_RANK];
    double value;
    int64_t whole;      /* of integers */
};

static int read_pads(struct build *build, const struct onnx_node *node, int rank,
                     struct pads *pads, struct err *err)
{
    const int64_t *list = NULL, *axes = NULL;
    int n = canon_ints(build, node, 1, "pads", 0, &list, err), n_axes, i, axis;
    const struct tensor *value = NULL;

    n_axes = n == -2 ? -2 : canon_ints(build, node, 3, NULL, 0, &axes, err);
    if (n_axes == -2)
        return -1;
    memset(pads, 0, sizeof(*pads));
    pads->rank = rank;
    if (n != 2 * (n_axes < 0 ? rank : n_axes))
        return err_set(err, "its pads are not two constants for each axis");
    for (i = 0; i < n / 2; i++) {
        if (dims_axis(n_axes < 0 ? i : axes[i], rank, &axis, err))
            return -1;
        pads->begin[axis] = list[i];
        pads->end[axis] = list[n / 2 + i];
        if (list[i] > INT32_MAX || list[i] < -INT32_MAX || list[n / 2 + i] > INT32_MAX ||
            list[n / 2 + i] < -INT32_MAX)
            return err_set(err, "pads are out of range");
    }
    pads->value = onnx_float(node->proto, "value", 0);
    if ((int)node->proto->n_input > 2 && node->inputs[2] >= 0) {
        value = build_literal(build, node->inputs[2], 0);
        if (!value || value->n > 1)
            return err_set(err, "the value it pads with is no constant");
        if (value->n)
            pads->value = fold_number(value, 0);
        if (value->n && value->i)
            pads->whole = value->i[0];
    }
    return 0;
}

/* Element 'i' of an axis of 'n' that goes on beyond its ends. */
static int64_t continued(const char *mode, int64_t i, int64_t n)
{
    int64_t period = mode[0] == 'r' ? 2 * (n - 1) : n;

    if (mode[0] == 'e')
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (period < 1)
        return 0;
    i = i % period + (i % period < 0 ? period : 0);
    return mode[0] == 'r' && i >= n ? period - i : i;
}

/* Modes reflect, edge and wrap, one axis. */
static int continue_axis(struct build *build, const struct onnx_node *node, int x, int axis,
                         const char *mode, int64_t begin, int64_t end, struct err *err)
{
    struct tensor index[BUILD_TWINS];
    int64_t length, i;
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        length = canon_shape_of(build, x, t)->dim[axis];
        if (length < 1)
            return err_set(err, "there is nothing to continue along axis %d", axis);
        if (fold_new(&build->fold[t], DTYPE_I64,
                     &(struct shape){ 1, { length + begin + end } }, &index[t], err))
            return -1;
        for (i = 0; i < index[t].n; i++)
            index[t].i[i] = continued(mode, i - begin, length);
    }
    return canon_take(build, node, x, axis, index, err);
}

/* Negative pads cut off. */
static int cut_off(struct build *build, const struct onnx_node *node, int x, struct pads *pads,
                   struct err *err)
{
    int64_t starts[GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK],
        steps[GRAPH_MAX_RANK];
    int id, i, t;
    bool cuts = false;

    for (i = 0; i < pads->rank; i++)
        cuts |= pads->begin[i] < 0 || pads->end[i] < 0;
    id = !cuts ? -1 : canon_new(build, node, "Slice", 1, &x, err);
    if (id < 0)
        return cuts ? -1 : x;
    for (t = 0; t < BUILD_TWINS; t++) {
        for (i = 0; i < pads->rank; i++) {
            axes[i] = i;
            steps[i] = 1;
            starts[i] = pads->begin[i] < 0 ? -pads->begin[i] : 0;
            ends[i] = canon_shape_of(build, x, t)->dim[i] +
                      (pads->end[i] < 0 ? pads->end[i] : 0);
        }
        graph_set_ints(build->graph[t], id, "starts", pads->rank, starts);
        graph_set_ints(build->graph[t], id, "ends", pads->rank, ends);
        graph_set_ints(build->graph[t], id, "axes", pads->rank, axes);
        graph_set_ints(build->graph[t], id, "steps", pads->rank, steps);
    }
    for (i = 0; i < pads->rank; i++) {
        pads->begin[i] = pads->begin[i] < 0 ? 0 : pads->begin[i];
        pads->end[i] = pads->end[i] < 0 ? 0 : pads->end[i];
    }
    return canon_settle(build, id, err);
}

static int pad_constant(struct build *build, const struct onnx_node *node, int x,
                        const struct pads *pads, struct err *err)
{
    int64_t list[2 * GRAPH_MAX_RANK];
    bool any = false;
    int i, id;

    for (i = 0; i < pads->rank; i++) {
        list[i] = pads->begin[i];
        list[pads->rank + i] = pads->end[i];
        any |= pads->begin[i] || pads->end[i];
    }
    id = any ? canon_new(build, node, "Pad", 1, &x, err) : -1;
    if (id < 0)
        return any ? -1 : x;
    build_set_ints(build, id, "pads", 2 * pads->rank, list);
    if (dtype_is_float(build->graph[0]->values[x].dtype))
        build_set_float(build, id, "value", pads->value);
    else
        build_set_int(build, id, "value", pads->whole);
    return canon_settle(build, id, err);
}

int canon_pad(struct build *build, const struct onnx_node *node, struct err *err)
{
    static const char *const modes[] = { "constant", "reflect", "edge", "wrap" };
    int x = canon_input(build, node, 0, err), first = x, mode = 0, i;
    struct pads pads;

    if (x < 0 || read_pads(build, node, canon_shape_of(build, x, 0)->rank, &pads, err))
        return -1;
    while (mode < 4 && !onnx_string_is(node->proto, "mode", modes[mode], mode == 0))
        mode++;
    if (mode == 4)
        return err_set(err, "its mode is not known");
    x = cut_off(build, node, x, &pads, err);
    if (mode == 0 && x >= 0)
        x = pad_constant(build, node, x, &pads, err);
    for (i = 0; i < pads.rank && mode && x >= 0; i++)
        if (pads.begin[i] || pads.end[i])
            x = continue_axis(build, node, x, i, modes[mode], pads.begin[i], pads.end[i], err);
    if (x == first)
        build_alias(build, node, 0);
    return x < 0 ? -1 : x == first ? 0 : canon_result(build, node, 0, x);
}

/* By index ---------------------------------------------------------------------------- */

static int set_axis(struct build *build, const struct onnx_node *node, int id, int64_t axis,
                    struct err *err)
{
    int found, x = build->graph[0]->nodes[id].inputs[0];

    (void)node;
    if (dims_axis(axis, canon_shape_of(build, x, 0)->rank, &found, err))
        return -1;
    build_set_int(build, id, "axis", found);
    return 0;
}

static void set_reduction(struct build *build, const struct onnx_node *node, int id)
{
    static const char *const names[] = { "none", "add", "mul", "max", "min" };
    const char *found = "another";
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (onnx_string_is(node->proto, "reduction", names[i], i == 0))
            found = names[i];
    build_set_string(build, id, "reduction", found);
}

/* GatherElements, ScatterElements (and Scatter, its old name), GatherND, ScatterND */
int canon_element(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *op = node->proto->op_type;
    bool scatter = op[0] == 'S', tuples = strstr(op, "ND") != NULL;
    int x = canon_input(build, node, 0, err), picked, id;

    if (x < 0)
        return -1;
    picked = tuples && !scatter ? canon_pick(build, node, x, err) : 1;
    if (picked <= 0)
        return picked;
    id = canon_emit(build, node, strcmp(op, "Scatter") == 0 ? "ScatterElements" : op,
                    scatter ? 3 : 2, err);
    if (id < 0)
        return -1;
    if (!tuples && set_axis(build, node, id, onnx_int(node->proto, "axis", 0), err))
        return -1;
    if (scatter)
        set_reduction(build, node, id);
    if (tuples && !scatter)
        build_set_int(build, id, "batch_dims", onnx_int(node->proto, "batch_dims", 0));
    return build_settle(build, id, err);
}

int canon_cumsum(struct build *build, const struct onnx_node *node, struct err *err)
{
    const int64_t *axis = NULL;
    int n = canon_ints(build, node, 1, NULL, 0, &axis, err), id;

    if (n != 1)
        return n == -2 ? -1 : err_set(err, "its axis is no constant");
    id = canon_emit(build, node, "CumSum", 1, err);
    if (id < 0 || set_axis(build, node, id, axis[0], err))
        return -1;
    build_set_int(build, id, "exclusive", onnx_int(node->proto, "exclusive", 0));
    build_set_int(build, id, "reverse", onnx_int(node->proto, "reverse", 0));
    return build_settle(build, id, err);
}

/* ArgMax and ArgMin */
int canon_argmax(struct build *build, const struct onnx_node *node, struct err *err)
{
    int id = canon_emit(build, node, "ArgMax", 1, err);

    if (id < 0 || set_axis(build, node, id, onnx_int(node->proto, "axis", 0), err))
        return -1;
    build_set_int(build, id, "keepdims", onnx_int(node->proto, "keepdims", 1));
    build_set_int(build, id, "select_last_index",
                  onnx_int(node->proto, "select_last_index", 0));
    build_set_int(build, id, "largest", strcmp(node->proto->op_type, "ArgMax") == 0);
    return build_settle(build, id, err);
}

int canon_topk(struct build *build, const struct onnx_node *node, struct err *err)
{
    int x = canon_input(build, node, 0, err), n = -2, id;
    const int64_t *k = NULL, given = onnx_int(node->proto, "k", -1);

    if (x >= 0)
        n = canon_ints(build, node, 1, NULL, 0, &k, err);
    if (n == -2)
        return -1;
    if (n < 1 && given < 0)
        return err_set(err, "k is no constant");
    id = build_emit(build, node, "TopK", 1, &x, 2, err);
    if (id < 0 || set_axis(build, node, id, onnx_int(node->proto, "axis", -1), err))
        return -1;
    build_set_int(build, id, "k", n < 1 ? given : k[0]);
    build_set_int(build, id, "largest", onnx_int(node->proto, "largest", 1));
    return build_settle(build, id, err);
}

/* Masks ------------------------------------------------------------------------------- */

int canon_scalar(struct build *build, enum dtype dtype, double value, struct err *err)
{
    struct tensor scalar[BUILD_TWINS];
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], dtype, &(struct shape){ 0 }, &scalar[t], err))
            return -1;
        if (scalar[t].f)
            scalar[t].f[0] = fold_round(dtype, value);
        else
            scalar[t].i[0] = dtype_truncate(dtype, value);
    }
    return build_add_const(build, NULL, scalar, err);
}

/* Zero outside a triangle: a choice between x and 0 by a constant. */
int canon_trilu(struct build *build, const struct onnx_node *node, struct err *err)
{
    bool upper = onnx_int(node->proto, "upper", 1) != 0;
    int x = canon_input(build, node, 0, err), n, t, ids[3], id;
    const int64_t *given = NULL;
    int64_t diagonal = 0, e;
    struct tensor mask[BUILD_TWINS];

    n = x < 0 ? -2 : canon_ints(build, node, 1, NULL, 0, &given, err);
    if (n == -2 || canon_shape_of(build, x, 0)->rank < 2)
        return n == -2 ? -1 : err_set(err, "its input is no matrix");
    if (n > 0)
        diagonal = given[0] > FOLD_MAX_ELEMENTS ? FOLD_MAX_ELEMENTS
                   : given[0] < -FOLD_MAX_ELEMENTS ? -FOLD_MAX_ELEMENTS : given[0];
    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *shape = canon_shape_of(build, x, t);
        int64_t rows = shape->dim[shape->rank - 2], columns = shape->dim[shape->rank - 1];

        if (fold_new(&build->fold[t], DTYPE_BOOL, &(struct shape){ 2, { rows, columns } },
                     &mask[t], err))
            return -1;
        for (e = 0; e < mask[t].n; e++) {
            int64_t over = e % columns - e / columns - diagonal;

            mask[t].i[e] = upper ? over >= 0 : over <= 0;
        }
    }
    ids[0] = build_add_const(build, NULL, mask, err);
    ids[1] = x;
    ids[2] = ids[0] < 0 ? -1 : canon_scalar(build, build->graph[0]->values[x].dtype, 0, err);
    if (ids[2] < 0)
        return -1;
    id = build_emit(build, node, "Where", 3, ids, 1, err);
    return id < 0 ? -1 : build_settle(build, id, err);
}

/* 0 … depth-1 of a type, along 'axis' of 'rank'. */
static int counting(struct build *build, enum dtype dtype, int64_t depth, int axis, int rank,
                    struct err *err)
{
    struct shape shape = { rank, { 0 } };
    struct tensor list[BUILD_TWINS];
    int64_t i;
    int t;

    for (t = 0; t < rank; t++)
        shape.dim[t] = t == axis ? depth : 1;
    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], dtype, &shape, &list[t], err))
            return -1;
        for (i = 0; i < depth; i++)
            if (list[t].f)
                list[t].f[i] = (double)i;
            else
                list[t].i[i] = i;
    }
    return build_add_const(build, NULL, list, err);
}

/* Indices under one more axis, negative ones made positive. */
static int hot_indices(struct build *build, const struct onnx_node *node, int x, int64_t depth,
                       int axis, struct err *err)
{
    enum dtype dtype = build->graph[0]->values[x].dtype;
    struct shape shape[BUILD_TWINS];
    int64_t place = axis;
    int t, zero, wrapped, negative;

    zero = canon_scalar(build, dtype, 0, err);
    wrapped = canon_scalar(build, dtype, (double)depth, err);
    if (zero < 0 || wrapped < 0)
        return -1;
    negative = canon_step(build, node, "Less", 2, (int[]){ x, zero }, err);
    wrapped = negative < 0 ? -1 : canon_step(build, node, "Add", 2, (int[]){ x, wrapped }, err);
    x = wrapped < 0 ? -1 : canon_step(build, node, "Where", 3, (int[]){ negative, wrapped, x },
                                      err);
    for (t = 0; t < BUILD_TWINS && x >= 0; t++)
        if (dims_unsqueeze(canon_shape_of(build, x, t), 1, &place, &shape[t], err))
            return -1;
    return x < 0 ? -1 : canon_shaped(build, node, x, shape, err);
}

/* An element of a constant. */
static int element_of(struct build *build, int value, int64_t index, struct err *err)
{
    struct tensor scalar[BUILD_TWINS];
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct tensor *list = build_literal(build, value, t);

        if (fold_new(&build->fold[t], list->dtype, &(struct shape){ 0 }, &scalar[t], err))
            return -1;
        fold_copy(list, index, &scalar[t], 0);
    }
    return build_add_const(build, NULL, scalar, err);
}

int canon_one_hot(struct build *build, const struct onnx_node *node, struct err *err)
{
    const struct tensor *depths, *values;
    int x = canon_input(build, node, 0, err), rank, axis, list, ids[3];
    int64_t depth;

    if (x < 0 || node->proto->n_input < 3)
        return x < 0 ? -1 : err_set(err, "three inputs are expected");
    depths = build_literal(build, node->inputs[1], 0);
    values = build_literal(build, node->inputs[2], 0);
    if (!depths || depths->n != 1 || !values || values->n != 2)
        return err_set(err, "its depth and values are no constants");
    depth = dtype_truncate(DTYPE_I64, fold_number(depths, 0));
    rank = canon_shape_of(build, x, 0)->rank + 1;
    if (depth < 0 || depth > FOLD_MAX_ELEMENTS || rank > GRAPH_MAX_RANK)
        return err_set(err, "a depth of %" PRId64 " is out of range", depth);
    if (dims_axis(onnx_int(node->proto, "axis", -1), rank, &axis, err))
        return -1;
    /* A small type may not hold the depth. */
    if (!dtype_is_float(build->graph[0]->values[x].dtype))
        x = canon_typed(build, node, x, DTYPE_I64, err);
    list = x < 0 ? -1 : counting(build, build->graph[0]->values[x].dtype, depth, axis, rank, err);
    x = list < 0 ? -1 : hot_indices(build, node, x, depth, axis, err);
    ids[0] = x < 0 ? -1 : canon_step(build, node, "Equal", 2, (int[]){ x, list }, err);
    if (ids[0] < 0)
        return -1;
    ids[1] = element_of(build, node->inputs[2], 1, err);
    ids[2] = element_of(build, node->inputs[2], 0, err);
    x = ids[1] < 0 || ids[2] < 0 ? -1 : canon_step(build, node, "Where", 3, ids, err);
    return x < 0 ? -1 : canon_result(build, node, 0, x);
}
