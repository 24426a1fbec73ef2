/* SPDX-License-Identifier: MIT */
#include "graph/fold.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"
#include "graph/integer.h"

enum unary { NEG, ABS, SQRT, FLOOR, CEIL, ROUND, EXP, LOG, SIN, COS, TANH, ERF, RECIPROCAL,
             RELU, SIGN, IS_NAN, IS_INF, NOT };
enum binary { ADD, SUB, MUL, DIV, MOD, POW, MIN, MAX, EQUAL, LESS, GREATER, LESS_EQUAL,
              GREATER_EQUAL, AND, OR, XOR };
enum reduction { SUM, MEAN, PROD, LARGEST, SMALLEST };

static double unary_float(enum unary kind, double x)
{
    switch (kind) {
    case NEG:
        return -x;
    case ABS:
        return fabs(x);
    case SQRT:
        return sqrt(x);
    case FLOOR:
        return floor(x);
    case CEIL:
        return ceil(x);
    case ROUND:
        return nearbyint(x);
    case EXP:
        return exp(x);
    case LOG:
        return log(x);
    case SIN:
        return sin(x);
    case COS:
        return cos(x);
    case TANH:
        return tanh(x);
    case ERF:
        return erf(x);
    case RECIPROCAL:
        return 1 / x;
    case RELU:
        return x < 0 ? 0 : x;
    default:
        return (double)((x > 0) - (x < 0));
    }
}

static int unary_integer(enum unary kind, enum dtype dtype, int64_t x, int64_t *result)
{
    int sign = integer_order(dtype, x, 0);

    switch (kind) {
    case NEG:
        *result = (int64_t)(0 - (uint64_t)x);
        return 0;
    case ABS:
        *result = sign < 0 ? (int64_t)(0 - (uint64_t)x) : x;
        return 0;
    case RELU:
        *result = sign < 0 ? 0 : x;
        return 0;
    case SIGN:
        *result = sign;
        return 0;
    case NOT:
        *result = !x;
        return 0;
    default:
        return -1;
    }
}

static int run_unary(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    enum unary kind = (enum unary)call->kind;
    bool tests = kind == IS_NAN || kind == IS_INF;
    struct tensor *y = call->outputs;
    int64_t i;

    if (fold_new(call->fold, tests ? DTYPE_BOOL : x->dtype, &x->shape, y, err))
        return -1;
    if ((tests && !x->f) || (kind == NOT && x->f))
        return err_set(err, "elements of type %s", dtype_name(x->dtype));
    for (i = 0; i < x->n; i++) {
        if (tests)
            y->i[i] = kind == IS_NAN ? isnan(x->f[i]) != 0 : isinf(x->f[i]) != 0;
        else if (x->f)
            y->f[i] = fold_round(y->dtype, unary_float(kind, x->f[i]));
        else if (unary_integer(kind, x->dtype, x->i[i], &y->i[i]))
            return err_set(err, "elements of type %s", dtype_name(x->dtype));
        else
            y->i[i] = dtype_wrap(y->dtype, y->i[i]);
    }
    return 0;
}

static bool compare(enum binary kind, int order, bool unordered)
{
    switch (kind) {
    case EQUAL:
        return !unordered && order == 0;
    case LESS:
        return !unordered && order < 0;
    case GREATER:
        return !unordered && order > 0;
    case LESS_EQUAL:
        return !unordered && order <= 0;
    default:
        return !unordered && order >= 0;
    }
}

static int binary_integer(const struct fold_call *call, enum dtype dtype, int64_t a, int64_t b,
                          int64_t *result, struct err *err)
{
    enum binary kind = (enum binary)call->kind;
    int order = integer_order(dtype, a, b);

    switch (kind) {
    case ADD:
        *result = (int64_t)((uint64_t)a + (uint64_t)b);
        return 0;
    case SUB:
        *result = (int64_t)((uint64_t)a - (uint64_t)b);
        return 0;
    case MUL:
        *result = (int64_t)((uint64_t)a * (uint64_t)b);
        return 0;
    case DIV:
        return integer_divide(dtype, a, b, result) ? err_set(err, "division by zero") : 0;
    case MOD:
        return integer_rest(dtype, a, b, onnx_int(call->node, "fmod", 0) != 0, result)
                   ? err_set(err, "division by zero") : 0;
    case POW:
        *result = integer_power(dtype, a, call->inputs[1]->dtype, b);
        return 0;
    case MIN:
        *result = order < 0 ? a : b;
        return 0;
    case MAX:
        *result = order > 0 ? a : b;
        return 0;
    case AND:
        *result = a && b;
        return 0;
    case OR:
        *result = a || b;
        return 0;
    case XOR:
        *result = !a != !b;
        return 0;
    default:
        *result = compare(kind, order, false);
        return 0;
    }
}

