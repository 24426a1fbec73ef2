/* SPDX-License-Identifier: MIT */
/* Scaled-dot-product attention in one node: the scores are never stored. */
#include "graph/ops/attention.h"

#include <math.h>
#include <string.h>

#include "graph/ops/infer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rule.h"

static int mask_dims(const struct value *mask, struct attention *a)
{
    const int64_t last[2] = { a->m, a->n };
    int64_t step = 1, *steps[2] = { &a->step_m, &a->step_n };
    int k, axis, shift = a->rank + 2 - mask->shape.rank;

    if (shift < 0)
        return -1;
    for (k = mask->shape.rank - 1; k >= 0; k--) {
        int64_t dim = mask->shape.dim[k];

        axis = k + shift;
        if (dim != 1 && dim != (axis < a->rank ? a->dim[axis] : last[axis - a->rank]))
            return -1;
        *(axis < a->rank ? &a->step[axis] : steps[axis - a->rank]) = dim == 1 ? 0 : step;
        step *= dim;
    }
    a->mask_elements = step;
    a->mask = mask->dtype == DTYPE_BOOL ? ATTENTION_CHOOSE : ATTENTION_ADD;
    return 0;
}

int attention_dims(const struct graph *graph, int node, int first, int mask,
                   struct attention *a)
{
    const struct node *n = &graph->nodes[node];
    const struct shape *q = &node_input(graph, node, first)->shape;
    const struct shape *k = &node_input(graph, node, first + 1)->shape;
    const struct shape *v = &node_input(graph, node, first + 2)->shape;
    int last = q->rank - 1, i;

    memset(a, 0, sizeof(*a));
    if (q->rank < 3 || k->rank != q->rank || v->rank != q->rank)
        return -1;
    a->trans_k = node_int(n, "transK", 0) != 0;
    a->scale = node_float(n, "scale", 1);
    a->causal = node_int(n, "causal", 0) != 0;
    a->past = node_int(n, "past", 0);
    a->masked = node_int(n, "masked", 0) != 0;
    a->hide = node_int(n, "hide", 0) != 0;
    a->fill = node_float(n, "fill", (double)-INFINITY);
    a->m = q->dim[last - 1];
    a->d = q->dim[last];
    a->n = k->dim[a->trans_k ? last : last - 1];
    a->e = v->dim[last];
    if (k->dim[a->trans_k ? last - 1 : last] != a->d || v->dim[last - 1] != a->n)
        return -1;
    a->rank = last - 1;
    a->stack = 1;
    for (i = 0; i < a->rank; i++) {
        a->dim[i] = q->dim[i];
        a->stack *= q->dim[i];
        if (k->dim[i] != v->dim[i] || (i < a->rank - 1 && k->dim[i] != q->dim[i]))
            return -1;
    }
    i = a->rank - 1;
    if (k->dim[i] < 1 || q->dim[i] % k->dim[i])
        return -1;
    a->group = q->dim[i] / k->dim[i];
    return node_input(graph, node, mask) ? mask_dims(node_input(graph, node, mask), a) : 0;
}

int64_t attention_mask(const struct attention *a, int64_t s)
{
    int64_t at = 0;
    int i;

    for (i = a->rank - 1; i >= 0; i--) {
        at += s % a->dim[i] * a->step[i];
        s /= a->dim[i];
    }
    return at;
}

/* Keys and values follow the samples as the queries do, and so does a mask that has any. */
static int attention_place(const struct graph *graph, int node, const struct attention *a,
                           struct batch_place *place, struct err *err)
{
    struct batch_place other;
    int input;

