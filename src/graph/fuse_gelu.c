/* SPDX-License-Identifier: MIT */
/* x/2 (1 + erf(x / sqrt 2)) and its approximation by tanh, spelled out in any way.
 *
 * From the anchor t (an Erf or Tanh) values are read as p(x) + q(x) t with polynomials of
 * degree 3 at most; so the order and grouping of operands do not matter.
 */
#include "graph/fuse.h"

#include <math.h>
#include <string.h>

#include "graph/op.h"

enum { TERMS = 4, MAX_DEPTH = 6, MAX_READERS = 8 };

struct form {
    double p[TERMS], q[TERMS];
};

struct reading {
    const struct graph *graph;
    int x, t;           /* values; t -1: not yet */
    int budget;         /* nodes that may still be looked at */
};

static bool multiply(const double *a, const double *b, double *result)
{
    double sum[2 * TERMS - 1] = { 0 };
    int i, k;

    for (i = 0; i < TERMS; i++)
        for (k = 0; k < TERMS; k++)
            sum[i + k] += a[i] * b[k];
    for (i = TERMS; i < 2 * TERMS - 1; i++)
        if (sum[i] != 0)
            return false;
    for (i = 0; i < TERMS; i++)
        result[i] += sum[i];
    return true;
}

static bool form_multiply(const struct form *a, const struct form *b, struct form *result)
{
    static const double zero[TERMS];
    double square[TERMS] = { 0 };

    memset(result, 0, sizeof(*result));
    return multiply(a->q, b->q, square) && memcmp(square, zero, sizeof(zero)) == 0 &&
           multiply(a->p, b->p, result->p) && multiply(a->p, b->q, result->q) &&
           multiply(a->q, b->p, result->q);
}

static bool form_power(const struct form *base, double exponent, struct form *result)
{
    struct form next;
    int i;

    if (exponent != 2 && exponent != 3)
        return false;
    *result = *base;
    for (i = 1; i < (int)exponent; i++) {
        if (!form_multiply(result, base, &next))
            return false;
        *result = next;
    }
    return true;
}

static void form_add(const struct form *a, const struct form *b, double sign,
                     struct form *result)
{
    int i;

    for (i = 0; i < TERMS; i++) {
        result->p[i] = a->p[i] + sign * b->p[i];
        result->q[i] = a->q[i] + sign * b->q[i];
    }
}

static bool form_divide(const struct form *a, const struct form *b, struct form *result)
{
    double by = b->p[0];
    int i;

    for (i = 0; i < TERMS; i++)
        if ((i && b->p[i] != 0) || b->q[i] != 0)
            return false;
    for (i = 0; i < TERMS; i++) {
        result->p[i] = a->p[i] / by;
        result->q[i] = a->q[i] / by;
    }
    return by != 0;
}

static bool read_form(struct reading *r, int v, int depth, struct form *form)
{
    int node = r->graph->values[v].producer;
    struct form a, b;
    double c;

    memset(form, 0, sizeof(*form));
    if (v == r->x || v == r->t) {
        *(v == r->x ? &form->p[1] : &form->q[0]) = 1;
        return true;
    }
    if (fuse_scalar(r->graph, v, &c)) {
        form->p[0] = c;
        return true;
    }
    if (node < 0 || depth == 0 || r->budget-- <= 0 || r->graph->nodes[node].n_inputs != 2)
        return false;
    if (!read_form(r, r->graph->nodes[node].inputs[0], depth - 1, &a) ||
        !read_form(r, r->graph->nodes[node].inputs[1], depth - 1, &b))
        return false;
    if (fuse_is(r->graph, node, "Mul"))
        return form_multiply(&a, &b, form);
    if (fuse_is(r->graph, node, "Div"))
        return form_divide(&a, &b, form);
    if (fuse_is(r->graph, node, "Pow"))
        return fuse_scalar(r->graph, r->graph->nodes[node].inputs[1], &c) &&
               form_power(&a, c, form);
    if (!fuse_is(r->graph, node, "Add") && !fuse_is(r->graph, node, "Sub"))
        return false;
    form_add(&a, &b, fuse_is(r->graph, node, "Add") ? 1 : -1, form);
    return true;
}

/* Constants are float32 in the file. */
static bool close_to(const double *a, const double *b)
{
    int i;

    for (i = 0; i < TERMS; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-6 * (fabs(b[i]) + 1e-2)))
            return false;
    return true;
}

static bool argument_fits(struct reading *r, int argument, bool tangens)
{
    static const double zero[TERMS];
    const double root = sqrt(2 / M_PI);
    const double expected[2][TERMS] = { { 0, M_SQRT1_2, 0, 0 },
                                        { 0, root, 0, 0.044715 * root } };
    struct form form;

    r->budget = 32;
    return read_form(r, argument, MAX_DEPTH, &form) && close_to(form.q, zero) &&
           close_to(form.p, expected[tangens]);
}

/* Try each value that the argument is made from as x. */
static bool find_x(struct reading *r, int argument, int v, int depth, bool tangens)
{
    int node = r->graph->values[v].producer, i;

    if (v != argument) {
        r->x = v;
        if (argument_fits(r, argument, tangens))
            return true;
    }
    if (node < 0 || depth == 0 || r->graph->nodes[node].n_inputs != 2)
        return false;
    for (i = 0; i < 2; i++)
        if (find_x(r, argument, r->graph->nodes[node].inputs[i], depth - 1, tangens))
            return true;
    return false;
}

/* The node, at most 'depth' readers after value 'v', whose output is x/2 + x/2 t; -1. */
static int find_end(struct reading *r, int v, int depth)
{
    static const double half[TERMS] = { 0, 0.5, 0, 0 };
    const struct value *value = &r->graph->values[v];
    struct form form;
    int i, found;

    r->budget = 32;
    if (v != r->t && read_form(r, v, MAX_DEPTH, &form) && close_to(form.p, half) &&
        close_to(form.q, half))
        return value->producer;
    for (i = 0; i < value->n_consumers && i < MAX_READERS && depth > 0; i++) {
        const struct node *node = &r->graph->nodes[value->consumers[i]];

        if (node->n_inputs != 2 || node->n_outputs != 1)
            continue;
        found = find_end(r, node->outputs[0], depth - 1);
        if (found >= 0)
            return found;
    }
    return -1;
}

int fuse_gelu(struct graph *graph, int node, struct err *err)
{
    bool tangens = fuse_is(graph, node, "Tanh");
    struct reading r = { .graph = graph, .t = -1 };
    int end, argument;

    if (!tangens && !fuse_is(graph, node, "Erf"))
        return 0;
    argument = graph->nodes[node].inputs[0];
    if (!find_x(&r, argument, argument, MAX_DEPTH, tangens))
        return 0;
    r.t = graph->nodes[node].outputs[0];
    end = find_end(&r, r.t, 4);
    if (end < 0 || !shape_equal(&graph->values[r.x].shape,
                                &graph->values[graph->nodes[end].outputs[0]].shape))
        return 0;
    if (fuse_rewrite(graph, end, "gelu", "Gelu", 1, &r.x, err))
        return -1;
    graph_set_string(graph, end, "approximate", tangens ? "tanh" : "none");
    return fuse_check(graph, end, err);
}
