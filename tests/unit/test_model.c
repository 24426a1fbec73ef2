/* SPDX-License-Identifier: MIT */
/* From a file to the graph that is trained: batch sizes, parameters, losses, what is refused. */
#include "unit.h"

#include "base/file.h"
#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/model.h"
#include "graph/op.h"
#include "onnx_text.h"

static char directory[520], path[600];
static struct model *model;

static int setup(void **state)
{
    (void)state;
    strcpy(directory, unit_directory());
    snprintf(path, sizeof(path), "%s/net.onnx", directory);
    return 0;
}

static int teardown(void **state)
{
    char command[700];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", directory);
    return system(command);
}

static void open_model(const char *text)
{
    struct err err = { 0 };

    onnx_write_text(path, text);
    model = model_open(path, &err);
    if (!model)
        fail_msg("%s", err.text);
}

static struct graph *build_with(struct model_options options)
{
    struct err err = { 0 };
    struct graph *graph = model_build(model, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    if (graph_check(graph, &err))
        fail_msg("%s", err.text);
    return graph;
}

static struct graph *build(const char *text, int64_t batch)
{
    open_model(text);
    return build_with((struct model_options){ .batch = batch, .real = DTYPE_F32 });
}

static void done(struct graph *graph)
{
    graph_free(graph);
    model_close(model);
    model = NULL;
}

static void refused_with(struct model_options options, const char *part)
{
    struct err err = { 0 };

    assert_null(model_build(model, &options, &err));
    assert_contains(err.text, path);
    assert_contains(err.text, part);
    assert_null(strchr(err.text, '\n'));
}

static void refused(const char *text, const char *part)
{
    open_model(text);
    refused_with((struct model_options){ .batch = 4, .real = DTYPE_F32 }, part);
    model_close(model);
}

static const struct value *value(const struct graph *graph, const char *name)
{
    int v = graph_find_value(graph, name);

    if (v < 0)
        fail_msg("there is no \"%s\"", name);
    return &graph->values[v];
}

static void shape_is(const struct graph *graph, const char *name, const char *expected)
{
    char text[160];

    assert_string_equal(shape_text(&value(graph, name)->shape, text, sizeof(text)), expected);
}

static bool noted(const char *part)
{
    int i;

    for (i = 0; i < model_notes(model); i++)
        if (strstr(model_note(model, i), part))
            return true;
    return false;
}

static int count(const struct graph *graph, const char *op)
{
    int n, found = 0;

    for (n = 0; n < graph->n_nodes; n++)
        found += strcmp(graph->nodes[n].op->name, op) == 0;
    return found;
}

/* Batch ------------------------------------------------------------------------------- */

static void the_batch_is_set_in_every_shape(void **state)
{
    struct graph *graph = build("input x float batch,4\n init w float 4,3\n"
                                "node MatMul x,w -> y\n output y", 5);

    (void)state;
    shape_is(graph, "x", "5x4");
    shape_is(graph, "y", "5x3");
    shape_is(graph, "labels", "5");
    assert_int_equal(value(graph, "y")->batch.outer, 1);
    assert_int_equal(value(graph, "y")->batch.inner, 3);
    assert_int_equal(value(graph, "w")->batch.outer, 0);
    done(graph);
}

#define BAKED "input x float 2,6,4\n const r int64 2 = 12,4\n const q int64 3 = 2,6,4\n"        \
              "const h int64 4 = 2,-1,2,2\n init w float 4,4\n node Reshape x,r -> a\n"         \
              "node MatMul a,w -> b\n node Reshape b,q -> c\n node Reshape c,h -> d\n"          \
              "node Transpose d -> e perm=[1,0,2,3]\n const f int64 3 = 6,4,2\n"                \
              "node Reshape e,f -> g\n node Transpose g -> y perm=[1,0,2]\n"                    \
              "const z int64 2 = 2,24\n node Transpose g -> t perm=[1,2,0]\n"                   \
              "const k int64 4 = 2,2,2,6\n node Reshape t,k -> t1\n node Reshape t1,z -> u\n"   \
              "output u"

static void a_baked_in_batch_size_is_exchanged(void **state)
{
    static const int64_t sizes[] = { 1, 2, 3, 8 };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct graph *graph = build(BAKED, sizes[i]);
        char expected[64];

        snprintf(expected, sizeof(expected), "%dx4", (int)sizes[i] * 6);
        shape_is(graph, "a", expected);
        snprintf(expected, sizeof(expected), "6x%dx2x2", (int)sizes[i]);
        shape_is(graph, "e", expected);
        snprintf(expected, sizeof(expected), "%dx24", (int)sizes[i]);
        shape_is(graph, "u", expected);
        assert_int_equal(value(graph, "e")->batch.outer, 6);
        assert_int_equal(value(graph, "e")->batch.inner, 4);
        done(graph);
    }
}

