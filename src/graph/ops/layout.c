/* SPDX-License-Identifier: MIT */
/* Ops that move elements and compute nothing. */
#include <inttypes.h>

#include <stdlib.h>

#include "base/mem.h"
#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"
#include "graph/ops/slice.h"

static int set_view(struct graph *graph, int node, const struct shape *shape, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch batch = { x->batch.outer, x->batch.inner, 0 };
    char from[128], to[128];

    if (shape_elements(shape) != shape_elements(&x->shape))
        return op_error(graph, node, err, "%s cannot become %s",
                        shape_text(&x->shape, from, sizeof(from)),
                        shape_text(shape, to, sizeof(to)));
    return set_output(graph, node, 0, x->dtype, shape, batch, err);
}

static int infer_reshape(struct graph *graph, int node, struct err *err)
{
    struct shape shape = { 0 };

    if (attr_ints(graph, node, "shape", GRAPH_MAX_RANK, shape.dim, &shape.rank, err))
        return -1;
    if (shape.rank < 0)
        return op_error(graph, node, err, "attribute \"shape\" is missing");
    return set_view(graph, node, &shape, err);
}

static int infer_transpose(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place, moved = no_batch;
    struct shape shape = x->shape;
    int perm[GRAPH_MAX_RANK], i;

    if (transpose_perm(graph, node, perm, err) || batch_find(graph, node, x, &place, err))
        return -1;
    for (i = 0; i < shape.rank; i++) {
        shape.dim[i] = x->shape.dim[perm[i]];
        if (perm[i] == place.axis)
            moved = (struct batch_place){ i, place.outer, place.inner };
    }
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, moved), err);
}

/* An input of a Concat without samples must not have a row for each of them. */
static int concat_input(const struct graph *graph, int node, int input, int axis,
                        struct shape *shape, struct batch_place *found, struct err *err)
{
    const struct value *x = node_input(graph, node, input);
    struct batch_place place;
    int i;

    if (!x || x->shape.rank != shape->rank || x->dtype != node_input(graph, node, 0)->dtype)
        return op_error(graph, node, err, "input %d does not fit the first", input);
    for (i = 0; i < shape->rank; i++)
        if (i != axis && x->shape.dim[i] != shape->dim[i])
            return op_error(graph, node, err, "input %d differs along axis %d", input, i);
    shape->dim[axis] += input ? x->shape.dim[axis] : 0;
    if (batch_find(graph, node, x, &place, err) ||
        refuse_batch_axis(graph, node, place, axis, "concatenates along", err))
        return -1;
    if (input == 0 || found->axis < 0) {
        if (input && place.axis >= 0 && graph->batch > 1)
            return op_error(graph, node, err, "input 0 does not depend on the samples");
        *found = place;
    } else if (graph->batch > 1 && (place.axis != found->axis || place.outer != found->outer)) {
        return op_error(graph, node, err, place.axis < 0
                        ? "input %d does not depend on the samples"
                        : "input %d has its samples elsewhere", input);
    }
    return 0;
}

static int infer_concat(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place = no_batch;
    struct shape shape = x->shape;
    int axis, i;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), shape.rank, &axis,
                    err))
        return -1;
    for (i = 0; i < graph->nodes[node].n_inputs; i++)
        if (concat_input(graph, node, i, axis, &shape, &place, err))
            return -1;
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static int infer_slice(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    struct batch_place place;
    struct slice slice;
    int axis;

    if (slice_of(graph, node, &slice, err) || batch_find(graph, node, x, &place, err))
        return -1;
    axis = place.axis;
    if (axis >= 0 && (slice.shape.dim[axis] != x->shape.dim[axis] || slice.step[axis] != 1) &&
        refuse_batch_axis(graph, node, place, axis, "slices", err))
        return -1;
    return set_output(graph, node, 0, x->dtype, &slice.shape, batch_at(&slice.shape, place),
                      err);
}

static int infer_split(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int parts = graph->nodes[node].n_outputs, axis, i, result;
    int64_t *sizes = mem_new((size_t)parts, sizeof(*sizes));
    struct batch_place place;
    struct shape shape = x->shape;

    result = split_sizes(graph, node, &axis, sizes, err) ||
             batch_find(graph, node, x, &place, err) ||
             refuse_batch_axis(graph, node, place, axis, "splits", err);
    for (i = 0; result == 0 && i < parts; i++) {
        shape.dim[axis] = sizes[i];
        result = set_output(graph, node, i, x->dtype, &shape, batch_at(&shape, place), err);
    }
    free(sizes);
    return result ? -1 : 0;
}

/* Expanding a parameter to the batch (a class token) makes samples where there were none. */
static void new_samples(const struct graph *graph, const struct value *x,
                        const struct shape *shape, struct batch_place *place)
{
    int i, own;

    for (i = 0; i < shape->rank && place->axis < 0 && graph->batch > 1; i++) {
        own = i - (shape->rank - x->shape.rank);
        if (shape->dim[i] == graph->batch && (own < 0 || x->shape.dim[own] == 1))
            *place = (struct batch_place){ i, 1, 1 };
    }
}

