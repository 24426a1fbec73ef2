/* SPDX-License-Identifier: MIT */
/* Elements picked and put by index, sums along an axis, the largest of an axis, padding: for
 * any type. Gradients are summed in double.
 */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/integer.h"
#include "graph/ops/infer.h"
#include "kernels/reference/reference.h"

/* Setup ------------------------------------------------------------------------------- */

static enum ref_reduction reduction_of(const struct node *node)
{
    const char *name = node_string(node, "reduction", "none");

    return strcmp(name, "add") == 0   ? REF_ADD
           : strcmp(name, "mul") == 0 ? REF_MULTIPLY
           : strcmp(name, "max") == 0 ? REF_LARGER
           : strcmp(name, "min") == 0 ? REF_SMALLER
                                      : REF_PUT;
}

/* Walk over the index, with the offset in the data of what it names but for the axis. */
static int elements_of(struct kernel *k, const struct graph *graph, int node,
                       const struct shape *data, struct err *err)
{
    int64_t stride[GRAPH_MAX_RANK] = { 0 };
    int axis;

    if (setup_around(k, graph, node, data, 0, err) ||
        normal_axis(graph, node, node_int(&graph->nodes[node], "axis", 0), data->rank, &axis,
                    err))
        return -1;
    shape_strides(data, stride);
    stride[axis] = 0;
    walk_start(&k->walk, &k->in[1].shape);
    walk_strides(&k->walk, 0, 0, stride);
    return 0;
}

static int setup_elements(struct kernel *k, const struct graph *graph, int node,
                          struct err *err)
{
    k->reduction = reduction_of(&graph->nodes[node]);
    return elements_of(k, graph, node, &k->in[0].shape, err);
}

static int setup_elements_grad(struct kernel *k, const struct graph *graph, int node,
                               struct err *err)
{
    k->workspace = (size_t)k->out[0].elements * sizeof(double);
    return elements_of(k, graph, node, &k->out[0].shape, err);
}

static int setup_tuples(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    k->reduction = reduction_of(&graph->nodes[node]);
    return tuple_of(graph, node, &k->in[0].shape, &k->in[1].shape, &k->tuple, err);
}

static int setup_tuples_grad(struct kernel *k, const struct graph *graph, int node,
                             struct err *err)
{
    k->workspace = (size_t)k->out[0].elements * sizeof(double);
    return tuple_of(graph, node, &k->out[0].shape, &k->in[1].shape, &k->tuple, err);
}

static int setup_along(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    const struct node *n = &graph->nodes[node];

    k->reverse = node_int(n, "reverse", 0) != 0;
    k->exclusive = node_int(n, "exclusive", 0) != 0;
    k->swap = node_int(n, "largest", 1) == 0;
    k->last = node_int(n, "select_last_index", 0) != 0;
    k->count = node_int(n, "k", 1);
    return setup_around(k, graph, node, &k->in[0].shape, 0, err);
}

static int setup_pad(struct kernel *k, const struct graph *graph, int node, struct err *err)
{
    int64_t pads[2 * GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK] = { 0 }, start = 0;
    int n, i;

    if (attr_ints(graph, node, "pads", 2 * GRAPH_MAX_RANK, pads, &n, err))
        return -1;
    shape_strides(&k->out[0].shape, stride);
    for (i = 0; i < k->in[0].shape.rank; i++)
        start += pads[i] * stride[i];
    walk_start(&k->walk, &k->in[0].shape);
    walk_strides(&k->walk, 0, start, stride);
    k->alpha = node_float(&graph->nodes[node], "value", 0);
    k->whole = node_int(&graph->nodes[node], "value", 0);
    return 0;
}

/* Elements ---------------------------------------------------------------------------- */

/* The offset in the data that element 'i' of the index names. */
static int element_at(const struct kernel *k, const struct kernel_args *args, int64_t base,
                      int64_t i, int64_t *at, struct err *err)
{
    int64_t index;

    if (ref_index(k, args, i, &index, err))
        return -1;
    *at = base + index * k->after;
    return 0;
}

