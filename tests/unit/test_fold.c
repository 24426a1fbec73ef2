/* SPDX-License-Identifier: MIT */
/* Constants through every operator that folds. */
#include "unit.h"

#include "base/mem.h"
#include "graph/dims.h"
#include "graph/fold.h"

#define MAX_INPUTS 5
#define NONE { .absent = true }

struct array {
    bool absent, real;      /* doubles rather than int64 */
    int rank;
    int64_t dims[4];
    double data[16];
};

struct fold_case {
    const char *op;
    struct array inputs[MAX_INPUTS];
    const char *attr[3];    /* names; "list" attributes first */
    int64_t values[3][4];
    int lengths[3];         /* -1: a single integer */
    struct array expected;
};

#define I0(x) { .dims = { 1 }, .data = { x } }
#define I1(n, ...) { .rank = 1, .dims = { n }, .data = { __VA_ARGS__ } }
#define F1(n, ...) { .real = true, .rank = 1, .dims = { n }, .data = { __VA_ARGS__ } }
#define I2(m, n, ...) { .rank = 2, .dims = { m, n }, .data = { __VA_ARGS__ } }
#define F2(m, n, ...) { .real = true, .rank = 2, .dims = { m, n }, .data = { __VA_ARGS__ } }

static const struct fold_case cases[] = {
    { "Add", { I1(2, 1, 2), I0(3), NONE }, .expected = I1(2, 4, 5) },
    { "Sub", { I2(2, 1, 5, 7), I1(2, 1, 2), NONE }, .expected = I2(2, 2, 4, 3, 6, 5) },
    { "Mul", { F1(2, 1.5, 2), F1(1, 2), NONE }, .expected = F1(2, 3, 4) },
    { "Div", { I1(3, 7, -7, 9), I0(2), NONE }, .expected = I1(3, 3, -3, 4) },
    { "Div", { F1(1, 1), F1(1, 8), NONE }, .expected = F1(1, 0.125) },
    { "Mod", { I1(2, 7, -7), I0(3), NONE }, .expected = I1(2, 1, 2) },
    { "Mod", { I1(2, 7, -7), I0(3), NONE }, .attr = { "fmod" }, .values = { { 1 } },
      .lengths = { -1 }, .expected = I1(2, 1, -1) },
    { "Pow", { I1(2, 3, 2), I0(3), NONE }, .expected = I1(2, 27, 8) },
    { "Pow", { F1(1, 4), F1(1, 0.5), NONE }, .expected = F1(1, 2) },
    { "Pow", { I1(1, 4), F1(1, 0.5), NONE }, .expected = I1(1, 2) },
    { "Pow", { F1(1, 1.5), I0(2), NONE }, .expected = F1(1, 2.25) },
    { "Mod", { F1(2, 5.5, -5.5), F1(1, 3), NONE }, .expected = F1(2, 2.5, 0.5) },
    { "Min", { I1(2, 4, 1), I0(3), I0(2), NONE }, .expected = I1(2, 2, 1) },
    { "Max", { I1(2, 4, 1), I0(3), NONE }, .expected = I1(2, 4, 3) },
    { "Equal", { I1(2, 4, 1), I0(4), NONE }, .expected = I1(2, 1, 0) },
    { "Less", { I1(2, 4, 1), I0(4), NONE }, .expected = I1(2, 0, 1) },
    { "Greater", { F1(2, 4, 1), F1(1, 2), NONE }, .expected = I1(2, 1, 0) },
    { "LessOrEqual", { I1(2, 4, 5), I0(4), NONE }, .expected = I1(2, 1, 0) },
    { "GreaterOrEqual", { I1(2, 4, 3), I0(4), NONE }, .expected = I1(2, 1, 0) },
    { "Neg", { I1(2, 4, -1), NONE }, .expected = I1(2, -4, 1) },
    { "Abs", { F1(2, 4, -1), NONE }, .expected = F1(2, 4, 1) },
    { "Sqrt", { F1(1, 9), NONE }, .expected = F1(1, 3) },
    { "Floor", { F1(2, 1.5, -1.5), NONE }, .expected = F1(2, 1, -2) },
    { "Ceil", { F1(2, 1.5, -1.5), NONE }, .expected = F1(2, 2, -1) },
    { "Round", { F1(2, 2.5, 3.5), NONE }, .expected = F1(2, 2, 4) },
    { "Reciprocal", { F1(1, 4), NONE }, .expected = F1(1, 0.25) },
    { "Relu", { I1(3, 4, 0, -2), NONE }, .expected = I1(3, 4, 0, 0) },
    { "Sign", { I1(3, 4, 0, -2), NONE }, .expected = I1(3, 1, 0, -1) },
    { "Not", { I1(2, 1, 0), NONE }, .expected = I1(2, 0, 1) },
    { "And", { I1(2, 1, 0), I1(2, 1, 1), NONE }, .expected = I1(2, 1, 0) },
    { "Or", { I1(2, 1, 0), I1(2, 0, 0), NONE }, .expected = I1(2, 1, 0) },
    { "Xor", { I1(2, 1, 0), I1(2, 1, 1), NONE }, .expected = I1(2, 0, 1) },
    { "Where", { I1(2, 1, 0), I1(2, 5, 6), I0(7), NONE }, .expected = I1(2, 5, 7) },
    { "Cast", { F1(3, 1.9, -1.9, 1e30), NONE }, .attr = { "to" }, .values = { { 6 } },
      .lengths = { -1 }, .expected = I1(3, 1, -1, -1) },
    { "Cast", { I1(2, 3, 0), NONE }, .attr = { "to" }, .values = { { 1 } }, .lengths = { -1 },
      .expected = F1(2, 3, 0) },
    { "ReduceProd", { I1(3, 2, 3, 4), NONE }, .attr = { "keepdims" }, .values = { { 0 } },
      .lengths = { -1 }, .expected = I0(24) },
    { "ReduceSum", { I2(2, 2, 1, 2, 3, 4), I1(1, 1), NONE }, .expected = I2(2, 1, 3, 7) },
    { "ReduceMean", { F2(2, 2, 1, 2, 3, 4), NONE }, .attr = { "axes", "keepdims" },
      .values = { { 0 }, { 0 } }, .lengths = { 1, -1 }, .expected = F1(2, 2, 3) },
    { "ReduceMax", { I2(2, 2, 1, 5, 3, 4), NONE }, .expected = I2(1, 1, 5) },
    { "ReduceMin", { F2(2, 2, 1, 5, -3, 4), NONE }, .expected = F2(1, 1, -3) },
    { "Shape", { F2(3, 2, 0), NONE }, .expected = I1(2, 3, 2) },
    { "Shape", { F2(3, 2, 0), NONE }, .attr = { "start" }, .values = { { -1 } },
      .lengths = { -1 }, .expected = I1(1, 2) },
    { "Size", { F2(3, 2, 0), NONE }, .expected = I0(6) },
    { "Gather", { I1(3, 5, 6, 7), I0(-1), NONE }, .expected = I0(7) },
    { "Gather", { I2(2, 2, 1, 2, 3, 4), I1(1, 1), NONE }, .attr = { "axis" },
      .values = { { 1 } }, .lengths = { -1 }, .expected = I2(2, 1, 2, 4) },
    { "GatherND", { I2(2, 2, 1, 2, 3, 4), I2(3, 2, 0, 1, 1, 0, -1, -1), NONE },
      .expected = I1(3, 2, 3, 4) },
    { "GatherND", { I2(2, 2, 1, 2, 3, 4), I2(1, 1, -1), NONE }, .expected = I2(1, 2, 3, 4) },
    { "GatherND", { F2(2, 2, 1, 2, 3, 4), I2(2, 1, 1, 0), NONE }, .attr = { "batch_dims" },
      .values = { { 1 } }, .lengths = { -1 }, .expected = F1(2, 2, 3) },
    { "CumSum", { I2(2, 3, 1, 2, 3, 4, 5, 6), I0(1), NONE },
      .expected = I2(2, 3, 1, 3, 6, 4, 9, 15) },
    { "CumSum", { F2(2, 2, 1, 2, 3, 4), I0(-2), NONE }, .attr = { "reverse" },
      .values = { { 1 } }, .lengths = { -1 }, .expected = F2(2, 2, 4, 6, 3, 4) },
    { "CumSum", { I1(3, 1, 2, 3), I0(0), NONE }, .attr = { "exclusive", "reverse" },
      .values = { { 1 }, { 1 } }, .lengths = { -1, -1 }, .expected = I1(3, 5, 3, 0) },
    { "Concat", { I1(1, 5), I1(2, 6, 7), NONE }, .attr = { "axis" }, .values = { { 0 } },
      .lengths = { -1 }, .expected = I1(3, 5, 6, 7) },
    { "Concat", { I2(2, 1, 5, 6), I2(2, 1, 7, 8), NONE }, .attr = { "axis" },
      .values = { { -1 } }, .lengths = { -1 }, .expected = I2(2, 2, 5, 7, 6, 8) },
    { "Slice", { I1(4, 1, 2, 3, 4), I1(1, 1), I1(1, 3), NONE }, .expected = I1(2, 2, 3) },
    { "Slice", { I1(4, 1, 2, 3, 4), I1(1, -1), I1(1, -9), I1(1, 0), I1(1, -2) },
      .expected = I1(2, 4, 2) },
    { "Slice", { I1(4, 1, 2, 3, 4), NONE }, .attr = { "starts", "ends" },
      .values = { { 2 }, { INT64_MAX } }, .lengths = { 1, 1 }, .expected = I1(2, 3, 4) },
    { "Squeeze", { I2(1, 2, 5, 6), NONE }, .expected = I1(2, 5, 6) },
    { "Unsqueeze", { I1(2, 5, 6), I1(1, -1), NONE }, .expected = I2(2, 1, 5, 6) },
    { "Unsqueeze", { I1(2, 5, 6), NONE }, .attr = { "axes" }, .values = { { 0 } },
      .lengths = { 1 }, .expected = I2(1, 2, 5, 6) },
    { "Reshape", { I1(4, 1, 2, 3, 4), I1(2, 2, -1), NONE }, .expected = I2(2, 2, 1, 2, 3, 4) },
    { "Flatten", { I1(2, 5, 6), NONE }, .expected = I2(2, 1, 5, 6) },
    { "Expand", { I2(2, 1, 5, 6), I1(2, 1, 2), NONE }, .expected = I2(2, 2, 5, 5, 6, 6) },
    { "Transpose", { I2(2, 2, 1, 2, 3, 4), NONE }, .expected = I2(2, 2, 1, 3, 2, 4) },
    { "ConstantOfShape", { I1(1, 2), NONE }, .expected = F1(2, 0, 0) },
    { "Range", { I0(2), I0(9), I0(3), NONE }, .expected = I1(3, 2, 5, 8) },
    { "Range", { I0(9), I0(2), I0(-3), NONE }, .expected = I1(3, 9, 6, 3) },
    { "Range", { I0(2), I0(9), I0(-3), NONE }, .expected = I1(0, 0) },
    { "Range", { I0(-0x1p63), I0(0x1p62 + 1024), I0(0x1p62), NONE },   /* 54 bits apart */
      .expected = I1(4, -0x1p63, -0x1p62, 0, 0x1p62) },
    { "Tile", { I2(1, 2, 5, 6), I1(2, 2, 2), NONE },
      .expected = I2(2, 4, 5, 6, 5, 6, 5, 6, 5, 6) },
    { "Trilu", { I2(2, 2, 1, 2, 3, 4), NONE }, .attr = { "upper" }, .values = { { 0 } },
      .lengths = { -1 }, .expected = I2(2, 2, 1, 0, 3, 4) },
    { "Identity", { F1(1, 4), NONE }, .expected = F1(1, 4) },
};

