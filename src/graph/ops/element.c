/* SPDX-License-Identifier: MIT */
/* Elements picked and put by index, sums along an axis, the largest of an axis, padding. */
#include "graph/ops/element.h"

#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

/* Where the samples are must be the same axis of both, and not the one that is indexed. */
static int same_place(const struct graph *graph, int node, int a, int b,
                      struct batch_place *place, struct err *err)
{
    struct batch_place other;

    if (batch_find(graph, node, node_input(graph, node, a), place, err) ||
        batch_find(graph, node, node_input(graph, node, b), &other, err))
        return -1;
    if (graph->batch > 1 && (place->axis != other.axis || place->outer != other.outer ||
                             place->inner != other.inner))
        return op_error(graph, node, err, "its inputs have their samples in different places");
    return 0;
}

static int element_axis(const struct graph *graph, int node, struct batch_place place,
                        int *axis, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), x->shape.rank, axis,
                    err))
        return -1;
    return refuse_batch_axis(graph, node, place, *axis, "indexes along", err);
}

/* Index and data agree but for the axis; the index may be shorter elsewhere. */
static int index_fits(const struct graph *graph, int node, struct batch_place place, int axis,
                      struct err *err)
{
    const struct shape *x = &node_input(graph, node, 0)->shape;
    const struct shape *index = &node_input(graph, node, 1)->shape;
    int i;

    if (need_integer(graph, node, 1, err))
        return -1;
    if (index->rank != x->rank)
        return op_error(graph, node, err, "the indices have %d axes, the data %d", index->rank,
                        x->rank);
    for (i = 0; i < x->rank; i++)
        if (i != axis && (index->dim[i] > x->dim[i] ||
                          (i == place.axis && index->dim[i] != x->dim[i])))
            return op_error(graph, node, err, "the indices do not fit along axis %d", i);
    return 0;
}

static int infer_gather_elements(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place place;
    int axis;

    if (same_place(graph, node, 0, 1, &place, err) ||
        element_axis(graph, node, place, &axis, err) ||
        index_fits(graph, node, place, axis, err))
        return -1;
    return set_output(graph, node, 0, x->dtype, &index->shape, index->batch, err);
}

static int check_reduction(const struct graph *graph, int node, struct err *err)
{
    static const char *const names[] = { "none", "add", "mul", "max", "min" };
    const char *name = node_string(&graph->nodes[node], "reduction", "none");
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return 0;
    return op_error(graph, node, err, "reduction \"%s\" is not known", name);
}

static int infer_scatter_elements(struct graph *graph, int node, struct err *err)
{
    struct batch_place place;
    int axis;

    if (same_place(graph, node, 0, 1, &place, err) ||
        same_place(graph, node, 0, 2, &place, err) ||
        element_axis(graph, node, place, &axis, err) ||
        index_fits(graph, node, place, axis, err) || check_reduction(graph, node, err) ||
        need_shape(graph, node, 2, &node_input(graph, node, 1)->shape, err))
        return -1;
    return infer_like(graph, node, err);
}

int tuple_of(const struct graph *graph, int node, const struct shape *data,
             const struct shape *index, struct tuple *tuple, struct err *err)
{
    int64_t lead = node_int(&graph->nodes[node], "batch_dims", 0);
    int i;

    memset(tuple, 0, sizeof(*tuple));
    if (index->rank < 1 || lead < 0 || lead >= index->rank || lead > data->rank ||
        index->dim[index->rank - 1] < 1 || index->dim[index->rank - 1] > data->rank - lead)
        return op_error(graph, node, err, "the indices do not fit the data");
    tuple->lead = (int)lead;
    tuple->n = (int)index->dim[index->rank - 1];
    tuple->groups = tuple->rows = tuple->inner = tuple->size = 1;
    for (i = 0; i < lead; i++) {
        if (index->dim[i] != data->dim[i])
            return op_error(graph, node, err, "the indices do not fit the data along axis %d",
                            i);
        tuple->groups *= data->dim[i];
    }
    for (i = tuple->lead; i < index->rank - 1; i++)
        tuple->rows *= index->dim[i];
    for (i = tuple->lead + tuple->n; i < data->rank; i++)
        tuple->inner *= data->dim[i];
    for (i = 0; i < tuple->n; i++)
        tuple->dim[i] = data->dim[tuple->lead + i];
    for (i = tuple->lead; i < data->rank; i++)
        tuple->size *= data->dim[i];
    return 0;
}

/* The shape of what is gathered: an index without its last axis, and the rest of the data. */
static int tuple_shape(const struct graph *graph, int node, const struct tuple *tuple,
                       struct shape *shape, struct err *err)
{
    const struct shape *x = &node_input(graph, node, 0)->shape;
    const struct shape *index = &node_input(graph, node, 1)->shape;
    int i;

    shape->rank = 0;
    if (index->rank - 1 + x->rank - tuple->lead - tuple->n > GRAPH_MAX_RANK)
        return op_error(graph, node, err, "the result has too many axes");
    for (i = 0; i < index->rank - 1; i++)
        shape->dim[shape->rank++] = index->dim[i];
    for (i = tuple->lead + tuple->n; i < x->rank; i++)
        shape->dim[shape->rank++] = x->dim[i];
    return 0;
}