static int run_gather_elements(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const struct walk *w = &k->walk;
    size_t size = dtype_size(k->out[0].dtype);
    unsigned char *y = args->outputs[0];
    int64_t n = row_length(w), j, at;
    struct cursor c;

    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++, y += size) {
            if (element_at(k, args, c.at[0] + j * row_stride(w, 0), c.row * n + j, &at, err))
                return -1;
            memcpy(y, (const unsigned char *)args->inputs[0] + (size_t)at * size, size);
        }
    return 0;
}

/* Sums for the elements of the output, in the workspace. */
static double *sums_start(const struct kernel *k, const struct kernel_args *args)
{
    return memset(args->workspace, 0, (size_t)k->out[0].elements * sizeof(double));
}

static void sums_store(const struct kernel *k, const struct kernel_args *args)
{
    const double *sum = args->workspace;

    for (int64_t i = 0; i < k->out[0].elements; i++)
        ref_store(&k->out[0], args->outputs[0], i, sum[i]);
}

static int run_gather_elements_grad(const struct kernel *k, const struct kernel_args *args,
                                    struct err *err)
{
    const struct walk *w = &k->walk;
    double *sum = sums_start(k, args);
    int64_t n = row_length(w), j, at;
    struct cursor c;

    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            if (element_at(k, args, c.at[0] + j * row_stride(w, 0), c.row * n + j, &at, err))
                return -1;
            sum[at] += ref_number(&k->in[0], args->inputs[0], c.row * n + j);
        }
    sums_store(k, args);
    return 0;
}

static double combine(enum ref_reduction reduction, double a, double b)
{
    switch (reduction) {
    case REF_ADD:
        return a + b;
    case REF_MULTIPLY:
        return a * b;
    case REF_LARGER:
        return a > b ? a : b;
    case REF_SMALLER:
        return a < b ? a : b;
    default:
        return b;
    }
}

static int64_t combine_whole(enum ref_reduction reduction, enum dtype dtype, int64_t a,
                             int64_t b)
{
    switch (reduction) {
    case REF_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case REF_MULTIPLY:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case REF_LARGER:
        return integer_order(dtype, a, b) > 0 ? a : b;
    case REF_SMALLER:
        return integer_order(dtype, a, b) < 0 ? a : b;
    default:
        return b;
    }
}

/* Put element 'from' of input 2 to element 'at' of the output. */
static void put(const struct kernel *k, const struct kernel_args *args, int64_t at,
                int64_t from)
{
    size_t size = dtype_size(k->out[0].dtype);

    if (k->reduction == REF_PUT)
        memcpy((unsigned char *)args->outputs[0] + (size_t)at * size,
               (const unsigned char *)args->inputs[2] + (size_t)from * size, size);
    else if (dtype_is_float(k->out[0].dtype))
        ref_store(&k->out[0], args->outputs[0], at,
                  combine(k->reduction, ref_number(&k->out[0], args->outputs[0], at),
                          ref_number(&k->in[2], args->inputs[2], from)));
    else
        ref_store_whole(&k->out[0], args->outputs[0], at,
                        combine_whole(k->reduction, k->out[0].dtype,
                                      ref_whole(&k->out[0], args->outputs[0], at),
                                      ref_whole(&k->in[2], args->inputs[2], from)));
}

static void copy_data(const struct kernel *k, const struct kernel_args *args)
{
    if (args->outputs[0] != args->inputs[0])
        memcpy(args->outputs[0], args->inputs[0],
               (size_t)k->out[0].elements * dtype_size(k->out[0].dtype));
}