static void shapes_at_one_sample_are_not_guessed(void **state)
{
    /* [batch, 3, 4] merged to [3 * batch, 4]: at one sample both axes could be it. */
    struct graph *graph = build("input x float batch,3,4\n const r int64 2 = -1,4\n"
                                "init w float 4,4\n init b float 4\n"
                                "node Transpose x -> t perm=[1,0,2]\n node Reshape t,r -> a\n"
                                "node Gemm a,w,b -> g\n const s int64 3 = 3,-1,4\n"
                                "node Reshape g,s -> c\n node Transpose c -> y perm=[1,0,2]\n"
                                "output y", 1);

    (void)state;
    assert_int_equal(value(graph, "g")->batch.outer, 3);
    assert_int_equal(value(graph, "g")->batch.inner, 4);
    assert_int_equal(value(graph, "y")->batch.outer, 1);
    done(graph);
}

static void constants_as_long_as_the_batch_belong_to_the_samples(void **state)
{
    /* Position ids, expanded to the batch by the shape of the input. */
    struct graph *graph = build("input t int64 batch,4\n init e float 9,6\n init p float 4,6\n"
                                "const ids int64 1,4 = 0,1,2,3\n node Shape t -> s\n"
                                "node Expand ids,s -> pos\n node Gather e,t -> a\n"
                                "node Gather p,pos -> b\n node Add a,b -> y\n output y", 3);

    (void)state;
    assert_int_equal(value(graph, "b")->batch.outer, 1);
    assert_int_equal(value(graph, "b")->batch.inner, 24);
    shape_is(graph, "b", "3x4x6");
    done(graph);
}

static void what_counts_the_samples_is_refused(void **state)
{
    (void)state;
    refused("input x float batch,4\n node Shape x -> s\n const i int64 . = 0\n"
            "node Gather s,i -> n\n node Cast n -> f to=1\n node Div x,f -> y\n output y",
            "changes with the batch size");
    refused("input x float batch,4\n node Transpose x -> t perm=[1,0]\n"
            "node MatMul t,x -> y\n output y", "samples");
    refused("input x float batch,4\n node ReduceMean x -> m axes=[0] keepdims=1\n"
            "node Sub x,m -> y\n output y", "samples");
}

/* The same nodes, values and names at every batch size. */
static void graphs_of_all_batch_sizes_are_alike(void **state)
{
    struct graph *a, *b;
    int i;

    (void)state;
    open_model(BAKED);
    a = build_with((struct model_options){ .batch = 1, .real = DTYPE_F32, .fuse = true });
    b = build_with((struct model_options){ .batch = 7, .real = DTYPE_F32, .fuse = true });
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_values, b->n_values);
    for (i = 0; i < a->n_nodes; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_ptr_equal(a->nodes[i].op, b->nodes[i].op);
        assert_int_equal(a->nodes[i].key, b->nodes[i].key);
    }
    for (i = 0; i < a->n_values; i++) {
        assert_string_equal(a->values[i].name, b->values[i].name);
        assert_int_equal(a->values[i].batch.outer, b->values[i].batch.outer);
        assert_int_equal(a->values[i].batch.inner, b->values[i].batch.inner);
        assert_int_equal(a->values[i].batch.place, b->values[i].batch.place);
    }
    graph_free(a);
    done(b);
}

/* Parameters -------------------------------------------------------------------------- */

static void an_identity_of_a_parameter_is_a_tie(void **state)
{
    struct graph *graph = build("input t int64 batch,4\n init e float 9,6\n"
                                "node Identity e -> h\n node Gather e,t -> a\n"
                                "node Transpose h -> i perm=[1,0]\n node MatMul a,i -> y\n"
                                "output y", 2);

    (void)state;
    assert_int_equal(value(graph, "e")->n_consumers, 2);
    assert_true(graph_find_value(graph, "h") < 0);
    assert_true(noted("tied"));
    done(graph);
}

