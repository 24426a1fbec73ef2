/* SPDX-License-Identifier: MIT */
#include "graph/ops/infer.h"

#include <inttypes.h>
#include <string.h>

#define MAX_ELEMENTS ((int64_t)1 << 48)

const struct value *node_input(const struct graph *graph, int node, int index)
{
    const struct node *n = &graph->nodes[node];

    return index < n->n_inputs && n->inputs[index] >= 0 ? &graph->values[n->inputs[index]]
                                                        : NULL;
}

const struct value *node_output(const struct graph *graph, int node, int index)
{
    const struct node *n = &graph->nodes[node];

    return index < n->n_outputs && n->outputs[index] >= 0 ? &graph->values[n->outputs[index]]
                                                          : NULL;
}

int set_output(struct graph *graph, int node, int index, enum dtype dtype,
               const struct shape *shape, struct batch batch, struct err *err)
{
    const struct node *n = &graph->nodes[node];
    struct value *value;
    int64_t elements = 1;
    int i;

    if (index >= n->n_outputs || n->outputs[index] < 0)
        return 0;
    for (i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return op_error(graph, node, err, "dimension %d of output %d would be %" PRId64, i,
                            index, shape->dim[i]);
        if (__builtin_mul_overflow(elements, shape->dim[i], &elements) ||
            elements > MAX_ELEMENTS)
            return op_error(graph, node, err, "output %d is too large", index);
    }
    value = &graph->values[n->outputs[index]];
    value->dtype = dtype;
    value->file_dtype = dtype;
    value->shape = *shape;
    value->batch = batch;
    return 0;
}

int set_output_like(struct graph *graph, int node, int index, int input, struct err *err)
{
    const struct value *x = node_input(graph, node, input);

    return set_output(graph, node, index, x->dtype, &x->shape, x->batch, err);
}

int infer_like(struct graph *graph, int node, struct err *err)
{
    return set_output_like(graph, node, 0, 0, err);
}

/* How well [outer, b, inner] fits axis 'axis': 0 not at all; the axis is the batch alone (3),
 * starts with it (2), or has it inside (1). Only at b == 1 can several axes fit.
 */
static int batch_fit(const struct graph *graph, const struct value *value, int axis,
                     struct batch_place *place)
{
    int64_t before = 1, after = 1;
    int i;

    for (i = 0; i < axis; i++)
        before *= value->shape.dim[i];
    for (i = axis + 1; i < value->shape.rank; i++)
        after *= value->shape.dim[i];
    if (before == 0 || after == 0 || value->batch.outer % before || value->batch.inner % after)
        return 0;
    place->axis = axis;
    place->outer = value->batch.outer / before;
    place->inner = value->batch.inner / after;
    if (place->outer * graph->batch * place->inner != value->shape.dim[axis])
        return 0;
    return place->outer > 1 ? 1 : place->inner > 1 ? 2 : 3;
}

int batch_find(const struct graph *graph, int node, const struct value *value,
               struct batch_place *place, struct err *err)
{
    struct batch_place candidate;
    int axis, fit, best = 0;

    *place = no_batch;
    if (value->batch.outer == 0)
        return 0;
    axis = value->batch.place - 1;
    if (axis >= 0 && axis < value->shape.rank && batch_fit(graph, value, axis, place))
        return 0;
    for (axis = 0; axis < value->shape.rank; axis++) {
        fit = batch_fit(graph, value, axis, &candidate);
        if (fit > best) {
            best = fit;
            *place = candidate;
        }
    }
    if (best == 0)
        return op_error(graph, node, err, "the samples of \"%s\" lie across its axes",
                        value->name);
    return 0;
}

struct batch batch_at(const struct shape *shape, struct batch_place place)
{
    struct batch batch = { place.outer, place.inner, place.axis + 1 };
    int i;

    if (place.axis < 0)
        return batch_none;
    for (i = 0; i < place.axis; i++)
        batch.outer *= shape->dim[i];
    for (i = place.axis + 1; i < shape->rank; i++)
        batch.inner *= shape->dim[i];
    /* An empty tensor has no samples to route. */
    return batch.outer && batch.inner ? batch : batch_none;
}

int refuse_batch_axis(const struct graph *graph, int node, struct batch_place place, int axis,
                      const char *verb, struct err *err)
{
    if (place.axis < 0 || place.axis != axis || graph->batch == 1)
        return 0;
    return op_error(graph, node, err, "%s axis %d, which holds the samples of the batch", verb,
                    axis);
}

int infer_images(const struct graph *graph, int node, struct batch_place *place,
                 struct err *err)
{
    const struct value *x = node_input(graph, node, 0);

    if (need_float(graph, node, 0, err) || batch_find(graph, node, x, place, err))
        return -1;
    if (x->shape.rank < 2)
        return op_error(graph, node, err, "the input has no channels");
    if (place->axis > 0 && graph->batch > 1)
        return op_error(graph, node, err, "the samples are not the first axis of its input");
    if (place->axis > 0)
        *place = (struct batch_place){ 0, 1, x->shape.dim[0] };
    return 0;
}

static int broadcast_shape(const struct graph *graph, int node, int first, int n,
                           struct shape *shape, struct err *err)
{
    char text[128];
    int i, k;