static struct tensor make(struct fold *fold, const struct array *array)
{
    struct shape shape = { .rank = array->rank };
    struct tensor tensor;
    struct err err = { 0 };
    int64_t i;

    memcpy(shape.dim, array->dims, sizeof(array->dims));
    if (fold_new(fold, array->real ? fold->real : DTYPE_I64, &shape, &tensor, &err))
        fail_msg("%s", err.text);
    for (i = 0; i < tensor.n; i++)
        if (array->real)
            tensor.f[i] = array->data[i];
        else
            tensor.i[i] = (int64_t)array->data[i];
    return tensor;
}

/* A node with the attributes of a case, in static memory. */
static const OnnxFile__Node *make_node(const struct fold_case *c)
{
    static OnnxFile__Attribute attributes[3], *list[3];
    static OnnxFile__Node node;
    size_t i;

    onnx_file__node__init(&node);
    node.op_type = (char *)(uintptr_t)c->op;
    node.attribute = list;
    for (i = 0; i < 3 && c->attr[i]; i++) {
        onnx_file__attribute__init(&attributes[i]);
        list[i] = &attributes[i];
        attributes[i].name = (char *)(uintptr_t)c->attr[i];
        attributes[i].has_i = c->lengths[i] < 0;
        attributes[i].i = c->values[i][0];
        attributes[i].n_ints = c->lengths[i] < 0 ? 0 : (size_t)c->lengths[i];
        attributes[i].ints = (int64_t *)(uintptr_t)c->values[i];
        node.n_attribute++;
    }
    return &node;
}

