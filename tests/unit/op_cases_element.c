/* SPDX-License-Identifier: MIT */
/* Cases of what picks and puts elements, sums along an axis, and pads. */
#include "op_case.h"
#include "unit.h"

static enum dtype index_type(const struct op_case *c)
{
    return case_bit(c, 1) ? DTYPE_I32 : DTYPE_I64;
}

/* Each row of an index along the last but one axis names each of 'of' at most once. */
static void make_distinct(struct op_case *c, int index, int of)
{
    const struct shape *shape = &c->graph->values[index].shape;
    int64_t inner = shape->dim[shape->rank - 1], n = shape->dim[shape->rank - 2];

    for (int64_t e = 0; e < shape_elements(shape); e++) {
        int64_t group = e / (n * inner), place = e / inner % n;

        c->data[index][e] = (double)((place + group + e % inner) % of);
        if (case_bit(c, 0) && place == 0)
            c->data[index][e] -= of;    /* counted from the end */
    }
}

static void gather_elements(struct op_case *c)
{
    int ids[2];

    ids[0] = case_real(c, 3, DIMS(B, 4, 3), 0, 2);
    ids[1] = case_integers(c, index_type(c), 3, DIMS(B, 5, 2), case_bit(c, 0) ? -4 : 0, 3);
    case_node(c, "GatherElements", 2, ids, 1);
    case_attr(c, "axis", 1);
    case_infer(c);
}

static const char *const reductions[] = { "none", "add", "mul", "max", "min" };

/* Real numbers, or where no gradient is asked for integers. */
static int scattered(struct op_case *c, int rank, const int *dim)
{
    return c->variant < 20 ? case_real(c, rank, dim, 0.1, 2)
                           : case_integers(c, case_integer_type(c), rank, dim, -9, 9);
}

static void scatter_elements(struct op_case *c)
{
    int which = case_choose(c, 4, 5), ids[3];

    c->gradient = which < 2 && c->variant < 20;
    ids[0] = scattered(c, 3, DIMS(B, 4, 3));
    ids[1] = case_integers(c, index_type(c), 3, DIMS(B, 3, 2), 0, 3);
    if (which == 0)
        make_distinct(c, ids[1], 4);
    ids[2] = scattered(c, 3, DIMS(B, 3, 2));
    case_node(c, "ScatterElements", 3, ids, 1);
    case_attr(c, "axis", 1);
    graph_set_string(c->graph, c->node, "reduction", reductions[which]);
    case_infer(c);
}

static void gather_nd(struct op_case *c)
{
    enum dtype dtype = index_type(c);
    int ids[2], lead = 0;

    switch (case_choose(c, 4, 4)) {
    case 0: /* common samples */
        ids[0] = case_real(c, 4, DIMS(B, 3, 3, 2), 0, 2);
        ids[1] = case_integers(c, dtype, 3, DIMS(B, 4, 2), case_bit(c, 0) ? -3 : 0, 2);
        lead = 1;
        break;
    case 1: /* positions of a table for each sample */
        ids[0] = case_real(c, 3, DIMS(3, 3, 2), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(B, 2), 0, 2);
        break;
    case 2: /* samples behind what is indexed */
        ids[0] = case_real(c, 3, DIMS(3, B, 2), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(4, 1), 0, 2);
        break;
    default:
        ids[0] = case_real(c, 2, DIMS(3, 4), 0, 2);
        ids[1] = case_integers(c, dtype, 2, DIMS(5, 2), 0, 2);
    }
    case_node(c, "GatherND", 2, ids, 1);
    case_attr(c, "batch_dims", lead);
    case_infer(c);
}

static void scatter_nd(struct op_case *c)
{
    int which = case_choose(c, 4, 5), ids[3];

    c->gradient = which < 2;
    ids[0] = case_bit(c, 0) ? case_real(c, 3, DIMS(5, B, 2), 0.1, 2)
                            : case_real(c, 3, DIMS(5, 3, 2), 0.1, 2);
    ids[1] = case_integers(c, index_type(c), 2, DIMS(3, 1), 0, 4);
    for (int i = 0; i < 3 && which == 0; i++)
        c->data[ids[1]][i] = 2 * i;
    ids[2] = case_bit(c, 0) ? case_real(c, 3, DIMS(3, B, 2), 0.1, 2)
                            : case_real(c, 3, DIMS(3, 3, 2), 0.1, 2);
    case_node(c, "ScatterND", 3, ids, 1);
    graph_set_string(c->graph, c->node, "reduction", reductions[which]);
    case_infer(c);
}

static void cumsum(struct op_case *c)
{
    int x;

    if (c->variant >= 4) {
        c->gradient = false;
        x = case_integers(c, index_type(c), 3, DIMS(B, 4, 2), -9, 9);
    } else {
        x = case_real(c, 3, DIMS(B, 4, 2), 0, 2);
    }
    case_unary(c, "CumSum", x);
    case_attr(c, "axis", 1);
    case_attr(c, "exclusive", case_bit(c, 0));
    case_attr(c, "reverse", case_bit(c, 1));
    case_infer(c);
}

/* Numbers of which some are equal, or of which none are. */
static int ordered(struct op_case *c, bool equal)
{
    return equal ? case_integers(c, index_type(c), 3, DIMS(B, 5, 3), -2, 2)
                 : case_distinct(c, 3, DIMS(B, 5, 3));
}

static void argmax(struct op_case *c)
{
    c->gradient = false;
    case_unary(c, "ArgMax", ordered(c, case_bit(c, 3)));
    case_attr(c, "axis", 1 + case_bit(c, 0));
    case_attr(c, "keepdims", case_bit(c, 1));
    case_attr(c, "select_last_index", case_bit(c, 2));
    case_attr(c, "largest", !case_bit(c, 4));
    case_infer(c);
}

static void topk(struct op_case *c)
{
    int x = ordered(c, case_bit(c, 3));

    c->gradient = !case_bit(c, 3);
    case_node(c, "TopK", 1, &x, 2);
    case_attr(c, "axis", 1 + case_bit(c, 0));
    case_attr(c, "k", 1 + case_bit(c, 1));
    case_attr(c, "largest", !case_bit(c, 2));
    case_infer(c);
}

static void pad(struct op_case *c)
{
    const int64_t pads[] = { 0, 1, 2, 0, 0, 3 };
    int x;

    if (case_bit(c, 0)) {
        c->gradient = false;
        x = case_integers(c, index_type(c), 3, DIMS(B, 3, 2), -9, 9);
    } else {
        x = case_real(c, 3, DIMS(B, 3, 2), 0, 2);
    }
    case_unary(c, "Pad", x);
    case_list(c, "pads", 6, pads);
    if (case_bit(c, 0))
        case_attr(c, "value", case_bit(c, 1) ? -1 : 0);
    else
        graph_set_float(c->graph, c->node, "value", case_bit(c, 1) ? -1 : 0);
    case_infer(c);
}

const struct op_kind op_kinds_element[] = {
    { "GatherElements", 4, gather_elements },
    { "ScatterElements", 40, scatter_elements },
    { "GatherND", 16, gather_nd },
    { "ScatterND", 20, scatter_nd },
    { "CumSum", 8, cumsum },
    { "ArgMax", 32, argmax },
    { "TopK", 16, topk },
    { "Pad", 4, pad },
    { .op = NULL },
};
