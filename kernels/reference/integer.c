/* SPDX-License-Identifier: MIT */
/* Arithmetic on whole numbers, comparisons of any type, logic. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/integer.h"
#include "kernels/reference/reference.h"

/* -1 for a division by zero. */
typedef int integer_function(const struct kernel *k, int64_t a, int64_t b, int64_t *y);

static int each(const struct kernel *k, const struct kernel_args *args, integer_function *f,
                struct err *err)
{
    const struct walk *w = &k->walk;
    int64_t n = row_length(w), j, a, b, y;
    struct cursor c;

    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            a = ref_whole(&k->in[0], args->inputs[0], c.at[0] + j * row_stride(w, 0));
            b = w->n < 2 ? 0 : ref_whole(&k->in[1], args->inputs[1],
                                         c.at[1] + j * row_stride(w, 1));
            if (f(k, a, b, &y))
                return err_set(err, "node \"%s\": division by zero", k->name);
            ref_store_whole(&k->out[0], args->outputs[0], c.row * n + j, y);
        }
    return 0;
}

#define ORDER(a, b) integer_order(k->in[0].dtype, a, b)
#define INTEGER(NAME, EXPRESSION)                                                             \
    static int NAME##_of(const struct kernel *k, int64_t a, int64_t b, int64_t *y)            \
    {                                                                                         \
        (void)k, (void)b;                                                                     \
        *y = (EXPRESSION);                                                                    \
        return 0;                                                                             \
    }                                                                                         \
    RUN(NAME)
#define RUN(NAME)                                                                             \
    static int run_##NAME(const struct kernel *k, const struct kernel_args *args,             \
                          struct err *err)                                                    \
    {                                                                                         \
        return each(k, args, NAME##_of, err);                                                 \
    }

static int divide_of(const struct kernel *k, int64_t a, int64_t b, int64_t *y)
{
    return integer_divide(k->in[0].dtype, a, b, y);
}

static int rest_of(const struct kernel *k, int64_t a, int64_t b, int64_t *y)
{
    return integer_rest(k->in[0].dtype, a, b, k->swap, y);
}

INTEGER(add, (int64_t)((uint64_t)a + (uint64_t)b))
INTEGER(subtract, (int64_t)((uint64_t)a - (uint64_t)b))
INTEGER(multiply, (int64_t)((uint64_t)a * (uint64_t)b))
INTEGER(negate, (int64_t)(0 - (uint64_t)a))
INTEGER(absolute, ORDER(a, 0) < 0 ? (int64_t)(0 - (uint64_t)a) : a)
INTEGER(sign, ORDER(a, 0))
INTEGER(max, ORDER(a, b) > 0 ? a : b)
INTEGER(min, ORDER(a, b) < 0 ? a : b)
INTEGER(and, a && b)
INTEGER(or, a || b)
INTEGER(xor, !a != !b)
INTEGER(not, !a)
RUN(divide)
RUN(rest)

static int run_power(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    int64_t n = row_length(w), j;
    struct cursor c;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            int64_t from = c.at[0] + j * row_stride(w, 0), at = c.at[1] + j * row_stride(w, 1);
            int64_t to = c.row * n + j;

            if (dtype_is_float(k->in[1].dtype))
                ref_store(&k->out[0], args->outputs[0], to,
                          pow(ref_number(&k->in[0], args->inputs[0], from),
                              ref_number(&k->in[1], args->inputs[1], at)));
            else
                ref_store_whole(&k->out[0], args->outputs[0], to,
                                integer_power(k->in[0].dtype,
                                              ref_whole(&k->in[0], args->inputs[0], from),
                                              k->in[1].dtype,
                                              ref_whole(&k->in[1], args->inputs[1], at)));
        }
    return 0;
}

/* ReduceMax and ReduceMin. */
static int run_choose(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    int64_t n = row_length(w), j;
    struct cursor c;

    (void)err;
    for (j = 0; j < k->out[0].elements; j++)
        ref_store_whole(&k->out[0], args->outputs[0], j,
                        k->swap ? integer_largest(k->out[0].dtype)
                                : integer_smallest(k->out[0].dtype));
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            int64_t at = c.at[0] + j * row_stride(w, 0);
            int64_t x = ref_whole(&k->in[0], args->inputs[0], c.row * n + j);
            int64_t best = ref_whole(&k->out[0], args->outputs[0], at);

            if (k->swap ? ORDER(x, best) < 0 : ORDER(x, best) > 0)
                ref_store_whole(&k->out[0], args->outputs[0], at, x);
        }
    return 0;
}

