/* SPDX-License-Identifier: MIT */
/* If, Loop and functions: the same as the network written out; and what is refused, all at once. */
#include "unit.h"

#include <stdlib.h>

#include "base/mem.h"
#include "graph/model.h"
#include "graph/onnx.h"
#include "onnx_text.h"
#include "run_graph.h"

static char directory[520], path[600], written_path[600];

static int setup(void **state)
{
    (void)state;
    strcpy(directory, unit_directory());
    snprintf(path, sizeof(path), "%s/net.onnx", directory);
    snprintf(written_path, sizeof(written_path), "%s/written.onnx", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unit_remove(directory);
}

static struct model_options options_of(int64_t batch)
{
    return (struct model_options){ .batch = batch, .real = DTYPE_F64, .no_loss = true };
}

static void feed(struct run_graph *run)
{
    for (int v = 0; v < run->graph->n_values; v++) {
        const struct value *value = &run->graph->values[v];
        size_t n = (size_t)shape_elements(&value->shape), i;
        double *x;

        if (value->kind == VALUE_NODE || value->kind == VALUE_CONST)
            continue;
        x = mem_new(n, sizeof(*x));
        for (i = 0; i < n; i++)
            x[i] = onnx_text_value(value->name, i);
        run_graph_set(run, v, x);
        free(x);
    }
}

/* The outputs of a network at batch 3, one after the other; free() them. */
static double *outputs_of(const char *file, const char *text, size_t *n)
{
    struct model_options options = options_of(3);
    struct err err = { 0 };
    struct model *model;
    struct graph *graph;
    struct run_graph *run;
    double *all = NULL;

    onnx_write_text(file, text);
    model = model_open(file, &err);
    graph = model ? model_build(model, &options, &err) : NULL;
    if (!graph || graph_check(graph, &err))
        fail_msg("%s", err.text);
    run = run_graph_new(backend_find("reference"), graph, &err);
    if (!run)
        fail_msg("%s", err.text);
    feed(run);
    assert_int_equal(run_graph_nodes(run, 0, graph->n_nodes, &err), 0);
    *n = 0;
    for (int i = 0; i < graph->n_outputs; i++) {
        size_t own = (size_t)shape_elements(&graph->values[graph->outputs[i]].shape);

        all = mem_resize(all, *n + own + 1, sizeof(*all));
        run_graph_get(run, graph->outputs[i], all + *n);
        *n += own;
    }
    run_graph_free(run);
    graph_free(graph);
    model_close(model);
    return all;
}

static void same(const char *text, const char *written)
{
    size_t n, m;
    double *a = outputs_of(path, text, &n), *b = outputs_of(written_path, written, &m);

    assert_int_equal(n, m);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_msg("element %zu is %.17g, expected %.17g", i, a[i], b[i]);
    free(a);
    free(b);
}

static void not_opened(const char *text, const char *part)
{
    struct err err = { 0 };

    onnx_write_text(path, text);
    assert_null(onnx_open(path, &err));
    assert_contains(err.text, part);
    assert_null(strchr(err.text, '\n'));
}

/* Refused when it is built, with 'n' parts in the error. */
static void refused(const char *text, int n, const char *const *parts)
{
    struct model_options options = options_of(3);
    struct err err = { 0 };
    struct model *model;

    onnx_write_text(path, text);
    model = model_open(path, &err);
    if (!model)
        fail_msg("%s", err.text);
    assert_null(model_build(model, &options, &err));
    for (int i = 0; i < n; i++)
        assert_contains(err.text, parts[i]);
    assert_null(strchr(err.text, '\n'));
    model_close(model);
}

/* If ---------------------------------------------------------------------------------- */

#define BRANCHES                                                                       \
    "graph T\n node Relu h -> a\n node Add a,w -> z\n output z\n end\n"                \
    "graph E\n const k float . = 2\n node Mul h,k -> z\n node Neg z -> q\n output q\n end\n"

static void the_branch_taken_is_part_of_the_graph(void **state)
{
    const char *then = "input x float b,4\n init w float 4\n init c bool 1 = 1\n"
                       "node Tanh x -> h\n node If c -> y then_branch={T} else_branch={E}\n"
                       "output y\n" BRANCHES;
    const char *otherwise = "input x float b,4\n init w float 4\n const c bool . = 0\n"
                            "node Tanh x -> h\n"
                            "node If c -> y then_branch={T} else_branch={E}\n output y\n"
                            BRANCHES;

    (void)state;
    same(then, "input x float b,4\n init w float 4\n node Tanh x -> h\n node Relu h -> a\n"
               "node Add a,w -> y\n output y");
    same(otherwise, "input x float b,4\n const k float . = 2\n node Tanh x -> h\n"
                    "node Mul h,k -> z\n node Neg z -> y\n output y");
}

static void a_condition_may_come_from_shapes(void **state)
{
    (void)state;
    same("input x float b,4\n init w float 4\n const one int64 1 = 1\n const four int64 1 = 4\n"
         "node Tanh x -> h\n node Shape h -> s\n node Gather s,one -> n\n"
         "node Equal n,four -> c\n node If c -> y then_branch={T} else_branch={E}\n output y\n"
         BRANCHES,
         "input x float b,4\n init w float 4\n node Tanh x -> h\n node Relu h -> a\n"
         "node Add a,w -> y\n output y");
}

static void branches_nest_and_give_what_stands_outside(void **state)
{
    (void)state;
    same("input x float b,4\n const yes bool . = 1\n const no bool . = 0\n"
         "node If yes -> y,v then_branch={T} else_branch={T}\n output y\n output v\n"
         "graph T\n node Relu x -> a\n node If no -> z then_branch={A} else_branch={B}\n"
         "output z\n output x\n end\n"
         "graph A\n node Scan x -> q\n output q\n end\n"
         "graph B\n node Sub a,x -> q\n output q\n end",
         "input x float b,4\n node Relu x -> a\n node Sub a,x -> y\n node Identity x -> v\n"
         "output y\n output v");
}

static void an_initializer_of_a_branch_is_a_constant(void **state)
{
    struct model_options options = options_of(2);
    struct err err = { 0 };
    struct model *model;
    struct graph *graph;
    int v;

    (void)state;
    onnx_write_text(path, "input x float b,4\n const c bool . = 1\n"
                          "node If c -> y then_branch={T} else_branch={T}\n output y\n"
                          "graph T\n init w float 4\n node Add x,w -> z\n output z\n end");
    model = model_open(path, &err);
    graph = model ? model_build(model, &options, &err) : NULL;
    if (!graph)
        fail_msg("%s", err.text);
    v = graph_find_value(graph, "main/If \"y\"/then_branch/w");
    assert_true(v >= 0 && graph->values[v].kind == VALUE_CONST);
    graph_free(graph);
    model_close(model);
}

/* Loop -------------------------------------------------------------------------------- */

static void a_loop_is_unrolled(void **state)
{
    (void)state;
    same("input x float b,4\n init w float 4\n const n int64 . = 3\n const c bool . = 1\n"
         "node Loop n,c,x -> y,all body={B}\n output y\n output all\n"
         "graph B\n input i\n input go\n input h\n node Mul h,w -> m\n node Tanh m -> t\n"
         "node Identity go -> on\n output on\n output t\n output m\n end",
         "input x float b,4\n init w float 4\n const ax int64 1 = 0\n node Mul x,w -> m0\n"
         "node Tanh m0 -> t0\n node Mul t0,w -> m1\n node Tanh m1 -> t1\n node Mul t1,w -> m2\n"
         "node Tanh m2 -> y\n node Unsqueeze m0,ax -> u0\n node Unsqueeze m1,ax -> u1\n"
         "node Unsqueeze m2,ax -> u2\n node Concat u0,u1,u2 -> all axis=0\n output y\n"
         "output all");
}

static void a_loop_ends_where_its_condition_folds_to_false(void **state)
{
    (void)state;
    /* i + 1 < 2, so two iterations; the numbers that it stacks are constants. */
    same("input x float b,2\n const n int64 . = 9\n const one int64 . = 1\n"
         "const two int64 . = 2\n node Loop n,-,x -> h,s body={B}\n node Cast s -> f to=1\n"
         "node Add h,f -> y\n output y\n"
         "graph B\n input i\n input go\n input h\n node Add i,one -> j\n node Less j,two -> on\n"
         "node Relu h -> r\n output on\n output r\n output j\n end",
         "input x float b,2\n const f float 2 = 1,2\n node Relu x -> a\n node Relu a -> h\n"
         "node Add h,f -> y\n output y");
}

static void carried_values_change_places_at_once(void **state)
{
    (void)state;
    same("input x float b,4\n init w float 4\n const n int64 . = 3\n node Add x,w -> z\n"
         "node Loop n,-,x,z -> p,q body={B}\n node Sub p,q -> y\n output y\n"
         "graph B\n input i\n input go\n input a\n input b\n output go\n output b\n output a\n"
         "end",
         "input x float b,4\n init w float 4\n node Add x,w -> z\n node Sub z,x -> y\n"
         "output y");
}

static void loops_and_branches_nest(void **state)
{
    (void)state;
    /* Twice: Tanh in the first iteration, Relu in the second, two Mul each time. */
    same("input x float b,4\n init w float 4\n const n int64 . = 2\n const zero int64 . = 0\n"
         "node Loop n,-,x -> y body={B}\n output y\n"
         "graph B\n input i\n input go\n input h\n node Equal i,zero -> c\n"
         "node If c -> t then_branch={T} else_branch={E}\n node Loop n,-,t -> m body={M}\n"
         "output go\n output m\n end\n"
         "graph T\n node Tanh h -> a\n output a\n end\n"
         "graph E\n node Relu h -> a\n output a\n end\n"
         "graph M\n input j\n input k\n input u\n node Mul u,w -> v\n output k\n output v\n end",
         "input x float b,4\n init w float 4\n node Tanh x -> a\n node Mul a,w -> b\n"
         "node Mul b,w -> c\n node Relu c -> d\n node Mul d,w -> e\n node Mul e,w -> y\n"
         "output y");
}

static void a_loop_of_no_iterations_gives_what_it_was_given(void **state)
{
    const char *const no_scan[] = { "node \"p\" (Loop): it has no iteration, and so no scan" };

    (void)state;
    same("input x float b,4\n const n int64 . = 0\n node Loop n,-,x -> p body={B}\n"
         "node Relu p -> y\n output y\n"
         "graph B\n input i\n input go\n input a\n output go\n output a\n end",
         "input x float b,4\n node Relu x -> y\n output y");
    refused("input x float b,4\n const n int64 . = 0\n node Loop n,- -> p body={B}\n"
            "node Add p,x -> y\n output y\n"
            "graph B\n input i\n input go\n output go\n output x\n end", 1, no_scan);
}

static void a_loop_without_end_is_refused(void **state)
{
    const char *const parts[] = { "unrolled, loops come to more than 131072" };

    (void)state;
    refused("input x float b,4\n node Loop -,-,x -> y body={B}\n output y\n"
            "graph B\n input i\n input go\n input a\n output go\n output a\n end", 1, parts);
    refused("input x float b,4\n const n int64 . = 4000000000\n"
            "node Loop n,-,x -> y body={B}\n output y\n"
            "graph B\n input i\n input go\n input a\n output go\n output a\n end", 1, parts);
}

/* Functions --------------------------------------------------------------------------- */

static void functions_are_written_out(void **state)
{
    (void)state;
    same("input x float b,4\n init w float 4\n init v float 4\n node f:Norm x,w,v -> h\n"
         "node f:Norm h,w -> y\n output y\n"
         "function f:Once a -> c\n node Tanh a -> c\n end\n"
         "function f:Norm a,s,o -> d\n node f:Once a -> b\n node f:Once b -> c\n"
         "node LayerNormalization c,s,o -> e\n node Identity e -> d\n end",
         "input x float b,4\n init w float 4\n init v float 4\n node Tanh x -> a\n"
         "node Tanh a -> e\n node LayerNormalization e,w,v -> h\n node Tanh h -> b\n"
         "node Tanh b -> c\n node LayerNormalization c,w -> y\n output y");
}

static void attributes_are_those_of_the_call_or_the_default(void **state)
{
    (void)state;
    same("input x float b,4\n node f:E x -> a alpha=0.25\n node f:E a -> y\n output y\n"
         "function f:E p -> q beta\n default alpha=0.5\n node Elu p -> r alpha=@alpha\n"
         "node LeakyRelu r -> q alpha=@beta\n end",
         "input x float b,4\n node Elu x -> p alpha=0.25\n node LeakyRelu p -> a\n"
         "node Elu a -> q alpha=0.5\n node LeakyRelu q -> y\n output y");
}

static void an_output_may_be_an_input_or_stand_there_twice(void **state)
{
    (void)state;
    same("input x float b,4\n node f:G x -> a,c,d\n node Add a,c -> e\n node Mul e,d -> y\n"
         "output y\n function f:G p -> p,q,q\n node Tanh p -> q\n end",
         "input x float b,4\n node Tanh x -> t\n node Add x,t -> e\n node Mul e,t -> y\n"
         "output y");
}

static void branches_in_functions_see_the_functions_names(void **state)
{
    (void)state;
    same("input x float b,4\n const yes bool . = 1\n const no bool . = 0\n"
         "node f:S x,yes -> h\n node f:S h,no -> y\n output y\n"
         "function f:S x,c -> z\n node Tanh x -> t\n"
         "node If c -> z then_branch={T} else_branch={E}\n end\n"
         "graph T\n node f:R t -> u\n output u\n end\n"
         "graph E\n node Neg t -> u\n output u\n end\n"
         "function f:R t -> u\n node Relu t -> u\n end",
         "input x float b,4\n node Tanh x -> a\n node Relu a -> b\n node Tanh b -> c\n"
         "node Neg c -> y\n output y");
}

static void a_function_has_an_opset_of_its_own(void **state)
{
    const char *const parts[] = { "node \"y/c\" (Softmax): before opset 13 ",
                                  "(opset 11, main/f.S \"y\")" };

    (void)state;
    same("opset 17\n input x float b,3,4\n node f:S x -> y\n output y\n"
         "function f:S a -> c\n opset 0\n node Softmax a -> c axis=1\n end",
         "opset 17\n input x float b,3,4\n node Softmax x -> y axis=1\n output y");
    refused("opset 17\n input x float b,3,4\n node f:S x -> y\n output y\n"
            "function f:S a -> c\n opset 11\n node Softmax a -> c axis=1\n end", 2, parts);
}

static void nodes_of_functions_have_names_of_their_own(void **state)
{
    struct err err = { 0 };
    struct onnx *onnx;

    (void)state;
    onnx_write_text(path, "input x float b,4\n node f:T x -> a\n node f:T a -> y\n output y\n"
                          "function f:T p -> q\n node Tanh p -> r\n node Relu r -> q\n end");
    onnx = onnx_open(path, &err);
    if (!onnx)
        fail_msg("%s", err.text);
    assert_int_equal(onnx->main.n_nodes, 4);
    assert_string_equal(onnx->main.nodes[0].name, "a/r");
    assert_string_equal(onnx->main.nodes[3].name, "y/q");
    assert_string_equal(onnx->main.nodes[3].scope, "main/f.T \"y\"");
    assert_string_equal(onnx->values[onnx->main.nodes[0].outputs[0]].name, "a/r");
    assert_string_equal(onnx->values[onnx->main.nodes[1].outputs[0]].name, "a");
    onnx_close(onnx);
}

/* Refusals ---------------------------------------------------------------------------- */

static void functions_that_cannot_be_written_out_are_refused(void **state)
{
    (void)state;
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node f:B p -> q\n end\n"
               "function f:B p -> q\n node f:A p -> q\n end", "\"A\" calls itself");
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node Tanh p -> r\n end", "nothing makes the output \"q\"");
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node Add p,r -> q\n node Neg q -> r\n end", "on a cycle");
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node Tanh x -> q\n end", "\"x\", which nothing makes");
    not_opened("input x float b,4\n node f:A x,x -> y\n output y\n"
               "function f:A p -> q\n node Tanh p -> q\n end", "more inputs or outputs");
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node Elu p -> q alpha=@a\n end",
               "which the function \"A\" does not have");
    not_opened("input x float b,4\n node Elu x -> y alpha=@a\n output y", "stands in none");
    not_opened("input x float b,4\n node f:A x -> y\n output y\n"
               "function f:A p -> q\n node Tanh p -> q\n end\n"
               "function f:A p -> q\n node Relu p -> q\n end", "two functions are named \"A\"");
}

