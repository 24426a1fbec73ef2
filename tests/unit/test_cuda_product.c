/* SPDX-License-Identifier: MIT */
/* Products of the cuda backend in forms that no operator's case has: they agree with the
 * reference when they are computed anew, and when they are added to what is there. Without a GPU,
 * or what stands in for one, there is nothing to test.
 */
#include "unit.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "graph/op.h"
#include "kernels/backend.h"
#include "run_graph.h"

struct form {
    const char *op;
    struct shape a, b, y;
    const char *flag;               /* an attribute that is 1; NULL: none */
    const char *activation;         /* of a Linear */
    int64_t bias;                   /* elements of input 2; 0: there is none */
    bool kept;                      /* is there an output 1, of y's shape? */
};

/* Values: y, what is kept, a, b, bias. */
enum { Y, KEPT, FIRST_INPUT };

#define SHAPE(...)                                                              \
    { (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), { __VA_ARGS__ } }

static double draw(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (double)(float)((double)(*random >> 40) / (1 << 23) - 1);
}

static int add_value(struct graph *graph, enum value_kind kind, const struct shape *shape)
{
    return graph_add_value(graph, NULL, kind, DTYPE_F32, shape, (struct batch){ .outer = 0 });
}

static struct graph *build(const struct form *form)
{
    struct graph *graph = graph_new(1, DTYPE_F32);
    struct shape bias = { 1, { form->bias } };
    int outputs[2] = { add_value(graph, VALUE_NODE, &form->y),
                       add_value(graph, VALUE_NODE, &form->y) };
    int inputs[3] = { add_value(graph, VALUE_PARAM, &form->a),
                      add_value(graph, VALUE_PARAM, &form->b),
                      add_value(graph, VALUE_PARAM, &bias) };
    int node = graph_add_node(graph, NULL, op_find(form->op), form->bias ? 3 : 2, inputs,
                              form->kept ? 2 : 1, outputs);

    if (form->flag)
        graph_set_int(graph, node, form->flag, 1);
    if (form->activation)
        graph_set_string(graph, node, "activation", form->activation);
    return graph;
}

static double *filled(const struct shape *shape, uint64_t seed)
{
    double *x = mem_new((size_t)shape_elements(shape) + 1, sizeof(*x));

    for (int64_t i = 0; i < shape_elements(shape); i++)
        x[i] = draw(&seed);
    return x;
}

static void set(struct run_graph *run, int v, uint64_t seed)
{
    double *x = filled(&run->graph->values[v].shape, seed);

    run_graph_set(run, v, x);
    free(x);
}

static struct run_graph *start(const char *backend, const struct graph *graph)
{
    struct err err = { 0 };
    struct run_graph *run = run_graph_new(backend_find(backend), graph, &err);

    if (!run)
        fail_msg("%s", err.text);
    set(run, FIRST_INPUT, 1);
    set(run, FIRST_INPUT + 1, 2);
    set(run, FIRST_INPUT + 2, 4);
    return run;
}

/* y, after it was added to what set() puts there. */
static void add_result(struct run_graph *run)
{
    const void *inputs[] = { run->buffers[FIRST_INPUT], run->buffers[FIRST_INPUT + 1],
                             run->buffers[FIRST_INPUT + 2] };
    void *outputs[] = { run->buffers[Y], run->buffers[KEPT] };
    struct kernel_args args = { inputs, outputs, run->workspace, run->device_state,
                                ACCUMULATE_YES };
    struct err err = { 0 };

    set(run, Y, 3);
    if (run->backend->kernel_run(run->kernels[0], run->stream, &args, &err))
        fail_msg("%s", err.text);
}

static void compare(const struct run_graph *run, int v, const double *expected,
                    const double *before, const char *op, double tolerance)
{
    int64_t n = shape_elements(&run->graph->values[v].shape);
    double *y = mem_new((size_t)n + 1, sizeof(*y));

    run_graph_get(run, v, y);
    for (int64_t i = 0; i < n; i++) {
        double x = expected[i] + (before ? before[i] : 0);

        if (!(fabs(y[i] - x) < tolerance))
            fail_msg("%s: element %d is %g, not %g", op, (int)i, y[i], x);
    }
    free(y);
}

