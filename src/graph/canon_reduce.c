/* SPDX-License-Identifier: MIT */
/* Slices and reductions; the mean or sum that a file ends with is its loss. */
#include "graph/canon.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"

/* Slice ------------------------------------------------------------------------------- */

struct slices {
    int n;
    int64_t starts[GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK],
        steps[GRAPH_MAX_RANK];
    bool whole;     /* nothing is cut off */
};

static int read_slices(struct build *build, const struct onnx_node *node,
                       const struct shape *shape, int which, struct slices *s,
                       struct err *err)
{
    bool listed = onnx_attr(node->proto, "starts") != NULL;
    const int64_t *starts = NULL, *ends = NULL, *axes = NULL, *steps = NULL;
    int n = canon_ints(build, node, listed ? -1 : 1, "starts", which, &starts, err);
    int n_ends = n == -2 ? n : canon_ints(build, node, listed ? -1 : 2, "ends", which, &ends,
                                          err);
    int n_axes = n_ends == -2 ? -2 : canon_ints(build, node, listed ? -1 : 3, "axes", which,
                                                &axes, err);
    int n_steps = n_axes == -2 ? -2 : canon_ints(build, node, listed ? -1 : 4, NULL, which,
                                                 &steps, err);
    int i, axis;

    if (n_steps == -2)
        return -1;
    if (n < 0 || n > shape->rank || n != n_ends || (n_axes >= 0 && n_axes != n) ||
        (n_steps >= 0 && n_steps != n))
        return err_set(err, "starts, ends, axes and steps of different lengths");
    s->n = n;
    s->whole = true;
    for (i = 0; i < n; i++) {
        s->starts[i] = starts[i];
        s->ends[i] = ends[i];
        s->steps[i] = n_steps < 0 ? 1 : steps[i];
        if (dims_axis(n_axes < 0 ? i : axes[i], shape->rank, &axis, err))
            return -1;
        if (s->steps[i] == 0)
            return err_set(err, "a step of 0");
        s->axes[i] = axis;
        if (dims_slice(shape->dim[axis], &s->starts[i], &s->ends[i], s->steps[i]) !=
                shape->dim[axis] || s->steps[i] != 1)
            s->whole = false;
    }
    return 0;
}

int canon_slice(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), t, id;
    struct slices s[BUILD_TWINS];

    if (input < 0)
        return -1;
    for (t = 0; t < BUILD_TWINS; t++)
        if (read_slices(build, node, canon_shape_of(build, input, t), t, &s[t], err))
            return -1;
    if (s[0].whole && s[1].whole) {
        build_alias(build, node, 0);
        return 0;
    }
    id = build_emit(build, node, "Slice", 1, &input, 1, err);
    for (t = 0; t < BUILD_TWINS && id >= 0; t++) {
        graph_set_ints(build->graph[t], id, "starts", s[t].n, s[t].starts);
        graph_set_ints(build->graph[t], id, "ends", s[t].n, s[t].ends);
        graph_set_ints(build->graph[t], id, "axes", s[t].n, s[t].axes);
        graph_set_ints(build->graph[t], id, "steps", s[t].n, s[t].steps);
    }
    return id < 0 ? -1 : build_settle(build, id, err);
}