/* ScatterElements, and without updates zeros: ClearElements. */
static int run_scatter_elements(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    const struct walk *w = &k->walk;
    int64_t n = row_length(w), j, at;
    struct cursor c;

    copy_data(k, args);
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            if (element_at(k, args, c.at[0] + j * row_stride(w, 0), c.row * n + j, &at, err))
                return -1;
            if (k->n_inputs > 2)
                put(k, args, at, c.row * n + j);
            else
                ref_store(&k->out[0], args->outputs[0], at, 0);
        }
    return 0;
}

/* Tuples ------------------------------------------------------------------------------ */

/* The first element that tuple 'row' of the index names. */
static int tuple_at(const struct kernel *k, const struct kernel_args *args, int64_t row,
                    int64_t *at, struct err *err)
{
    const struct tuple *t = &k->tuple;
    int i;

    *at = 0;
    for (i = 0; i < t->n; i++) {
        int64_t index = ref_int(&k->in[1], args->inputs[1], row * t->n + i);

        if (index < -t->dim[i] || index >= t->dim[i])
            return err_set(err, "node \"%s\": index %lld is not below %lld", k->name,
                           (long long)index, (long long)t->dim[i]);
        *at = *at * t->dim[i] + (index < 0 ? index + t->dim[i] : index);
    }
    *at = row / t->rows * t->size + *at * t->inner;
    return 0;
}

static int run_gather_nd(const struct kernel *k, const struct kernel_args *args,
                         struct err *err)
{
    const struct tuple *t = &k->tuple;
    size_t size = dtype_size(k->out[0].dtype), bytes = (size_t)t->inner * size;
    unsigned char *y = args->outputs[0];
    int64_t row, at;

    for (row = 0; row < t->groups * t->rows; row++, y += bytes) {
        if (tuple_at(k, args, row, &at, err))
            return -1;
        memcpy(y, (const unsigned char *)args->inputs[0] + (size_t)at * size, bytes);
    }
    return 0;
}

static int run_gather_nd_grad(const struct kernel *k, const struct kernel_args *args,
                              struct err *err)
{
    const struct tuple *t = &k->tuple;
    double *sum = sums_start(k, args);
    int64_t row, i, at;

    for (row = 0; row < t->groups * t->rows; row++) {
        if (tuple_at(k, args, row, &at, err))
            return -1;
        for (i = 0; i < t->inner; i++)
            sum[at + i] += ref_number(&k->in[0], args->inputs[0], row * t->inner + i);
    }
    sums_store(k, args);
    return 0;
}

static int run_scatter_nd(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    const struct tuple *t = &k->tuple;
    int64_t row, i, at;

    copy_data(k, args);
    for (row = 0; row < t->groups * t->rows; row++) {
        if (tuple_at(k, args, row, &at, err))
            return -1;
        for (i = 0; i < t->inner; i++)
            if (k->n_inputs > 2)
                put(k, args, at + i, row * t->inner + i);
            else
                ref_store(&k->out[0], args->outputs[0], at + i, 0);
    }
    return 0;
}

/* Along an axis ----------------------------------------------------------------------- */

static int run_cumsum(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    bool real = dtype_is_float(k->in[0].dtype);
    int64_t o, i, a;

    (void)err;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->after; i++) {
            double sum = 0;
            uint64_t whole = 0;

            for (a = 0; a < k->length; a++) {
                int64_t at = (o * k->length + (k->reverse ? k->length - 1 - a : a)) * k->after +
                             i;
                double x = real ? ref_number(&k->in[0], args->inputs[0], at) : 0;
                uint64_t w = real ? 0 : (uint64_t)ref_whole(&k->in[0], args->inputs[0], at);

                if (real)
                    ref_store(&k->out[0], args->outputs[0], at, k->exclusive ? sum : sum + x);
                else
                    ref_store_whole(&k->out[0], args->outputs[0], at,
                                    (int64_t)(k->exclusive ? whole : whole + w));
                sum += x;
                whole += w;
            }
        }
    return 0;
}