/* With inputs that are rounded alike, where the backend rounds them. */
static void check_on(const char *backend, const struct form *form, double tolerance)
{
    struct graph *graph = build(form);
    struct run_graph *cuda = start(backend, graph), *reference = start("reference", graph);
    double *expected = mem_new((size_t)shape_elements(&form->y) + 1, sizeof(double));
    double *before = filled(&form->y, 3);
    struct err err = { 0 };

    if (cuda->narrow)
        run_graph_round_inputs(reference, 0, cuda->narrow);
    assert_int_equal(run_graph_nodes(reference, 0, 1, &err), 0);
    assert_int_equal(run_graph_nodes(cuda, 0, 1, &err), 0);
    for (int v = Y; v <= (form->kept ? KEPT : Y); v++) {
        run_graph_get(reference, v, expected);
        compare(cuda, v, expected, NULL, form->op, tolerance);
    }
    if (!cuda->narrow && cuda->backend->kernel_accumulates(cuda->kernels[0])) {
        run_graph_get(reference, Y, expected);
        add_result(cuda);
        compare(cuda, Y, expected, before, form->op, tolerance);
    }
    free(before);
    free(expected);
    run_graph_free(cuda);
    run_graph_free(reference);
    graph_free(graph);
}

static void skip_without_gpu(void)
{
    struct err err = { 0 };
    const struct backend *cuda = backend_find("cuda");
    struct device *device = cuda ? cuda->device_open(1, NULL, &err) : NULL;

    if (!device) {
        print_message("# %s\n", cuda ? err.text : "built without CUDA");
        skip();
    }
    cuda->device_close(device);
}

static void check_all(const struct form *forms, size_t n)
{
    skip_without_gpu();
    for (size_t i = 0; i < n; i++)
        check_on("cuda", &forms[i], 1e-5);
}

