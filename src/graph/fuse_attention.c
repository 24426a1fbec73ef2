/* SPDX-License-Identifier: MIT */
/* softmax(scale q k' + mask) v, after factors and transposes went into the products. */
#include "graph/fuse.h"

#include <math.h>
#include <string.h>

#include "graph/op.h"

/* Below this a score leaves nothing of a probability, whatever the other scores are. */
static const double NEVER = -1e30;

struct match {
    int q, k, v, mask, product, last;   /* nodes: of queries and keys, of values */
    bool trans_k, causal, masked, hide;
    int64_t past;
    double scale, fill;
};

/* Does nothing but 'reader' read value v? */
static bool read_by(const struct graph *graph, int v, int reader)
{
    const struct value *value = &graph->values[v];

    return value->n_consumers == 1 && value->consumers[0] == reader && !value->output &&
           v != graph->loss && v != graph->correct;
}

/* Does element 'i' of a constant hide its key? 1, 0, or -1 where it does neither. */
static int constant_hides(const struct value *value, int64_t i, bool hide)
{
    double x = dtype_real(value->file_dtype, value->data, i);

    if (value->dtype == DTYPE_BOOL)
        return (x != 0) == hide;
    return x <= NEVER ? 1 : x == 0 ? 0 : -1;
}

/* Row i - 1 moved by one key: causal if that row is, and seen at the speed of memory. */
static bool is_moved_row(const struct value *value, int64_t i, int64_t n, bool hide)
{
    size_t size = dtype_size(value->file_dtype);
    const char *row = (const char *)value->data + (size_t)(i * n) * size;

    return i > 0 && constant_hides(value, i * n, hide) == 0 &&
           memcmp(row + size, row - (size_t)n * size, (size_t)(n - 1) * size) == 0;
}

/* A constant that shows query i the keys 0 … i + past and hides the others. */
static bool is_causal(const struct graph *graph, int v, bool hide, const struct shape *scores,
                      int64_t *past)
{
    const struct value *value = &graph->values[v];
    int last = value->shape.rank - 1, k;
    int64_t m, n, i, j;

    if (value->kind != VALUE_CONST || !value->data || value->batch.outer || last < 1 ||
        (value->dtype != DTYPE_BOOL && !dtype_is_float(value->dtype)))
        return false;
    m = value->shape.dim[last - 1];
    n = value->shape.dim[last];
    if (m != scores->dim[scores->rank - 2] || n != scores->dim[scores->rank - 1] ||
        shape_elements(&value->shape) != m * n)
        return false;
    for (k = 0; k < n && constant_hides(value, k, hide) == 0; k++)
        ;
    *past = k - 1;
    if (k == 0)
        return false;
    for (i = 0; i < m; i++)
        for (j = is_moved_row(value, i, n, hide) ? n : 0; j < n; j++)
            if (constant_hides(value, i * n + j, hide) != (j > i + *past))
                return false;
    return true;
}

static bool take_mask(const struct graph *graph, int v, bool hide, double fill,
                      const struct shape *scores, struct match *m)
{
    int64_t past;

    if (!m->causal && fill <= NEVER && is_causal(graph, v, hide, scores, &past)) {
        m->causal = true;
        m->past = past;
        return true;
    }
    if (m->mask >= 0)
        return false;
    m->mask = v;
    m->hide = hide;
    m->fill = fill;
    return true;
}

static bool match_product(const struct graph *graph, int node, struct match *m)
{
    const struct node *n = &graph->nodes[node];

    if (node_int(n, "transA", 0))
        return false;
    m->product = node;
    m->q = n->inputs[0];
    m->k = n->inputs[1];
    m->trans_k = !node_int(n, "transB", 0);
    m->scale = node_float(n, "alpha", 1);
    return true;
}

