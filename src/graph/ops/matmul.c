/* SPDX-License-Identifier: MIT */
/* Products of matrices: MatMul, Gemm and Linear, its fused form on weights. */
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/matmul.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

/* Matrix dimensions of an operand, with 1-D operands as numpy has them. */
static void operand_dims(const struct shape *shape, bool left, bool transposed, int64_t *rows,
                         int64_t *columns)
{
    int64_t r, c;

    if (shape->rank == 1) {
        *rows = left ? 1 : shape->dim[0];
        *columns = left ? shape->dim[0] : 1;
        return;
    }
    r = shape->dim[shape->rank - 2];
    c = shape->dim[shape->rank - 1];
    *rows = transposed ? c : r;
    *columns = transposed ? r : c;
}

static int batch_rank(const struct shape *shape)
{
    return shape->rank > 2 ? shape->rank - 2 : 0;
}

static int64_t stack_dim(const struct shape *shape, int rank, int k)
{
    int own = k - (rank - batch_rank(shape));

    return own < 0 ? 1 : shape->dim[own];
}

int matmul_dims(const struct graph *graph, int node, struct matmul *m)
{
    const struct node *n = &graph->nodes[node];
    const struct shape *a = &node_input(graph, node, 0)->shape;
    const struct shape *b = &node_input(graph, node, 1)->shape;
    int64_t k;
    int i;

    memset(m, 0, sizeof(*m));
    m->trans_a = a->rank > 1 && node_int(n, "transA", 0);
    m->trans_b = b->rank > 1 && node_int(n, "transB", 0);
    m->alpha = node_float(n, "alpha", 1);
    operand_dims(a, true, m->trans_a, &m->m, &m->k);
    operand_dims(b, false, m->trans_b, &k, &m->n);
    if (a->rank == 0 || b->rank == 0 || k != m->k)
        return -1;
    m->rank = batch_rank(a) > batch_rank(b) ? batch_rank(a) : batch_rank(b);
    for (i = 0; i < m->rank; i++) {
        int64_t da = stack_dim(a, m->rank, i), db = stack_dim(b, m->rank, i);

        if (da != db && da != 1 && db != 1)
            return -1;
        m->dim_a[i] = da;
        m->dim_b[i] = db;
        m->dim[i] = da == 1 ? db : da;
    }
    return 0;
}

/* The axis of the result that an operand's axis becomes; -1: it is summed over. */
static int result_axis(const struct matmul *m, const struct shape *shape, bool left, int axis)
{
    bool transposed = left ? m->trans_a : m->trans_b;
    int last = shape->rank - 1;

    if (axis < last - 1)
        return axis + m->rank - batch_rank(shape);
    if (shape->rank == 1)
        return -1;
    if (left)
        return (axis == last) == transposed ? m->rank : -1;
    return (axis == last) != transposed ? m->rank + 1 : -1;
}

static int operand_place(const struct graph *graph, int node, const struct matmul *m, int input,
                         struct batch_place *place, struct err *err)
{
    const struct value *x = node_input(graph, node, input);
    int axis;

    if (batch_find(graph, node, x, place, err))
        return -1;
    if (place->axis < 0)
        return 0;
    axis = result_axis(m, &x->shape, input == 0, place->axis);
    /* A weight's gradient is the sum over the samples. */
    if (axis < 0 && graph->batch > 1 && graph->nodes[node].source < 0)
        return refuse_batch_axis(graph, node, *place, place->axis, "sums over", err);
    if (axis < 0)
        *place = no_batch;
    else
        place->axis = axis;
    return 0;
}

static int matmul_batch(const struct graph *graph, int node, const struct matmul *m,
                        const struct shape *full, struct batch *batch, struct err *err)
{
    struct batch_place a, b, *found;

    if (operand_place(graph, node, m, 0, &a, err) || operand_place(graph, node, m, 1, &b, err))
        return -1;
    if (a.axis >= 0 && b.axis >= 0 && graph->batch > 1 &&
        (a.axis != b.axis || a.outer != b.outer || a.inner != b.inner))
        return op_error(graph, node, err, "combines one sample with another");
    found = a.axis >= 0 ? &a : &b;
    if (graph->batch > 1 && found->axis >= 0 && found->axis < m->rank &&
        ((a.axis < 0 && m->dim_a[found->axis] != 1) ||
         (b.axis < 0 && m->dim_b[found->axis] != 1)))
        return op_error(graph, node, err,
                        "an input has one matrix for each sample but does not depend on them");
    *batch = batch_at(full, *found);
    return 0;
}

