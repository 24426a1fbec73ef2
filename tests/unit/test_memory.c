/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "scheduler/memory.h"

/* Stage 0 of 2 of y = (x * w)², by hand: x input, w parameter, h = x*w, y = h² sent to stage 1,
 * gy received, gh = 2 h gy (B), gw = x gh (W).
 */
enum { X, W, H, Y, GY, GH, GW, N_VALUES };
enum { MUL, SQUARE, SQUARE_GRAD, MUL_WGRAD, N_NODES };

struct example {
    struct value values[N_VALUES];
    struct node nodes[N_NODES];
    struct graph graph;
    struct autodiff autodiff;
    struct param_grad param;
    struct boundary boundary;
    struct program_value places[N_VALUES];
    struct program program;
    int forward[2], dgrad[1], wgrad[1], backward[2], inputs[1];
    int ins[N_NODES][2], outs[N_NODES][1];
};

static void set_node(struct example *e, int node, int a, int b, int out)
{
    e->ins[node][0] = a;
    e->ins[node][1] = b;
    e->outs[node][0] = out;
    e->nodes[node].n_inputs = 2;
    e->nodes[node].n_outputs = 1;
    e->nodes[node].inputs = e->ins[node];
    e->nodes[node].outputs = e->outs[node];
}

static void build(struct example *e)
{
    static const enum value_place places[N_VALUES] = {
        PLACE_SLOT, PLACE_PARAM, PLACE_SLOT, PLACE_SLOT, PLACE_SLOT, PLACE_SLOT, PLACE_GRADIENT,
    };

    memset(e, 0, sizeof(*e));
    set_node(e, MUL, X, W, H);
    set_node(e, SQUARE, H, -1, Y);
    set_node(e, SQUARE_GRAD, H, GY, GH);
    set_node(e, MUL_WGRAD, X, GH, GW);
    for (int v = 0; v < N_VALUES; v++)
        e->places[v] = (struct program_value){ places[v], 99, v, { .bytes = 1000 }, false };
    e->places[W].layout.bytes = e->places[GW].layout.bytes = 100;
    e->forward[0] = MUL;
    e->forward[1] = SQUARE;
    e->dgrad[0] = e->backward[0] = SQUARE_GRAD;
    e->wgrad[0] = e->backward[1] = MUL_WGRAD;
    e->inputs[0] = X;
    e->graph = (struct graph){ .n_values = N_VALUES, .values = e->values, .n_nodes = N_NODES,
                               .nodes = e->nodes, .loss = -1, .correct = -1, .weight_sum = -1 };
    e->param = (struct param_grad){ W, 0, GW };
    e->boundary = (struct boundary){ Y, 0, 1, Y, GY };
    e->autodiff = (struct autodiff){ .n_params = 1, .params = &e->param, .n_boundaries = 1,
                                     .boundaries = &e->boundary };
    e->program = (struct program){ .graph = &e->graph, .autodiff = &e->autodiff, .stage = 0,
                                   .n_stages = 2, .n_values = N_VALUES, .values = e->places,
                                   .n_inputs = 1, .inputs = e->inputs };
    e->program.list[PART_FORWARD] = (struct program_list){ 2, e->forward };
    e->program.list[PART_DGRAD] = (struct program_list){ 1, e->dgrad };
    e->program.list[PART_WGRAD] = (struct program_list){ 1, e->wgrad };
    e->program.backward = (struct program_list){ 2, e->backward };
}

static bool apart(const struct example *e, int a, int b)
{
    size_t x = e->places[a].offset, y = e->places[b].offset;

    return x + e->places[a].layout.bytes <= y || y + e->places[b].layout.bytes <= x;
}

static void what_is_still_needed_keeps_its_place(void **state)
{
    struct example e;

    (void)state;
    for (int form = BACKWARD_MERGED; form <= BACKWARD_DELAYED; form++) {
        build(&e);
        memory_place(&e.program, (enum backward_form)form, 2, 640);
        assert_int_equal(e.places[X].place, PLACE_SLOT);
        assert_int_equal(e.places[H].place, PLACE_SLOT);
        assert_true(apart(&e, X, H));
        assert_true(apart(&e, GY, GH));
        assert_int_equal(e.places[W].offset, e.places[GW].offset);
        assert_int_equal(e.program.workspace_bytes, 640);
    }
}

static void what_no_backward_reads_has_one_place_for_all_micro_batches(void **state)
{
    struct example e;

    (void)state;
    for (int form = BACKWARD_MERGED; form <= BACKWARD_SPLIT; form++) {
        build(&e);
        memory_place(&e.program, (enum backward_form)form, 2, 640);
        /* Sent and no more needed; received for B; made in B for W. */
        assert_int_equal(e.places[Y].place, PLACE_SCRATCH);
        assert_int_equal(e.places[GY].place, PLACE_SCRATCH);
        assert_int_equal(e.places[GH].place, PLACE_SCRATCH);
        assert_int_equal(e.program.slot_bytes, 2 * 1024);
        assert_int_equal(e.program.scratch_bytes, 2 * 1024);
    }
}

static void what_w_reads_of_b_is_kept_where_others_run_between(void **state)
{
    struct example e;

    (void)state;
    build(&e);
    memory_place(&e.program, BACKWARD_DELAYED, 2, 640);
    assert_int_equal(e.places[Y].place, PLACE_SCRATCH);
    assert_int_equal(e.places[GH].place, PLACE_SLOT);
    assert_true(apart(&e, GH, X));
}

static void with_one_micro_batch_all_share_one_arena(void **state)
{
    struct example e;

    (void)state;
    build(&e);
    memory_place(&e.program, BACKWARD_MERGED, 1, 640);
    assert_int_equal(e.program.scratch_bytes, 0);
    assert_true(apart(&e, X, H) && apart(&e, X, Y) && apart(&e, H, Y));
    assert_true(apart(&e, X, GY) && apart(&e, H, GY) && apart(&e, X, GH));
    /* y is sent when its gradient comes. */
    assert_int_equal(e.program.slot_bytes, 4 * 1024);
}

static void the_sum_has_every_part(void **state)
{
    struct example e;
    struct memory_use use;

    (void)state;
    build(&e);
    memory_place(&e.program, BACKWARD_MERGED, 3, 640);
    use = memory_use(&e.program, 3, 1, 256, 10);
    assert_int_equal(use.parameters, 128);
    assert_int_equal(use.gradients, 128);
    assert_int_equal(use.optimizer, 256);
    assert_int_equal(use.slots, 3 * e.program.slot_bytes);
    assert_int_equal(use.total, 128 * 4 + use.slots + use.scratch + 640 + 10);
    assert_int_equal(memory_use(&e.program, 3, 2, 256, 10).total,
                     use.total + use.parameters + use.prepared);
    /* Two batches contribute to running statistics at once. */
    e.program.contribution_bytes = 64;
    assert_int_equal(memory_use(&e.program, 3, 1, 256, 10).gradients, 128);
    assert_int_equal(memory_use(&e.program, 3, 2, 256, 10).gradients, 128 + 2 * 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_still_needed_keeps_its_place),
        cmocka_unit_test(what_no_backward_reads_has_one_place_for_all_micro_batches),
        cmocka_unit_test(what_w_reads_of_b_is_kept_where_others_run_between),
        cmocka_unit_test(with_one_micro_batch_all_share_one_arena),
        cmocka_unit_test(the_sum_has_every_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