/* From the scores that the softmax reads back to their product. */
static bool match_scores(const struct graph *graph, int v, int reader, struct match *m,
                         int depth)
{
    const struct shape *shape = &graph->values[v].shape;
    int node = graph->values[v].producer, side;
    struct match before = *m;
    double fill = (double)-INFINITY;

    if (node < 0 || depth == 0 || !read_by(graph, v, reader))
        return false;
    if (fuse_is(graph, node, "MatMul"))
        return match_product(graph, node, m);
    if (!fuse_is(graph, node, "Add") && !fuse_is(graph, node, "Where"))
        return false;
    for (side = 0; side < 2; side++) {
        bool choose = fuse_is(graph, node, "Where");
        const int *ids = graph->nodes[node].inputs + choose;

        *m = before;
        if (!shape_equal(&graph->values[ids[side]].shape, shape) ||
            (choose && !fuse_scalar(graph, ids[1 - side], &fill)))
            continue;
        if (take_mask(graph, choose ? ids[-1] : ids[1 - side], side == 1, fill, shape, m) &&
            match_scores(graph, ids[side], node, m, depth - 1))
            return true;
    }
    return false;
}

/* Where(IsNaN(p), 0, p), which PyTorch writes for queries that see nothing. */
static int without_nan(const struct graph *graph, int p)
{
    const struct value *value = &graph->values[p];
    int i, test = -1, choose = -1, result;
    double zero;

    if (value->n_consumers != 2 || value->output)
        return -1;
    for (i = 0; i < 2; i++)
        *(fuse_is(graph, value->consumers[i], "IsNaN") ? &test : &choose) = value->consumers[i];
    if (test < 0 || !fuse_is(graph, choose, "Where") ||
        graph->nodes[choose].inputs[0] != graph->nodes[test].outputs[0] ||
        graph->nodes[choose].inputs[2] != p ||
        !read_by(graph, graph->nodes[test].outputs[0], choose) ||
        !fuse_scalar(graph, graph->nodes[choose].inputs[1], &zero) || zero != 0)
        return -1;
    result = graph->nodes[choose].outputs[0];
    return shape_equal(&graph->values[result].shape, &value->shape) ? result : -1;
}

/* The product of the probabilities with the values. */
static bool match_values(const struct graph *graph, int softmax, struct match *m)
{
    int p = graph->nodes[softmax].outputs[0], clean = without_nan(graph, p);

    if (clean >= 0) {
        m->masked = true;
        p = clean;
    }
    m->last = fuse_reader(graph, p, "MatMul");
    if (m->last < 0 || graph->nodes[m->last].inputs[0] != p ||
        graph->nodes[m->last].inputs[1] == p ||
        node_int(&graph->nodes[m->last], "transA", 0) ||
        node_int(&graph->nodes[m->last], "transB", 0) ||
        node_float(&graph->nodes[m->last], "alpha", 1) != 1)
        return false;
    m->v = graph->nodes[m->last].inputs[1];
    return true;
}

/* The value before each of its heads was repeated for several queries: Reshape, Expand,
 * Reshape. -1: there is none.
 */
static int unrepeated(const struct graph *graph, int v)
{
    int merge = graph->values[v].producer, expand, split, rank, i;
    const struct shape *from, *wide, *to = &graph->values[v].shape;
    int64_t times;

    expand = fuse_is(graph, merge, "Reshape") ? fuse_producer(graph, merge, 0, "Expand") : -1;
    split = expand < 0 ? -1 : fuse_producer(graph, expand, 0, "Reshape");
    if (split < 0)
        return -1;
    from = &graph->values[graph->nodes[split].inputs[0]].shape;
    wide = &graph->values[graph->nodes[expand].outputs[0]].shape;
    rank = from->rank;
    if (rank < 3 || wide->rank != rank + 1 || to->rank != rank ||
        graph->values[graph->nodes[split].inputs[0]].batch.place !=
            graph->values[v].batch.place)
        return -1;
    times = wide->dim[rank - 2];
    for (i = 0; i < rank; i++)
        if (wide->dim[i < rank - 2 ? i : i + 1] != from->dim[i] ||
            to->dim[i] != from->dim[i] * (i == rank - 3 ? times : 1))
            return -1;
    from = &graph->values[graph->nodes[split].outputs[0]].shape;
    return from->rank == rank + 1 && from->dim[rank - 2] == 1
               ? graph->nodes[split].inputs[0] : -1;
}