#define COPIED "input t int64 batch,4\n"                                                       \
               "init e float 4,4 = 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                   \
               "init val_7 float 4,4 = 0,4,8,12,1,5,9,13,2,6,10,14,3,7,11,15\n"              \
               "init val_8 float 4,4 = 0,4,8,12,1,5,9,13,2,6,10,14,3,7,11,99\n"              \
               "node Gather e,t -> a\n node MatMul a,val_7 -> b\n node MatMul b,val_8 -> y\n" \
               "output y"

static void a_transposed_copy_of_a_parameter_is_a_tie(void **state)
{
    struct graph *graph = build(COPIED, 2);

    (void)state;
    assert_int_equal(value(graph, "e")->n_consumers, 2);
    assert_int_equal(value(graph, "val_7")->kind, VALUE_NODE);
    assert_int_equal(value(graph, "val_8")->kind, VALUE_PARAM);
    assert_true(noted("\"val_7\" is a transposed copy of \"e\""));
    done(graph);
}

static int counted(void *user, const char *name, enum dtype dtype, size_t elements, void *data,
                   struct err *err)
{
    size_t i;

    (void)user;
    (void)dtype;
    (void)err;
    if (strcmp(name, "e") != 0)
        return 1;
    for (i = 0; i < elements; i++)
        ((float *)data)[i] = 100 + (float)i;
    return 0;
}

static void an_export_keeps_transposed_copies_equal(void **state)
{
    char copy[600];
    struct err err = { 0 };
    struct graph *graph;
    float e[16];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copied.onnx", directory);
    open_model(COPIED);
    assert_int_equal(model_export(model, copy, counted, NULL, &err), 0);
    model_close(model);
    model = model_open(copy, &err);
    if (!model)
        fail_msg("%s", err.text);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    memcpy(e, value(graph, "e")->data, sizeof(e));
    assert_true(e[1] == 101);
    /* Still found to be a copy: it was written transposed. */
    assert_int_equal(value(graph, "val_7")->kind, VALUE_NODE);
    done(graph);
}

static void what_an_exporter_merged_is_warned_about(void **state)
{
    struct graph *graph = build("input x float batch,4\n init w float 4,4\n init v float 4,4\n"
                                "init b float 4 = 0\n node MatMul x,w -> a\n node Add a,b -> c\n"
                                "node Relu c -> d\n node MatMul d,v -> e\n node Add e,b -> y\n"
                                "output y", 2);

    (void)state;
    assert_true(noted("warning: 1 of them starts with one value everywhere, \"b\""));
    done(graph);
}

static void what_depends_on_no_sample_is_prepared_for_each_reader(void **state)
{
    struct graph *graph = build("input x float batch,4\n init w float 4,4\n"
                                "node Transpose w -> t perm=[1,0]\n node MatMul x,t -> a\n"
                                "node Relu a -> b\n node MatMul b,t -> y\n output y", 2);
    int n, prepared = 0;

    (void)state;
    for (n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].part == PART_PREPARE) {
            prepared++;
            assert_int_equal(graph->values[graph->nodes[n].outputs[0]].n_consumers, 1);
        }
    assert_int_equal(prepared, 2);
    done(graph);
}

static void masks_and_what_no_gradient_reaches_are_constants(void **state)
{
    struct graph *graph = build("input x float batch,3\n init w float 3,3\n"
                                "init mask float 3 = 0,0,-inf\n node MatMul x,w -> a\n"
                                "node Add a,mask -> b\n node Softmax b -> y axis=-1\n output y",
                                2);

    (void)state;
    assert_int_equal(value(graph, "mask")->kind, VALUE_CONST);
    assert_int_equal(value(graph, "w")->kind, VALUE_PARAM);
    done(graph);
}

static void float64_widens_constants_and_keeps_the_files_parameters(void **state)
{
    struct graph *graph;
    double half;

    (void)state;
    open_model("input x float batch,3\n init w float 3,3\n const c float . = 0.5\n"
               "node MatMul x,w -> a\n node Mul a,c -> y\n output y");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F64 });
    assert_int_equal(value(graph, "c")->file_dtype, DTYPE_F64);
    memcpy(&half, value(graph, "c")->data, sizeof(half));
    assert_true(half == 0.5);
    assert_int_equal(value(graph, "w")->dtype, DTYPE_F64);
    assert_int_equal(value(graph, "w")->file_dtype, DTYPE_F32);
    assert_int_equal(value(graph, "y")->dtype, DTYPE_F64);
    done(graph);
}

