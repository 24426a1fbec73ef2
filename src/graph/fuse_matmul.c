/* SPDX-License-Identifier: MIT */
/* Around attention: transposes and factors go into the product, and the split of one projection
 * into queries, keys and values becomes a Split.
 */
#include "graph/fuse.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/ops/slice.h"

/* Products ----------------------------------------------------------------------------- */

struct product {
    int a, b, last;
    bool trans_a, trans_b;
    double alpha;
};

/* Does the node exchange the last two axes only? */
static bool swaps_last(const struct graph *graph, int node)
{
    const struct attr *perm = node_attr(&graph->nodes[node], "perm");
    int i;

    if (!perm || perm->n < 2)
        return false;
    for (i = 0; i < perm->n - 2; i++)
        if (perm->ints[i] != i)
            return false;
    return perm->ints[perm->n - 1] == perm->n - 2;
}

/* The last axes are exchanged where all before them are one, by a reshape before and another
 * after: the value before both, else -1.
 */
static int swapped_view(const struct graph *graph, int node)
{
    bool shaped = fuse_is(graph, node, "Reshape");
    int swap = shaped ? fuse_producer(graph, node, 0, "Transpose") : -1, before, last, i;
    const struct value *to = &graph->values[graph->nodes[node].outputs[0]], *from;

    last = to->shape.rank - 1;
    if (swap < 0 || !swaps_last(graph, swap) || last < 1)
        return -1;
    before = fuse_producer(graph, swap, 0, "Reshape");
    if (before < 0)
        return -1;
    from = &graph->values[graph->nodes[before].inputs[0]];
    if (from->shape.rank != last + 1 || from->batch.place != to->batch.place)
        return -1;
    for (i = 0; i < last - 1; i++)
        if (from->shape.dim[i] != to->shape.dim[i])
            return -1;
    if (from->shape.dim[last] != to->shape.dim[last - 1] ||
        from->shape.dim[last - 1] != to->shape.dim[last])
        return -1;
    from = &graph->values[graph->nodes[swap].inputs[0]];
    to = &graph->values[graph->nodes[before].inputs[0]];
    return from->shape.dim[from->shape.rank - 1] == to->shape.dim[last] &&
                   from->shape.dim[from->shape.rank - 2] == to->shape.dim[last - 1]
               ? graph->nodes[before].inputs[0] : -1;
}

/* The operand without factors and exchanges of its last axes. */
static int strip_operand(const struct graph *graph, int v, bool *transposed, double *alpha)
{
    int node = graph->values[v].producer, side, view;
    double factor;

    if (node < 0 || graph->values[v].shape.rank < 2)
        return v;
    if (fuse_is(graph, node, "Transpose") && swaps_last(graph, node)) {
        *transposed = !*transposed;
        return strip_operand(graph, graph->nodes[node].inputs[0], transposed, alpha);
    }
    view = swapped_view(graph, node);
    if (view >= 0) {
        *transposed = !*transposed;
        return strip_operand(graph, view, transposed, alpha);
    }
    for (side = 0; fuse_is(graph, node, "Mul") && side < 2; side++) {
        int other = graph->nodes[node].inputs[1 - side];

        if (!fuse_scalar(graph, graph->nodes[node].inputs[side], &factor) ||
            !shape_equal(&graph->values[other].shape, &graph->values[v].shape))
            continue;
        *alpha *= factor;
        return strip_operand(graph, other, transposed, alpha);
    }
    return v;
}

/* A factor or quotient of the product that is its only reader. */
static int scaled_after(const struct graph *graph, int v, double *alpha)
{
    int node = fuse_reader(graph, v, "Mul"), divide = fuse_reader(graph, v, "Div");
    const int *ids;
    double factor;

    if (node < 0 && divide < 0)
        return -1;
    ids = graph->nodes[node < 0 ? divide : node].inputs;
    if (divide >= 0 && ids[0] != v)
        return -1;
    if (!fuse_scalar(graph, ids[0] == v ? ids[1] : ids[0], &factor) || factor == 0 ||
        !shape_equal(&graph->values[v].shape,
                     &graph->values[graph->nodes[node < 0 ? divide : node].outputs[0]].shape))
        return -1;
    *alpha *= node < 0 ? 1 / factor : factor;
    return node < 0 ? divide : node;
}

int fuse_matmul(struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];
    struct product m = { .last = node, .alpha = 1 };
    int after;

    if (!fuse_is(graph, node, "MatMul") || n->n_attrs)
        return 0;
    m.a = strip_operand(graph, n->inputs[0], &m.trans_a, &m.alpha);
    m.b = strip_operand(graph, n->inputs[1], &m.trans_b, &m.alpha);
    after = scaled_after(graph, n->outputs[0], &m.alpha);
    if (after >= 0)
        m.last = after;
    if (m.a == n->inputs[0] && m.b == n->inputs[1] && after < 0)
        return 0;
    if (fuse_rewrite(graph, m.last, "product", "MatMul", 2, (const int[]){ m.a, m.b }, err))
        return -1;
    graph_set_int(graph, m.last, "transA", m.trans_a);
    graph_set_int(graph, m.last, "transB", m.trans_b);
    graph_set_float(graph, m.last, "alpha", m.alpha);
    return fuse_check(graph, m.last, err);
}

