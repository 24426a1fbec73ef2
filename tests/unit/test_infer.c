/* SPDX-License-Identifier: MIT */
/* Where the samples are, and what is refused because it would mix them. */
#include "unit.h"

#include "graph/op.h"

#define B 4

struct step {
    const char *op;
    const char *ints;           /* attribute that takes 'list' */
    int64_t list[5];
    int n;
    const char *name;           /* attribute that takes 'value'; NULL: none */
    int64_t value;
};

static int value(struct graph *graph, enum value_kind kind, enum dtype dtype,
                 struct shape shape, struct batch batch)
{
    return graph_add_value(graph, NULL, kind, dtype, &shape, batch);
}

static int input(struct graph *graph, struct shape shape, struct batch batch)
{
    return value(graph, VALUE_INPUT, DTYPE_F32, shape, batch);
}

static int apply(struct graph *graph, const struct step *step, int n, const int *inputs,
                 struct err *err)
{
    int node = graph_add_node(graph, step->op, op_find(step->op), n, inputs, 0, NULL);

    graph_add_output(graph, node);
    if (step->ints)
        graph_set_ints(graph, node, step->ints, step->n, step->list);
    if (step->name)
        graph_set_int(graph, node, step->name, step->value);
    if (strcmp(step->op, "Slice") == 0) {
        graph_set_ints(graph, node, "starts", 1, (const int64_t[]){ 1 });
        graph_set_ints(graph, node, "ends", 1, (const int64_t[]){ 3 });
        graph_set_ints(graph, node, "steps", 1, (const int64_t[]){ 1 });
    }
    return op_infer(graph, node, err) ? -1 : graph->nodes[node].outputs[0];
}

/* x is [b, 3, 6], and again for what wants two. */
static const struct step mixing[] = {
    { .op = "Softmax", .name = "axis", .value = 0 },
    { .op = "LogSoftmax", .name = "axis", .value = -3 },
    { .op = "ReduceMean", .ints = "axes", .list = { 0 }, .n = 1 },
    { .op = "ReduceSum", .ints = "axes", .list = { 0, 1, 2 }, .n = 3 },
    { .op = "Concat", .name = "axis", .value = 0 },
    { .op = "Slice", .ints = "axes", .list = { 0 }, .n = 1 },
    { .op = "Split", .ints = "split", .list = { B }, .n = 1, .name = "axis", .value = 0 },
};

static int run_step(const struct step *step, int64_t batch, struct err *err)
{
    struct graph *graph = graph_new(batch, DTYPE_F32);
    struct step own = *step;
    int x, result;

    x = input(graph, (struct shape){ 3, { batch == 1 ? 3 : batch, 3, 6 } },
              (struct batch){ batch == 1 ? 0 : 1, 18, batch != 1 });
    result = apply(graph, &own, strcmp(step->op, "Concat") == 0 ? 2 : 1, (int[]){ x, x }, err);
    graph_free(graph);
    return result < 0 ? -1 : 0;
}

static void what_mixes_samples_is_refused_by_node(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mixing) / sizeof(mixing[0]); i++) {
        struct err err = { 0 };

        assert_int_equal(run_step(&mixing[i], B, &err), -1);
        assert_contains(err.text, mixing[i].op);
        assert_contains(err.text, "axis 0, which holds the samples");
    }
}

static void along_other_axes_the_same_is_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mixing) / sizeof(mixing[0]); i++) {
        struct err err = { 0 };
        struct step step = mixing[i];

        if (step.name)
            step.value = 1;
        for (int k = 0; step.ints && k < step.n; k++)
            step.list[k] = strcmp(step.op, "Split") == 0 ? 3 : 1;
        if (run_step(&step, B, &err))
            fail_msg("%s", err.text);
    }
}