/* Each function calls the one before ten times. */
/* "a" of H is y, which a node of main would have to make. */
static void a_node_makes_no_value_of_where_its_function_is_called(void **state)
{
    (void)state;
    not_opened("input x float b,4\n const k bool . = 1\n node f:A k -> y\n node Relu y -> o\n"
               "output o\n"
               "function f:A c -> p\n node If c -> t then_branch={T} else_branch={T}\n end\n"
               "graph T\n node f:H p -> z\n output z\n end\n"
               "function f:H a -> z\n node Tanh a -> u\n node Tanh u -> v\n node Tanh v -> a\n"
               "node Identity a -> z\n end", "two values are named \"a\"");
}

static void a_flood_of_calls_is_refused(void **state)
{
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof(text),
                                   "input x float b,4\n node f:F7 x -> y\n output y\n"
                                   "function f:F0 a -> k\n node Tanh a -> k\n end\n");

    (void)state;
    for (int i = 1; i <= 7; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "function f:F%d a -> k\n",
                                 i);
        for (char c = 'a'; c < 'k'; c++)
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     "node f:F%d %c -> %c\n", i - 1, c, c + 1);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "end\n");
    }
    not_opened(text, "come to more than 1048576 nodes");
}

static void deep_calls_are_refused(void **state)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof(text),
                                   "input x float b,4\n node f:F99 x -> y\n output y\n"
                                   "function f:F0 a -> b\n node Tanh a -> b\n end\n");

    (void)state;
    for (int i = 1; i <= 99; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "function f:F%d a -> c\n node f:F%d a -> c\n end\n", i,
                                 i - 1);
    not_opened(text, "nested too deep");
}

