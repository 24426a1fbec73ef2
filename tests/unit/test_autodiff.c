/* SPDX-License-Identifier: MIT */
/* Gradients of a network with ties, skips and prepared weights: whatever the cuts, the stage
 * programs give the same.
 */
#include "unit.h"

#include <math.h>
#include <time.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "graph/program.h"
#include "run_graph.h"

enum { BATCH = 4, WIDTH = 6, MAX_STAGES = 5 };

static uint64_t seed;

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
    return (double)(next(state) >> 11) * 0x1p-52 - 1;
}

/* The network ------------------------------------------------------------------------- */

static int rows(struct graph *graph, enum value_kind kind, const char *name)
{
    return graph_add_value(graph, name, kind, DTYPE_F64,
                           &(struct shape){ 2, { BATCH, WIDTH } },
                           (struct batch){ 1, WIDTH, 1 });
}

static int vector(struct graph *graph, enum value_kind kind, const char *name)
{
    return graph_add_value(graph, name, kind, DTYPE_F64, &(struct shape){ 1, { WIDTH } },
                           (struct batch){ 0 });
}

static int square(struct graph *graph, const char *name)
{
    return graph_add_value(graph, name, VALUE_PARAM, DTYPE_F64,
                           &(struct shape){ 2, { WIDTH, WIDTH } }, (struct batch){ 0 });
}

static int apply(struct graph *graph, const char *op, int n, const int *inputs)
{
    struct err err = { 0 };
    int node = op_append(graph, op, op, n, inputs, 1, &err);

    if (node < 0)
        fail_msg("%s", err.text);
    return graph->nodes[node].outputs[0];
}

static int reshape(struct graph *graph, int x, int64_t a, int64_t b)
{
    struct err err = { 0 };
    int node = graph_add_node(graph, "view", op_find("Reshape"), 1, &x, 0, NULL);

    graph_add_output(graph, node);
    graph_set_ints(graph, node, "shape", 3, (const int64_t[]){ BATCH, a, b });
    if (op_infer(graph, node, &err))
        fail_msg("%s", err.text);
    return graph->nodes[node].outputs[0];
}

static struct graph *network(void)
{
    struct graph *g = graph_new(BATCH, DTYPE_F64);
    int x = rows(g, VALUE_INPUT, "x"), target = rows(g, VALUE_INPUT, "target");
    int w1 = square(g, "w1"), w2 = square(g, "w2"), bias = vector(g, VALUE_PARAM, "bias");
    int scale = vector(g, VALUE_PARAM, "scale"), shift = vector(g, VALUE_PARAM, "shift");
    int mean = vector(g, VALUE_STAT, "mean"), variance = vector(g, VALUE_STAT, "variance");
    int turned, h, skip, y;

    g->batchnorm_samples = 2;
    g->weight_sum = graph_add_value(g, "weights", VALUE_INPUT, DTYPE_F64,
                                    &(struct shape){ 0, { 0 } }, (struct batch){ 0 });
    turned = apply(g, "Transpose", 1, &w2);
    g->nodes[g->n_nodes - 1].part = PART_PREPARE;
    skip = apply(g, "Tanh", 1, (int[]){ apply(g, "Linear", 3, (int[]){ x, w1, bias }) });
    h = apply(g, "MatMul", 2, (int[]){ apply(g, "Dropout", 1, &skip), turned });
    h = apply(g, "Sigmoid", 1, &h);
    h = apply(g, "BatchNormalization", 5, (int[]){ h, scale, shift, mean, variance });
    h = apply(g, "Linear", 2, (int[]){ h, w1 });
    h = apply(g, "Add", 2, (int[]){ h, skip });
    y = reshape(g, h, 2, 3);
    y = apply(g, "Softmax", 1, &y);
    y = reshape(g, y, WIDTH, 1);
    y = apply(g, "Mul", 2, (int[]){ y, reshape(g, x, WIDTH, 1) });
    y = apply(g, "Add", 2, (int[]){ reshape(g, y, 1, WIDTH), reshape(g, skip, 1, WIDTH) });
    y = apply(g, "MatMul", 2, (int[]){ y, turned });
    y = apply(g, "LayerNormalization", 3, (int[]){ y, scale, bias });
    y = apply(g, "Mul", 2, (int[]){ y, bias });
    g->loss = apply(g, "MseSum", 3, (int[]){ y, reshape(g, target, 1, WIDTH), g->weight_sum });
    return g;
}

/* Running stage programs one after the other -------------------------------------------- */

struct gradients {
    double loss, of[8][WIDTH * WIDTH];  /* of the n-th value, where it is a parameter */
};

struct cut {
    int n_stages, stage[64];
};

