/* SPDX-License-Identifier: MIT */
#include "op_case.h"

#include <string.h>

#include "base/mem.h"
#include "unit.h"

static uint64_t next(struct op_case *c)
{
    uint64_t z = c->random += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double case_uniform(struct op_case *c, double low, double high)
{
    /* A float, so that both types see the same number. */
    return (double)(float)(low + (high - low) * (double)(next(c) >> 40) * 0x1p-24);
}

int case_int(struct op_case *c, int low, int high)
{
    return low + (int)(next(c) % (uint64_t)(high - low + 1));
}

struct shape case_shape(const struct op_case *c, int rank, const int *dim)
{
    struct shape shape = { rank, { 0 } };

    for (int i = 0; i < rank; i++)
        shape.dim[i] = dim[i] ? dim[i] : c->graph->batch;
    return shape;
}

static struct batch batch_of(const struct shape *shape, const int *dim)
{
    struct batch batch = { 1, 1, 0 };
    int found = -1;

    for (int i = 0; i < shape->rank; i++)
        if (dim[i] == 0)
            found = i;
    for (int i = 0; i < shape->rank; i++)
        if (i != found)
            *(i < found ? &batch.outer : &batch.inner) *= shape->dim[i];
    batch.place = found + 1;
    return found < 0 ? (struct batch){ 0 } : batch;
}

static int add(struct op_case *c, enum value_kind kind, enum dtype dtype, int rank,
               const int *dim)
{
    struct shape shape = case_shape(c, rank, dim);
    int v = graph_add_value(c->graph, NULL, kind, dtype, &shape, batch_of(&shape, dim));

    while (c->n_data <= v)
        *(double **)mem_push((void **)&c->data, &c->n_data, sizeof(*c->data)) = NULL;
    c->data[v] = mem_new((size_t)shape_elements(&shape), sizeof(double));
    return v;
}

static int64_t count(const struct op_case *c, int v)
{
    return shape_elements(&c->graph->values[v].shape);
}

int case_positive(struct op_case *c, int rank, const int *dim, double low, double high)
{
    int v = add(c, VALUE_PARAM, c->graph->real, rank, dim);

    for (int64_t i = 0; i < count(c, v); i++)
        c->data[v][i] = case_uniform(c, low, high);
    return v;
}

int case_real(struct op_case *c, int rank, const int *dim, double low, double high)
{
    int v = case_positive(c, rank, dim, low, high);

    for (int64_t i = 0; i < count(c, v); i++)
        if (next(c) >> 63)
            c->data[v][i] = -c->data[v][i];
    return v;
}

int case_distinct(struct op_case *c, int rank, const int *dim)
{
    int v = add(c, VALUE_PARAM, c->graph->real, rank, dim);
    int64_t n = count(c, v);
    double *x = c->data[v];

    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(float)(0.0625 * ((double)i - (double)n / 2));
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(next(c) % (uint64_t)(i + 1));
        double swap = x[i];

        x[i] = x[j];
        x[j] = swap;
    }
    return v;
}

enum dtype case_integer_type(const struct op_case *c)
{
    static const enum dtype types[] = { DTYPE_I64, DTYPE_I32, DTYPE_U8, DTYPE_I8,
                                        DTYPE_I16, DTYPE_U16, DTYPE_U32, DTYPE_U64 };

    return types[case_choose(c, 1, 8)];
}

int case_integers(struct op_case *c, enum dtype dtype, int rank, const int *dim, int low,
                  int high)
{
    int v = add(c, VALUE_INPUT, dtype, rank, dim);

    for (int64_t i = 0; i < count(c, v); i++)
        c->data[v][i] = case_int(c, low < 0 && dtype_is_unsigned(dtype) ? 0 : low, high);
    return v;
}

int case_weight_sum(struct op_case *c)
{
    int v = add(c, VALUE_INPUT, c->graph->real, 0, NULL);

    c->graph->weight_sum = v;
    return v;
}