#define NORM(training)                                                                       \
    "opset 17\n input x float batch,2,3,3\n init s float 2\n init b float 2\n init m float 2\n" \
    "init v float 2\n node BatchNormalization x,s,b,m,v -> h " training "\n"                 \
    "node Flatten h -> y\n output y"

static void batch_norm_is_brought_into_training_form(void **state)
{
    struct graph *graph = build(NORM("epsilon=0.5 momentum=0.75"), 4);

    (void)state;
    assert_int_equal(value(graph, "m")->kind, VALUE_STAT);
    assert_int_equal(value(graph, "v")->kind, VALUE_STAT);
    assert_int_equal(value(graph, "s")->kind, VALUE_PARAM);
    assert_true(noted("exported for inference"));
    done(graph);
    graph = build(NORM("training_mode=1"), 4);
    assert_false(noted("exported for inference"));
    done(graph);
}

static void merged_statistics_are_kept_apart(void **state)
{
    struct graph *graph;

    (void)state;
    graph = build("input x float batch,2,3\n init s float 2\n init b float 2\n init m float 2\n"
                  "init v float 2\n node Identity m -> m2\n node Identity v -> v2\n"
                  "node BatchNormalization x,s,b,m,v -> h\n"
                  "node BatchNormalization h,s,b,m2,v2 -> y\n output y", 4);
    assert_int_equal(value(graph, "m")->kind, VALUE_STAT);
    assert_int_equal(value(graph, "m2")->kind, VALUE_STAT);
    assert_ptr_equal(value(graph, "m")->data, value(graph, "m2")->data);
    assert_int_equal(value(graph, "v2")->n_consumers, 1);
    assert_true(noted("2 running statistics were merged"));
    assert_true(model_has(model, "m") && !model_has(model, "m2"));
    done(graph);
    refused("input x float batch,2,3\n init s float 2\n init b float 2\n init m float 2\n"
            "init v float 2\n node BatchNormalization x,s,b,m,v -> h\n"
            "node BatchNormalization h,s,b,m,v -> y\n output y", "are shared");
}

static void dropout_keeps_the_key_of_its_node(void **state)
{
    struct graph *graph;
    int n;

    (void)state;
    open_model("opset 11\n input x float batch,4\n init w float 4,4\n"
               "node MatMul x,w -> a\n node Dropout a -> y ratio=0.25\n output y");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32, .fuse = true });
    for (n = 0; n < graph->n_nodes; n++)
        if (strcmp(graph->nodes[n].op->name, "Dropout") == 0) {
            assert_true(node_float(&graph->nodes[n], "ratio", 0) == 0.25);
            assert_int_equal(graph->nodes[n].key, graph_key("y"));
        }
    assert_int_equal(count(graph, "Dropout"), 1);
    done(graph);
}

/* Losses ------------------------------------------------------------------------------ */

#define NET "input x float batch,4\n init w float 4,3\n node MatMul x,w -> y\n output y"

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

/* Refusals ---------------------------------------------------------------------------- */

static void all_unsupported_nodes_are_named_at_once(void **state)
{
    const struct model_unsupported *list;
    struct err err = { 0 };
    struct model_options options = { .batch = 2, .real = DTYPE_F32 };

    (void)state;
    open_model("input x float batch,4\n node Det x -> a\n node com.example:Foo a -> b\n"
               "node Relu b -> c\n node Scan c -> y\n output y");
    assert_null(model_build(model, &options, &err));
    assert_contains(err.text, "3 nodes are not supported: node ");
    assert_contains(err.text, "\"a\" (Det)");
    assert_contains(err.text, "\"b\" (com.example.Foo)");
    assert_contains(err.text, "\"y\" (Scan)");
    assert_int_equal(model_unsupported(model, &list), 3);
    assert_string_equal(list[1].domain, "com.example");
    model_close(model);
}