static void names_in_subgraphs_are_checked(void **state)
{
    (void)state;
    not_opened("input x float b,4\n const c bool . = 1\n"
               "node If c -> y then_branch={T} else_branch={T}\n output y\n"
               "graph T\n node Relu nowhere -> z\n output z\n end",
               "then_branch: node \"z\": it reads \"nowhere\"");
    not_opened("input x float b,4\n const c bool . = 1\n"
               "node If c -> y then_branch={T} else_branch={T}\n output y\n"
               "graph T\n node Relu y -> z\n output z\n end", "lies on a cycle");
    not_opened("input x float b,4\n const c bool . = 1\n"
               "node If c -> y then_branch={T} else_branch={T}\n output y\n"
               "graph T\n node Relu x -> z\n output q\n end", "nothing makes the output \"q\"");
}

static void a_condition_that_depends_on_data_is_named(void **state)
{
    const char *const parts[] = {
        "node \"y\" (If): its condition \"c\" depends on data (opset 17, main)",
    };
    const char *const counts[] = { "its condition \"c\" changes with the batch size" };

    (void)state;
    refused("input x float b,4\n const z float . = 0\n node Greater x,z -> c\n"
            "node If c -> y then_branch={T} else_branch={T}\n output y\n"
            "graph T\n node Relu x -> q\n output q\n end", 1, parts);
    refused("input x float b,4\n const z int64 . = 0\n const n int64 . = 3\n node Shape x -> s\n"
            "node Gather s,z -> b\n node Equal b,n -> c\n"
            "node If c -> y then_branch={T} else_branch={T}\n output y\n"
            "graph T\n node Relu x -> q\n output q\n end", 1, counts);
}

