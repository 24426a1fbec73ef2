/* SPDX-License-Identifier: MIT */
/* From a file to the graph that is trained: batch sizes, parameters, what is refused. */
#include "model_text.h"
#include "unit.h"

#include "graph/op.h"

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
    snprintf(copy, sizeof(copy), "%s/copied.onnx", net_directory);
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

static void the_mask_of_a_dropout_may_be_read(void **state)
{
    struct graph *graph = build("input x float batch,4\n init w float 4,4\n"
                                "const r float . = 0.25\n const t bool . = 1\n"
                                "node Dropout x,r,t -> a,m\n node Cast m -> f to=1\n"
                                "node Mul a,f -> b\n node MatMul b,w -> y\n output y", 3);
    const struct node *node = &graph->nodes[value(graph, "m")->producer];

    (void)state;
    assert_string_equal(node->op->name, "Dropout");
    assert_int_equal(node->n_outputs, 2);
    assert_int_equal(value(graph, "m")->dtype, DTYPE_BOOL);
    shape_is(graph, "m", "3x4");
    assert_int_equal(value(graph, "m")->batch.inner, 4);
    done(graph);
}

static void outputs_that_no_node_makes_are_kept_without_a_loss(void **state)
{
    struct graph *graph;

    (void)state;
    open_model("input x float batch,4\n const c int64 2 = 5,6\n node Identity x -> y\n"
               "node Abs x -> z\n output c\n output y\n output z");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32,
                                               .no_loss = true });
    assert_int_equal(graph->n_outputs, 3);
    assert_int_equal(graph->values[graph->outputs[0]].kind, VALUE_CONST);
    assert_int_equal(graph->outputs[1], graph->inputs[0]);
    assert_int_equal(graph->outputs[2], graph_find_value(graph, "z"));
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

/* A double has 53. */
static void what_pads_integers_keeps_all_its_bits(void **state)
{
    struct graph *graph = build("input t int64 batch,2\n const p int64 4 = 0,1,0,0\n"
                                "const a int64 . = 9007199254740992\n const b int64 . = 1\n"
                                "init w float 3\n node Add a,b -> v\n node Pad t,p,v -> q\n node Cast q -> r to=1\n"
                                "node Mul r,w -> y\n output y", 2);

    (void)state;
    shape_is(graph, "q", "2x3");
    assert_true(node_int(&graph->nodes[value(graph, "q")->producer], "value", 0) ==
                9007199254740993);
    done(graph);
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
        cmocka_unit_test(the_mask_of_a_dropout_may_be_read),
        cmocka_unit_test(outputs_that_no_node_makes_are_kept_without_a_loss),
        cmocka_unit_test(all_unsupported_nodes_are_named_at_once),
        cmocka_unit_test(integers_keep_their_types),
        cmocka_unit_test(types_that_are_not_supported_are_named),
        cmocka_unit_test(inputs_must_fit_the_data),
        cmocka_unit_test(open_dimensions_come_from_the_data),
        cmocka_unit_test(what_layers_repeat_is_folded_once_and_is_one_constant),
        cmocka_unit_test(a_constant_of_a_function_is_read_once),
        cmocka_unit_test(what_pads_integers_keeps_all_its_bits),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