static void integers_keep_their_types(void **state)
{
    static const enum dtype types[] = { DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                        DTYPE_I32, DTYPE_I64, DTYPE_U32, DTYPE_U64 };
    struct graph *graph;
    char text[300];

    (void)state;
    for (int i = 0; i < 8; i++) {
        const char *name = dtype_name(types[i]);

        snprintf(text, sizeof(text),
                 "input x %s batch,3\n const c %s . = 200\n node Add x,c -> a\n"
                 "node Relu a -> r\n const t float 3,1 = 1\n node Cast r -> f to=1\n"
                 "node MatMul f,t -> y\n output y", name, name);
        graph = build(text, 2);
        assert_int_equal(value(graph, "x")->dtype, types[i]);
        assert_int_equal(value(graph, "a")->dtype, types[i]);
        assert_int_equal(value(graph, "r")->dtype, types[i]);
        assert_int_equal(value(graph, "f")->dtype, DTYPE_F32);
        done(graph);
    }
}

static void types_that_are_not_supported_are_named(void **state)
{
    (void)state;
    refused("input x string batch,3\n node Identity x -> y\n output y",
            "input \"x\": elements of type string are not supported");
    refused("input x float batch,3\n node Cast x -> y to=8\n output y",
            "node \"y\" (Cast): a cast to string is not supported");
    refused("input x uint16 batch,3\n node Neg x -> y\n output y",
            "node \"y\" (Neg): input 0 is uint16");
}

static void inputs_must_fit_the_data(void **state)
{
    static const struct model_tensor narrow[] = { { "x", DTYPE_F32, { 1, { 5 } } } };
    static const struct model_tensor other[] = { { "z", DTYPE_F32, { 1, { 4 } } } };
    static const struct model_tensor text[] = { { "x", DTYPE_I64, { 1, { 4 } } } };
    struct model_options options = { .batch = 2, .real = DTYPE_F32, .n_tensors = 1 };

    (void)state;
    open_model(NET);
    options.tensors = narrow;
    refused_with(options, "dimension 1 is 4, in the data 5");
    options.tensors = other;
    refused_with(options, "the data have no tensor \"x\"");
    options.tensors = text;
    refused_with(options, "input \"x\" is float32, its data are int64");
    model_close(model);
}

static void open_dimensions_come_from_the_data(void **state)
{
    static const struct model_tensor tensors[] = { { "x", DTYPE_F32, { 2, { 6, 4 } } },
                                                   { "t", DTYPE_F32, { 2, { 6, 4 } } } };
    struct graph *graph;

    (void)state;
    open_model("input x float batch,time,4\n init w float 4,4\n node MatMul x,w -> y\n"
               "output y");
    refused_with((struct model_options){ .batch = 2, .real = DTYPE_F32 },
                 "dimension 1 of input \"x\" is not fixed");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32, .n_tensors = 2,
                                               .tensors = tensors });
    shape_is(graph, "y", "2x6x4");
    done(graph);
}

/* Export ------------------------------------------------------------------------------ */

static int new_values(void *user, const char *name, enum dtype dtype, size_t elements,
                      void *data, struct err *err)
{
    (void)user;
    (void)err;
    if (strcmp(name, "w") != 0)
        return 1;
    for (size_t i = 0; i < elements; i++)
        dtype_put_real(dtype, data, (int64_t)i, (double)i);
    return 0;
}

static void an_export_changes_nothing_but_the_values(void **state)
{
    char copy[600];
    struct file_map before, after;
    struct err err = { 0 };
    size_t i, first = 0, last = 0;

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", directory);
    open_model("input x float batch,4\n init v float 4\n init w float 2,2 = 7,7,7,7\n"
               "init u float 4\n node Add x,v -> y\n output y");
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    assert_int_equal(file_map_open(path, &before, &err), 0);
    assert_int_equal(file_map_open(copy, &after, &err), 0);
    assert_int_equal(before.size, after.size);
    for (i = 0; i < before.size; i++)
        if (before.data[i] != after.data[i]) {
            first = first ? first : i;
            last = i;
        }
    assert_true(first && last - first < 16);
    file_map_close(&before);
    file_map_close(&after);
    model_close(model);
}

