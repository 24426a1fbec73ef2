/* SPDX-License-Identifier: MIT */
/* Products of the cuda backend in forms that no operator's case has: they agree with the
 * reference when they are computed anew, and when they are added to what is there. Without a GPU,
 * or what stands in for one, there is nothing to test.
 */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "graph/op.h"
#include "kernels/backend.h"
#include "run_graph.h"

struct form {
    const char *op;
    struct shape a, b, y;
    const char *flag;               /* an attribute that is 1; NULL: none */
};

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
    int ids[2] = { add_value(graph, VALUE_PARAM, &form->a),
                   add_value(graph, VALUE_PARAM, &form->b) };
    int y = add_value(graph, VALUE_NODE, &form->y);
    int node = graph_add_node(graph, NULL, op_find(form->op), 2, ids, 1, &y);

    if (form->flag)
        graph_set_int(graph, node, form->flag, 1);
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
    set(run, 0, 1);
    set(run, 1, 2);
    return run;
}

/* y, after it was added to what set() puts there. */
static void add_result(struct run_graph *run)
{
    const void *inputs[] = { run->buffers[0], run->buffers[1] };
    void *outputs[] = { run->buffers[2] };
    struct kernel_args args = { inputs, outputs, run->workspace, run->device_state,
                                ACCUMULATE_YES };
    struct err err = { 0 };

    set(run, 2, 3);
    if (run->backend->kernel_run(run->kernels[0], run->stream, &args, &err))
        fail_msg("%s", err.text);
}

static void compare(const struct run_graph *run, const double *expected, const double *before,
                    const char *op)
{
    int64_t n = shape_elements(&run->graph->values[2].shape);
    double *y = mem_new((size_t)n + 1, sizeof(*y));

    run_graph_get(run, 2, y);
    for (int64_t i = 0; i < n; i++) {
        double x = expected[i] + (before ? before[i] : 0);

        if (!(fabs(y[i] - x) < 1e-5))
            fail_msg("%s: element %d is %g, not %g", op, (int)i, y[i], x);
    }
    free(y);
}

static void check(const struct form *form)
{
    struct graph *graph = build(form);
    struct run_graph *cuda = start("cuda", graph), *reference = start("reference", graph);
    double *expected = mem_new((size_t)shape_elements(&form->y) + 1, sizeof(double));
    double *before = filled(&form->y, 3);
    struct err err = { 0 };

    assert_int_equal(run_graph_nodes(reference, 0, 1, &err), 0);
    run_graph_get(reference, 2, expected);
    assert_int_equal(run_graph_nodes(cuda, 0, 1, &err), 0);
    compare(cuda, expected, NULL, form->op);
    if (cuda->backend->kernel_accumulates(cuda->kernels[0])) {
        add_result(cuda);
        compare(cuda, expected, before, form->op);
    }
    free(before);
    free(expected);
    run_graph_free(cuda);
    run_graph_free(reference);
    graph_free(graph);
}

static void check_all(const struct form *forms, size_t n)
{
    struct err err = { 0 };
    const struct backend *cuda = backend_find("cuda");
    struct device *device = cuda ? cuda->device_open(1, &err) : NULL;

    if (!device) {
        print_message("# %s\n", cuda ? err.text : "built without CUDA");
        skip();
    }
    cuda->device_close(device);
    for (size_t i = 0; i < n; i++)
        check(&forms[i]);
}

static void stacks_broadcast_along_any_axis(void **state)
{
    static const struct form forms[] = {
        { "MatMul", SHAPE(2, 1, 3, 2, 3), SHAPE(4, 1, 3, 5), SHAPE(2, 4, 3, 2, 5), NULL },
        { "MatMul", SHAPE(1, 5, 2, 3), SHAPE(2, 1, 3, 2), SHAPE(2, 5, 2, 2), NULL },
        { "MatMul", SHAPE(3, 1, 5, 1, 7, 3), SHAPE(1, 2, 1, 4, 3, 1), SHAPE(3, 2, 5, 4, 7, 1),
          NULL },
        { "MatMul", SHAPE(2, 3, 4, 5), SHAPE(2, 1, 5, 3), SHAPE(2, 3, 4, 3), NULL },
        { "MatMul", SHAPE(2, 3, 5, 4), SHAPE(2, 1, 5, 3), SHAPE(2, 3, 4, 3), "transA" },
        { "MatMul", SHAPE(2, 3, 4, 5), SHAPE(3, 5), SHAPE(2, 3, 4, 3), "transB" },
        { "MatMul", SHAPE(4, 5), SHAPE(2, 3, 5, 1), SHAPE(2, 3, 4, 1), NULL },
        { "MatMul", SHAPE(2, 0, 4, 5), SHAPE(5, 2), SHAPE(2, 0, 4, 2), NULL },
        { "MatMul", SHAPE(2, 0), SHAPE(0, 3), SHAPE(2, 3), NULL },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

static void stacks_of_many_are_done_in_parts(void **state)
{
    static const struct form forms[] = {
        { "MatMul", SHAPE(70000, 1, 2), SHAPE(70000, 2, 1), SHAPE(70000, 1, 1), NULL },
        { "MatMul", SHAPE(3, 65536, 1, 1), SHAPE(3, 65536, 1, 1), SHAPE(3, 65536, 1, 1), NULL },
    };

    (void)state;
    check_all(forms, sizeof(forms) / sizeof(forms[0]));
}

static void gradients_of_a_linear_are_added_up(void **state)
{
    static const struct form forms[] = {
        { "LinearDgrad", SHAPE(2, 5, 4), SHAPE(3, 4), SHAPE(2, 5, 3), NULL },
        { "LinearDgrad", SHAPE(2, 5, 4), SHAPE(4, 3), SHAPE(2, 5, 3), "transB" },
        { "LinearWgrad", SHAPE(2, 5, 3), SHAPE(2, 5, 4), SHAPE(3, 4), NULL },
        { "LinearWgrad", SHAPE(2, 5, 3), SHAPE(2, 5, 4), SHAPE(4, 3), "transB" },
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
