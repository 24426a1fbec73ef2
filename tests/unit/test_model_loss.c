/* SPDX-License-Identifier: MIT */
/* Which loss a model gets from its outputs and the data, and that it has gradients. */
#include "model_text.h"
#include "unit.h"

#include "graph/autodiff.h"
#include "graph/op.h"

static struct graph *build_on(const struct model_tensor *tensors, int n, const char *loss)
{
    open_model(NET);
    return build_with((struct model_options){ .batch = 2, .real = DTYPE_F32, .loss = loss,
                                              .n_tensors = n, .tensors = tensors });
}

static const struct model_tensor classes[] = {
    { "x", DTYPE_F32, { 1, { 4 } } }, { "digit", DTYPE_I64, { 0 } },
};

static const struct model_tensor targets[] = {
    { "x", DTYPE_F32, { 1, { 4 } } }, { "wanted", DTYPE_F32, { 1, { 3 } } },
};

static void an_integer_tensor_means_cross_entropy(void **state)
{
    struct graph *graph = build_on(classes, 2, NULL);

    (void)state;
    assert_int_equal(count(graph, "CrossEntropySum"), 1);
    assert_true(graph->correct >= 0 && graph->weight_sum >= 0);
    assert_int_equal(graph->loss_rule.weight, LOSS_WEIGHT_LABELS);
    assert_true(graph->loss_rule.classify && graph->loss_rule.classes == 3);
    assert_string_equal(graph->values[graph->loss_rule.labels].name, "digit");
    assert_true(noted("cross-entropy of \"y\" and \"digit\""));
    done(graph);
}

static void a_float_tensor_of_the_outputs_shape_means_squares(void **state)
{
    struct graph *graph = build_on(targets, 2, NULL);

    (void)state;
    assert_int_equal(count(graph, "MseSum"), 1);
    assert_int_equal(graph->loss_rule.weight, LOSS_WEIGHT_SAMPLES);
    assert_true(graph->loss_rule.per_sample == 3);
    assert_true(graph->correct < 0);
    done(graph);
}

static void a_dot_product_is_not_divided(void **state)
{
    struct graph *graph = build_on(targets, 2, "dot:y,wanted");

    (void)state;
    assert_int_equal(count(graph, "DotSum"), 1);
    assert_int_equal(graph->loss_rule.weight, LOSS_WEIGHT_ONE);
    done(graph);
}

static void an_unclear_loss_lists_what_there_is(void **state)
{
    static const struct model_tensor two[] = {
        { "x", DTYPE_F32, { 1, { 4 } } }, { "digit", DTYPE_I64, { 0 } },
        { "other", DTYPE_F32, { 2, { 7, 8 } } },
    };
    struct model_options options = { .batch = 2, .real = DTYPE_F32, .n_tensors = 3,
                                     .tensors = two };
    struct err err = { 0 };

    (void)state;
    open_model(NET);
    refused_with(options, "which tensor has the labels?");
    refused_with(options, "\"y\" (float32 2x3)");
    refused_with(options, "\"other\" (float32, 7x8 per sample)");
    options.loss = "cross-entropy:y,missing";
    refused_with(options, "no tensor \"missing\"");
    options.loss = "mse:y,other";
    refused_with(options, "not of the output's type and shape: \"other\"");
    options.loss = "hinge:y,digit";
    assert_null(model_build(model, &options, &err));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_contains(err.text, "hinge:y,digit");
    model_close(model);
}

static void the_class_axis_follows_the_labels(void **state)
{
    static const struct model_tensor last[] = {
        { "x", DTYPE_F32, { 2, { 5, 4 } } }, { "l", DTYPE_I64, { 1, { 5 } } },
    };
    static const struct model_tensor second[] = {
        { "x", DTYPE_F32, { 2, { 5, 4 } } }, { "l", DTYPE_I64, { 1, { 4 } } },
    };
    const struct model_tensor *both[] = { last, second };
    int i, n;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct graph *graph;

        open_model("input x float batch,5,4\n init w float 4,4\n node MatMul x,w -> y\n"
                   "output y");
        graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32,
                                                   .n_tensors = 2, .tensors = both[i] });
        for (n = 0; n < graph->n_nodes; n++)
            if (strcmp(graph->nodes[n].op->name, "CrossEntropySum") == 0)
                assert_int_equal(node_int(&graph->nodes[n], "axis", -1), i ? 1 : 2);
        done(graph);
    }
}

static void two_axes_that_may_be_the_classes_are_said(void **state)
{
    static const struct model_tensor tensors[] = {
        { "x", DTYPE_F32, { 2, { 4, 4 } } }, { "l", DTYPE_I64, { 1, { 4 } } },
    };
    struct graph *graph;

    (void)state;
    open_model("input x float batch,4,4\n init w float 4,4\n node MatMul x,w -> y\n output y");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32, .n_tensors = 2,
                                               .tensors = tensors });
    assert_true(noted("classes on the second axis, though the last is as long"));
    done(graph);
}

static void a_loss_in_the_graph_is_found(void **state)
{
    struct graph *graph = build("input x float batch,4\n input l int64 batch\n"
                                "init w float 4,3\n init c float 3 = 1,2,3\n"
                                "node MatMul x,w -> y\n"
                                "node SoftmaxCrossEntropyLoss y,l,c -> loss ignore_index=-1\n"
                                "output loss", 2);

    (void)state;
    assert_int_equal(count(graph, "CrossEntropySum"), 1);
    assert_int_equal(graph->loss_rule.weight, LOSS_WEIGHT_LABELS);
    assert_true(graph->loss_rule.ignores && graph->loss_rule.ignore_index == -1);
    assert_string_equal(graph->values[graph->loss_rule.class_weights].name, "c");
    assert_int_equal(value(graph, "c")->kind, VALUE_CONST);
    done(graph);
    graph = build("input x float batch,4\n input t float batch,3\n init w float 4,3\n"
                  "node MatMul x,w -> y\n node Sub y,t -> d\n node Mul d,d -> s\n"
                  "node ReduceMean s -> loss keepdims=0\n output loss", 2);
    assert_int_equal(count(graph, "SumLoss"), 1);
    assert_int_equal(graph->loss_rule.weight, LOSS_WEIGHT_SAMPLES);
    assert_true(graph->loss_rule.per_sample == 3);
    done(graph);
}

static void each_loss_has_gradients_for_all_parameters(void **state)
{
    static const char *const losses[] = { "cross-entropy:y,digit", "mse:y,t", "dot:y,t" };
    struct autodiff gradients;
    struct err err = { 0 };
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct graph *graph;

        open_model(NET);
        graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32,
                                                   .loss = losses[i], .fuse = true });
        assert_int_equal(autodiff(graph, NULL, 1, &gradients, NULL, &err), 0);
        assert_int_equal(gradients.n_params, 1);
        done(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_integer_tensor_means_cross_entropy),
        cmocka_unit_test(a_float_tensor_of_the_outputs_shape_means_squares),
        cmocka_unit_test(a_dot_product_is_not_divided),
        cmocka_unit_test(an_unclear_loss_lists_what_there_is),
        cmocka_unit_test(the_class_axis_follows_the_labels),
        cmocka_unit_test(two_axes_that_may_be_the_classes_are_said),
        cmocka_unit_test(a_loss_in_the_graph_is_found),
        cmocka_unit_test(each_loss_has_gradients_for_all_parameters),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