static void small_floats_are_trained_as_the_runs_and_exported_as_they_were(void **state)
{
    struct err err = { 0 };
    struct graph *graph;
    char copy[600];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", directory);
    open_model("input x float16 batch,2\n init w float16 2,2 = 0.5\n init b bfloat16 2 = 1.5\n"
               "const c float16 . = 2\n node MatMul x,w -> m\n node Add m,b -> a\n"
               "node Mul a,c -> t\n node Cast t -> y to=10\n output y");
    graph = build_with((struct model_options){ .batch = 3, .real = DTYPE_F32 });
    assert_int_equal(value(graph, "x")->dtype, DTYPE_F32);
    assert_int_equal(value(graph, "w")->dtype, DTYPE_F32);
    assert_int_equal(value(graph, "w")->file_dtype, DTYPE_F16);
    assert_true(dtype_real(DTYPE_F16, value(graph, "w")->data, 3) == 0.5);
    assert_true(dtype_real(DTYPE_BF16, value(graph, "b")->data, 1) == 1.5);
    assert_int_equal(value(graph, "t")->dtype, DTYPE_F32);
    assert_int_equal(count(graph, "Cast"), 0);
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    done(graph);
    model = model_open(copy, &err);
    assert_non_null(model);
    graph = build_with((struct model_options){ .batch = 3, .real = DTYPE_F64 });
    assert_int_equal(value(graph, "w")->file_dtype, DTYPE_F16);
    assert_true(dtype_real(DTYPE_F16, value(graph, "w")->data, 3) == 3);
    done(graph);
}

static void an_export_takes_external_data_in(void **state)
{
    char copy[600], file[600];
    struct err err = { 0 };
    struct graph *graph;
    float data[4];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", directory);
    snprintf(file, sizeof(file), "%s/weights.bin", directory);
    unit_write(file, "0123456789abcdefABCDEFGHIJKLMNOP");
    open_model("input x float batch,4\n external w float 4 weights.bin 0 16\n"
               "external b float 4 weights.bin 16 16\n init c float 4\n node Mul x,w -> a\n"
               "node Add a,c -> d\n node Add d,b -> y\n output y");
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    model_close(model);
    unlink(file);
    model = model_open(copy, &err);
    if (!model)
        fail_msg("%s", err.text);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    memcpy(data, value(graph, "w")->data, sizeof(data));
    assert_true(data[0] == 0 && data[3] == 3);
    assert_memory_equal(value(graph, "b")->data, "ABCDEFGHIJKLMNOP", 16);
    done(graph);
}

static int unchanged(void *user, const char *name, enum dtype dtype, size_t elements,
                     void *data, struct err *err)
{
    (void)user;
    (void)name;
    (void)dtype;
    (void)elements;
    (void)data;
    (void)err;
    return 1;
}

static void a_model_without_weights_is_built_and_exported_with_new_ones(void **state)
{
    char copy[600];
    struct err err = { 0 };
    struct graph *graph;
    float data[4];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", directory);
    open_model("input x float batch,4\n absent w float 4\n init c float 4\n"
               "node Mul x,w -> a\n node Add a,c -> y\n output y");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    assert_int_equal(value(graph, "w")->kind, VALUE_PARAM);
    assert_null(value(graph, "w")->data);
    graph_free(graph);
    assert_int_equal(model_export(model, copy, unchanged, NULL, &err), -1);
    assert_non_null(strstr(err.text, "\"w\" has no values"));
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    model_close(model);
    model = model_open(copy, &err);
    assert_non_null(model);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    memcpy(data, value(graph, "w")->data, sizeof(data));
    assert_true(data[0] == 0 && data[3] == 3);
    done(graph);
}

/* Sixteen masks of 2^23 elements are more than may be folded; one is not. */
static void what_layers_repeat_is_folded_once_and_is_one_constant(void **state)
{
    char text[4096] = "input x float batch,4\n init n int64 2 = 2048,4096\n"
                      " node Identity x -> x0\n";
    struct graph *graph;
    int v, constants = 0;

    (void)state;
    for (int i = 0; i < 16; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 " node ConstantOfShape n -> c%d\n node Trilu c%d -> t%d upper=0\n"
                 " node ReduceMax t%d -> r%d keepdims=0\n node Add x%d,r%d -> x%d\n", i, i, i,
                 i, i, i, i, i + 1);
    strcat(text, " output x16");
    open_model(text);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    for (v = 0; v < graph->n_values; v++)
        constants += graph->values[v].kind == VALUE_CONST;
    assert_int_equal(constants, 1);
    assert_int_equal(count(graph, "Add"), 16);
    done(graph);
}