    shape->rank = 0;
    for (i = first; i < first + n; i++) {
        const struct value *x = node_input(graph, node, i);

        if (x && x->shape.rank > shape->rank)
            shape->rank = x->shape.rank;
    }
    for (k = 0; k < shape->rank; k++)
        shape->dim[k] = 1;
    for (i = first; i < first + n; i++) {
        const struct value *x = node_input(graph, node, i);

        for (k = 0; x && k < x->shape.rank; k++) {
            int64_t *dim = &shape->dim[shape->rank - x->shape.rank + k];

            if (x->shape.dim[k] == 1 || x->shape.dim[k] == *dim)
                continue;
            if (*dim != 1)
                return op_error(graph, node, err, "input %d (%s) does not broadcast", i,
                                shape_text(&x->shape, text, sizeof(text)));
            *dim = x->shape.dim[k];
        }
    }
    return 0;
}

/* A tensor without samples that has as many rows as there are samples would give each sample
 * its own row: a batch size baked into the file.
 */
static int refuse_rows(const struct graph *graph, int node, int first, int n,
                       const struct shape *shape, struct batch_place place, struct err *err)
{
    int i, k;

    for (i = first; i < first + n && graph->batch > 1; i++) {
        const struct value *x = node_input(graph, node, i);

        if (!x || x->batch.outer > 0)
            continue;
        k = place.axis - (shape->rank - x->shape.rank);
        if (k >= 0 && x->shape.dim[k] != 1)
            return op_error(graph, node, err,
                            "\"%s\" has one row for each sample but does not depend on them",
                            x->name);
    }
    return 0;
}

int infer_broadcast(const struct graph *graph, int node, int first, int n, struct shape *shape,
                    struct batch *batch, struct err *err)
{
    struct batch_place found = no_batch, place;
    int i;

    if (broadcast_shape(graph, node, first, n, shape, err))
        return -1;
    for (i = first; i < first + n; i++) {
        const struct value *x = node_input(graph, node, i);

        if (!x || x->batch.outer == 0)
            continue;
        if (batch_find(graph, node, x, &place, err))
            return -1;
        place.axis += shape->rank - x->shape.rank;
        if (found.axis >= 0 && graph->batch > 1 &&
            (found.axis != place.axis || found.outer != place.outer ||
             found.inner != place.inner))
            return op_error(graph, node, err, "combines one sample with another");
        if (found.axis < 0)
            found = place;
    }
    if (found.axis >= 0 && refuse_rows(graph, node, first, n, shape, found, err))
        return -1;
    *batch = batch_at(shape, found);
    return 0;
}

int infer_same_types(const struct graph *graph, int node, int first, enum dtype *dtype,
                     struct err *err)
{
    int i;

    *dtype = node_input(graph, node, first)->dtype;
    for (i = first; i < graph->nodes[node].n_inputs; i++)
        if (node_input(graph, node, i)->dtype != *dtype)
            return op_error(graph, node, err, "input %d is %s, the first is %s", i,
                            dtype_name(node_input(graph, node, i)->dtype), dtype_name(*dtype));
    return 0;
}

int set_broadcast(struct graph *graph, int node, enum dtype dtype, struct err *err)
{
    struct shape shape;
    struct batch batch;

    if (infer_broadcast(graph, node, 0, graph->nodes[node].n_inputs, &shape, &batch, err))
        return -1;
    return set_output(graph, node, 0, dtype, &shape, batch, err);
}

int normal_axis(const struct graph *graph, int node, int64_t axis, int rank, int *result,
                struct err *err)
{
    if (axis < -rank || axis >= rank)
        return op_error(graph, node, err, "axis %" PRId64 " is not one of %d", axis, rank);
    *result = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

int attr_ints(const struct graph *graph, int node, const char *name, int max, int64_t *values,
              int *n, struct err *err)
{
    const struct attr *attr = node_attr(&graph->nodes[node], name);

    *n = -1;
    if (!attr)
        return 0;
    if (attr->type != ATTR_INTS || attr->n > max)
        return op_error(graph, node, err, "attribute \"%s\" must be at most %d integers", name,
                        max);
    if (attr->n)
        memcpy(values, attr->ints, (size_t)attr->n * sizeof(*values));
    *n = attr->n;
    return 0;
}

int need_float(const struct graph *graph, int node, int input, struct err *err)
{
    const struct value *x = node_input(graph, node, input);

    if (x && !dtype_is_float(x->dtype))
        return op_error(graph, node, err, "input %d is %s, expected a floating type", input,
                        dtype_name(x->dtype));
    return 0;
}

int need_integer(const struct graph *graph, int node, int input, struct err *err)
{
    const struct value *x = node_input(graph, node, input);

    if (x && x->dtype != DTYPE_I32 && x->dtype != DTYPE_I64)
        return op_error(graph, node, err, "input %d is %s, expected integers", input,
                        dtype_name(x->dtype));
    return 0;
}

int need_shape(const struct graph *graph, int node, int input, const struct shape *shape,
               struct err *err)
{
    const struct value *x = node_input(graph, node, input);
    char has[128], wants[128];

    if (x && !shape_equal(&x->shape, shape))
        return op_error(graph, node, err, "input %d is %s, expected %s", input,
                        shape_text(&x->shape, has, sizeof(has)),
                        shape_text(shape, wants, sizeof(wants)));
    return 0;
}