static void reshapes_keep_the_batch_and_transposes_move_it(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 3, { B, 3, 6 } }, (struct batch){ 1, 18, 1 });
    int heads = apply(graph, &(struct step){ "Reshape", "shape", { B, 3, 2, 3 }, 4, NULL, 0 },
                      1, &x, &err);
    int swapped = apply(graph,
                        &(struct step){ "Transpose", "perm", { 2, 0, 1, 3 }, 4, NULL, 0 }, 1,
                        &heads, &err);
    int merged = apply(graph, &(struct step){ "Reshape", "shape", { 2 * B, 9 }, 2, NULL, 0 }, 1,
                       &swapped, &err);

    (void)state;
    assert_int_equal(graph->values[heads].batch.outer, 1);
    assert_int_equal(graph->values[heads].batch.inner, 18);
    assert_int_equal(graph->values[swapped].batch.outer, 2);
    assert_int_equal(graph->values[swapped].batch.inner, 9);
    assert_int_equal(graph->values[merged].batch.outer, 2);
    assert_int_equal(graph->values[merged].batch.inner, 9);
    /* The merged axis is refused, the other is not. */
    assert_int_equal(apply(graph, &(struct step){ .op = "Softmax", .name = "axis", .value = 0 },
                           1, &merged, &err), -1);
    assert_contains(err.text, "Softmax");
    assert_true(apply(graph, &(struct step){ .op = "Softmax", .name = "axis", .value = 1 }, 1,
                      &merged, &err) >= 0);
    graph_free(graph);
}

/* Frames of videos, the first of all samples, then the second: [2 b, 1, 3, 3]. */
static void images_that_are_several_to_a_sample_keep_their_order(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int frames = input(graph, (struct shape){ 4, { 2 * B, 1, 3, 3 } }, (struct batch){ 2, 9, 1 });
    int w = value(graph, VALUE_PARAM, DTYPE_F32, (struct shape){ 4, { 1, 5, 1, 1 } },
                  (struct batch){ 0, 0, 0 });
    int v = value(graph, VALUE_PARAM, DTYPE_F32, (struct shape){ 4, { 5, 1, 1, 1 } },
                  (struct batch){ 0, 0, 0 });
    const struct step conv = { .op = "Conv" };
    const struct step transposed = { "ConvTranspose", "output_shape", { 3, 3 }, 2, NULL, 0 };
    int y = apply(graph, &conv, 2, (int[]){ frames, v }, &err);
    int z = apply(graph, &transposed, 2, (int[]){ frames, w }, &err);

    (void)state;
    if (y < 0 || z < 0)
        fail_msg("%s", err.text);
    assert_int_equal(graph->values[y].batch.outer, 2);
    assert_int_equal(graph->values[y].batch.inner, 5 * 9);
    assert_int_equal(graph->values[z].batch.outer, 2);
    assert_int_equal(graph->values[z].batch.inner, 5 * 9);
    graph_free(graph);
}

static void samples_across_two_axes_are_refused_when_used(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 2, { B, 6 } }, (struct batch){ 1, 6, 1 });
    int across = apply(graph, &(struct step){ "Reshape", "shape", { 2, 2, 6 }, 3, NULL, 0 }, 1,
                       &x, &err);

    (void)state;
    assert_true(across >= 0);
    assert_int_equal(apply(graph, &(struct step){ .op = "Softmax", .name = "axis", .value = 2 },
                           1, &across, &err), -1);
    assert_contains(err.text, "lie across its axes");
    graph_free(graph);
}

static void combining_samples_with_each_other_is_refused(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 2, { B, B } }, (struct batch){ 1, B, 1 });
    int turned = apply(graph, &(struct step){ "Transpose", "perm", { 1, 0 }, 2, NULL, 0 }, 1,
                       &x, &err);
    const struct step add = { .op = "Add" }, product = { .op = "MatMul" };

    (void)state;
    assert_int_equal(apply(graph, &add, 2, (int[]){ x, turned }, &err), -1);
    assert_contains(err.text, "combines one sample with another");
    assert_int_equal(apply(graph, &product, 2, (int[]){ x, turned }, &err), -1);
    assert_contains(err.text, "combines one sample with another");
    assert_int_equal(apply(graph, &product, 2, (int[]){ turned, x }, &err), -1);
    assert_contains(err.text, "which holds the samples");
    graph_free(graph);
}