    if (batch_find(graph, node, node_input(graph, node, 0), place, err))
        return -1;
    if (graph->batch == 1)
        return 0;
    if (place->axis >= a->rank)
        return refuse_batch_axis(graph, node, *place, place->axis, "attends over", err);
    for (input = 1; input < graph->nodes[node].n_inputs; input++) {
        const struct value *x = node_input(graph, node, input);
        int shift = x ? a->rank + 2 - x->shape.rank : 0;

        if (!x || batch_find(graph, node, x, &other, err))
            return x ? -1 : 0;
        if (input == 3 && other.axis < 0) {
            if (place->axis >= shift && x->shape.dim[place->axis - shift] != 1)
                return op_error(graph, node, err, "the mask has one row for each sample but "
                                "does not depend on them");
            continue;
        }
        if (other.axis + (other.axis < 0 ? 0 : shift) != place->axis ||
            other.outer != place->outer)
            return op_error(graph, node, err, "combines one sample with another");
    }
    return 0;
}

static int infer_attention(struct graph *graph, int node, struct err *err)
{
    const struct value *q = node_input(graph, node, 0);
    struct shape y = q->shape, saved = q->shape;
    struct batch_place place;
    struct attention a;

    if (need_float(graph, node, 0, err) || need_float(graph, node, 1, err) ||
        need_float(graph, node, 2, err))
        return -1;
    if (attention_dims(graph, node, 0, 3, &a))
        return op_error(graph, node, err, "queries, keys, values and mask do not fit");
    if (node_input(graph, node, 3) && node_input(graph, node, 3)->dtype != DTYPE_BOOL &&
        need_float(graph, node, 3, err))
        return -1;
    if (attention_place(graph, node, &a, &place, err))
        return -1;
    y.dim[y.rank - 1] = a.e;
    saved.rank--;
    if (place.axis > a.rank)
        place = no_batch;
    if (set_output(graph, node, 0, q->dtype, &y, batch_at(&y, place), err))
        return -1;
    return set_output(graph, node, 1, q->dtype, &saved, batch_at(&saved, place), err);
}

static int infer_attention_grad(struct graph *graph, int node, struct err *err)
{
    int i;

    for (i = 0; i < graph->nodes[node].n_outputs; i++)
        if (set_output_like(graph, node, i, i < 3 ? 1 + i : 5, err))
            return -1;
    return 0;
}

static double flops_of(const struct graph *graph, int node, int first, int mask,
                       double products_d, double products_e)
{
    struct attention a;

    if (attention_dims(graph, node, first, mask, &a))
        return 0;
    return (double)a.stack * (double)a.m * (double)a.n *
           (2 * products_d * (double)a.d + 2 * products_e * (double)a.e + 12);
}

static double flops_attention(const struct graph *graph, int node)
{
    return flops_of(graph, node, 0, 3, 1, 1);
}

static double flops_attention_grad(const struct graph *graph, int node)
{
    return flops_of(graph, node, 1, 5, 3, 2);
}

static int grad_attention(struct grad *grad, int node, struct err *err)
{
    int dy = grad_of_output(grad, 0), saved = rule_want_output(grad, 1, err);
    bool mask = grad_wanted(grad, 3);
    int ids[6] = { dy, rule_input(grad, 0), rule_input(grad, 1), rule_input(grad, 2), saved,
                   rule_input(grad, 3) };
    int result, i;

    (void)node;
    if (saved < 0)
        return -1;
    result = grad_node(grad, "AttentionGrad", ids[5] < 0 ? 5 : 6, ids, mask ? 4 : 3, err);
    for (i = 0; result >= 0 && i < (mask ? 4 : 3); i++)
        if (grad_wanted(grad, i))
            grad_add(grad, i, grad->graph->nodes[result].outputs[i]);
    return result < 0 ? -1 : 0;
}

const struct op ops_attention[] = {
    { "Attention", OP_INTERNAL | OP_ATTENTION, 3, 4, 1, 2, infer_attention, flops_attention,
      grad_attention },
    { "AttentionGrad", OP_INTERNAL | OP_ATTENTION, 5, 6, 3, 4, infer_attention_grad,
      flops_attention_grad, NULL },
    { .name = NULL },
};
