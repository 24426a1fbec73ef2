/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/blocks.h"

#define WIDTH 8

static int add_value(struct graph *g, const char *name, enum value_kind kind, int rows)
{
    struct shape shape = { 2, { rows, WIDTH } };
    struct batch batch = { kind == VALUE_INPUT ? 1 : 0, WIDTH, 0 };

    return graph_add_value(g, name, kind, DTYPE_F32, &shape, batch);
}

static int append(struct graph *g, const char *name, const char *op, int a, int b)
{
    const int inputs[] = { a, b };
    struct err err = { 0 };
    int node = op_append(g, name, op, b < 0 ? 1 : 2, inputs, 1, &err);

    if (node < 0)
        fail_msg("%s", err.text);
    return g->nodes[node].outputs[0];
}

static struct graph *start(int64_t batch, int *x, int *w0, int *w1)
{
    struct graph *g = graph_new(batch, DTYPE_F32);
    const struct shape scalar = { 0 };

    *x = add_value(g, "x", VALUE_INPUT, (int)batch);
    *w0 = add_value(g, "w0", VALUE_PARAM, WIDTH);
    *w1 = add_value(g, "w1", VALUE_PARAM, WIDTH);
    g->weight_sum = graph_add_value(g, "weight_sum", VALUE_INPUT, DTYPE_F32, &scalar,
                                    (struct batch){ 0, 0, 0 });
    return g;
}

/* h = relu(x w0); k = relu(h w1); the table w0 transposed is read again at the end, with a skip
 * from h: out = k w0' + h; loss = sum of out.
 */
static struct graph *build(int64_t batch)
{
    int x, w0, w1;
    struct graph *g = start(batch, &x, &w0, &w1);
    int turned = append(g, "turn", "Transpose", w0, -1);
    int h = append(g, "relu0", "Relu", append(g, "lin0", "MatMul", x, w0), -1);
    int k = append(g, "relu1", "Relu", append(g, "lin1", "MatMul", h, w1), -1);
    int out = append(g, "add", "Add", append(g, "lin2", "MatMul", k, turned), h);

    g->loss = append(g, "loss", "SumLoss", out, g->weight_sum);
    return g;
}

static int block_of(const struct graph *g, const char *name)
{
    for (int n = 0; n < g->n_nodes; n++)
        if (strcmp(g->nodes[n].name, name) == 0)
            return g->nodes[n].block;
    return -1;
}

static void small_nodes_join_their_neighbours(void **state)
{
    struct graph *g = build(4);
    struct blocks *b = blocks_new(g, NULL);

    (void)state;
    assert_int_equal(b->n, 3);
    assert_string_equal(b->items[0].name, "lin0");
    assert_string_equal(b->items[2].name, "lin2");
    assert_int_equal(block_of(g, "relu0"), 0);
    assert_int_equal(block_of(g, "relu1"), 1);
    assert_int_equal(block_of(g, "add"), 2);
    assert_int_equal(block_of(g, "loss"), 2);
    /* What is made of weights alone belongs to its reader. */
    assert_int_equal(block_of(g, "turn"), 2);
    blocks_free(b);
    graph_free(g);
}

static void edges_never_run_backwards_and_batch_size_changes_nothing(void **state)
{
    struct graph *g = build(4), *other = build(7);
    struct blocks *a = blocks_new(g, NULL), *b = blocks_new(other, NULL);

    (void)state;
    assert_int_equal(a->n, b->n);
    for (int n = 0; n < g->n_nodes; n++) {
        assert_int_equal(g->nodes[n].block, other->nodes[n].block);
        for (int i = 0; i < g->nodes[n].n_inputs; i++) {
            int producer = g->nodes[n].inputs[i] < 0
                               ? -1 : g->values[g->nodes[n].inputs[i]].producer;

            if (producer >= 0 && strcmp(g->nodes[producer].name, "turn") != 0)
                assert_true(g->nodes[producer].block <= g->nodes[n].block);
        }
    }
    blocks_free(a);
    blocks_free(b);
    graph_free(g);
    graph_free(other);
}

static struct plan *plan_of(const char *a, const char *b, const char *c)
{
    struct plan *plan = mem_new(1, sizeof(*plan));