static int infer_matmul(struct graph *graph, int node, struct err *err)
{
    const struct shape *a = &node_input(graph, node, 0)->shape;
    const struct shape *b = &node_input(graph, node, 1)->shape;
    struct shape full, shape = { 0 };
    struct batch batch;
    struct matmul m;
    char left[128], right[128];

    if (need_float(graph, node, 0, err) || need_float(graph, node, 1, err))
        return -1;
    if (matmul_dims(graph, node, &m))
        return op_error(graph, node, err, "%s times %s does not fit",
                        shape_text(a, left, sizeof(left)), shape_text(b, right, sizeof(right)));
    full.rank = m.rank + 2;
    memcpy(full.dim, m.dim, sizeof(m.dim[0]) * (size_t)m.rank);
    full.dim[m.rank] = m.m;
    full.dim[m.rank + 1] = m.n;
    if (matmul_batch(graph, node, &m, &full, &batch, err))
        return -1;
    shape.rank = m.rank;
    memcpy(shape.dim, m.dim, sizeof(m.dim[0]) * (size_t)m.rank);
    if (a->rank > 1)
        shape.dim[shape.rank++] = m.m;
    if (b->rank > 1)
        shape.dim[shape.rank++] = m.n;
    return set_output(graph, node, 0, node_input(graph, node, 0)->dtype, &shape, batch, err);
}

static int check_gemm_c(const struct graph *graph, int node, struct err *err)
{
    const struct value *c = node_input(graph, node, 2), *y = node_output(graph, node, 0);
    struct batch_place place, own;
    char text[128];
    int k, axis, shift = 2 - c->shape.rank;

    if (batch_find(graph, node, y, &place, err) || batch_find(graph, node, c, &own, err))
        return -1;
    for (k = 0; k < c->shape.rank; k++) {
        axis = shift + k;
        if (shift < 0 || (c->shape.dim[k] != 1 && c->shape.dim[k] != y->shape.dim[axis]))
            return op_error(graph, node, err, "input 2 (%s) does not broadcast",
                            shape_text(&c->shape, text, sizeof(text)));
        if (graph->batch > 1 && axis == place.axis && c->shape.dim[k] != 1 && own.axis < 0)
            return op_error(graph, node, err, "input 2 has one row for each sample");
    }
    if (graph->batch > 1 && own.axis >= 0 &&
        (own.axis + shift != place.axis || own.outer != place.outer))
        return op_error(graph, node, err, "combines one sample with another");
    return 0;
}

static int infer_gemm(struct graph *graph, int node, struct err *err)
{
    if (node_input(graph, node, 0)->shape.rank != 2 ||
        node_input(graph, node, 1)->shape.rank != 2)
        return op_error(graph, node, err, "expected two matrices");
    if (infer_matmul(graph, node, err))
        return -1;
    return node_input(graph, node, 2) ? check_gemm_c(graph, node, err) : 0;
}

