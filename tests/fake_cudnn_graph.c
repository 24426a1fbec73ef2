/* SPDX-License-Identifier: MIT */
/* Graphs of products, sums along rows, norms, pools and what is done element by element, of four axes: one
 * operation after the other, in double, with the 16 bits that a tensor is rounded to.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/fake_cuda.h"
#include "tests/fake_cudnn_graph.h"
#include "tests/fake_real.h"

/* Reading ---------------------------------------------------------------------------------- */

static bool flag(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attributes[i].name == name)
            return *(bool *)d->attributes[i].values;
    return false;
}

static bool has(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->attributes[i].name == name)
            return true;
    return false;
}

/* A tensor is known by its name. */
int fake_tensor(struct graph *g, const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct descriptor *t;
    struct tensor *to;
    int64_t id;

    if (!has(d, name))
        return -1;
    t = fake_other(d, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    id = fake_number(t, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].id == id)
            return i;
    REQUIRE(g->n_tensors < MOST_TENSORS, "so many tensors");
    to = &g->tensors[g->n_tensors];
    *to = (struct tensor){ .id = id, .type = (cudnnDataType_t)fake_number(t, CUDNN_ATTR_TENSOR_DATA_TYPE),
                           .is_virtual = flag(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                           .by_value = flag(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE) };
    memcpy(to->dim, fake_list(t, CUDNN_ATTR_TENSOR_DIMENSIONS, 4), sizeof(to->dim));
    memcpy(to->stride, fake_list(t, CUDNN_ATTR_TENSOR_STRIDES, 4), sizeof(to->stride));
    return g->n_tensors++;
}

static void read_operation(struct graph *g, const struct descriptor *d)
{
    struct operation *o = &g->operations[g->n++];
    const struct descriptor *how;

    *o = (struct operation){ .type = d->type, .axis = -1, .b = -1, .t = -1 };
    switch ((int)d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        how = fake_other(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                         CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        o->mode = (int)fake_number(how, CUDNN_ATTR_POINTWISE_MODE);
        REQUIRE(o->mode != CUDNN_POINTWISE_RELU_FWD ||
                    fake_number(how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN, "NaNs");
        if (has(how, CUDNN_ATTR_POINTWISE_AXIS))
            o->axis = (int)fake_number(how, CUDNN_ATTR_POINTWISE_AXIS);
        o->x = fake_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
        o->b = fake_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        o->t = fake_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
        o->y = fake_tensor(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        o->x = fake_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
        o->b = fake_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
        o->y = fake_tensor(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        how = fake_other(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        o->mode = (int)fake_number(how, CUDNN_ATTR_REDUCTION_OPERATOR);
        o->x = fake_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
        o->y = fake_tensor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
        break;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        o->x = fake_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
        o->y = fake_tensor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
        break;
    default:
        REQUIRE(fake_is_image(d->type), "operation of type %d", (int)d->type);
        fake_image_read(g, d, o);
    }
}

static void read_graph(struct graph *g, const struct descriptor *d)
{
    const struct attribute *operations = fake_find(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);

    memset(g, 0, sizeof(*g));
    REQUIRE(operations->n <= MOST_OPERATIONS, "%lld operations", (long long)operations->n);
    for (int64_t i = 0; i < operations->n; i++)
        read_operation(g, fake_living(((void **)operations->values)[i]));
    for (int i = 0; i < g->n; i++)
        if (!fake_is_image(g->operations[i].type))
            g->tensors[g->operations[i].y].made = true;
}

/* The library fuses attentions of widths that are multiples of 8 alone. */
bool fake_graph_known(const struct descriptor *graph)
{
    static struct graph g;
    bool known = true;

    read_graph(&g, graph);
    for (int i = 0; i < g.n; i++) {
        const struct tensor *a = &g.tensors[g.operations[i].x];

        if (g.operations[i].type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !a->is_virtual)
            known = known && a->dim[3] % 8 == 0;
    }
    return known;
}

/* Running ---------------------------------------------------------------------------------- */

static int64_t extent(const struct tensor *t)
{
    int64_t last = 0;

    for (int i = 0; i < 4; i++)
        last += (t->dim[i] - 1) * t->stride[i];
    return last + 1;
}

static bool is_narrow(const struct tensor *t)
{
    return t->type == CUDNN_DATA_BFLOAT16 || t->type == CUDNN_DATA_HALF;
}

static void load(struct tensor *t)
{
    int64_t n = extent(t);

    t->here = malloc((size_t)n * sizeof(*t->here));
    for (int64_t i = 0; i < n; i++)
        t->here[i] = t->by_value                ? (double)t->value
                     : t->is_virtual || t->made ? (double)NAN
                     : t->type == CUDNN_DATA_INT8 ? (double)((int8_t *)t->at)[i]
                     : is_narrow(t) ? (double)fake_widened(((uint16_t *)t->at)[i],
                                                           t->type == CUDNN_DATA_HALF)
                                    : (double)((float *)t->at)[i];
}

void fake_put(struct tensor *t, int64_t at, double x)
{
    bool half = t->type == CUDNN_DATA_HALF;
    uint16_t bits = fake_rounded((float)x, half);

    t->here[at] = is_narrow(t) ? (double)fake_widened(bits, half) : x;
    if (t->is_virtual)
        return;
    if (is_narrow(t))
        ((uint16_t *)t->at)[at] = bits;
    else if (t->type == CUDNN_DATA_INT8)
        ((int8_t *)t->at)[at] = (int8_t)x;
    else
        ((float *)t->at)[at] = (float)x;
}

int64_t fake_element_at(const struct tensor *t, const int64_t *index)
{
    int64_t at = 0;

    for (int i = 0; i < 4; i++)
        at += (t->dim[i] == 1 ? 0 : index[i]) * t->stride[i];
    return at;
}

static double value(const struct tensor *t, const int64_t *index)
{
    return t->here[fake_element_at(t, index)];
}

static double apply(const struct graph *g, const struct operation *o, const int64_t *index)
{
    double x = value(&g->tensors[o->x], index), b = o->b < 0 ? 0 : value(&g->tensors[o->b], index);

    switch (o->mode) {
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_RELU_FWD: return x < 0 ? 0 : x;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)index[o->axis];
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return value(&g->tensors[o->t], index) != 0 ? x : b;
    default: REQUIRE(false, "mode %d", o->mode);
    }
    return 0;
}

static double dot(const struct graph *g, const struct operation *o, const int64_t *index)
{
    const struct tensor *a = &g->tensors[o->x], *b = &g->tensors[o->b];
    int64_t heads = g->tensors[o->y].dim[1];
    int64_t left[4] = { index[0], index[1] * a->dim[1] / heads, index[2], 0 };
    int64_t right[4] = { index[0], index[1] * b->dim[1] / heads, 0, index[3] };
    double sum = 0;

    for (int64_t k = 0; k < a->dim[3]; k++) {
        left[3] = right[2] = k;
        sum += value(a, left) * value(b, right);
    }
    return sum;
}

/* Heads that share one of the result's, or along a row. */
static double reduced(const struct graph *g, const struct operation *o, const int64_t *index)
{
    const struct tensor *x = &g->tensors[o->x], *y = &g->tensors[o->y];
    int axis = x->dim[1] == y->dim[1] ? 3 : 1;
    int64_t n = x->dim[axis] / y->dim[axis], at[4] = { index[0], index[1], index[2], index[3] };
    double sum = o->mode == CUDNN_REDUCE_TENSOR_MAX ? -INFINITY : 0;

    for (int64_t i = 0; i < n; i++) {
        double own;

        at[axis] = index[axis] * n + i;
        own = value(x, at);
        sum = o->mode != CUDNN_REDUCE_TENSOR_MAX ? sum + own : own > sum ? own : sum;
    }
    return sum;
}

static double element(const struct graph *g, const struct operation *o, const int64_t *index)
{
    switch ((int)o->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return apply(g, o, index);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return dot(g, o, index);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduced(g, o, index);
    default: return g->tensors[o->x].here[fake_element_at(&g->tensors[o->y], index)];
    }
}

static void run_operation(struct graph *g, const struct operation *o)
{
    struct tensor *y = &g->tensors[o->y];
    int64_t i[4];

    if (fake_is_image(o->type)) {
        fake_image_run(g, o);
        return;
    }
    for (i[0] = 0; i[0] < y->dim[0]; i[0]++)
        for (i[1] = 0; i[1] < y->dim[1]; i[1]++)
            for (i[2] = 0; i[2] < y->dim[2]; i[2]++)
                for (i[3] = 0; i[3] < y->dim[3]; i[3]++)
                    fake_put(y, fake_element_at(y, i), element(g, o, i));
}

static void run_graph(void *argument)
{
    struct graph *g = argument;

    memset(g->workspace, 0xff, (size_t)FAKE_CUDNN_WORKSPACE);
    for (int i = 0; i < g->n_tensors; i++)
        load(&g->tensors[i]);
    for (int i = 0; i < g->n; i++)
        run_operation(g, &g->operations[i]);
    for (int i = 0; i < g->n_tensors; i++)
        free(g->tensors[i].here);
}

static void find_memory(struct tensor *t, const struct descriptor *pack)
{
    const struct attribute *ids = fake_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *pointers = fake_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    size_t bytes = (size_t)extent(t) * (t->type == CUDNN_DATA_INT8 ? 1 : is_narrow(t) ? 2 : 4);

    for (int64_t i = 0; i < ids->n; i++)
        if (((int64_t *)ids->values)[i] == t->id)
            t->at = ((void **)pointers->values)[i];
    REQUIRE(t->at, "no operand %d", (int)t->id);
    if (t->by_value)
        t->value = *(float *)t->at;
    else
        REQUIRE(fake_on_gpu(t->at, bytes) && (uintptr_t)t->at % 16 == 0,
                "operand %d is not on the GPU, or not aligned", (int)t->id);
}

void fake_graph_execute(const struct descriptor *graph, const struct descriptor *pack,
                        cudaStream_t stream)
{
    static struct graph g;

    read_graph(&g, graph);
    for (int i = 0; i < g.n_tensors; i++)
        if (!g.tensors[i].is_virtual)
            find_memory(&g.tensors[i], pack);
    g.workspace = fake_workspace(pack);
    fake_enqueue(stream, run_graph, &g, sizeof(g));
}