    plan->pipelines = 1;
    plan->n_stages = 2;
    plan->stages = mem_new(2, sizeof(*plan->stages));
    plan->stages[0].n_blocks = 2;
    plan->stages[0].blocks = mem_new(2, sizeof(struct plan_block));
    plan->stages[0].blocks[0].name = mem_strdup(a);
    plan->stages[0].blocks[1].name = mem_strdup(b);
    plan->stages[1].n_blocks = 1;
    plan->stages[1].blocks = mem_new(1, sizeof(struct plan_block));
    plan->stages[1].blocks[0].name = mem_strdup(c);
    return plan;
}

static void a_plan_gives_each_node_its_stage(void **state)
{
    struct graph *g = build(4);
    struct plan *plan = plan_of("lin0", "lin1", "lin2"), *wrong = plan_of("lin0", "x", "lin2");
    struct plan *mixed = plan_of("lin1", "lin0", "lin2"), *late = plan_of("lin0", "lin2", "lin1");
    struct err err = { 0 };
    int *stage = blocks_stages(g, plan, &err);

    (void)state;
    assert_non_null(stage);
    for (int n = 0; n < g->n_nodes; n++)
        assert_int_equal(stage[n], g->nodes[n].block == 2);
    assert_null(blocks_stages(g, wrong, &err));
    assert_contains(err.text, "\"x\"");
    assert_non_null(blocks_stages(g, mixed, NULL));
    assert_null(blocks_stages(g, late, &err));
    assert_contains(err.text, "puts block \"lin2\" before \"lin1\", which it reads");
    plan_free(mixed);
    plan_free(late);
    plan_free(plan);
    plan_free(wrong);
    graph_free(g);
}

/* Every node takes a second, to be counted. */
static struct cost *cost_of(struct graph **graphs, int n, struct err *err)
{
    struct block_timing timing[2];
    struct autodiff ad[2];
    double *seconds[2];
    struct blocks *blocks[2];
    struct cost *cost;

    for (int i = 0; i < n; i++) {
        int *stage, *all;

        blocks[i] = blocks_new(graphs[i], err);
        stage = arena_alloc(graphs[i]->arena, (size_t)graphs[i]->n_nodes, sizeof(int));
        for (int k = 0; k < graphs[i]->n_nodes; k++)
            stage[k] = graphs[i]->nodes[k].block;
        if (autodiff(graphs[i], stage, blocks[i]->n, &ad[i], &all, err))
            fail_msg("%s", err->text);
        seconds[i] = mem_new((size_t)graphs[i]->n_nodes, sizeof(double));
        for (int k = 0; k < graphs[i]->n_nodes; k++)
            seconds[i][k] = 1;
        timing[i] = (struct block_timing){ graphs[i]->batch, graphs[i], &ad[i], all,
                                           seconds[i], NULL, NULL, NULL, NULL, NULL, NULL };
    }
    cost = blocks_cost(blocks[0], n, timing, 0, 2, "test", err);
    for (int i = 0; i < n; i++) {
        blocks_free(blocks[i]);
        free(seconds[i]);
    }
    return cost;
}

static void a_cost_file_is_made_of_timed_nodes(void **state)
{
    struct graph *graphs[] = { build(2), build(4) };
    struct err err = { 0 };
    struct cost *cost = cost_of(graphs, 2, &err);

    (void)state;
    if (!cost)
        fail_msg("%s", err.text);
    assert_int_equal(cost->n_blocks, 3);
    assert_true(cost->blocks[0].forward[0] == 2);
    assert_true(cost->blocks[1].wgrad[1] >= 1);
    assert_true(cost->blocks[0].dgrad[0] >= 1);
    assert_true(cost->blocks[1].parameters == 4.0 * WIDTH * WIDTH);
    assert_true(cost->blocks[0].parameters == 0);
    /* w0 is read in the first and the last block. */
    assert_int_equal(cost->n_shared, 1);
    assert_string_equal(cost->shared[0].name, "w0");
    assert_int_equal(cost->shared[0].n_blocks, 2);
    /* h goes to the next block and skips to the last. */
    assert_int_equal(cost->n_edges, 3);
    assert_true(cost->edges[0].bytes[0] == 4.0 * 2 * WIDTH);
    assert_true(cost->edges[0].bytes[1] == 4.0 * 4 * WIDTH);
    assert_int_equal(cost->edges[1].from, 0);
    assert_int_equal(cost->edges[1].to, 2);
    assert_int_equal(cost->n_inputs, 1);
    assert_true(cost->blocks[0].batch_axis);
    assert_true(cost->optimizer_bytes_per_parameter == 8);
    cost_free(cost);
    graph_free(graphs[0]);
    graph_free(graphs[1]);
}