static int run_case(struct fold *fold, const struct fold_case *c, struct tensor *result,
                    struct err *err)
{
    struct tensor made[MAX_INPUTS];
    const struct tensor *inputs[MAX_INPUTS];
    int n;

    for (n = 0; n < MAX_INPUTS && !c->inputs[n].absent; n++) {
        made[n] = make(fold, &c->inputs[n]);
        inputs[n] = &made[n];
    }
    return fold_run(fold, make_node(c), n, inputs, 1, result, err);
}

static void each_operator_folds(void **state)
{
    struct fold fold = { arena_new(), DTYPE_F32, 1 << 20 };
    size_t i;
    int64_t e;

    (void)state;
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tensor result, expected = make(&fold, &cases[i].expected);
        struct err err = { 0 };

        if (run_case(&fold, &cases[i], &result, &err))
            fail_msg("case %zu, %s: %s", i, cases[i].op, err.text);
        if (!shape_equal(&result.shape, &expected.shape) || !result.f != !expected.f)
            fail_msg("case %zu, %s: another shape or type", i, cases[i].op);
        for (e = 0; e < result.n; e++)
            if (result.f ? result.f[e] != expected.f[e] : result.i[e] != expected.i[e])
                fail_msg("case %zu, %s: element %d", i, cases[i].op, (int)e);
    }
    arena_free(fold.arena);
}