/* Samples may be a common leading axis, in the indices alone, or behind what is indexed. */
static int tuple_place(const struct graph *graph, int node, const struct tuple *tuple,
                       struct batch_place *place, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place own;

    if (batch_find(graph, node, x, &own, err) || batch_find(graph, node, index, place, err))
        return -1;
    if (own.axis >= 0 && place->axis < 0 && own.axis >= tuple->lead + tuple->n) {
        *place = own;
        place->axis += index->shape.rank - 1 - tuple->lead - tuple->n;
    } else if (graph->batch > 1 && own.axis >= 0 &&
               (own.axis != place->axis || own.axis >= tuple->lead)) {
        return op_error(graph, node, err, "indexes the axis that holds the samples");
    } else if (graph->batch > 1 && place->axis >= 0 && place->axis == index->shape.rank - 1) {
        return op_error(graph, node, err, "the samples are the last axis of its indices");
    } else if (graph->batch > 1 && own.axis < 0 && place->axis >= 0 &&
               place->axis < tuple->lead) {
        return op_error(graph, node, err, "its data have one row for each sample but do not "
                        "depend on them");
    }
    return 0;
}

static int infer_gather_nd(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place place;
    struct tuple tuple;
    struct shape shape;

    if (need_integer(graph, node, 1, err) ||
        tuple_of(graph, node, &x->shape, &index->shape, &tuple, err) ||
        tuple_shape(graph, node, &tuple, &shape, err) ||
        tuple_place(graph, node, &tuple, &place, err))
        return -1;
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

static int infer_scatter_nd(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *index = node_input(graph, node, 1);
    struct batch_place own, put;
    struct tuple tuple;
    struct shape shape;

    if (need_integer(graph, node, 1, err) || check_reduction(graph, node, err) ||
        tuple_of(graph, node, &x->shape, &index->shape, &tuple, err) ||
        tuple_shape(graph, node, &tuple, &shape, err) ||
        need_shape(graph, node, 2, &shape, err) || batch_find(graph, node, x, &own, err) ||
        batch_find(graph, node, node_input(graph, node, 2), &put, err))
        return -1;
    if (graph->batch > 1 &&
        (index->batch.outer > 0 || (own.axis >= 0) != (put.axis >= 0) ||
         (own.axis >= 0 && (own.axis < tuple.n ||
                            put.axis != own.axis - tuple.n + index->shape.rank - 1))))
        return op_error(graph, node, err, "indexes the axis that holds the samples");
    return infer_like(graph, node, err);
}

static int infer_along(struct graph *graph, int node, const char *verb, struct shape *shape,
                       struct batch_place *place, int *axis, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    *shape = x->shape;
    if (batch_find(graph, node, x, place, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), x->shape.rank, axis,
                    err))
        return -1;
    return refuse_batch_axis(graph, node, *place, *axis, verb, err);
}

static int infer_cumsum(struct graph *graph, int node, struct err *err)
{
    struct batch_place place;
    struct shape shape;
    int axis;

    if (infer_along(graph, node, "sums along", &shape, &place, &axis, err))
        return -1;
    return infer_like(graph, node, err);
}

static int infer_argmax(struct graph *graph, int node, struct err *err)
{
    struct batch_place place;
    struct shape shape, narrow = { 0 };
    int axis, i;

    if (infer_along(graph, node, "compares along", &shape, &place, &axis, err))
        return -1;
    if (shape.dim[axis] < 1)
        return op_error(graph, node, err, "there is nothing along axis %d", axis);
    shape.dim[axis] = 1;
    for (i = 0; i < shape.rank; i++)
        if (i != axis)
            narrow.dim[narrow.rank++] = shape.dim[i];
    return set_output(graph, node, 0, DTYPE_I64,
                      node_int(&graph->nodes[node], "keepdims", 1) ? &shape : &narrow,
                      batch_at(&shape, place), err);
}

static int infer_topk(struct graph *graph, int node, struct err *err)
{
    int64_t k = node_int(&graph->nodes[node], "k", 0);
    struct batch_place place;
    struct shape shape;
    int axis;

    if (infer_along(graph, node, "compares along", &shape, &place, &axis, err))
        return -1;
    if (k < 0 || k > shape.dim[axis])
        return op_error(graph, node, err, "%d of %d elements", (int)k, (int)shape.dim[axis]);
    shape.dim[axis] = k;
    if (set_output(graph, node, 0, node_input(graph, node, 0)->dtype, &shape,
                   batch_at(&shape, place), err))
        return -1;
    return set_output(graph, node, 1, DTYPE_I64, &shape, batch_at(&shape, place), err);
}