static void run_list(struct run_graph *run, const struct program_list *list)
{
    struct err err = { 0 };

    for (int i = 0; i < list->n; i++)
        if (run_graph_nodes(run, list->nodes[i], list->nodes[i] + 1, &err))
            fail_msg("%s", err.text);
}

static void check_places(const struct program *p)
{
    const struct autodiff *ad = p->autodiff;

    for (int i = 0; i < ad->n_params; i++) {
        const struct program_value *value = &p->values[ad->params[i].gradient];

        if (ad->params[i].stage == p->stage) {
            assert_int_equal(value->place, PLACE_GRADIENT);
            assert_int_equal(value->root, ad->params[i].gradient);
        }
    }
    assert_int_equal(p->backward.n, p->list[PART_DGRAD].n + p->list[PART_WGRAD].n);
    for (int i = 0; i < p->backward.n; i++) {
        const struct node *node = &p->graph->nodes[p->backward.nodes[i]];

        for (int k = 0; k < node->n_inputs; k++) {
            int v = node->inputs[k], producer = p->graph->values[v].producer;

            if (producer >= 0 && p->graph->nodes[producer].part == PART_FORWARD &&
                p->values[v].root == v)
                assert_int_equal(p->values[v].place, PLACE_SLOT);
        }
    }
}

static void fill(struct run_graph *run, const struct graph *graph)
{
    uint64_t state = 42;

    for (int v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        double data[WIDTH * WIDTH];

        if (value->kind == VALUE_NODE || value->kind == VALUE_CONST)
            continue;
        for (int64_t i = 0; i < shape_elements(&value->shape); i++)
            data[i] = uniform(&state);
        run_graph_set(run, v, data);
    }
}

static void receive(struct run_graph *run, const struct autodiff *ad, int stage)
{
    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *b = &ad->boundaries[i];

        if (b->to == stage && b->gradient >= 0)
            memcpy(run->buffers[b->received], run->buffers[b->gradient],
                   value_bytes(&run->graph->values[b->gradient]));
    }
}

static void collect(const struct run_graph *run, const struct autodiff *ad, struct gradients *g)
{
    double part[WIDTH * WIDTH];

    memset(g, 0, sizeof(*g));
    run_graph_get(run, run->graph->loss, &g->loss);
    for (int i = 0; i < ad->n_params; i++) {
        int v = ad->params[i].param;

        run_graph_get(run, ad->params[i].gradient, part);
        for (int64_t k = 0; k < shape_elements(&run->graph->values[v].shape); k++)
            g->of[v][k] += part[k];
    }
}

static void run_cut(const struct cut *cut, bool merged, struct gradients *gradients)
{
    struct graph *graph = network();
    struct program *programs[MAX_STAGES];
    struct autodiff ad;
    struct run_graph *run;
    struct err err = { 0 };
    int *stage_of;

    if (autodiff(graph, cut->stage, cut->n_stages, &ad, &stage_of, &err) ||
        graph_check(graph, &err))
        fail_msg("%s", err.text);
    run = run_graph_new(backend_find("reference"), graph, &err);
    if (!run)
        fail_msg("%s", err.text);
    fill(run, graph);
    for (int s = 0; s < cut->n_stages; s++) {
        programs[s] = program_new(graph, &ad, stage_of, s, cut->n_stages, &err);
        check_places(programs[s]);
        run_list(run, &programs[s]->list[PART_PREPARE]);
    }
    for (int s = 0; s < cut->n_stages; s++)
        run_list(run, &programs[s]->list[PART_FORWARD]);
    for (int s = cut->n_stages - 1; s >= 0; s--) {
        run_list(run, merged ? &programs[s]->backward : &programs[s]->list[PART_DGRAD]);
        receive(run, &ad, s);
        if (!merged)
            run_list(run, &programs[s]->list[PART_WGRAD]);
        program_free(programs[s]);
    }
    collect(run, &ad, gradients);
    run_graph_free(run);
    graph_free(graph);
}

static struct cut random_cut(uint64_t *state, int n_stages)
{
    struct graph *graph = network();
    struct cut cut = { .n_stages = n_stages };
    int n = graph->n_nodes, at[MAX_STAGES];

    graph_free(graph);
    for (int s = 1; s < n_stages; s++)
        at[s] = (int)(next(state) % (uint64_t)n);
    for (int i = 0; i < n; i++)
        for (int s = 1; s < n_stages; s++)
            cut.stage[i] += i >= at[s];
    return cut;
}

