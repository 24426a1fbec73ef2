/* SPDX-License-Identifier: MIT */
/* Functions of numbers whose parameters or number of inputs differ in ONNX. */
#include "graph/canon.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

/* Parameters in ONNX's names, with their values where the file has none. */
static const struct {
    const char *op;
    const char *alpha;
    double alpha_default;
    const char *beta;
    double beta_default;
} curves[] = {
    { "LeakyRelu", "alpha", (double)0.01f, NULL, 0 },
    { "Elu", "alpha", 1, NULL, 0 },
    { "Celu", "alpha", 1, NULL, 0 },
    { "Selu", "alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875 },
    { "HardSigmoid", "alpha", (double)0.2f, "beta", 0.5 },
    { "Swish", "alpha", 1, NULL, 0 },
};

int canon_curve(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *op = node->proto->op_type;
    int id = canon_emit(build, node, op, 1, err), i = 0;

    if (id < 0)
        return -1;
    while (strcmp(curves[i].op, op) != 0)
        i++;
    build_set_float(build, id, "alpha",
                    onnx_float(node->proto, curves[i].alpha, curves[i].alpha_default));
    if (curves[i].beta)
        build_set_float(build, id, "beta",
                        onnx_float(node->proto, curves[i].beta, curves[i].beta_default));
    return build_settle(build, id, err);
}

/* Max, Min and Sum of any number of inputs: one after the other. */
int canon_chain(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *op = strcmp(node->proto->op_type, "Sum") == 0 ? "Add" : node->proto->op_type;
    int n = (int)node->proto->n_input, result = canon_input(build, node, 0, err), next, i;

    if (result < 0)
        return -1;
    if (n == 1) {
        build_alias(build, node, 0);
        return 0;
    }
    for (i = 1; i < n; i++) {
        next = canon_input(build, node, i, err);
        if (next < 0)
            return -1;
        result = canon_step(build, node, op, 2, (int[]){ result, next }, err);
        if (result < 0)
            return -1;
    }
    return canon_result(build, node, 0, result);
}

/* A bound of a Clip: an attribute of old opsets, a constant, or computed ('*computed'). */
static int read_bound(struct build *build, const struct onnx_node *node, int index,
                      const char *attr, double *bound, bool *computed, struct err *err)
{
    const struct tensor *constant;

    *computed = false;
    if (index >= (int)node->proto->n_input || node->inputs[index] < 0) {
        *bound = onnx_float(node->proto, attr, *bound);
        return 0;
    }
    constant = build_literal(build, node->inputs[index], 0);
    *computed = !constant;
    if (constant && constant->n != 1)
        return err_set(err, "its bounds are no scalars");
    if (constant)
        *bound = fold_number(constant, 0);
    return 0;
}

/* Bounds that are computed, or of integers, which a double may not hold: the larger of x and one,
 * the smaller of that and the other.
 */
static int clip_between(struct build *build, const struct onnx_node *node, struct err *err)
{
    static const char *const ops[] = { NULL, "Max", "Min" };
    int first = canon_input(build, node, 0, err), x = first, bound, i;

    for (i = 1; i < 3 && x >= 0; i++) {
        if (i >= (int)node->proto->n_input || node->inputs[i] < 0)
            continue;
        bound = canon_input(build, node, i, err);
        x = bound < 0 ? -1 : canon_step(build, node, ops[i], 2, (int[]){ x, bound }, err);
    }
    if (x == first)
        build_alias(build, node, 0);
    return x < 0 ? -1 : x == first ? 0 : canon_result(build, node, 0, x);
}

int canon_clip(struct build *build, const struct onnx_node *node, struct err *err)
{
    double min = (double)-INFINITY, max = (double)INFINITY;
    int id = canon_input(build, node, 0, err);
    bool low, high;

    if (id < 0 || read_bound(build, node, 1, "min", &min, &low, err) ||
        read_bound(build, node, 2, "max", &max, &high, err))
        return -1;
    if (low || high || !dtype_is_float(build->graph[0]->values[id].dtype))
        return clip_between(build, node, err);
    id = canon_emit(build, node, "Clip", 1, err);
    if (id < 0)
        return -1;
    if (min > (double)-INFINITY)
        build_set_float(build, id, "min", min);
    if (max < (double)INFINITY)
        build_set_float(build, id, "max", max);
    return build_settle(build, id, err);
}

/* What is left of a division that is rounded down: one rounded to zero leaves as much, or where
 * it has another sign than the divisor, the divisor less.
 */
static int rest_of_floor(struct build *build, const struct onnx_node *node, const int *ids,
                         struct err *err)
{
    int zero = canon_scalar(build, build->options->real, 0, err);
    int rest = zero < 0 ? -1 : canon_new(build, node, "Mod", 2, ids, err), a, b;

    if (rest < 0)
        return -1;
    build_set_int(build, rest, "fmod", 1);
    rest = canon_settle(build, rest, err);
    a = rest < 0 ? -1 : canon_step(build, node, "Less", 2, (int[]){ rest, zero }, err);
    b = a < 0 ? -1 : canon_step(build, node, "Less", 2, (int[]){ ids[1], zero }, err);
    a = b < 0 ? -1 : canon_step(build, node, "Xor", 2, (int[]){ a, b }, err);
    b = a < 0 ? -1 : canon_step(build, node, "Equal", 2, (int[]){ rest, zero }, err);
    b = b < 0 ? -1 : canon_step(build, node, "Not", 1, &b, err);
    a = b < 0 ? -1 : canon_step(build, node, "And", 2, (int[]){ a, b }, err);
    b = a < 0 ? -1 : canon_step(build, node, "Add", 2, (int[]){ rest, ids[1] }, err);
    return b < 0 ? -1 : canon_step(build, node, "Where", 3, (int[]){ a, b, rest }, err);
}

int canon_mod(struct build *build, const struct onnx_node *node, struct err *err)
{
    int64_t towards_zero = onnx_int(node->proto, "fmod", 0);
    int ids[2], id;

    ids[0] = canon_input(build, node, 0, err);
    ids[1] = ids[0] < 0 ? -1 : canon_input(build, node, 1, err);
    if (ids[1] < 0)
        return -1;
    if (!towards_zero && dtype_is_float(build->graph[0]->values[ids[0]].dtype)) {
        id = rest_of_floor(build, node, ids, err);
        return id < 0 ? -1 : canon_result(build, node, 0, id);
    }
    id = build_emit(build, node, "Mod", 2, ids, 1, err);
    if (id < 0)
        return -1;
    build_set_int(build, id, "fmod", towards_zero);
    return build_settle(build, id, err);
}