/* The rest of a division that is rounded down has the sign of the divisor. */
static double float_rest(double a, double b, bool towards_zero)
{
    double rest = fmod(a, b);

    return towards_zero || rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
}

static double binary_float(const struct fold_call *call, enum binary kind, double a, double b)
{
    switch (kind) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MOD:
        return float_rest(a, b, onnx_int(call->node, "fmod", 0) != 0);
    case POW:
        return pow(a, b);
    case MIN:
        return a < b ? a : b;
    default:
        return a > b ? a : b;
    }
}

/* A power of a base of one type and an exponent of another has the type of the base. */
static void mixed_power(const struct tensor *a, int64_t ia, const struct tensor *b, int64_t ib,
                        struct tensor *y, int64_t index)
{
    double x = pow(fold_number(a, ia), fold_number(b, ib));

    if (y->f)
        y->f[index] = fold_round(y->dtype, x);
    else
        y->i[index] = dtype_truncate(y->dtype, x);
}

static int apply_binary(const struct fold_call *call, const struct tensor *a,
                        const struct tensor *b, struct tensor *y, struct err *err)
{
    enum binary kind = (enum binary)call->kind;
    bool compares = kind >= EQUAL && kind <= GREATER_EQUAL;
    bool mixed = kind == POW && !a->f != !b->f;
    struct shape shape;
    int64_t i;

    if (a->dtype != b->dtype && kind != POW)
        return err_set(err, "%s and %s elements", dtype_name(a->dtype), dtype_name(b->dtype));
    if ((!mixed && !a->f != !b->f) || (a->f && kind >= AND))
        return err_set(err, "elements of type %s", dtype_name(a->dtype));
    if (dims_broadcast(&a->shape, &b->shape, &shape, err) ||
        fold_new(call->fold, kind >= EQUAL ? DTYPE_BOOL : a->dtype, &shape, y, err))
        return -1;
    for (i = 0; i < y->n; i++) {
        int64_t ia = fold_source(&a->shape, &shape, i), ib = fold_source(&b->shape, &shape, i);

        if (mixed)
            mixed_power(a, ia, b, ib, y, i);
        else if (a->f && compares)
            y->i[i] = compare(kind, (a->f[ia] > b->f[ib]) - (a->f[ia] < b->f[ib]),
                              isunordered(a->f[ia], b->f[ib]));
        else if (a->f)
            y->f[i] = fold_round(y->dtype, binary_float(call, kind, a->f[ia], b->f[ib]));
        else if (binary_integer(call, a->dtype, a->i[ia], b->i[ib], &y->i[i], err))
            return -1;
        else
            y->i[i] = dtype_wrap(y->dtype, y->i[i]);
    }
    return 0;
}

static int run_binary(const struct fold_call *call, struct err *err)
{
    return apply_binary(call, call->inputs[0], call->inputs[1], call->outputs, err);
}

/* Min and Max take any number of inputs. */
static int run_chain(const struct fold_call *call, struct err *err)
{
    struct tensor result = *call->inputs[0], next;
    int i;

    for (i = 1; i < call->n_inputs; i++) {
        if (!call->inputs[i])
            return err_set(err, "input %d is missing", i);
        if (apply_binary(call, &result, call->inputs[i], &next, err))
            return -1;
        result = next;
    }
    *call->outputs = result;
    return 0;
}