/* Each call makes a node "const" of its own; read 130 times it were more than may be folded. */
static void a_constant_of_a_function_is_read_once(void **state)
{
    char text[8192] = "function f:C p -> q\n const c float 1048576\n"
                      " node ReduceMax c -> r keepdims=0\n node Add p,r -> q\n end\n"
                      "input x float batch,4\n node Identity x -> x0\n";
    struct graph *graph;
    int constants = 0;

    (void)state;
    for (int i = 0; i < 130; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " node f:C x%d -> x%d\n", i,
                 i + 1);
    strcat(text, " output x130");
    open_model(text);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    for (int v = 0; v < graph->n_values; v++)
        constants += graph->values[v].kind == VALUE_CONST;
    assert_int_equal(constants, 1);
    assert_int_equal(count(graph, "Add"), 130);
    done(graph);
}

static int failing(void *user, const char *name, enum dtype dtype, size_t elements, void *data,
                   struct err *err)
{
    (void)user;
    (void)dtype;
    (void)elements;
    (void)data;
    return err_set(err, "%s is lost", name);
}

static void a_failed_export_leaves_no_file(void **state)
{
    char copy[600];
    struct err err = { 0 };

    (void)state;
    snprintf(copy, sizeof(copy), "%s/failed.onnx", directory);
    open_model(NET);
    assert_int_equal(model_export(model, copy, failing, NULL, &err), -1);
    assert_string_equal(err.text, "w is lost");
    assert_int_equal(access(copy, F_OK), -1);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_batch_is_set_in_every_shape),
        cmocka_unit_test(a_baked_in_batch_size_is_exchanged),
        cmocka_unit_test(shapes_at_one_sample_are_not_guessed),
        cmocka_unit_test(constants_as_long_as_the_batch_belong_to_the_samples),
        cmocka_unit_test(what_counts_the_samples_is_refused),
        cmocka_unit_test(graphs_of_all_batch_sizes_are_alike),
        cmocka_unit_test(an_identity_of_a_parameter_is_a_tie),
        cmocka_unit_test(a_transposed_copy_of_a_parameter_is_a_tie),
        cmocka_unit_test(an_export_keeps_transposed_copies_equal),
        cmocka_unit_test(what_an_exporter_merged_is_warned_about),
        cmocka_unit_test(what_depends_on_no_sample_is_prepared_for_each_reader),
        cmocka_unit_test(masks_and_what_no_gradient_reaches_are_constants),
        cmocka_unit_test(float64_widens_constants_and_keeps_the_files_parameters),
        cmocka_unit_test(batch_norm_is_brought_into_training_form),
        cmocka_unit_test(merged_statistics_are_kept_apart),
        cmocka_unit_test(dropout_keeps_the_key_of_its_node),
        cmocka_unit_test(an_integer_tensor_means_cross_entropy),
        cmocka_unit_test(a_float_tensor_of_the_outputs_shape_means_squares),
        cmocka_unit_test(a_dot_product_is_not_divided),
        cmocka_unit_test(an_unclear_loss_lists_what_there_is),
        cmocka_unit_test(the_class_axis_follows_the_labels),
        cmocka_unit_test(two_axes_that_may_be_the_classes_are_said),
        cmocka_unit_test(a_loss_in_the_graph_is_found),
        cmocka_unit_test(each_loss_has_gradients_for_all_parameters),
        cmocka_unit_test(all_unsupported_nodes_are_named_at_once),
        cmocka_unit_test(integers_keep_their_types),
        cmocka_unit_test(types_that_are_not_supported_are_named),
        cmocka_unit_test(inputs_must_fit_the_data),
        cmocka_unit_test(open_dimensions_come_from_the_data),
        cmocka_unit_test(an_export_changes_nothing_but_the_values),
        cmocka_unit_test(small_floats_are_trained_as_the_runs_and_exported_as_they_were),
        cmocka_unit_test(an_export_takes_external_data_in),
        cmocka_unit_test(a_model_without_weights_is_built_and_exported_with_new_ones),
        cmocka_unit_test(what_layers_repeat_is_folded_once_and_is_one_constant),
        cmocka_unit_test(a_constant_of_a_function_is_read_once),
        cmocka_unit_test(a_failed_export_leaves_no_file),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