static void share_heads(const struct graph *graph, struct match *m)
{
    int k = unrepeated(graph, m->k), v = unrepeated(graph, m->v), heads;

    if (k < 0 || v < 0)
        return;
    heads = graph->values[k].shape.rank - 3;
    if (graph->values[k].shape.dim[heads] != graph->values[v].shape.dim[heads])
        return;
    m->k = k;
    m->v = v;
}

/* The same stack of matrices, sample by sample, in queries, keys and values. */
static bool stacks_agree(const struct graph *graph, const struct match *m)
{
    const int ids[3] = { m->q, m->k, m->v };
    const struct value *q = &graph->values[m->q];
    int i, k;

    for (i = 0; i < 3; i++) {
        const struct value *x = &graph->values[ids[i]];

        if (x->shape.rank != q->shape.rank || x->shape.rank < 3 ||
            x->batch.place != q->batch.place || (x->batch.outer > 0) != (q->batch.outer > 0) ||
            (x->batch.outer > 0 && x->batch.place == 0))
            return false;
        for (k = 0; k < x->shape.rank - 2; k++)
            if (x->shape.dim[k] != q->shape.dim[k])
                return false;
    }
    return q->batch.place <= q->shape.rank - 2;
}

/* Keys that were transposed for the product are taken as queries and values are: so what makes
 * them moves whole rows, and backends have the form that fast kernels want.
 */
static int straighten_keys(struct graph *graph, struct match *m, struct err *err)
{
    int node = graph->values[m->k].producer, rank = graph->values[m->k].shape.rank;
    const struct attr *perm = fuse_is(graph, node, "Transpose")
                                  ? node_attr(&graph->nodes[node], "perm") : NULL;
    struct batch batch = graph->values[m->k].batch;
    int64_t swapped[GRAPH_MAX_RANK];

    if (!m->trans_k || !perm || perm->n != rank || m->q == m->k ||
        !read_by(graph, m->k, m->product))
        return 0;
    memcpy(swapped, perm->ints, (size_t)rank * sizeof(*swapped));
    swapped[rank - 1] = perm->ints[rank - 2];
    swapped[rank - 2] = perm->ints[rank - 1];
    graph_set_ints(graph, node, "perm", rank, swapped);
    if (op_infer(graph, node, err))
        return -1;
    graph->values[m->k].batch = batch;
    m->trans_k = false;
    return 0;
}

static void set_attributes(struct graph *graph, const struct match *m)
{
    graph_set_float(graph, m->last, "scale", m->scale);
    if (m->trans_k)
        graph_set_int(graph, m->last, "transK", 1);
    if (m->causal) {
        graph_set_int(graph, m->last, "causal", 1);
        graph_set_int(graph, m->last, "past", m->past);
    }
    if (m->masked)
        graph_set_int(graph, m->last, "masked", 1);
    if (m->mask >= 0 && graph->values[m->mask].dtype == DTYPE_BOOL) {
        graph_set_int(graph, m->last, "hide", m->hide);
        graph_set_float(graph, m->last, "fill", m->fill);
    }
}

int fuse_attention(struct graph *graph, int node, struct err *err)
{
    struct match m = { .mask = -1, .fill = (double)-INFINITY };
    int ids[4];

    if (!fuse_is(graph, node, "Softmax") ||
        node_int(&graph->nodes[node], "axis", -1) !=
            graph->values[graph->nodes[node].outputs[0]].shape.rank - 1)
        return 0;
    m.masked = node_int(&graph->nodes[node], "masked", 0) != 0;
    if (!match_values(graph, node, &m) ||
        !match_scores(graph, graph->nodes[node].inputs[0], node, &m, 4) ||
        !stacks_agree(graph, &m))
        return 0;
    if (straighten_keys(graph, &m, err))
        return -1;
    share_heads(graph, &m);
    ids[0] = m.q;
    ids[1] = m.k;
    ids[2] = m.v;
    ids[3] = m.mask;
    if (fuse_rewrite(graph, m.last, "attention", "Attention", m.mask < 0 ? 3 : 4, ids, err))
        return -1;
    set_attributes(graph, &m);
    return fuse_check(graph, m.last, err);
}