/* Splits ------------------------------------------------------------------------------- */

enum { MAX_PARTS = 8 };

struct parts {
    int transpose, axis;        /* of the transpose's input */
    int n, gathers[MAX_PARTS];  /* by index */
};

/* Is axis 'axis' one element long, at any batch size? */
static bool is_unit(const struct value *value, int axis)
{
    return value->shape.dim[axis] == 1 && axis != value->batch.place - 1;
}

/* Where the samples are is known, or there are none. */
static bool is_placed(const struct value *value)
{
    return value->batch.outer == 0 || value->batch.place > 0;
}

/* A reshape that only drops or adds axes of length 1, and leaves axis 0 where it is. Told from
 * the axis of the batch, so that it is told alike at each batch size.
 */
static bool drops_units(const struct value *from, const struct value *to)
{
    int i = 0, k = 0;

    if (!is_placed(from) || !is_placed(to) || from->shape.rank < 1 || to->shape.rank < 1 ||
        is_unit(from, 0) || is_unit(to, 0))
        return false;
    for (;; i++, k++) {
        while (i < from->shape.rank && is_unit(from, i))
            i++;
        while (k < to->shape.rank && is_unit(to, k))
            k++;
        if (i == from->shape.rank || k == to->shape.rank)
            return i == from->shape.rank && k == to->shape.rank;
        if (from->shape.dim[i] != to->shape.dim[k] ||
            (i == from->batch.place - 1) != (k == to->batch.place - 1))
            return false;
    }
}

/* All readers of 'v' pick one index of axis 0 each, and together all of them. */
static bool match_gathers(const struct graph *graph, int v, struct parts *p)
{
    const struct value *value = &graph->values[v];
    int64_t index;
    int i;

    if (value->output || value->n_consumers != value->shape.dim[0] || value->n_consumers < 2 ||
        value->n_consumers > MAX_PARTS)
        return false;
    p->n = value->n_consumers;
    for (i = 0; i < p->n; i++)
        p->gathers[i] = -1;
    for (i = 0; i < p->n; i++) {
        const struct node *n = &graph->nodes[value->consumers[i]];
        const struct value *at = n->n_inputs == 2 ? &graph->values[n->inputs[1]] : NULL;

        if (!fuse_is(graph, value->consumers[i], "Gather") || n->inputs[0] != v ||
            node_int(n, "axis", 0) != 0 || at->kind != VALUE_CONST || at->dtype != DTYPE_I64 ||
            at->batch.outer || shape_elements(&at->shape) != 1)
            return false;
        memcpy(&index, at->data, sizeof(index));
        if (index < 0 || index >= p->n || p->gathers[index] >= 0)
            return false;
        p->gathers[index] = value->consumers[i];
    }
    return true;
}

/* The transpose brings an axis that holds no samples to the front and leaves the others, but
 * for those of length 1, in their order.
 */
static bool moves_to_front(const struct graph *graph, int node, int *axis)
{
    const struct attr *perm = node_attr(&graph->nodes[node], "perm");
    const struct value *value = &graph->values[graph->nodes[node].inputs[0]];
    int64_t last = -1;
    int i;

    if (!perm || perm->n < 2 || !is_placed(value) || perm->ints[0] == value->batch.place - 1)
        return false;
    *axis = (int)perm->ints[0];
    for (i = 1; i < perm->n; i++) {
        if (is_unit(value, (int)perm->ints[i]))
            continue;
        if (perm->ints[i] < last)
            return false;
        last = perm->ints[i];
    }
    return true;
}

/* What picked a part becomes another name of it, of the shape that it had. */
static int rename_part(struct graph *graph, int node, int part, struct err *err)
{
    struct shape shape = graph->values[graph->nodes[node].outputs[0]].shape;

    if (fuse_rewrite(graph, node, NULL, "Reshape", 1, &part, err))
        return -1;
    graph_set_ints(graph, node, "shape", shape.rank, shape.dim);
    return fuse_check(graph, node, err);
}

static int rewrite_parts(struct graph *graph, const struct parts *p, struct err *err)
{
    int source = graph->nodes[p->transpose].inputs[0], outputs[MAX_PARTS], i;
    int64_t sizes[MAX_PARTS];
    struct batch batch = graph->values[source].batch;

    if (batch.outer && p->axis < batch.place - 1)
        batch.outer /= p->n;
    else if (batch.outer)
        batch.inner /= p->n;
    if (fuse_rewrite(graph, p->transpose, "split", "Split", 1, &source, err))
        return -1;
    graph->nodes[p->transpose].n_outputs = 0;
    for (i = 0; i < p->n; i++) {
        sizes[i] = 1;
        outputs[i] = graph_add_output(graph, p->transpose);
    }
    graph_set_int(graph, p->transpose, "axis", p->axis);
    graph_set_ints(graph, p->transpose, "split", p->n, sizes);
    if (op_infer(graph, p->transpose, err))
        return -1;
    for (i = 0; i < p->n; i++) {
        graph->values[outputs[i]].batch = batch;
        if (rename_part(graph, p->gathers[i], outputs[i], err))
            return -1;
    }
    return 0;
}