static bool known_activation(const char *name)
{
    static const char *const names[] = { "none", "relu", "gelu", "gelu_tanh", "silu" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int infer_linear(struct graph *graph, int node, struct err *err)
{
    const struct value *x = node_input(graph, node, 0), *w = node_input(graph, node, 1);
    bool transposed = node_int(&graph->nodes[node], "transB", 0) != 0;
    const char *activation = node_string(&graph->nodes[node], "activation", "none");
    struct shape shape = x->shape, bias = { 1, { 0 } };
    struct batch_place place;
    int last = x->shape.rank - 1;

    if (need_float(graph, node, 0, err) || need_float(graph, node, 1, err))
        return -1;
    if (!known_activation(activation))
        return op_error(graph, node, err, "activation \"%s\" is not known", activation);
    if (last < 0 || w->shape.rank != 2 || w->shape.dim[transposed] != x->shape.dim[last])
        return op_error(graph, node, err, "the weights do not fit the input");
    if (w->batch.outer > 0)
        return op_error(graph, node, err, "the weights depend on the sample");
    bias.dim[0] = shape.dim[last] = w->shape.dim[!transposed];
    if (need_shape(graph, node, 2, &bias, err) || batch_find(graph, node, x, &place, err) ||
        refuse_batch_axis(graph, node, place, last, "sums over", err))
        return -1;
    if (set_output(graph, node, 0, x->dtype, &shape, batch_at(&shape, place), err))
        return -1;
    return set_output(graph, node, 1, x->dtype, &shape, batch_at(&shape, place), err);
}

static double flops_matmul(const struct graph *graph, int node)
{
    struct matmul m;
    double flops;
    int i;

    if (matmul_dims(graph, node, &m))
        return 0;
    flops = 2 * (double)m.m * (double)m.n * (double)m.k;
    for (i = 0; i < m.rank; i++)
        flops *= (double)m.dim[i];
    return flops;
}

/* x and w, dz and w, or x and dz: two of them give all three sizes. */
static double flops_linear(const struct graph *graph, int node)
{
    const struct value *a = node_input(graph, node, 0), *b = node_input(graph, node, 1);
    const struct value *y = node_output(graph, node, 0);
    double rows_k = (double)shape_elements(&a->shape);
    double columns = (double)y->shape.dim[y->shape.rank - 1];

    if (strcmp(graph->nodes[node].op->name, "LinearWgrad") == 0)
        columns = (double)b->shape.dim[b->shape.rank - 1];
    return 2 * rows_k * columns;
}

static double flops_bias(const struct graph *graph, int node)
{
    return (double)shape_elements(&node_input(graph, node, 0)->shape);
}

/* A product of the node's operands and dy that gives op(input 'index')'s gradient, with its
 * stack of matrices as large as dy's.
 */
static int emit_product(struct grad *grad, int index, int left, bool trans_left, int right,
                        bool trans_right, struct err *err)
{
    struct graph *graph = grad->graph;
    int v = grad_emit(grad, "MatMul", 2, (int[]){ left, right }, index, err), node;

    if (v < 0)
        return -1;
    node = graph->values[v].producer;
    graph_set_int(graph, node, "transA", trans_left);
    graph_set_int(graph, node, "transB", trans_right);
    return op_infer(graph, node, err) ? -1 : v;
}

/* Operands of one dimension count as a row (left) or a column (right): give them, and dy, the
 * axes they lack.
 */
static int as_matrices(struct grad *grad, const struct matmul *m, int ids[3], struct err *err)
{
    const struct value *values = grad->graph->values;
    struct shape full = { m->rank + 2, { 0 } };
    const struct shape row = { 2, { 1, m->k } }, column = { 2, { m->k, 1 } };
    bool left = values[ids[0]].shape.rank == 1, right = values[ids[1]].shape.rank == 1;

    memcpy(full.dim, m->dim, sizeof(m->dim[0]) * (size_t)m->rank);
    full.dim[m->rank] = m->m;
    full.dim[m->rank + 1] = m->n;
    if (left)
        ids[0] = rule_view(grad, ids[0], &row, err);
    if (right && ids[0] >= 0)
        ids[1] = rule_view(grad, ids[1], &column, err);
    if ((left || right) && ids[0] >= 0 && ids[1] >= 0)
        ids[2] = rule_view(grad, ids[2], &full, err);
    return ids[0] < 0 || ids[1] < 0 || ids[2] < 0 ? -1 : 0;
}

static int add_product(struct grad *grad, int index, int gradient, struct err *err)
{
    const struct shape *shape;

    if (gradient < 0)
        return -1;
    shape = &grad->graph->values[rule_input(grad, index)].shape;
    if (shape->rank == 1) {
        /* A vector's gradient has a unit axis too many, and perhaps a stack to sum over. */
        struct shape unit = { 2, { shape->dim[0], 1 } };
        int64_t elements = shape->dim[0];

        if (index == 0)
            unit = (struct shape){ 2, { 1, elements } };
        if (shape_elements(&grad->graph->values[gradient].shape) != elements) {
            gradient = grad_emit(grad, "ReduceSumTo", 1, &gradient, index, err);
            if (gradient < 0)
                return -1;
            grad->graph->values[gradient].shape = unit;
        }
        gradient = rule_view(grad, gradient,
                             &grad->graph->values[rule_input(grad, index)].shape, err);
        if (gradient < 0)
            return -1;
    }
    return rule_add_reduced(grad, index, gradient, err);
}

/* Stacks of rows times one matrix: its gradient is one product over all rows. */
static bool is_linear(const struct graph *graph, int node)
{
    const struct value *a = node_input(graph, node, 0), *b = node_input(graph, node, 1);

    return a->shape.rank > 2 && b->shape.rank == 2 &&
           !node_int(&graph->nodes[node], "transA", 0) &&
           node_float(&graph->nodes[node], "alpha", 1) == 1;
}

static int grad_rows(struct grad *grad, struct err *err)
{
    int dy = grad_of_output(grad, 0), a = rule_input(grad, 0), b = rule_input(grad, 1);

    if (rule_add_like(grad, 0, "LinearDgrad", 2, (int[]){ dy, b }, NULL, err))
        return -1;
    return rule_add_like(grad, 1, "LinearWgrad", 2, (int[]){ a, dy }, NULL, err);
}

static int grad_matmul(struct grad *grad, int node, struct err *err)
{
    int ids[3] = { rule_input(grad, 0), rule_input(grad, 1), grad_of_output(grad, 0) };
    struct matmul m;
    int a, b, dy;

    if (is_linear(grad->graph, node))
        return grad_rows(grad, err);
    if (matmul_dims(grad->graph, node, &m))
        return op_error(grad->graph, node, err, "the operands do not fit");
    if (as_matrices(grad, &m, ids, err))
        return -1;
    a = ids[0];
    b = ids[1];
    dy = ids[2];
    if (grad_wanted(grad, 0) &&
        add_product(grad, 0, m.trans_a ? emit_product(grad, 0, b, m.trans_b, dy, true, err)
                                       : emit_product(grad, 0, dy, false, b, !m.trans_b, err),
                    err))
        return -1;
    if (!grad_wanted(grad, 1))
        return 0;
    return add_product(grad, 1,
                       m.trans_b ? emit_product(grad, 1, dy, true, a, m.trans_a, err)
                                 : emit_product(grad, 1, a, !m.trans_a, dy, false, err),
                       err);
}

static int grad_gemm_c(struct grad *grad, int node, struct err *err)
{
    static const struct shape scalar = { 0, { 0 } };
    double beta = node_float(&grad->graph->nodes[node], "beta", 1);
    float beta_f = (float)beta;
    int dy = grad_of_output(grad, 0), factor, bias;
    const struct shape *shape = &grad->graph->values[rule_input(grad, 2)].shape;

    if (beta == 1 && shape->rank == 1 &&
        shape->dim[0] == grad->graph->values[dy].shape.dim[1]) {
        if (rule_add_like(grad, 2, "BiasGrad", 1, &dy, &bias, err))
            return -1;
        graph_set_int(grad->graph, bias, "axis", 1);
        return 0;
    }
    if (beta == 1)
        return rule_add_reduced(grad, 2, dy, err);
    factor = graph_add_const(grad->graph, NULL, grad->graph->real, &scalar,
                             grad->graph->real == DTYPE_F64 ? (const void *)&beta : &beta_f);
    return rule_add_op(grad, 2, "Mul", 2, (int[]){ dy, factor }, err);
}

static int grad_gemm(struct grad *grad, int node, struct err *err)
{
    if (grad_matmul(grad, node, err))
        return -1;
    return grad_wanted(grad, 2) ? grad_gemm_c(grad, node, err) : 0;
}

/* The gradient before the activation. */
static int before_activation(struct grad *grad, int node, struct err *err)
{
    const char *activation = node_string(&grad->graph->nodes[node], "activation", "none");
    bool silu = strcmp(activation, "silu") == 0;
    int dy = grad_of_output(grad, 0), pre, gradient;

    if (strcmp(activation, "none") == 0)
        return dy;
    if (strcmp(activation, "relu") == 0) {
        gradient = grad_node(grad, "ReluGrad", 2, (int[]){ dy, rule_output(grad, 0) }, 1, err);
        return gradient < 0 ? -1 : grad->graph->nodes[gradient].outputs[0];
    }
    pre = rule_want_output(grad, 1, err);
    if (pre < 0)
        return -1;
    gradient = grad_node(grad, silu ? "SwishGrad" : "GeluGrad", 2, (int[]){ dy, pre }, 1, err);
    if (gradient < 0)
        return -1;
    if (silu)
        graph_set_float(grad->graph, gradient, "alpha", 1);
    else
        graph_set_string(grad->graph, gradient, "approximate",
                         strcmp(activation, "gelu_tanh") == 0 ? "tanh" : "none");
    return grad->graph->nodes[gradient].outputs[0];
}

static int grad_linear(struct grad *grad, int node, struct err *err)
{
    int dz = before_activation(grad, node, err), bias;
    int rank = node_output(grad->graph, node, 0)->shape.rank;

    if (dz < 0 ||
        rule_add_like(grad, 0, "LinearDgrad", 2, (int[]){ dz, rule_input(grad, 1) }, NULL,
                      err) ||
        rule_add_like(grad, 1, "LinearWgrad", 2, (int[]){ rule_input(grad, 0), dz }, NULL,
                      err) ||
        rule_add_like(grad, 2, "BiasGrad", 1, &dz, &bias, err))
        return -1;
    if (bias >= 0)
        graph_set_int(grad->graph, bias, "axis", rank - 1);
    return 0;
}

const struct op ops_matmul[] = {
    { "MatMul", OP_MATMUL, 2, 2, 1, 1, infer_matmul, flops_matmul, grad_matmul },
    { "Gemm", OP_MATMUL, 2, 3, 1, 1, infer_gemm, flops_matmul, grad_gemm },
    { "Linear", OP_INTERNAL | OP_MATMUL, 2, 3, 1, 2, infer_linear, flops_linear, grad_linear },
    { "LinearDgrad", OP_INTERNAL | OP_MATMUL, 2, 2, 1, 1, NULL, flops_linear, NULL },
    { "LinearWgrad", OP_INTERNAL | OP_MATMUL, 2, 2, 1, 1, NULL, flops_linear, NULL },
    { "BiasGrad", OP_INTERNAL, 1, 1, 1, 1, NULL, flops_bias, NULL },
    { .name = NULL },
};