static void reduce_element(enum reduction kind, bool first, const struct tensor *x, int64_t i,
                           struct tensor *y, int64_t o)
{
    if (first && kind >= LARGEST) {
        fold_copy(x, i, y, o);
    } else if (x->f) {
        double v = x->f[i], *r = &y->f[o];

        *r = kind == PROD ? *r * v : kind == LARGEST ? (v > *r ? v : *r)
           : kind == SMALLEST ? (v < *r ? v : *r) : *r + v;
    } else {
        int64_t v = x->i[i], *r = &y->i[o];

        *r = kind == PROD ? (int64_t)((uint64_t)*r * (uint64_t)v)
           : kind == LARGEST ? (integer_order(y->dtype, v, *r) > 0 ? v : *r)
           : kind == SMALLEST ? (integer_order(y->dtype, v, *r) < 0 ? v : *r)
                              : (int64_t)((uint64_t)*r + (uint64_t)v);
    }
}

static void finish_reduction(enum reduction kind, int64_t count, struct tensor *y)
{
    int64_t i;

    for (i = 0; i < y->n; i++) {
        if (y->f)
            y->f[i] = fold_round(y->dtype, kind == MEAN ? y->f[i] / (double)count : y->f[i]);
        else if (kind != MEAN || integer_divide(y->dtype, y->i[i], count, &y->i[i]) == 0)
            y->i[i] = dtype_wrap(y->dtype, y->i[i]);
    }
}

/* Every input element, added to the output element that it belongs to. */
static void reduce_all(const struct fold_call *call, const struct tensor *x, struct tensor *y)
{
    enum reduction kind = (enum reduction)call->kind;
    bool *seen = arena_alloc(call->fold->arena, (size_t)y->n, sizeof(*seen));
    int64_t e, o;

    for (e = 0; e < y->n && kind == PROD; e++)
        if (y->f)
            y->f[e] = 1;
        else
            y->i[e] = 1;
    for (e = 0; e < x->n; e++) {
        o = fold_source(&y->shape, &x->shape, e);
        reduce_element(kind, !seen[o], x, e, y, o);
        seen[o] = true;
    }
    finish_reduction(kind, x->n / y->n, y);
}

/* The neutral element of each reduction. */
static void reduce_nothing(enum reduction kind, struct tensor *y)
{
    int64_t i;

    for (i = 0; i < y->n; i++)
        if (y->f)
            y->f[i] = (double)(kind == PROD ? 1 : kind == LARGEST ? -INFINITY
                               : kind == SMALLEST ? INFINITY : kind == MEAN ? NAN : 0);
        else
            y->i[i] = kind == PROD ? 1 : kind == LARGEST ? integer_smallest(y->dtype)
                    : kind == SMALLEST ? integer_largest(y->dtype) : 0;
}

static int run_reduce(const struct fold_call *call, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    const int64_t *axes = NULL;
    int n = fold_ints(call, 1, "axes", &axes, err), chosen[GRAPH_MAX_RANK], n_chosen, i;
    bool all = !onnx_int(call->node, "noop_with_empty_axes", 0);
    int64_t squeezed[GRAPH_MAX_RANK];
    struct shape kept = x->shape;

    if (n == -2 || dims_axes(n < 0 ? 0 : n, axes, x->shape.rank, all, &n_chosen, chosen, err))
        return -1;
    for (i = 0; i < n_chosen; i++) {
        squeezed[i] = chosen[i];
        kept.dim[chosen[i]] = 1;
    }
    if (fold_new(call->fold, x->dtype, &kept, call->outputs, err))
        return -1;
    if (x->n)
        reduce_all(call, x, call->outputs);
    else
        reduce_nothing((enum reduction)call->kind, call->outputs);
    if (onnx_int(call->node, "keepdims", 1) || n_chosen == 0)
        return 0;
    return dims_squeeze(&kept, n_chosen, squeezed, &call->outputs->shape, err);
}

static int cast_to(const struct fold_call *call, enum dtype dtype, struct err *err)
{
    const struct tensor *x = call->inputs[0];
    struct tensor *y = call->outputs;
    int64_t i;

    if (fold_new(call->fold, dtype, &x->shape, y, err))
        return -1;
    for (i = 0; i < x->n; i++) {
        if (y->f)
            y->f[i] = fold_round(dtype, fold_number(x, i));
        else
            y->i[i] = x->f ? dtype_truncate(dtype, x->f[i]) : dtype_wrap(dtype, x->i[i]);
    }
    return 0;
}