int case_node(struct op_case *c, const char *op, int n_inputs, const int *inputs, int n_outputs)
{
    const struct op *found = op_find(op);

    if (!found)
        fail_msg("there is no operator %s", op);
    c->node = graph_add_node(c->graph, "test", found, n_inputs, inputs, 0, NULL);
    for (int i = 0; i < n_outputs; i++)
        graph_add_output(c->graph, c->node);
    return c->node;
}

void case_attr(struct op_case *c, const char *name, int64_t value)
{
    graph_set_int(c->graph, c->node, name, value);
}

void case_list(struct op_case *c, const char *name, int n, const int64_t *values)
{
    graph_set_ints(c->graph, c->node, name, n, values);
}

void case_infer(struct op_case *c)
{
    if (op_infer(c->graph, c->node, c->err))
        fail_msg("%s", c->err->text);
}

void case_unary(struct op_case *c, const char *op, int x)
{
    case_node(c, op, 1, &x, 1);
}

int case_any_real(struct op_case *c, double low, double high)
{
    switch (case_choose(c, 1, 4)) {
    case 0:
        return case_real(c, 2, DIMS(B, 5), low, high);
    case 1:
        return case_real(c, 3, DIMS(2, B, 3), low, high);
    case 2:
        return case_real(c, 1, DIMS(7), low, high);
    default:
        return case_real(c, 0, NULL, low, high);
    }
}

void case_two(struct op_case *c, double low, double high, int *a, int *b)
{
    int (*make)(struct op_case *, int, const int *, double, double) =
        low > 0 ? case_positive : case_real;

    switch (case_choose(c, 2, 7)) {
    case 0:
        *a = make(c, 2, DIMS(B, 4), low, high);
        *b = make(c, 2, DIMS(B, 4), low, high);
        break;
    case 1:
        *a = make(c, 2, DIMS(B, 4), low, high);
        *b = make(c, 1, DIMS(4), low, high);
        break;
    case 2:
        *a = make(c, 3, DIMS(B, 3, 4), low, high);
        *b = make(c, 0, NULL, low, high);
        break;
    case 3:
        *a = make(c, 3, DIMS(B, 3, 1), low, high);
        *b = make(c, 2, DIMS(1, 5), low, high);
        break;
    case 4:
        *a = make(c, 4, DIMS(2, B, 1, 3), low, high);
        *b = make(c, 3, DIMS(B, 2, 1), low, high);
        break;
    case 5:
        *a = make(c, 1, DIMS(3), low, high);
        *b = make(c, 2, DIMS(2, 1), low, high);
        break;
    default:
        *a = *b = make(c, 2, DIMS(B, 3), low, high);
    }
    if (case_bit(c, 0)) {
        int swap = *a;

        *a = *b;
        *b = swap;
    }
}

const struct op_kind *op_kind_at(int index)
{
    static const struct op_kind *const families[] = { op_kinds, op_kinds_product,
                                                     op_kinds_norm, op_kinds_math,
                                                     op_kinds_element };

    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++)
        for (const struct op_kind *kind = families[f]; kind->op; kind++)
            if (index-- == 0)
                return kind;
    return NULL;
}

struct op_case *op_case_new(const struct op_kind *kind, int variant, uint64_t seed,
                            enum dtype real)
{
    struct op_case *c = mem_new(1, sizeof(*c));

    c->random = seed + (uint64_t)variant * 0x632BE59BD9B4E019u + graph_key(kind->op);
    c->variant = variant;
    c->err = mem_new(1, sizeof(*c->err));
    c->gradient = c->training = true;
    c->graph = graph_new(case_int(c, 1, 4), real);
    kind->make(c);
    return c;
}

void op_case_free(struct op_case *c)
{
    for (int v = 0; v < c->n_data; v++)
        free(c->data[v]);
    free(c->data);
    free(c->err);
    graph_free(c->graph);
    free(c);
}
