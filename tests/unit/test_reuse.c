/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "graph/op.h"
#include "train/reuse.h"

/* y = x w0, z = y w1, then gz known: gw1 from (y, gz), gy from (gz, w1), gw0 from (x, gy). */
enum { X, W0, Y, W1, Z, GZ, GW1, GY, GW0, N_VALUES };
enum { FIRST, SECOND, WGRAD_1, DGRAD_1, WGRAD_0, N_NODES };

#define OUTPUT 2        /* operand: after two inputs */

struct example {
    struct value values[N_VALUES];
    struct node nodes[N_NODES];
    struct value_layout layouts[N_VALUES];
    struct graph graph;
    int operands[N_NODES][3];
    int order[N_NODES];
};

static const struct op plain;

static void set_node(struct example *e, int node, int a, int b, int out)
{
    int *operands = e->operands[node];

    operands[0] = a;
    operands[1] = b;
    operands[OUTPUT] = out;
    e->nodes[node] = (struct node){ .op = &plain, .n_inputs = 2, .inputs = operands,
                                    .n_outputs = 1, .outputs = operands + OUTPUT };
    e->order[node] = node;
}

/* Activations of 'small' bytes, parameters and their gradients of 'large' ones. */
static void build(struct example *e, size_t small, size_t large)
{
    memset(e, 0, sizeof(*e));
    set_node(e, FIRST, X, W0, Y);
    set_node(e, SECOND, Y, W1, Z);
    set_node(e, WGRAD_1, Y, GZ, GW1);
    set_node(e, DGRAD_1, GZ, W1, GY);
    set_node(e, WGRAD_0, X, GY, GW0);
    for (int v = 0; v < N_VALUES; v++)
        e->layouts[v].bytes = small;
    e->layouts[W0].bytes = e->layouts[W1].bytes = large;
    e->layouts[GW0].bytes = e->layouts[GW1].bytes = large;
    e->graph = (struct graph){ .n_values = N_VALUES, .values = e->values, .n_nodes = N_NODES,
                               .nodes = e->nodes };
}

static bool is_far(const struct reuse *reuse, int node, int operand)
{
    return reuse->far[node] >> operand & 1;
}

static void nothing_is_far_where_all_fits(void **state)
{
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 10, 100);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, 1000000);
    assert_int_equal(reuse.ring, 0);
    for (int n = 0; n < N_NODES; n++)
        assert_int_equal(reuse.far[n], 0);
    reuse_clear(&reuse);
}

static void weights_are_far_and_what_was_just_made_is_near(void **state)
{
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 10, 1000);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, 1500);
    assert_true(reuse.ring > 0);
    assert_true(is_far(&reuse, FIRST, 1));          /* since the last step */
    assert_true(is_far(&reuse, SECOND, 1));
    assert_false(is_far(&reuse, SECOND, 0));        /* made right before */
    assert_false(is_far(&reuse, DGRAD_1, 1));       /* gw1 came between, which leaves room */
    assert_false(is_far(&reuse, WGRAD_0, 1));
    assert_true(is_far(&reuse, WGRAD_0, 0));        /* x was read at the very start */
    reuse_clear(&reuse);
}

static void gradients_are_results_and_far(void **state)
{
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 10, 1000);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, 1500);
    assert_true(reuse.result[WGRAD_0] && reuse.result[WGRAD_1]);
    assert_true(is_far(&reuse, WGRAD_0, OUTPUT) && is_far(&reuse, WGRAD_1, OUTPUT));
    assert_false(reuse.result[FIRST] || reuse.result[DGRAD_1]);
    reuse_clear(&reuse);
}

static void an_output_is_as_far_as_what_was_last_in_its_place(void **state)
{
    size_t places[N_VALUES], end = 0;
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 64, 6400);
    for (int v = 0; v < N_VALUES; v++) {
        places[v] = end;
        end += e.layouts[v].bytes;
    }
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, places, 6500);
    assert_true(is_far(&reuse, SECOND, OUTPUT));        /* z was there a step ago */
    assert_true(is_far(&reuse, DGRAD_1, OUTPUT));
    reuse_clear(&reuse);
    places[Z] = places[X];      /* which FIRST has just read */
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, places, 6500);
    assert_false(is_far(&reuse, SECOND, OUTPUT));
    assert_true(is_far(&reuse, DGRAD_1, OUTPUT));
    reuse_clear(&reuse);
}

static void what_no_ring_is_long_enough_for_is_gone(void **state)
{
    const size_t large = 40 << 20;
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 4096, large);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, 1 << 20);
    assert_true(is_far(&reuse, FIRST, 1) && (reuse.gone[FIRST] & 2));       /* 160 MiB ago */
    assert_true(is_far(&reuse, DGRAD_1, 1) && !(reuse.gone[DGRAD_1] & 2));  /* gw1 came between */
    assert_true(reuse.rings[DGRAD_1] > 0 && reuse.rings[DGRAD_1] < REUSE_LONGEST);
    reuse_clear(&reuse);
}

static void a_view_is_what_it_shows(void **state)
{
    static const struct op view = { .flags = OP_VIEW };
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 10, 1000);
    /* z shows y, and gw1 is made from z. */
    e.nodes[SECOND].op = &view;
    set_node(&e, WGRAD_1, Z, GZ, GW1);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, 900);
    assert_false(is_far(&reuse, WGRAD_1, 0));
    assert_int_equal(reuse.far[SECOND], 0);
    reuse_clear(&reuse);
}

/* Within what rounding to powers of the root of two takes. */
static bool is_near(size_t ring, double mebibytes)
{
    return fabs(log2((double)ring / (1 << 20) / mebibytes)) <= 0.25;
}

/* Of the five large operands of a step one, w1, comes twice: four bytes of five are others. */
static void rings_are_as_long_as_what_passes_between_two_uses(void **state)
{
    const size_t large = 6 << 20;
    struct example e;
    struct reuse reuse;

    (void)state;
    build(&e, 10, large);
    reuse_make(&reuse, &e.graph, N_NODES, e.order, e.layouts, NULL, large / 2);
    assert_true(is_near(reuse.ring, 24));                   /* MiB */
    assert_true(is_near(reuse.rings[FIRST], 24));           /* w0: the same */
    assert_true(is_near(reuse.rings[SECOND], 9.6));         /* w1: of gw0 and w0 */
    assert_true(is_near(reuse.rings[DGRAD_1], 4.8));        /* of gw1 */
    assert_int_equal(reuse.written, 2);                     /* gw0 and gw1, not w0 and w1 */
    reuse_clear(&reuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_far_where_all_fits),
        cmocka_unit_test(weights_are_far_and_what_was_just_made_is_near),
        cmocka_unit_test(gradients_are_results_and_far),
        cmocka_unit_test(an_output_is_as_far_as_what_was_last_in_its_place),
        cmocka_unit_test(what_no_ring_is_long_enough_for_is_gone),
        cmocka_unit_test(a_view_is_what_it_shows),
        cmocka_unit_test(rings_are_as_long_as_what_passes_between_two_uses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