static void gradients_do_not_depend_on_the_cuts(void **state)
{
    struct gradients one, cut;
    uint64_t random = seed;

    (void)state;
    run_cut(&(struct cut){ .n_stages = 1 }, true, &one);
    assert_true(fabs(one.loss) > 1e-3);
    for (int trial = 0; trial < 40; trial++) {
        struct cut c = random_cut(&random, 1 + trial % MAX_STAGES);

        run_cut(&c, trial % 3, &cut);
        assert_true(cut.loss == one.loss);
        for (int v = 0; v < 8; v++)
            for (int k = 0; k < WIDTH * WIDTH; k++)
                if (!(fabs(cut.of[v][k] - one.of[v][k]) <= 1e-13 * (1 + fabs(one.of[v][k]))))
                    fail_msg("seed %llu, trial %d: gradient %d of value %d is %.16g, uncut "
                             "%.16g", (unsigned long long)seed, trial, k, v, cut.of[v][k], one.of[v][k]);
    }
}

/* Every parameter moved along a random direction. */
static void gradients_agree_with_finite_differences(void **state)
{
    struct gradients gradients;
    struct graph *graph = network();
    int n_forward = graph->n_nodes;
    uint64_t random = seed;
    struct err err = { 0 };
    struct run_graph *run = run_graph_new(backend_find("reference"), graph, &err);

    (void)state;
    run_cut(&(struct cut){ .n_stages = 1 }, true, &gradients);
    for (int v = 0; v < 8; v++) {
        int64_t n = shape_elements(&graph->values[v].shape);
        double base[WIDTH * WIDTH], direction[WIDTH * WIDTH], moved[WIDTH * WIDTH];
        const double steps[4] = { 0x1p-10, -0x1p-10, 0x1p-11, -0x1p-11 };
        double expected = 0, loss[4];

        if (graph->values[v].kind != VALUE_PARAM)
            continue;
        fill(run, graph);
        run_graph_get(run, v, base);
        for (int64_t i = 0; i < n; i++) {
            direction[i] = uniform(&random);
            expected += direction[i] * gradients.of[v][i];
        }
        for (int k = 0; k < 4; k++) {
            for (int64_t i = 0; i < n; i++)
                moved[i] = base[i] + steps[k] * direction[i];
            run_graph_set(run, v, moved);
            assert_int_equal(run_graph_nodes(run, 0, n_forward, &err), 0);
            run_graph_get(run, graph->loss, &loss[k]);
        }
        loss[0] = (loss[0] - loss[1]) * 0x1p9;
        loss[2] = (loss[2] - loss[3]) * 0x1p10;
        if (!(fabs(loss[2] - expected) <= fabs(loss[0] - loss[2]) + 1e-11))
            fail_msg("seed %llu: value %d: gradient %.12g, differences %.12g",
                     (unsigned long long)seed, v, expected, loss[2]);
    }
    run_graph_free(run);
    graph_free(graph);
}

static void a_tie_has_a_gradient_in_each_stage_that_reads_it(void **state)
{
    struct graph *graph = network();
    int w1 = graph_find_value(graph, "w1"), found[2] = { 0, 0 }, *stage;
    struct autodiff ad;
    struct err err = { 0 };

    (void)state;
    stage = mem_new((size_t)graph->n_nodes, sizeof(*stage));
    for (int n = 0; n < graph->n_nodes; n++)
        stage[n] = n > 5;
    assert_int_equal(autodiff(graph, stage, 2, &ad, NULL, &err), 0);
    for (int i = 0; i < ad.n_params; i++)
        found[ad.params[i].stage] += ad.params[i].param == w1;
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], 1);
    free(stage);
    graph_free(graph);
}

static void a_stage_that_goes_back_is_refused(void **state)
{
    struct graph *graph = network();
    int *stage = mem_new((size_t)graph->n_nodes, sizeof(*stage));
    struct autodiff ad;
    struct err err = { 0 };

    (void)state;
    stage[2] = 1;
    assert_int_equal(autodiff(graph, stage, 2, &ad, NULL, &err), -1);
    assert_contains(err.text, "later stage");
    free(stage);
    graph_free(graph);
}

static void a_loss_without_parameters_is_refused(void **state)
{
    struct graph *graph = graph_new(BATCH, DTYPE_F64);
    int x = rows(graph, VALUE_INPUT, "x"), target = rows(graph, VALUE_INPUT, "target");
    struct autodiff ad;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(autodiff(graph, NULL, 1, &ad, NULL, &err), -1);
    assert_contains(err.text, "no loss");
    graph->loss = apply(graph, "MseSum", 3, (int[]){ x, target, x });
    assert_int_equal(autodiff(graph, NULL, 1, &ad, NULL, &err), -1);
    assert_contains(err.text, "depends on no parameter");
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_do_not_depend_on_the_cuts),
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(a_tie_has_a_gradient_in_each_stage_that_reads_it),
        cmocka_unit_test(a_stage_that_goes_back_is_refused),
        cmocka_unit_test(a_loss_without_parameters_is_refused),
    };
    const char *text = getenv("TASUKI_TEST_SEED");

    seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("# TASUKI_TEST_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("autodiff", tests, NULL, NULL);
}