static const struct fold_case refusals[] = {
    { "Div", { I0(1), I0(0), NONE }, .expected = { 0 } },
    { "Mod", { I0(1), I0(0), NONE }, .expected = { 0 } },
    { "Add", { I0(1), F1(1, 1), NONE }, .expected = { 0 } },
    { "Add", { I1(2, 1, 2), I1(3, 1, 2, 3), NONE }, .expected = { 0 } },
    { "Gather", { I1(2, 1, 2), I0(2), NONE }, .expected = { 0 } },
    { "GatherND", { I1(2, 1, 2), I2(1, 1, 2), NONE }, .expected = { 0 } },
    { "GatherND", { I1(2, 1, 2), I2(1, 2, 0, 0), NONE }, .expected = { 0 } },
    { "CumSum", { I1(2, 1, 2), I0(1), NONE }, .expected = { 0 } },
    { "Reshape", { I1(2, 1, 2), I1(1, 3), NONE }, .expected = { 0 } },
    { "Reshape", { I1(2, 1, 2), I1(2, -1, -1), NONE }, .expected = { 0 } },
    { "Squeeze", { I1(2, 1, 2), I1(1, 0), NONE }, .expected = { 0 } },
    { "Range", { I0(0), I0(1e15), I0(1), NONE }, .expected = { 0 } },
    { "Range", { I0(0), I0(1), I0(0), NONE }, .expected = { 0 } },
    { "ConstantOfShape", { I1(3, 1e9, 1e9, 1e9), NONE }, .expected = { 0 } },
    { "ConstantOfShape", { I1(1, -1), NONE }, .expected = { 0 } },
    { "Expand", { I1(2, 1, 2), I1(1, 3), NONE }, .expected = { 0 } },
    { "Tile", { I1(2, 1, 2), I1(1, -3), NONE }, .expected = { 0 } },
    { "Slice", { I1(2, 1, 2), I1(1, 0), I1(2, 1, 1), NONE }, .expected = { 0 } },
    { "Sin", { I0(0), NONE }, .expected = { 0 } },
};