/* Two layers with nothing between: W of the first reads what B of the second makes. */
static struct graph *build_pair(int64_t batch)
{
    int x, w0, w1;
    struct graph *g = start(batch, &x, &w0, &w1);
    int out = append(g, "lin1", "MatMul", append(g, "lin0", "MatMul", x, w0), w1);

    g->loss = append(g, "loss", "SumLoss", out, g->weight_sum);
    return g;
}

static void gradients_that_a_later_block_makes_wait_for_wgrad_too(void **state)
{
    struct graph *g = build_pair(2);
    struct err err = { 0 };
    struct cost *cost = cost_of(&g, 1, &err);

    (void)state;
    if (!cost)
        fail_msg("%s", err.text);
    assert_int_equal(cost->n_blocks, 2);
    for (int b = 0; b < 2; b++)
        assert_true(cost->blocks[b].gradients_for_wgrad[0] == 4.0 * 2 * WIDTH);
    cost_free(cost);
    graph_free(g);
}

/* The gradients of both outputs are there while B of the second block makes one of the other; while
 * the first block runs there is its own alone, and no block counts what it sends.
 */
static void the_workspace_of_a_program_is_what_lives_beside_what_is_kept(void **state)
{
    struct graph *g = build_pair(2);
    struct blocks *blocks = blocks_new(g, NULL);
    struct err err = { 0 };
    double most[2] = { 0 }, others[6][2] = { { 0 } };
    struct autodiff ad;
    struct program *program;
    int *stage = arena_alloc(g->arena, (size_t)g->n_nodes, sizeof(int));

    (void)state;
    if (autodiff(g, stage, 1, &ad, &stage, &err))
        fail_msg("%s", err.text);
    program = program_new(g, &ad, stage, 0, 1, &err);
    assert_non_null(program);
    blocks_peaks_of_program(program, blocks->n,
                            arena_alloc(g->arena, (size_t)program->n_values, sizeof(bool)),
                            &(struct block_peaks){ most, others[0], others[1], others[2],
                                                   others[3], others[4], others[5] });
    assert_true(most[1] >= 2 * 4.0 * 2 * WIDTH);
    assert_true(most[0] == 4.0 * 2 * WIDTH);
    program_free(program);
    blocks_free(blocks);
    graph_free(g);
}

/* At four samples, from a copy of a graph that was built for so many. */
static struct cost *estimate(const struct graph *built)
{
    struct graph *graph = graph_copy(built);
    struct err err = { 0 };
    struct blocks *blocks = blocks_new(graph, &err);
    int *stage = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(int));
    struct autodiff ad;
    struct cost *cost;
    double *seconds;

    for (int k = 0; k < graph->n_nodes; k++)
        stage[k] = graph->nodes[k].block;
    if (autodiff(graph, stage, blocks->n, &ad, &stage, &err))
        fail_msg("%s", err.text);
    seconds = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(double));
    blocks_roofline(graph, 4, &(struct roofline){ .flops = 1e3, .memory_bandwidth = 1e3 }, seconds);
    cost = blocks_cost(blocks, 1,
                       &(struct block_timing){ 4, graph, &ad, stage, seconds, NULL, NULL, NULL, NULL,
                                                NULL, NULL },
                       0, 2, "test", &err);
    blocks_free(blocks);
    graph_free(graph);
    if (!cost)
        fail_msg("%s", err.text);
    return cost;
}

static void a_graph_gives_the_costs_of_any_batch_and_is_left_as_it_was(void **state)
{
    struct graph *two = build(2), *four = build(4);
    int nodes = two->n_nodes;
    struct cost *scaled = estimate(two), *same = estimate(four), *again = estimate(two);
    json_t *a = cost_to_json(scaled), *b = cost_to_json(same), *c = cost_to_json(again);

    (void)state;
    assert_true(json_equal(a, b));
    assert_true(json_equal(a, c));
    assert_int_equal(two->n_nodes, nodes);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    cost_free(scaled);
    cost_free(same);
    cost_free(again);
    graph_free(two);
    graph_free(four);
}