/* Transpose, perhaps a Reshape, and a Gather for each index. */
int fuse_split(struct graph *graph, int node, struct err *err)
{
    struct parts p = { .transpose = node };
    int v, view;

    if (!fuse_is(graph, node, "Transpose") || !moves_to_front(graph, node, &p.axis))
        return 0;
    v = graph->nodes[node].outputs[0];
    view = fuse_reader(graph, v, "Reshape");
    if (view >= 0) {
        if (!drops_units(&graph->values[v],
                         &graph->values[graph->nodes[view].outputs[0]]))
            return 0;
        v = graph->nodes[view].outputs[0];
    }
    return match_gathers(graph, v, &p) ? rewrite_parts(graph, &p, err) : 0;
}

/* Slices that are a split ----------------------------------------------------------------- */

/* The one axis along which the slice takes a part, with every element of it; -1: there is none, or it
 * is that of the samples.
 */
static int sliced_axis(const struct graph *graph, int node, struct slice *slice)
{
    const struct value *x = &graph->values[graph->nodes[node].inputs[0]];
    struct err err = { 0 };
    int axis = -1;

    if (slice_of(graph, node, slice, &err))
        return -1;
    for (int i = 0; i < x->shape.rank; i++) {
        if (slice->step[i] == 1 && slice->start[i] == 0 && slice->shape.dim[i] == x->shape.dim[i])
            continue;
        if (axis >= 0 || slice->step[i] != 1 || i == x->batch.place - 1)
            return -1;
        axis = i;
    }
    return axis;
}

/* All readers of 'v' slice it along one axis, and together they take each element once: in the order of
 * the parts they are 'gathers'.
 */
static bool match_slices(const struct graph *graph, int v, struct parts *p, int64_t *sizes)
{
    const struct value *value = &graph->values[v];
    struct slice slices[MAX_PARTS];
    int64_t end = 0;

    if (!is_placed(value) || value->output || value->n_consumers < 2 ||
        value->n_consumers > MAX_PARTS)
        return false;
    p->axis = -1;
    for (int i = 0; i < value->n_consumers; i++) {
        int node = value->consumers[i], axis;

        if (!fuse_is(graph, node, "Slice") || (axis = sliced_axis(graph, node, &slices[i])) < 0 ||
            (p->axis >= 0 && axis != p->axis))
            return false;
        p->axis = axis;
    }
    for (p->n = 0; p->n < value->n_consumers; p->n++) {
        int i = 0;

        while (i < value->n_consumers && slices[i].start[p->axis] != end)
            i++;
        if (i == value->n_consumers || slices[i].shape.dim[p->axis] <= 0)
            return false;
        p->gathers[p->n] = value->consumers[i];
        sizes[p->n] = slices[i].shape.dim[p->axis];
        end += sizes[p->n];
    }
    return end == value->shape.dim[p->axis];
}

/* The first becomes the split, the others what they were called. */
static int rewrite_slices(struct graph *graph, int node, const struct parts *p,
                          const int64_t *sizes, struct err *err)
{
    int source = graph->nodes[node].inputs[0], own = graph->nodes[node].outputs[0];
    struct batch batch = graph->values[own].batch;
    int outputs[MAX_PARTS];

    if (fuse_rewrite(graph, node, "split", "Split", 1, &source, err))
        return -1;
    graph->nodes[node].n_outputs = 0;
    for (int i = 0; i < p->n; i++)
        outputs[i] = p->gathers[i] == node ? own : -1;
    for (int i = 0; i < p->n; i++)
        if (outputs[i] < 0)
            outputs[i] = graph_add_output(graph, node);
    graph->nodes[node].n_outputs = p->n;
    graph->nodes[node].outputs = arena_alloc(graph->arena, (size_t)p->n, sizeof(int));
    memcpy(graph->nodes[node].outputs, outputs, (size_t)p->n * sizeof(int));
    graph_set_int(graph, node, "axis", p->axis);
    graph_set_ints(graph, node, "split", p->n, sizes);
    if (op_infer(graph, node, err))
        return -1;
    graph->values[own].batch = batch;
    for (int i = 0; i < p->n; i++) {
        if (p->gathers[i] == node)
            continue;
        graph->values[outputs[i]].batch =
            graph->values[graph->nodes[p->gathers[i]].outputs[0]].batch;
        if (rename_part(graph, p->gathers[i], outputs[i], err))
            return -1;
    }
    return 0;
}

/* Several Slices, of which 'node' is the first. */
int fuse_slices(struct graph *graph, int node, struct err *err)
{
    struct parts p = { .transpose = -1 };
    int64_t sizes[MAX_PARTS];
    int v;

    if (!fuse_is(graph, node, "Slice"))
        return 0;
    v = graph->nodes[node].inputs[0];
    for (int i = 0; i < graph->values[v].n_consumers; i++)
        if (graph->values[v].consumers[i] < node)
            return 0;
    return match_slices(graph, v, &p, sizes) ? rewrite_slices(graph, node, &p, sizes, err) : 0;
}