static void what_has_no_value_is_refused(void **state)
{
    struct fold fold = { arena_new(), DTYPE_F32, 1 << 20 };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct tensor result;
        struct err err = { 0 };

        if (run_case(&fold, &refusals[i], &result, &err) != -1 || !err.text[0])
            fail_msg("case %zu, %s was not refused", i, refusals[i].op);
    }
    arena_free(fold.arena);
}

static void the_budget_bounds_all_constants_together(void **state)
{
    struct fold fold = { arena_new(), DTYPE_F32, 100 };
    struct shape shape = { 1, { 60 } };
    struct tensor tensor;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(fold_new(&fold, DTYPE_I64, &shape, &tensor, &err), 0);
    assert_int_equal(fold_new(&fold, DTYPE_I64, &shape, &tensor, &err), -1);
    arena_free(fold.arena);
}

static void floats_are_rounded_to_the_type_of_the_run(void **state)
{
    static const struct fold_case third = { "Div", { F1(1, 1), F1(1, 3), NONE },
                                            .expected = { 0 } };
    struct fold narrow = { arena_new(), DTYPE_F32, 100 }, wide = { arena_new(), DTYPE_F64, 100 };
    struct tensor result;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(run_case(&narrow, &third, &result, &err), 0);
    assert_true(result.f[0] == (double)(1.0f / 3.0f));
    assert_int_equal(run_case(&wide, &third, &result, &err), 0);
    assert_true(result.f[0] == 1.0 / 3.0);
    arena_free(narrow.arena);
    arena_free(wide.arena);
}

static void slices_follow_the_rules_of_onnx(void **state)
{
    int64_t dim, start, end, step, s, e, i, n;

    (void)state;
    for (dim = 0; dim < 6; dim++)
        for (start = -8; start < 9; start++)
            for (end = -8; end < 9; end++)
                for (step = -3; step < 4; step++) {
                    if (!step)
                        continue;
                    s = start;
                    e = end;
                    n = dims_slice(dim, &s, &e, step);
                    assert_true(n >= 0 && n <= dim);
                    for (i = 0; i < n; i++)
                        assert_true(s + i * step >= 0 && s + i * step < dim);
                    /* One more would pass the end. */
                    assert_true(n == 0 || (step > 0 ? s + n * step >= e : s + n * step <= e));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operator_folds),
        cmocka_unit_test(what_has_no_value_is_refused),
        cmocka_unit_test(the_budget_bounds_all_constants_together),
        cmocka_unit_test(floats_are_rounded_to_the_type_of_the_run),
        cmocka_unit_test(slices_follow_the_rules_of_onnx),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