static int run_cast(const struct fold_call *call, struct err *err)
{
    int64_t to = onnx_int(call->node, "to", 0);
    enum dtype dtype = to > 0 && to < 64 ? onnx_dtype((int32_t)to) : DTYPE_NONE;

    if (dtype == DTYPE_NONE)
        return err_set(err, "a cast to %s is not supported",
                       onnx_dtype_name(to > 0 && to < 64 ? (int32_t)to : 0));
    return cast_to(call, dtype_is_float(dtype) ? call->fold->real : dtype, err);
}

static int run_cast_like(const struct fold_call *call, struct err *err)
{
    return cast_to(call, call->inputs[1]->dtype, err);
}

static int run_where(const struct fold_call *call, struct err *err)
{
    const struct tensor *c = call->inputs[0], *a = call->inputs[1], *b = call->inputs[2];
    struct tensor *y = call->outputs;
    struct shape shape;
    int64_t i;

    if (c->f || a->dtype != b->dtype)
        return err_set(err, "%s, %s and %s elements", dtype_name(c->dtype),
                       dtype_name(a->dtype), dtype_name(b->dtype));
    if (dims_broadcast(&a->shape, &b->shape, &shape, err) ||
        dims_broadcast(&shape, &c->shape, &shape, err) ||
        fold_new(call->fold, a->dtype, &shape, y, err))
        return -1;
    for (i = 0; i < y->n; i++) {
        const struct tensor *from = c->i[fold_source(&c->shape, &shape, i)] ? a : b;

        fold_copy(from, fold_source(&from->shape, &shape, i), y, i);
    }
    return 0;
}

const struct fold_op fold_math[] = {
    { "Neg", 1, run_unary, NEG },       { "Abs", 1, run_unary, ABS },
    { "Sqrt", 1, run_unary, SQRT },     { "Floor", 1, run_unary, FLOOR },
    { "Ceil", 1, run_unary, CEIL },     { "Round", 1, run_unary, ROUND },
    { "Exp", 1, run_unary, EXP },       { "Log", 1, run_unary, LOG },
    { "Sin", 1, run_unary, SIN },       { "Cos", 1, run_unary, COS },
    { "Tanh", 1, run_unary, TANH },     { "Erf", 1, run_unary, ERF },
    { "Reciprocal", 1, run_unary, RECIPROCAL },
    { "Relu", 1, run_unary, RELU },
    { "Sign", 1, run_unary, SIGN },     { "IsNaN", 1, run_unary, IS_NAN },
    { "IsInf", 1, run_unary, IS_INF },  { "Not", 1, run_unary, NOT },
    { "Add", 2, run_binary, ADD },      { "Sub", 2, run_binary, SUB },
    { "Mul", 2, run_binary, MUL },      { "Div", 2, run_binary, DIV },
    { "Mod", 2, run_binary, MOD },      { "Pow", 2, run_binary, POW },
    { "Equal", 2, run_binary, EQUAL },  { "Less", 2, run_binary, LESS },
    { "Greater", 2, run_binary, GREATER },
    { "LessOrEqual", 2, run_binary, LESS_EQUAL },
    { "GreaterOrEqual", 2, run_binary, GREATER_EQUAL },
    { "And", 2, run_binary, AND },      { "Or", 2, run_binary, OR },
    { "Xor", 2, run_binary, XOR },
    { "Min", 1, run_chain, MIN },       { "Max", 1, run_chain, MAX },
    { "ReduceSum", 1, run_reduce, SUM },    { "ReduceMean", 1, run_reduce, MEAN },
    { "ReduceProd", 1, run_reduce, PROD },  { "ReduceMax", 1, run_reduce, LARGEST },
    { "ReduceMin", 1, run_reduce, SMALLEST },
    { "Cast", 1, run_cast, 0 },         { "CastLike", 2, run_cast_like, 0 },
    { "Where", 3, run_where, 0 },
    { NULL, 0, NULL, 0 },
};