static int infer_expand(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int64_t target[GRAPH_MAX_RANK];
    struct batch_place place;
    struct shape shape;
    int n, i, own;
    char text[128];

    if (attr_ints(graph, node, "shape", GRAPH_MAX_RANK, target, &n, err) ||
        batch_find(graph, node, x, &place, err))
        return -1;
    if (n < 0)
        return op_error(graph, node, err, "attribute \"shape\" is missing");
    shape.rank = n > x->shape.rank ? n : x->shape.rank;
    for (i = 0; i < shape.rank; i++) {
        int64_t want = i < shape.rank - n ? 1 : target[i - (shape.rank - n)];

        own = i - (shape.rank - x->shape.rank);
        shape.dim[i] = own < 0 || x->shape.dim[own] == 1 ? want : x->shape.dim[own];
        if (want != 1 && want != shape.dim[i])
            return op_error(graph, node, err, "%s does not expand to %" PRId64 " along axis %d",
                            shape_text(&x->shape, text, sizeof(text)), want, i);
    }
    if (place.axis >= 0)
        place.axis += shape.rank - x->shape.rank;
    else if (!node_int(&graph->nodes[node], "fixed", 0))
        new_samples(graph, x, &shape, &place);
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static int grad_reshape(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0);

    (void)node;
    return rule_add_like(grad, 0, "View", 1, &dy, NULL, err);
}

static int grad_transpose(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), perm[GRAPH_MAX_RANK], result, i;
    int rank = node_input(grad->graph, node, 0)->shape.rank;
    int64_t inverse[GRAPH_MAX_RANK];

    if (transpose_perm(grad->graph, node, perm, err) ||
        rule_add_like(grad, 0, "Transpose", 1, &dy, &result, err))
        return -1;
    for (i = 0; i < rank; i++)
        inverse[perm[i]] = i;
    if (result >= 0)
        graph_set_ints(grad->graph, result, "perm", rank, inverse);
    return 0;
}

static int grad_concat(struct grad *grad, int node, struct err *err)
{
    struct graph *graph = grad->graph;
    int dy = grad_of_output(grad, 0), axis, i, result;
    int64_t start = 0, end, whole, one = 1;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0),
                    graph->values[dy].shape.rank, &axis, err))
        return -1;
    for (i = 0; i < graph->nodes[node].n_inputs; i++, start = end) {
        end = start + node_input(graph, node, i)->shape.dim[axis];
        if (rule_add_like(grad, i, "Slice", 1, &dy, &result, err))
            return -1;
        if (result < 0)
            continue;
        whole = axis;
        graph_set_ints(graph, result, "starts", 1, &start);
        graph_set_ints(graph, result, "ends", 1, &end);
        graph_set_ints(graph, result, "axes", 1, &whole);
        graph_set_ints(graph, result, "steps", 1, &one);
    }
    return 0;
}

/* A gradient of zeros but for dy at the slice. */
static int add_scatter(struct grad *grad, int dy, const int64_t *start, const int64_t *step,
                       struct err *err)
{
    int rank = grad->graph->values[dy].shape.rank, result;

    if (rule_add_like(grad, 0, "SliceGrad", 1, &dy, &result, err))
        return -1;
    if (result >= 0) {
        graph_set_ints(grad->graph, result, "starts", rank, start);
        graph_set_ints(grad->graph, result, "steps", rank, step);
    }
    return 0;
}

static int grad_slice(struct grad *grad, int node, struct err *err)
{
    struct slice slice;

    if (slice_of(grad->graph, node, &slice, err))
        return -1;
    return add_scatter(grad, grad_of_output(grad, 0), slice.start, slice.step, err);
}

/* One Concat where every part has a gradient, else each part on its own. */
static int grad_split(struct grad *grad, int node, struct err *err)
{
    int parts = grad->graph->nodes[node].n_outputs, axis, i, found = 0, result;
    int64_t *sizes = mem_new((size_t)parts, sizeof(*sizes));
    int64_t start[GRAPH_MAX_RANK] = { 0 }, step[GRAPH_MAX_RANK];
    int *dy = mem_new((size_t)parts, sizeof(*dy));

    for (i = 0; i < parts; i++)
        found += (dy[i] = grad_of_output(grad, i)) >= 0;
    for (i = 0; i < GRAPH_MAX_RANK; i++)
        step[i] = 1;
    result = split_sizes(grad->graph, node, &axis, sizes, err);
    if (result == 0 && found == parts)
        result = rule_add_like(grad, 0, "Concat", parts, dy, NULL, err);
    else
        for (i = 0; result == 0 && i < parts; start[axis] += sizes[i++])
            if (dy[i] >= 0)
                result = add_scatter(grad, dy[i], start, step, err);
    free(dy);
    free(sizes);
    return result;
}

static int grad_expand(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_reduced(grad, 0, grad_of_output(grad, 0), err);
}

const struct op ops_layout[] = {
    { "Reshape", OP_VIEW, 1, 1, 1, 1, infer_reshape, NULL, grad_reshape },
    { "View", OP_VIEW | OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { "Transpose", 0, 1, 1, 1, 1, infer_transpose, NULL, grad_transpose },
    { "Concat", 0, 1, -1, 1, 1, infer_concat, NULL, grad_concat },
    { "Slice", 0, 1, 1, 1, 1, infer_slice, NULL, grad_slice },
    { "SliceGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, NULL, NULL },
    { "Split", 0, 1, 1, 1, -1, infer_split, NULL, grad_split },
    { "Expand", 0, 1, 1, 1, 1, infer_expand, NULL, grad_expand },
    { .name = NULL },
};