static void a_roofline_takes_the_slower_of_work_and_memory(void **state)
{
    struct graph *g = build(4);
    struct efficiency half = { 0 };
    double seconds[16];
    int lin = -1;

    (void)state;
    for (int n = 0; n < g->n_nodes; n++)
        if (strcmp(g->nodes[n].name, "lin0") == 0)
            lin = n;
    blocks_roofline(g, 4, &(struct roofline){ .flops = 1 }, seconds);
    assert_true(seconds[lin] == 2.0 * 4 * WIDTH * WIDTH);
    blocks_roofline(g, 4, &(struct roofline){ .memory_bandwidth = 1 }, seconds);
    assert_true(seconds[lin] == 4.0 * (4 * WIDTH + WIDTH * WIDTH + 4 * WIDTH));
    /* A share of the operations leaves bytes as they were, and the other way round. */
    half.curves[EFFICIENCY_MATMUL].n = 1;
    half.curves[EFFICIENCY_MATMUL].points[0] = (struct efficiency_point){ 1, 0.5 };
    blocks_roofline(g, 4, &(struct roofline){ .flops = 1, .efficiency = &half }, seconds);
    assert_true(seconds[lin] == 2 * 2.0 * 4 * WIDTH * WIDTH);
    blocks_roofline(g, 4, &(struct roofline){ .memory_bandwidth = 1, .efficiency = &half }, seconds);
    assert_true(seconds[lin] == 4.0 * (4 * WIDTH + WIDTH * WIDTH + 4 * WIDTH));
    graph_free(g);
}

/* Of a product: what it reads. */
static bool reads_narrow(const struct graph *graph, int node, int operand)
{
    return strcmp(graph->nodes[node].name, "lin0") == 0 && operand < graph->nodes[node].n_inputs;
}

static void what_is_narrow_takes_half_the_bytes_and_products_their_own_speed(void **state)
{
    struct graph *g = build(4);
    double seconds[16], wide[16];
    int lin = -1, other = -1;

    (void)state;
    for (int n = 0; n < g->n_nodes; n++)
        if (strcmp(g->nodes[n].name, "lin0") == 0)
            lin = n;
        else if (g->nodes[n].op->flags & OP_MATMUL)
            other = n;
    assert_true(lin >= 0 && other >= 0);
    blocks_roofline(g, 4, &(struct roofline){ .flops = 1, .narrow_flops = 8, .wide_flops = 2,
                                              .is_narrow = reads_narrow }, seconds);
    blocks_roofline(g, 4, &(struct roofline){ .flops = 1 }, wide);
    assert_true(8 * seconds[lin] == wide[lin] && 2 * seconds[other] == wide[other]);
    for (int n = 0; n < g->n_nodes; n++)
        assert_true(seconds[n] == wide[n] || g->nodes[n].op->flags & OP_MATMUL);
    blocks_roofline(g, 4, &(struct roofline){ .memory_bandwidth = 1, .is_narrow = reads_narrow },
                    seconds);
    assert_true(seconds[lin] == 2.0 * (4 * WIDTH + WIDTH * WIDTH) + 4.0 * 4 * WIDTH);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_nodes_join_their_neighbours),
        cmocka_unit_test(edges_never_run_backwards_and_batch_size_changes_nothing),
        cmocka_unit_test(a_plan_gives_each_node_its_stage),
        cmocka_unit_test(a_cost_file_is_made_of_timed_nodes),
        cmocka_unit_test(gradients_that_a_later_block_makes_wait_for_wgrad_too),
        cmocka_unit_test(the_workspace_of_a_program_is_what_lives_beside_what_is_kept),
        cmocka_unit_test(a_graph_gives_the_costs_of_any_batch_and_is_left_as_it_was),
        cmocka_unit_test(a_roofline_takes_the_slower_of_work_and_memory),
        cmocka_unit_test(what_is_narrow_takes_half_the_bytes_and_products_their_own_speed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