int canon_split(struct build *build, const struct onnx_node *node, struct err *err)
{
    int input = canon_input(build, node, 0, err), n_outputs = (int)node->proto->n_output;
    const int64_t *sizes = NULL;
    int64_t even[16];
    int axis, n, i, id, t;

    if (input < 0)
        return -1;
    if (n_outputs > 16 ||
        dims_axis(onnx_int(node->proto, "axis", 0), canon_shape_of(build, input, 0)->rank,
                  &axis, err))
        return n_outputs > 16 ? err_set(err, "%d outputs", n_outputs) : -1;
    id = build_emit(build, node, "Split", 1, &input, n_outputs, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", axis);
    for (t = 0; t < BUILD_TWINS; t++) {
        int64_t left = canon_shape_of(build, input, t)->dim[axis];
        int64_t part = (left + n_outputs - 1) / n_outputs;

        n = canon_ints(build, node, 1, "split", t, &sizes, err);
        if (n == -2)
            return -1;
        for (i = 0; n < 0 && i < n_outputs; i++, left -= even[i - 1])
            even[i] = part < left ? part : left;
        graph_set_ints(build->graph[t], id, "split", n < 0 ? n_outputs : n,
                       n < 0 ? even : sizes);
    }
    return build_settle(build, id, err);
}

/* Reductions -------------------------------------------------------------------------- */

struct loss_candidate *canon_new_loss(struct build *build, const struct onnx_node *node,
                                      int id)
{
    struct loss_candidate *loss = mem_push((void **)&build->losses, &build->n_losses,
                                           sizeof(*loss));

    loss->output = build->onnx->values[node->outputs[0]].name;
    loss->loss = build->graph[0]->nodes[id].outputs[0];
    loss->correct = -1;
    loss->rule.labels = loss->rule.class_weights = -1;
    return loss;
}

int canon_weight_sum(struct build *build)
{
    int t, id = -1;

    for (t = 0; t < BUILD_TWINS; t++)
        id = loss_weight_sum(build->graph[t]);
    return id;
}

bool canon_is_final(const struct build *build, const struct onnx_node *node)
{
    int i;

    for (i = 0; i < build->onnx->main.n_outputs; i++)
        if (build->onnx->main.outputs[i] == node->outputs[0])
            return canon_read(build, node, 0) == 1;
    return false;
}

/* A mean or sum over everything at the end of the graph: the loss. */
static int emit_sum_loss(struct build *build, const struct onnx_node *node, int input,
                         bool mean, struct err *err)
{
    const struct value *x = &build->graph[0]->values[input];
    int ids[] = { input, canon_weight_sum(build) }, id;
    struct loss_candidate *loss;

    id = build_emit(build, node, "SumLoss", 2, ids, 1, err);
    if (id < 0 || build_settle(build, id, err))
        return -1;
    x = &build->graph[0]->values[input];
    loss = canon_new_loss(build, node, id);
    loss->rule.weight = mean ? LOSS_WEIGHT_SAMPLES : LOSS_WEIGHT_ONE;
    loss->rule.per_sample = (double)(x->batch.outer * x->batch.inner);
    loss->rule.text = arena_printf(build->graph[0]->arena, "%s of \"%s\", in the graph",
                                   mean ? "mean" : "sum", x->name);
    return 0;
}

/* The axes of a reduction: how many, 0 where it changes nothing, -1 with 'err'. */
static int read_axes(struct build *build, const struct onnx_node *node, int rank, int64_t *list,
                     struct err *err)
{
    bool all = !onnx_int(node->proto, "noop_with_empty_axes", 0);
    int axes[GRAPH_MAX_RANK], n_axes, i;
    const int64_t *given = NULL;
    int n = canon_ints(build, node, 1, "axes", 0, &given, err);

    if (n == -2 || dims_axes(n < 0 ? 0 : n, given, rank, all, &n_axes, axes, err))
        return -1;
    for (i = 0; i < n_axes; i++)
        list[i] = axes[i];
    return n_axes;
}

int canon_reduce_step(struct build *build, const struct onnx_node *node, const char *op,
                      int input, int n, const int64_t *axes, int64_t keepdims,
                      struct err *err)
{
    int id = canon_new(build, node, op, 1, &input, err);

    if (id < 0)
        return -1;
    build_set_ints(build, id, "axes", n, axes);
    build_set_int(build, id, "keepdims", keepdims);
    return canon_settle(build, id, err);
}

int canon_reduce(struct build *build, const struct onnx_node *node, struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    bool mean = strcmp(proto->op_type, "ReduceMean") == 0;
    bool sum = strcmp(proto->op_type, "ReduceSum") == 0;
    int input = canon_input(build, node, 0, err), n, rank;
    int64_t axes[GRAPH_MAX_RANK];

    if (input < 0)
        return -1;
    rank = canon_shape_of(build, input, 0)->rank;
    n = read_axes(build, node, rank, axes, err);
    if (n < 0)
        return -1;
    if (n == 0 && rank > 0) {
        build_alias(build, node, 0);
        return 0;
    }
    if (n == rank && (mean || sum) && build->graph[1]->values[input].batch.outer &&
        canon_is_final(build, node))
        return emit_sum_loss(build, node, input, mean, err);
    input = canon_reduce_step(build, node, proto->op_type, input, n, axes,
                        onnx_int(proto, "keepdims", 1), err);
    return input < 0 ? -1 : canon_result(build, node, 0, input);
}

/* A sum of a function: of absolute values, of squares; or the logarithm of a sum. */
int canon_reduce_of(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *op = node->proto->op_type;
    int x = canon_input(build, node, 0, err), n;
    int64_t axes[GRAPH_MAX_RANK];

    n = x < 0 ? -1 : read_axes(build, node, canon_shape_of(build, x, 0)->rank, axes, err);
    if (n < 0)
        return -1;
    if (strcmp(op, "ReduceL1") == 0)
        x = canon_step(build, node, "Abs", 1, &x, err);
    else if (strcmp(op, "ReduceSumSquare") == 0)
        x = canon_step(build, node, "Mul", 2, (int[]){ x, x }, err);
    if (x >= 0)
        x = canon_reduce_step(build, node, "ReduceSum", x, n, axes,
                        onnx_int(node->proto, "keepdims", 1), err);
    if (x >= 0 && strcmp(op, "ReduceLogSum") == 0)
        x = canon_step(build, node, "Log", 1, &x, err);
    return x < 0 ? -1 : canon_result(build, node, 0, x);
}

/* log(sum(exp(x - m))) + m with the largest element m, along which no gradient is lost: that of
 * both uses together is 0.
 */
int canon_log_sum_exp(struct build *build, const struct onnx_node *node, struct err *err)
{
    int64_t keep = onnx_int(node->proto, "keepdims", 1), axes[GRAPH_MAX_RANK];
    int x = canon_input(build, node, 0, err), n, wide, narrow, y;

    n = x < 0 ? -1 : read_axes(build, node, canon_shape_of(build, x, 0)->rank, axes, err);
    if (n < 0)
        return -1;
    wide = canon_reduce_step(build, node, "ReduceMax", x, n, axes, 1, err);
    narrow = keep || wide < 0 ? wide : canon_reduce_step(build, node, "ReduceMax", x, n, axes,
                                                         0, err);
    y = narrow < 0 ? -1 : canon_step(build, node, "Sub", 2, (int[]){ x, wide }, err);
    y = y < 0 ? -1 : canon_step(build, node, "Exp", 1, &y, err);
    y = y < 0 ? -1 : canon_reduce_step(build, node, "ReduceSum", y, n, axes, keep, err);
    y = y < 0 ? -1 : canon_step(build, node, "Log", 1, &y, err);
    y = y < 0 ? -1 : canon_step(build, node, "Add", 2, (int[]){ y, narrow }, err);
    return y < 0 ? -1 : canon_result(build, node, 0, y);
}