/* Does element 'a' come before element 'b'? A NaN is the largest number. */
static bool precedes(const struct kernel *k, const void *x, int64_t a, int64_t b)
{
    if (dtype_is_float(k->in[0].dtype)) {
        double u = ref_number(&k->in[0], x, a), v = ref_number(&k->in[0], x, b);

        if (isnan(u) || isnan(v))
            return k->swap ? isnan(v) && !isnan(u) : isnan(u) && !isnan(v);
        return k->swap ? u < v : u > v;
    } else {
        int order = integer_order(k->in[0].dtype, ref_whole(&k->in[0], x, a),
                                  ref_whole(&k->in[0], x, b));

        return k->swap ? order < 0 : order > 0;
    }
}

static int run_argmax(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    int64_t *y = args->outputs[0], o, i, a;

    (void)err;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->after; i++) {
            int64_t best = 0, base = o * k->length * k->after + i;

            for (a = 1; a < k->length; a++)
                if (precedes(k, args->inputs[0], base + a * k->after, base + best * k->after) ||
                    (k->last && !precedes(k, args->inputs[0], base + best * k->after,
                                          base + a * k->after)))
                    best = a;
            *y++ = best;
        }
    return 0;
}

/* The k first in order by insertion; of equal ones that of the lower index. */
static int run_topk(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    size_t size = dtype_size(k->in[0].dtype);
    int64_t *indices = args->outputs[1], o, i, a, p, n;

    (void)err;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->after; i++) {
            int64_t base = o * k->length * k->after + i, to = o * k->count * k->after + i;

            for (a = n = 0; a < k->length && k->count; a++) {
                for (p = n; p > 0 && precedes(k, args->inputs[0], base + a * k->after, base +
                                              indices[to + (p - 1) * k->after] * k->after); p--)
                    if (p < k->count)
                        indices[to + p * k->after] = indices[to + (p - 1) * k->after];
                if (p < k->count)
                    indices[to + p * k->after] = a;
                n += n < k->count;
            }
            for (p = 0; p < n; p++)
                memcpy((unsigned char *)args->outputs[0] + (size_t)(to + p * k->after) * size,
                       (const unsigned char *)args->inputs[0] +
                       (size_t)(base + indices[to + p * k->after] * k->after) * size, size);
        }
    return 0;
}

static int run_pad(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    size_t size = dtype_size(k->out[0].dtype);
    const unsigned char *x = args->inputs[0];
    unsigned char *y = args->outputs[0];
    int64_t n = row_length(w), i;
    struct cursor c;

    (void)err;
    for (i = 0; i < k->out[0].elements; i++)
        if (dtype_is_float(k->out[0].dtype))
            ref_store(&k->out[0], y, i, k->alpha);
        else
            ref_store_whole(&k->out[0], y, i, k->whole);
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c)) {
        memcpy(y + (size_t)c.at[0] * size, x, (size_t)n * size);
        x += (size_t)n * size;
    }
    return 0;
}

const struct ref_entry ref_entries_element[] = {
    REF_ENTRY("GatherElements", setup_elements, run_gather_elements),
    REF_ENTRY("GatherElementsGrad", setup_elements_grad, run_gather_elements_grad),
    REF_ENTRY("ScatterElements", setup_elements, run_scatter_elements),
    REF_ENTRY("ClearElements", setup_elements, run_scatter_elements),
    REF_ENTRY("GatherND", setup_tuples, run_gather_nd),
    REF_ENTRY("GatherNdGrad", setup_tuples_grad, run_gather_nd_grad),
    REF_ENTRY("ScatterND", setup_tuples, run_scatter_nd),
    REF_ENTRY("ClearNd", setup_tuples, run_scatter_nd),
    REF_ENTRY("CumSum", setup_along, run_cumsum),
    REF_ENTRY("ArgMax", setup_along, run_argmax),
    REF_ENTRY("TopK", setup_along, run_topk),
    REF_ENTRY("Pad", setup_pad, run_pad),
    { .op = NULL },
};