static int infer_pad(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int64_t pads[2 * GRAPH_MAX_RANK];
    struct batch_place place;
    struct shape shape = x->shape;
    int n, i;

    if (attr_ints(graph, node, "pads", 2 * GRAPH_MAX_RANK, pads, &n, err) ||
        batch_find(graph, node, x, &place, err))
        return -1;
    if (n != 2 * shape.rank)
        return op_error(graph, node, err, "%d pads for %d axes", n, shape.rank);
    for (i = 0; i < shape.rank; i++) {
        int64_t more = pads[i] + pads[shape.rank + i];

        if (pads[i] < 0 || pads[shape.rank + i] < 0 || more > INT32_MAX)
            return op_error(graph, node, err, "pads are out of range");
        if (more && refuse_batch_axis(graph, node, place, i, "pads", err))
            return -1;
        shape.dim[i] += more;
    }
    return set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err);
}

/* Gradients --------------------------------------------------------------------------- */

static int grad_gather_elements(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_like(grad, 0, "GatherElementsGrad", 2,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 1) }, NULL, err);
}

static int grad_gather_nd(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_like(grad, 0, "GatherNdGrad", 2,
                         (int[]){ grad_of_output(grad, 0), rule_input(grad, 1) }, NULL, err);
}

/* What was overwritten has no gradient; what was put has that of where it is. */
static int grad_scatter(struct grad *grad, int node, const char *clear, const char *gather,
                        struct err *err)
{
    const char *reduction = node_string(&grad->graph->nodes[node], "reduction", "none");
    int dy = grad_of_output(grad, 0), index = rule_input(grad, 1);
    bool adds = strcmp(reduction, "add") == 0;

    if (!adds && strcmp(reduction, "none") != 0)
        return op_error(grad->graph, node, err, "there is no gradient with reduction \"%s\"",
                        reduction);
    if (adds && grad_wanted(grad, 0))
        grad_add(grad, 0, dy);
    if (!adds && rule_add_like(grad, 0, clear, 2, (int[]){ dy, index }, NULL, err))
        return -1;
    return rule_add_like(grad, 2, gather, 2, (int[]){ dy, index }, NULL, err);
}

static int grad_scatter_elements(struct grad *grad, int node, struct err *err)
{
    return grad_scatter(grad, node, "ClearElements", "GatherElements", err);
}

static int grad_scatter_nd(struct grad *grad, int node, struct err *err)
{
    return grad_scatter(grad, node, "ClearNd", "GatherND", err);
}

static int grad_cumsum(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), sums;
    bool reverse = node_int(&grad->graph->nodes[node], "reverse", 0) != 0;

    if (rule_add_like(grad, 0, "CumSum", 1, &dy, &sums, err))
        return -1;
    if (sums >= 0)
        graph_set_int(grad->graph, sums, "reverse", !reverse);
    return 0;
}

static int grad_topk(struct grad *grad, int node, struct err *err)
{
    (void)node;
    return rule_add_like(grad, 0, "GatherElementsGrad", 2,
                         (int[]){ grad_of_output(grad, 0), rule_output(grad, 1) }, NULL, err);
}

static int grad_pad(struct grad *grad, int node, struct err *err)
{
    int64_t pads[2 * GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK],
        ones[GRAPH_MAX_RANK];
    struct shape shape = node_input(grad->graph, node, 0)->shape;
    int dy = grad_of_output(grad, 0), n, i, slice;

    if (attr_ints(grad->graph, node, "pads", 2 * GRAPH_MAX_RANK, pads, &n, err) ||
        rule_add_like(grad, 0, "Slice", 1, &dy, &slice, err))
        return -1;
    if (slice < 0)
        return 0;
    for (i = 0; i < shape.rank; i++) {
        ends[i] = pads[i] + shape.dim[i];
        axes[i] = i;
        ones[i] = 1;
    }
    graph_set_ints(grad->graph, slice, "starts", shape.rank, pads);
    graph_set_ints(grad->graph, slice, "ends", shape.rank, ends);
    graph_set_ints(grad->graph, slice, "axes", shape.rank, axes);
    graph_set_ints(grad->graph, slice, "steps", shape.rank, ones);
    return 0;
}

const struct op ops_element[] = {
    { "GatherElements", 0, 2, 2, 1, 1, infer_gather_elements, NULL, grad_gather_elements },
    { "GatherElementsGrad", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { "ScatterElements", 0, 3, 3, 1, 1, infer_scatter_elements, NULL, grad_scatter_elements },
    { "ClearElements", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { "GatherND", 0, 2, 2, 1, 1, infer_gather_nd, NULL, grad_gather_nd },
    { "GatherNdGrad", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { "ScatterND", 0, 3, 3, 1, 1, infer_scatter_nd, NULL, grad_scatter_nd },
    { "ClearNd", OP_INTERNAL, 2, 2, 1, 1, NULL, NULL, NULL },
    { "CumSum", 0, 1, 1, 1, 1, infer_cumsum, NULL, grad_cumsum },
    { "ArgMax", OP_NO_GRAD, 1, 1, 1, 1, infer_argmax, NULL, NULL },
    { "TopK", 0, 1, 1, 2, 2, infer_topk, NULL, grad_topk },
    { "Pad", 0, 1, 1, 1, 1, infer_pad, NULL, grad_pad },
    { .name = NULL },
};