static int run_sum(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    int64_t n = row_length(w), j;
    struct cursor c;

    (void)err;
    memset(args->outputs[0], 0, (size_t)k->out[0].elements * dtype_size(k->out[0].dtype));
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            int64_t at = c.at[0] + j * row_stride(w, 0);
            uint64_t x = (uint64_t)ref_whole(&k->in[0], args->inputs[0], c.row * n + j);
            uint64_t sum = (uint64_t)ref_whole(&k->out[0], args->outputs[0], at);

            ref_store_whole(&k->out[0], args->outputs[0], at, (int64_t)(sum + x));
        }
    return 0;
}

/* Comparisons ------------------------------------------------------------------------- */

enum order { NEITHER, BELOW = 1, EQUAL = 2, ABOVE = 4 };

static enum order order_of(const struct kernel *k, const struct kernel_args *args, int64_t ia,
                           int64_t ib)
{
    if (dtype_is_float(k->in[0].dtype)) {
        double a = ref_number(&k->in[0], args->inputs[0], ia);
        double b = ref_number(&k->in[1], args->inputs[1], ib);

        return a < b ? BELOW : a > b ? ABOVE : a == b ? EQUAL : NEITHER;
    } else {
        int order = ORDER(ref_whole(&k->in[0], args->inputs[0], ia),
                          ref_whole(&k->in[1], args->inputs[1], ib));

        return order < 0 ? BELOW : order > 0 ? ABOVE : EQUAL;
    }
}

static void compare(const struct kernel *k, const struct kernel_args *args, unsigned wanted)
{
    const struct walk *w = &k->walk;
    uint8_t *y = args->outputs[0];
    int64_t n = row_length(w), j;
    struct cursor c;

    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++)
            *y++ = (uint8_t)((order_of(k, args, c.at[0] + j * row_stride(w, 0),
                             c.at[1] + j * row_stride(w, 1)) & wanted) != 0);
}

#define COMPARE(NAME, WANTED)                                                                 \
    static int run_##NAME(const struct kernel *k, const struct kernel_args *args,             \
                          struct err *err)                                                    \
    {                                                                                         \
        (void)err;                                                                            \
        compare(k, args, WANTED);                                                             \
        return 0;                                                                             \
    }

COMPARE(equal, EQUAL)
COMPARE(less, BELOW)
COMPARE(less_equal, BELOW | EQUAL)
COMPARE(greater, ABOVE)
COMPARE(greater_equal, ABOVE | EQUAL)

static int run_is_nan(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    uint8_t *y = args->outputs[0];

    (void)err;
    for (int64_t i = 0; i < k->out[0].elements; i++)
        y[i] = (uint8_t)(isnan(ref_number(&k->in[0], args->inputs[0], i)) != 0);
    return 0;
}

/* alpha and beta: are negative and positive ones wanted? */
static int run_is_inf(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    uint8_t *y = args->outputs[0];

    (void)err;
    for (int64_t i = 0; i < k->out[0].elements; i++) {
        double x = ref_number(&k->in[0], args->inputs[0], i);

        y[i] = (uint8_t)(isinf(x) && (x < 0 ? k->alpha : k->beta) != 0);
    }
    return 0;
}

const struct ref_entry ref_entries_whole[] = {
    REF_ENTRY("Add", setup_broadcast, run_add),
    REF_ENTRY("Sub", setup_broadcast, run_subtract),
    REF_ENTRY("Mul", setup_broadcast, run_multiply),
    REF_ENTRY("Div", setup_broadcast, run_divide),
    REF_ENTRY("Neg", setup_broadcast, run_negate),
    REF_ENTRY("Abs", setup_broadcast, run_absolute),
    REF_ENTRY("Sign", setup_broadcast, run_sign),
    REF_ENTRY("Max", setup_broadcast, run_max),
    REF_ENTRY("Min", setup_broadcast, run_min),
    REF_ENTRY("Mod", setup_mod, run_rest),
    REF_ENTRY("Pow", setup_broadcast, run_power),
    REF_ENTRY("ReduceMax", setup_reduce, run_choose),
    REF_ENTRY("ReduceMin", setup_reduce, run_choose),
    REF_ENTRY("ReduceSum", setup_reduce, run_sum),
    REF_ENTRY("And", setup_broadcast, run_and),
    REF_ENTRY("Or", setup_broadcast, run_or),
    REF_ENTRY("Xor", setup_broadcast, run_xor),
    REF_ENTRY("Not", setup_broadcast, run_not),
    { .op = NULL },
};

const struct ref_entry ref_entries_tests[] = {
    REF_ENTRY("Equal", setup_broadcast, run_equal),
    REF_ENTRY("Less", setup_broadcast, run_less),
    REF_ENTRY("LessOrEqual", setup_broadcast, run_less_equal),
    REF_ENTRY("Greater", setup_broadcast, run_greater),
    REF_ENTRY("GreaterOrEqual", setup_broadcast, run_greater_equal),
    REF_ENTRY("IsNaN", setup_plain, run_is_nan),
    REF_ENTRY("IsInf", setup_is_inf, run_is_inf),
    { .op = NULL },
};