static void a_baked_in_row_for_each_sample_is_refused(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 2, { B, 6 } }, (struct batch){ 1, 6, 1 });
    int rows = value(graph, VALUE_PARAM, DTYPE_F32, (struct shape){ 2, { B, 6 } },
                     (struct batch){ 0 });
    const struct step add = { .op = "Add" };

    (void)state;
    assert_int_equal(apply(graph, &add, 2, (int[]){ x, rows }, &err), -1);
    assert_contains(err.text, "one row for each sample");
    graph_free(graph);
}

static void shapes_that_do_not_fit_are_refused(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 2, { B, 6 } }, (struct batch){ 1, 6, 1 });
    int y = input(graph, (struct shape){ 2, { B, 5 } }, (struct batch){ 1, 5, 1 });
    int ids = value(graph, VALUE_INPUT, DTYPE_I64, (struct shape){ 1, { B } },
                    (struct batch){ 1, 1, 1 });
    const struct step add = { .op = "Add" }, product = { .op = "MatMul" };
    const struct step relu = { .op = "Relu" };

    (void)state;
    assert_int_equal(apply(graph, &add, 2, (int[]){ x, y }, &err), -1);
    assert_contains(err.text, "does not broadcast");
    assert_int_equal(apply(graph, &product, 2, (int[]){ x, y }, &err), -1);
    assert_contains(err.text, "does not fit");
    assert_int_equal(apply(graph, &relu, 1, &ids, &err), -1);
    assert_contains(err.text, "int64");
    assert_int_equal(apply(graph, &(struct step){ "Reshape", "shape", { 5 }, 1, NULL, 0 }, 1,
                           &x, &err), -1);
    assert_contains(err.text, "cannot become");
    assert_int_equal(apply(graph, &add, 1, &x, &err), -1);
    assert_contains(err.text, "1 inputs are not supported");
    graph_free(graph);
}

static void batch_of_one_refuses_nothing(void **state)
{
    struct graph *graph = graph_new(1, DTYPE_F32);
    struct err err = { 0 };
    int x = input(graph, (struct shape){ 3, { 1, 1, 6 } }, (struct batch){ 1, 6, 1 });

    (void)state;
    for (int axis = 0; axis < 3; axis++)
        assert_true(apply(graph, &(struct step){ .op = "Softmax", .name = "axis",
                                                 .value = axis }, 1, &x, &err) >= 0);
    graph_free(graph);
}

static void names_are_unique_and_found(void **state)
{
    struct graph *graph = graph_new(B, DTYPE_F32);
    const struct shape scalar = { 0, { 0 } };
    const struct batch none = { 0 };

    (void)state;
    for (int i = 0; i < 500; i++)
        graph_add_value(graph, i % 2 ? "x" : NULL, VALUE_INPUT, DTYPE_F32, &scalar, none);
    for (int i = 0; i < 500; i++)
        assert_int_equal(graph_find_value(graph, graph->values[i].name), i);
    assert_int_equal(graph_find_value(graph, "y"), -1);
    graph_rename_value(graph, 7, "y");
    assert_int_equal(graph_find_value(graph, "y"), 7);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_mixes_samples_is_refused_by_node),
        cmocka_unit_test(along_other_axes_the_same_is_allowed),
        cmocka_unit_test(reshapes_keep_the_batch_and_transposes_move_it),
        cmocka_unit_test(images_that_are_several_to_a_sample_keep_their_order),
        cmocka_unit_test(samples_across_two_axes_are_refused_when_used),
        cmocka_unit_test(combining_samples_with_each_other_is_refused),
        cmocka_unit_test(a_baked_in_row_for_each_sample_is_refused),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused),
        cmocka_unit_test(batch_of_one_refuses_nothing),
        cmocka_unit_test(names_are_unique_and_found),
    };

    return cmocka_run_group_tests_name("infer", tests, NULL, NULL);
}