static void stacks_broadcast_along_any_axis(void **state)
{
    static const struct form forms[] = {
        { .op = "MatMul", .a = SHAPE(2, 1, 3, 2, 3), .b = SHAPE(4, 1, 3, 5),
          .y = SHAPE(2, 4, 3, 2, 5) },
        { .op = "MatMul", .a = SHAPE(1, 5, 2, 3), .b = SHAPE(2, 1, 3, 2),
          .y = SHAPE(2, 5, 2, 2) },
        { .op = "MatMul", .a = SHAPE(3, 1, 5, 1, 7, 3), .b = SHAPE(1, 2, 1, 4, 3, 1),
          .y = SHAPE(3, 2, 5, 4, 7, 1) },
        { .op = "MatMul", .a = SHAPE(2, 3, 4, 5), .b = SHAPE(2, 1, 5, 3),
          .y = SHAPE(2, 3, 4, 3) },
        { .op = "MatMul", .a = SHAPE(2, 3, 5, 4), .b = SHAPE(2, 1, 5, 3),
          .y = SHAPE(2, 3, 4, 3), .flag = "transA" },
        { .op = "MatMul", .a = SHAPE(2, 3, 4, 5), .b = SHAPE(3, 5),
          .y = SHAPE(2, 3, 4, 3), .flag = "transB" },
        { .op = "MatMul", .a = SHAPE(4, 5), .b = SHAPE(2, 3, 5, 1), .y = SHAPE(2, 3, 4, 1) },
        { .op = "MatMul", .a = SHAPE(2, 0, 4, 5), .b = SHAPE(5, 2), .y = SHAPE(2, 0, 4, 2) },
        { .op = "MatMul", .a = SHAPE(2, 0), .b = SHAPE(0, 3), .y = SHAPE(2, 3) },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

static void stacks_of_many_are_done_in_parts(void **state)
{
    static const struct form forms[] = {
        { .op = "MatMul", .a = SHAPE(70000, 1, 2), .b = SHAPE(70000, 2, 1),
          .y = SHAPE(70000, 1, 1) },
        { .op = "MatMul", .a = SHAPE(3, 65536, 1, 1), .b = SHAPE(3, 65536, 1, 1),
          .y = SHAPE(3, 65536, 1, 1) },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

static void gradients_of_a_linear_are_added_up(void **state)
{
    static const struct form forms[] = {
        { .op = "LinearDgrad", .a = SHAPE(2, 5, 4), .b = SHAPE(3, 4), .y = SHAPE(2, 5, 3) },
        { .op = "LinearDgrad", .a = SHAPE(2, 5, 4), .b = SHAPE(4, 3),
          .y = SHAPE(2, 5, 3), .flag = "transB" },
        { .op = "LinearWgrad", .a = SHAPE(2, 5, 3), .b = SHAPE(2, 5, 4), .y = SHAPE(3, 4) },
        { .op = "LinearWgrad", .a = SHAPE(2, 5, 3), .b = SHAPE(2, 5, 4),
          .y = SHAPE(4, 3), .flag = "transB" },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

/* One row is what the stand-in for cuBLASLt has no bias for. */
static void linears_of_one_row_have_all_that_others_have(void **state)
{
    static const char *const names[] = { "none", "relu", "gelu", "gelu_tanh", "silu" };

    (void)state;
    for (int i = 0; i < 5 * 2 * 2 * 2; i++) {
        struct form form = { .op = "Linear", .a = SHAPE(1, 3), .b = SHAPE(3, 4),
                             .y = SHAPE(1, 4), .activation = names[i / 8],
                             .bias = i & 1 ? 4 : 0, .kept = (i & 2) != 0 };

        if (i & 4)
            form.a.dim[0] = form.y.dim[0] = 5;
        check_all(&form, 1);
    }
}

/* As cublasLt.h numbers them. */
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32,
       EPILOGUE_AUX = 128 };

/* What a library has that is like these words (fake_cublaslt.c). */
static bool has_activation(const struct form *form, const char *words)
{
    bool relu = strcmp(form->activation, "relu") == 0, gelu = strcmp(form->activation, "gelu") == 0;

    if (strstr(words, "no-activations") || form->a.dim[0] <= 2)
        return false;
    if (relu)
        return !form->kept && !strstr(words, "drops-nan");
    if (form->kept && form->bias % 8)
        return false;
    return !strstr(words, "rough") && gelu == (strstr(words, "erf") != NULL);
}

static int epilogue_of(const struct form *form, bool bias, const char *words)
{
    bool relu = strcmp(form->activation, "relu") == 0, has = has_activation(form, words);
    int epilogue = (bias && form->a.dim[0] > 1 ? EPILOGUE_BIAS : 0) |
                   (!has ? 0 : relu ? EPILOGUE_RELU : EPILOGUE_GELU) |
                   (has && form->kept ? EPILOGUE_AUX : 0);

    return epilogue ? epilogue : EPILOGUE_DEFAULT;
}

/* Where nothing stands in for the library nobody knows which it was. */
static void check_epilogue(const struct form *form, bool bias, const char *words)
{
    int (*last)(void);

    *(void **)&last = dlsym(RTLD_DEFAULT, "tasuki_fake_epilogue");
    if (last && last() != epilogue_of(form, bias, words))
        fail_msg("%s, %d columns, of a library that is like \"%s\": epilogue %d, not %d",
                 form->activation, (int)form->y.dim[1], words, last(),
                 epilogue_of(form, bias, words));
}

/* Bits: a bias; is it kept; columns that are no multiple of 8; then rows. */
static void check_activation(const char *backend, double tolerance, const char *activation,
                             const char *words)
{
    for (int i = 0; i < 8 * 3; i++) {
        int64_t n = i & 4 ? 12 : 24, rows = i / 8 == 0 ? 1 : i / 8 == 1 ? 2 : 9;
        struct form form = { .op = "Linear", .a = SHAPE(rows, 5), .b = SHAPE(5, n),
                             .y = SHAPE(rows, n), .activation = activation,
                             .bias = i & 1 ? n : 0, .kept = (i & 2) != 0 };

        check_on(backend, &form, tolerance);
        form.bias = n;
        check_epilogue(&form, (i & 1) != 0, words);
    }
}

static void activations_are_those_of_the_library_where_it_has_the_same(void **state)
{
    static const struct {
        const char *name;
        double tolerance;
    } backends[] = { { "cuda", 1e-5 }, { "cuda-tf32", 1e-2 }, { "cuda-bf16", 3e-2 },
                     { "cuda-fp16", 4e-3 } };
    static const char *const likes[] = { "", "erf", "rough", "drops-nan", "no-activations" };

    (void)state;
    skip_without_gpu();
    for (size_t i = 0; i < sizeof(likes) / sizeof(likes[0]); i++) {
        setenv("TASUKI_FAKE_CUBLASLT", likes[i], 1);
        for (size_t k = 0; k < sizeof(backends) / sizeof(backends[0]); k++) {
            check_activation(backends[k].name, backends[k].tolerance, "relu", likes[i]);
            check_activation(backends[k].name, backends[k].tolerance, "gelu", likes[i]);
            check_activation(backends[k].name, backends[k].tolerance, "gelu_tanh", likes[i]);
        }
    }
    unsetenv("TASUKI_FAKE_CUBLASLT");
}

/* Of rows of b, as y's gradients are. */
static void check_sums(const struct run_graph *run, const struct shape *b, const double *before)
{
    int64_t n = b->dim[b->rank - 1], rows = shape_elements(b) / n;
    double *dz = filled(b, 2), *sums = mem_new((size_t)n, sizeof(*sums));

    for (int64_t i = 0; i < rows * n; i++)
        sums[i % n] += dz[i];
    compare(run, KEPT, sums, before, "sums", 1e-5);
    free(sums);
    free(dz);
}

/* A real library need not have them of float32. */
static bool has_sums(const struct graph *graph)
{
    struct err err = { 0 };
    struct run_graph *run = run_graph_new(backend_find("cuda"), graph, &err);

    if (!run && (dlsym(RTLD_DEFAULT, "tasuki_fake_epilogue") || !strstr(err.text, "sums beside")))
        fail_msg("%s", err.text);
    if (!run)
        print_message("# %s\n", err.text);
    run_graph_free(run);
    return run != NULL;
}

static void compare_wgrad(struct graph *graph, const struct graph *single, const struct form *form)
{
    struct run_graph *cuda = start("cuda", graph), *reference = start("reference", single);
    double *expected = mem_new((size_t)shape_elements(&form->y), sizeof(*expected));
    double *before = filled(&graph->values[KEPT].shape, 5);
    struct err err = { 0 };

    assert_int_equal(run_graph_nodes(reference, 0, 1, &err), 0);
    assert_int_equal(run_graph_nodes(cuda, 0, 1, &err), 0);
    run_graph_get(reference, Y, expected);
    compare(cuda, Y, expected, NULL, form->op, 1e-5);
    check_sums(cuda, &form->b, NULL);
    assert_true(cuda->backend->kernel_accumulates(cuda->kernels[0]));
    run_graph_set(cuda, KEPT, before);
    add_result(cuda);
    check_sums(cuda, &form->b, before);
    free(before);
    free(expected);
    run_graph_free(cuda);
    run_graph_free(reference);
}

static void check_wgrad(const struct shape *a, const struct shape *b, bool transposed)
{
    int64_t k = a->dim[a->rank - 1], n = b->dim[b->rank - 1];
    struct form form = { .op = "LinearWgrad", .a = *a, .b = *b, .y = SHAPE(k, n) };
    struct graph *graph, *single;

    if (transposed)
        form = (struct form){ .op = "LinearWgrad", .a = *a, .b = *b, .y = SHAPE(n, k),
                              .flag = "transB" };
    single = build(&form);
    form.kept = true;
    graph = build(&form);
    graph->values[KEPT].shape = (struct shape)SHAPE(n);
    if (has_sums(graph))
        compare_wgrad(graph, single, &form);
    graph_free(graph);
    graph_free(single);
}

static void gradients_of_a_bias_are_made_beside_those_of_the_weights(void **state)
{
    (void)state;
    skip_without_gpu();
    for (int i = 0; i < 2; i++) {
        check_wgrad(&(struct shape)SHAPE(9, 3), &(struct shape)SHAPE(9, 4), i);
        check_wgrad(&(struct shape)SHAPE(2, 5, 16), &(struct shape)SHAPE(2, 5, 70), i);
        check_wgrad(&(struct shape)SHAPE(1, 8), &(struct shape)SHAPE(1, 8), i);
    }
}

static void a_row_is_added_to_a_product(void **state)
{
    static const struct form forms[] = {
        { .op = "Gemm", .a = SHAPE(1, 3), .b = SHAPE(3, 4), .y = SHAPE(1, 4), .bias = 4 },
        { .op = "Gemm", .a = SHAPE(5, 3), .b = SHAPE(3, 4), .y = SHAPE(5, 4), .bias = 4 },
        { .op = "Gemm", .a = SHAPE(5, 3), .b = SHAPE(3, 1), .y = SHAPE(5, 1), .bias = 1 },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_broadcast_along_any_axis),
        cmocka_unit_test(stacks_of_many_are_done_in_parts),
        cmocka_unit_test(gradients_of_a_linear_are_added_up),
        cmocka_unit_test(linears_of_one_row_have_all_that_others_have),
        cmocka_unit_test(activations_are_those_of_the_library_where_it_has_the_same),
        cmocka_unit_test(gradients_of_a_bias_are_made_beside_those_of_the_weights),
        cmocka_unit_test(a_row_is_added_to_a_product),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
