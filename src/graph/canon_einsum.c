/* SPDX-License-Identifier: MIT */
/* Einsum: operands are multiplied two at a time as stacks of matrices. */
#include "graph/canon.h"

#include <string.h>

#include "base/err.h"

/* Labels are letters; the axes that "..." stands for are 1, 2, … from the last one. */
struct term {
    int value;                          /* -1: of the result, not there yet */
    int n;
    unsigned char label[GRAPH_MAX_RANK];
};

enum { MAX_TERMS = 8 };

struct einsum {
    struct build *build;
    const struct onnx_node *node;
    struct err *err;
    int n;
    struct term term[MAX_TERMS], result;
};

static int find(const struct term *t, unsigned char label)
{
    int i;

    for (i = 0; i < t->n; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static int push(struct einsum *e, struct term *t, unsigned char label)
{
    if (t->n == GRAPH_MAX_RANK)
        return err_set(e->err, "more than %d axes", GRAPH_MAX_RANK);
    t->label[t->n++] = label;
    return 0;
}

/* Equations ---------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One list of labels; '*at' is left behind it. 'more' axes stand for "...". */
static int read_term(struct einsum *e, const char **at, const char *end, int more,
                     struct term *t)
{
    const char *p = *at;

    t->n = 0;
    for (; p < end && *p != ',' && *p != '-'; p++) {
        if (end - p >= 3 && memcmp(p, "...", 3) == 0) {
            for (int k = more; k > 0; k--)
                if (push(e, t, (unsigned char)k))
                    return -1;
            p += 2;
        } else if (is_letter(*p)) {
            if (push(e, t, (unsigned char)*p))
                return -1;
        } else if (*p != ' ') {
            return err_set(e->err, "its equation is not understood");
        }
    }
    *at = p;
    return 0;
}

static int letters(const char *p, const char *end)
{
    int n = 0;

    for (; p < end && *p != ',' && *p != '-'; p++)
        n += is_letter(*p);
    return n;
}

/* Without "->": what stands once, by the alphabet, behind what "..." stands for. */
static int imply_result(struct einsum *e, int more)
{
    e->result.n = 0;
    for (int k = more; k > 0; k--)
        if (push(e, &e->result, (unsigned char)k))
            return -1;
    for (unsigned char c = 'A'; c <= 'z'; c++) {
        int count = 0;

        for (int i = 0; i < e->n; i++)
            for (int k = 0; k < e->term[i].n; k++)
                count += e->term[i].label[k] == c;
        if (count == 1 && push(e, &e->result, c))
            return -1;
    }
    return 0;
}

static int read_equation(struct einsum *e)
{
    const OnnxFile__Attribute *attr = onnx_attr(e->node->proto, "equation");
    const char *at, *end;
    int most = 0;

    if (!attr || !attr->has_s)
        return err_set(e->err, "it has no equation");
    at = (const char *)attr->s.data;
    end = at + attr->s.len;
    e->n = (int)e->node->proto->n_input;
    if (e->n < 1 || e->n > MAX_TERMS)
        return err_set(e->err, "%d operands are not supported", e->n);
    for (int i = 0; i < e->n; i++) {
        struct term *t = &e->term[i];
        int more, rank;

        t->value = canon_input(e->build, e->node, i, e->err);
        if (t->value < 0)
            return -1;
        rank = canon_shape_of(e->build, t->value, 0)->rank;
        more = rank - letters(at, end);
        if (more < 0 || read_term(e, &at, end, more, t))
            return more < 0 ? err_set(e->err, "operand %d has %d axes", i, rank) : -1;
        if (t->n != rank || (i < e->n - 1 && (at >= end || *at++ != ',')))
            return err_set(e->err, "its equation does not fit operand %d", i);
        most = more > most ? more : most;
    }
    while (at < end && *at == ' ')
        at++;
    if (at == end)
        return imply_result(e, most);
    if (end - at < 2 || at[0] != '-' || at[1] != '>')
        return err_set(e->err, "its equation is not understood");
    at += 2;
    if (read_term(e, &at, end, most, &e->result))
        return -1;
    return at == end ? 0 : err_set(e->err, "its equation is not understood");
}

/* Terms -------------------------------------------------------------------------------- */

/* Does anything behind term 'last' still need a label? */
static bool needed(const struct einsum *e, unsigned char label, int last)
{
    int i;

    if (find(&e->result, label) >= 0)
        return true;
    for (i = last + 1; i < e->n; i++)
        if (find(&e->term[i], label) >= 0)
            return true;
    return false;
}

/* Put axes in this order. */
static int arrange(struct einsum *e, struct term *t, int n, const unsigned char *order)
{
    int64_t perm[GRAPH_MAX_RANK];

    for (int i = 0; i < n; i++)
        perm[i] = find(t, order[i]);
    memcpy(t->label, order, (size_t)n);
    t->value = canon_permuted(e->build, e->node, t->value, perm, e->err);
    return t->value < 0 ? -1 : 0;
}

static int sum_axis(struct einsum *e, struct term *t, int axis)
{
    int64_t list = axis;

    t->value = canon_reduce_step(e->build, e->node, "ReduceSum", t->value, 1, &list, 0, e->err);
    memmove(t->label + axis, t->label + axis + 1, (size_t)(t->n - axis - 1));
    t->n--;
    return t->value < 0 ? -1 : 0;
}

/* A label that stands twice is a diagonal: the two axes last, merged, every n+1-th element. */
static int take_diagonal(struct einsum *e, struct term *t, int a, int b)
{
    struct shape shapes[BUILD_TWINS];
    struct tensor index[BUILD_TWINS];
    int64_t perm[GRAPH_MAX_RANK], length;
    unsigned char label[GRAPH_MAX_RANK];
    int n = 0, i, w;

    for (i = 0; i < t->n; i++)
        if (i != a && i != b) {
            label[n] = t->label[i];
            perm[n++] = i;
        }
    label[n] = t->label[a];
    perm[n] = a;
    perm[n + 1] = b;
    t->value = canon_permuted(e->build, e->node, t->value, perm, e->err);
    for (w = 0; w < BUILD_TWINS && t->value >= 0; w++) {
        shapes[w] = *canon_shape_of(e->build, t->value, w);
        length = shapes[w].dim[n];
        if (length != shapes[w].dim[n + 1])
            return err_set(e->err, "a diagonal of something that is no square");
        shapes[w].rank--;
        shapes[w].dim[n] = length * length;
        if (fold_new(&e->build->fold[w], DTYPE_I64, &(struct shape){ 1, { length } }, &index[w],
                     e->err))
            return -1;
        for (int64_t k = 0; k < length; k++)
            index[w].i[k] = k * (length + 1);
    }
    if (t->value >= 0)
        t->value = canon_shaped(e->build, e->node, t->value, shapes, e->err);
    if (t->value >= 0)
        t->value = canon_take(e->build, e->node, t->value, n, index, e->err);
    t->n = n + 1;
    memcpy(t->label, label, (size_t)t->n);
    return t->value < 0 ? -1 : 0;
}

/* No label twice, and none that only this term has and nobody needs. */
static int simplify(struct einsum *e, int which, const struct term *other, int last)
{
    struct term *t = &e->term[which];
    int a, b;

    for (a = 0; a < t->n; a++)
        for (b = a + 1; b < t->n; b++)
            if (t->label[a] == t->label[b]) {
                if (take_diagonal(e, t, a, b))
                    return -1;
                a = -1;
                break;
            }
    for (a = t->n - 1; a >= 0; a--)
        if (!needed(e, t->label[a], last) && (!other || find(other, t->label[a]) < 0) &&
            sum_axis(e, t, a))
            return -1;
    return 0;
}

/* Products ----------------------------------------------------------------------------- */

/* Axes from 'from' on as one. */
static int merge(struct einsum *e, struct term *t, int from, int end)
{
    struct shape shapes[BUILD_TWINS];
    int w, i;

    for (w = 0; w < BUILD_TWINS; w++) {
        const struct shape *s = canon_shape_of(e->build, t->value, w);

        shapes[w].rank = s->rank - (end - from) + 1;
        for (i = 0; i < from; i++)
            shapes[w].dim[i] = s->dim[i];
        shapes[w].dim[from] = 1;
        for (i = from; i < end; i++)
            shapes[w].dim[from] *= s->dim[i];
        for (i = end; i < s->rank; i++)
            shapes[w].dim[i - (end - from) + 1] = s->dim[i];
        if (shapes[w].rank > GRAPH_MAX_RANK)
            return err_set(e->err, "more than %d axes", GRAPH_MAX_RANK);
    }
    t->value = canon_shaped(e->build, e->node, t->value, shapes, e->err);
    return t->value < 0 ? -1 : 0;
}

/* The labels of 'a' that are (not) in 'b' and (not) needed, behind those in 'list'. */
static int collect(const struct einsum *e, const struct term *a, const struct term *b,
                   bool shared, bool keep, int last, unsigned char *list, int n)
{
    for (int i = 0; i < a->n; i++)
        if ((find(b, a->label[i]) >= 0) == shared && needed(e, a->label[i], last) == keep)
            list[n++] = a->label[i];
    return n;
}

/* Terms 0 and 'which' into term 0: [stack, rows, sum] times [stack, sum, columns]. */
static int multiply(struct einsum *e, int which)
{
    struct term *a = &e->term[0], *b = &e->term[which];
    unsigned char left[GRAPH_MAX_RANK], right[GRAPH_MAX_RANK];
    struct shape full[BUILD_TWINS];
    int stack, rows, sum, columns, w, i;

    if (simplify(e, 0, b, which) || simplify(e, which, a, which))
        return -1;
    stack = collect(e, a, b, true, true, which, left, 0);
    memcpy(right, left, (size_t)stack);
    rows = collect(e, a, b, false, true, which, left, stack);
    sum = collect(e, a, b, true, false, which, right, stack);
    memcpy(left + rows, right + stack, (size_t)(sum - stack));
    columns = collect(e, b, a, false, true, which, right, sum);
    if (rows + columns - sum > GRAPH_MAX_RANK)
        return err_set(e->err, "more than %d axes", GRAPH_MAX_RANK);
    if (arrange(e, a, rows + sum - stack, left) || arrange(e, b, columns, right))
        return -1;
    for (w = 0; w < BUILD_TWINS; w++) {
        const struct shape *sa = canon_shape_of(e->build, a->value, w);
        const struct shape *sb = canon_shape_of(e->build, b->value, w);

        full[w].rank = rows + columns - sum;
        for (i = 0; i < rows; i++)
            full[w].dim[i] = i < stack && sa->dim[i] == 1 ? sb->dim[i] : sa->dim[i];
        for (i = sum; i < columns; i++)
            full[w].dim[rows + i - sum] = sb->dim[i];
    }
    if (merge(e, a, rows, rows + sum - stack) || merge(e, a, stack, rows) ||
        merge(e, b, sum, columns) || merge(e, b, stack, sum))
        return -1;
    a->value = canon_step(e->build, e->node, "MatMul", 2, (int[]){ a->value, b->value },
                          e->err);
    if (a->value >= 0)
        a->value = canon_shaped(e->build, e->node, a->value, full, e->err);
    memcpy(a->label, left, (size_t)rows);
    memcpy(a->label + rows, right + sum, (size_t)(columns - sum));
    a->n = rows + columns - sum;
    return a->value < 0 ? -1 : 0;
}

int canon_einsum(struct build *build, const struct onnx_node *node, struct err *err)
{
    struct einsum e = { .build = build, .node = node, .err = err };
    int first, i;

    if (read_equation(&e))
        return -1;
    first = e.term[0].value;
    for (i = 1; i < e.n; i++)
        if (multiply(&e, i))
            return -1;
    if (simplify(&e, 0, NULL, e.n))
        return -1;
    for (i = 0; i < e.result.n; i++)
        if (find(&e.term[0], e.result.label[i]) < 0)
            return err_set(err, "its equation asks for an axis that no operand has");
    if (e.result.n != e.term[0].n)
        return err_set(err, "its equation names an axis of the result twice");
    if (arrange(&e, &e.term[0], e.result.n, e.result.label))
        return -1;
    if (e.term[0].value != first)
        return canon_result(build, node, 0, e.term[0].value);
    build_alias(build, node, 0);
    return 0;
}
