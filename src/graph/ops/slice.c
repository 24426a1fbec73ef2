/* SPDX-License-Identifier: MIT */
#include "graph/ops/slice.h"

#include <inttypes.h>

#include "graph/ops/infer.h"

static int read_list(const struct graph *graph, int node, const char *name, int n,
                     int64_t *values, struct err *err)
{
    int count;

    if (attr_ints(graph, node, name, GRAPH_MAX_RANK, values, &count, err))
        return -1;
    if (count != n)
        return op_error(graph, node, err, "attribute \"%s\" has %d entries, expected %d", name,
                        count < 0 ? 0 : count, n);
    return 0;
}

/* How many elements start, start + step, … lie before 'end' on an axis of 'size'; -1 where
 * they would leave it.
 */
static int64_t count_steps(int64_t size, int64_t start, int64_t end, int64_t step)
{
    int64_t span = step > 0 ? end - start : start - end;

    if (step == 0 || step < -INT32_MAX || step > INT32_MAX || start < 0 || end < -1 ||
        end > size || start > size || (step < 0 && span > 0 && start == size))
        return -1;
    return span <= 0 ? 0 : (span - 1) / (step > 0 ? step : -step) + 1;
}

int slice_of(const struct graph *graph, int node, struct slice *slice, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    int64_t starts[GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK];
    int64_t steps[GRAPH_MAX_RANK];
    int n, i, axis;

    if (attr_ints(graph, node, "starts", GRAPH_MAX_RANK, starts, &n, err) ||
        read_list(graph, node, "ends", n, ends, err) ||
        read_list(graph, node, "axes", n, axes, err) ||
        read_list(graph, node, "steps", n, steps, err))
        return -1;
    slice->shape = x->shape;
    for (i = 0; i < x->shape.rank; i++) {
        slice->start[i] = 0;
        slice->step[i] = 1;
    }
    for (i = 0; i < n; i++) {
        if (normal_axis(graph, node, axes[i], x->shape.rank, &axis, err))
            return -1;
        slice->start[axis] = starts[i];
        slice->step[axis] = steps[i];
        slice->shape.dim[axis] = count_steps(x->shape.dim[axis], starts[i], ends[i], steps[i]);
        if (slice->shape.dim[axis] < 0)
            return op_error(graph, node, err, "%" PRId64 ":%" PRId64 ":%" PRId64
                            " of axis %d is outside", starts[i], ends[i], steps[i], axis);
    }
    return 0;
}

int slice_of_grad(const struct graph *graph, int node, struct slice *slice, struct err *err)
{
    int n_starts, n_steps;

    slice->shape = node_input(graph, node, 0)->shape;
    if (attr_ints(graph, node, "starts", GRAPH_MAX_RANK, slice->start, &n_starts, err) ||
        attr_ints(graph, node, "steps", GRAPH_MAX_RANK, slice->step, &n_steps, err))
        return -1;
    if (n_starts != slice->shape.rank || n_steps != slice->shape.rank)
        return op_error(graph, node, err, "starts and steps are not one for each axis");
    return 0;
}

int split_sizes(const struct graph *graph, int node, int *axis, int64_t *sizes, struct err *err)
{
    const struct value *x = node_input(graph, node, 0);
    const struct attr *attr = node_attr(&graph->nodes[node], "split");
    int parts = graph->nodes[node].n_outputs, i;
    int64_t left;

    if (normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), x->shape.rank, axis,
                    err))
        return -1;
    if (!attr || attr->type != ATTR_INTS || attr->n != parts)
        return op_error(graph, node, err, "split does not have one size for each output");
    left = x->shape.dim[*axis];
    for (i = 0; i < parts; i++) {
        if (attr->ints[i] < 0 || attr->ints[i] > left)
            return op_error(graph, node, err, "the parts are more than axis %d", *axis);
        sizes[i] = attr->ints[i];
        left -= sizes[i];
    }
    return left ? op_error(graph, node, err, "the parts are not the whole of axis %d", *axis)
                : 0;
}

int transpose_perm(const struct graph *graph, int node, int *perm, struct err *err)
{
    int rank = node_input(graph, node, 0)->shape.rank, n, i;
    int64_t list[GRAPH_MAX_RANK];
    unsigned seen = 0;

    if (attr_ints(graph, node, "perm", GRAPH_MAX_RANK, list, &n, err))
        return -1;
    for (i = 0; i < rank; i++) {
        int64_t p = n < 0 ? rank - 1 - i : i < n ? list[i] : -1;

        if (p < 0 || p >= rank || seen >> p & 1 || (n >= 0 && n != rank))
            return op_error(graph, node, err, "perm is not a permutation of %d axes", rank);
        seen |= 1u << p;
        perm[i] = (int)p;
    }
    return 0;
}