/* Of two kinds, in main, in a branch that is taken, one of which it cannot be said whether it
 * is taken, and a function; not in the branch that is not taken.
 */
static void all_that_is_refused_is_named_at_once(void **state)
{
    const char *const parts[] = {
        "9 nodes are not supported: ",
        "node \"a\" (Det): the operator is not supported (opset 17, main)",
        "node \"t\" (Scan): the operator is not supported "
        "(opset 17, main/If \"b\"/then_branch)",
        "node \"d\" (If): its condition \"c\" depends on data (opset 17, main)",
        "node \"v\" (Hardmax): the operator is not supported "
        "(opset 17, main/If \"d\"/then_branch)",
        "node \"e/m\" (MatMul): ",
        "(opset 13, main/f.M \"e\")",
        "node \"g/r\" (Relu): opset 8 is not supported, only 9 to 28 "
        "(opset 8, main/f.Old \"g\")",
        "node \"k\" (com.example.Foo): there is no such operator",
    };
    const char *text =
        "input x float b,4\n const yes bool . = 1\n const z float 4 = 0,0,0,0\n"
        "node Det x -> a\n node If yes -> b then_branch={T} else_branch={N}\n"
        "node Greater x,z -> c\n node If c -> d then_branch={V} else_branch={V}\n"
        "node f:M x -> e\n node f:Old x -> g\n node com.example:Foo a -> k\n node Relu k -> l\n"
        "node Concat b,d,e,g,l -> y axis=0\n output y\n"
        "graph T\n node Scan x -> t\n output t\n end\n"
        "graph N\n node GridSample x -> t\n output t\n end\n"
        "graph V\n node Hardmax x -> v\n output v\n end\n"
        "function f:M p -> q\n opset 13\n node MatMul p,p -> m\n node Relu m -> q\n end\n"
        "function f:Old p -> q\n opset 8\n node Relu p -> r\n node Relu r -> q\n end";

    (void)state;
    /* V twice: in the then and in the else branch; Old's second node reads what is not there. */
    refused(text, (int)(sizeof(parts) / sizeof(parts[0])), parts);
}

static void long_names_do_not_hide_how_many_are_refused(void **state)
{
    const char *const parts[] = { "3 nodes are not supported" };
    char domain[2001], *text;

    (void)state;
    memset(domain, 'd', sizeof(domain) - 1);
    domain[sizeof(domain) - 1] = '\0';
    text = mem_printf("input x float b,4\n node %s:A x -> a\n node %s:B x -> c\n"
                      "node %s:C x -> d\n node Sum a,c,d -> y\n output y", domain, domain, domain);
    refused(text, 1, parts);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_branch_taken_is_part_of_the_graph),
        cmocka_unit_test(a_condition_may_come_from_shapes),
        cmocka_unit_test(branches_nest_and_give_what_stands_outside),
        cmocka_unit_test(an_initializer_of_a_branch_is_a_constant),
        cmocka_unit_test(a_loop_is_unrolled),
        cmocka_unit_test(a_loop_ends_where_its_condition_folds_to_false),
        cmocka_unit_test(carried_values_change_places_at_once),
        cmocka_unit_test(loops_and_branches_nest),
        cmocka_unit_test(a_loop_of_no_iterations_gives_what_it_was_given),
        cmocka_unit_test(a_loop_without_end_is_refused),
        cmocka_unit_test(functions_are_written_out),
        cmocka_unit_test(attributes_are_those_of_the_call_or_the_default),
        cmocka_unit_test(an_output_may_be_an_input_or_stand_there_twice),
        cmocka_unit_test(branches_in_functions_see_the_functions_names),
        cmocka_unit_test(a_function_has_an_opset_of_its_own),
        cmocka_unit_test(nodes_of_functions_have_names_of_their_own),
        cmocka_unit_test(functions_that_cannot_be_written_out_are_refused),
        cmocka_unit_test(a_node_makes_no_value_of_where_its_function_is_called),
        cmocka_unit_test(a_flood_of_calls_is_refused),
        cmocka_unit_test(deep_calls_are_refused),
        cmocka_unit_test(names_in_subgraphs_are_checked),
        cmocka_unit_test(a_condition_that_depends_on_data_is_named),
        cmocka_unit_test(all_that_is_refused_is_named_at_once),
        cmocka_unit_test(long_names_do_not_hide_how_many_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
