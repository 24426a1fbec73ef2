/* SPDX-License-Identifier: MIT */
/* What selective recompute keeps, beside the best of all sets that could be kept. */
#include "unit.h"

#include "base/mem.h"
#include "graph/op.h"
#include "graph/program.h"
#include "graph/recompute.h"

#define MOST_NODES 5
#define MOST_VALUES (2 + 2 * MOST_NODES)
#define ROUNDS 500

struct example {
    struct graph graph;
    struct node nodes[MOST_NODES];
    struct program_list forward;
    int order[MOST_NODES], operands[MOST_NODES][4], root[MOST_VALUES];
    size_t bytes[MOST_VALUES];
    bool wanted[MOST_VALUES], kept[MOST_VALUES], runs[MOST_NODES];
};

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 16) % n;
}

/* One more node: up to two inputs, 'n' outputs, which are new values. */
static int add_node(struct example *e, const char *op, int a, int b, int n)
{
    int i = e->graph.n_nodes++, *operands = e->operands[i], first = e->graph.n_values;

    operands[0] = a;
    operands[1] = b;
    e->graph.n_values += n;
    for (int k = 0; k < n; k++) {
        operands[2 + k] = first + k;
        e->bytes[first + k] = 4;
    }
    e->nodes[i] = (struct node){ .op = op_find(op), .n_inputs = b < 0 ? 1 : 2,
                                 .inputs = operands, .n_outputs = n, .outputs = operands + 2 };
    e->order[e->forward.n++] = i;
    return first;
}

/* Two values that are there: one that a stage is fed, and a parameter. */
enum { INPUT, PARAMETER };

static void init(struct example *e)
{
    memset(e, 0, sizeof(*e));
    e->graph.nodes = e->nodes;
    e->graph.n_values = 2;
    e->forward.nodes = e->order;
    e->bytes[INPUT] = 4;
    for (int v = 0; v < MOST_VALUES; v++)
        e->root[v] = v;
}

static void solve(struct example *e)
{
    bool wanted[MOST_VALUES];

    recompute_keep(&e->graph, &e->forward, e->root, e->bytes, e->wanted, e->kept);
    memcpy(wanted, e->wanted, sizeof(wanted));
    recompute_runs(&e->graph, &e->forward, e->root, e->kept, wanted, e->runs);
}

/* conv, normalisation, activation, conv: of the two that the backward reads, one is kept. */
static void an_activation_is_made_again_from_what_is_kept_anyway(void **state)
{
    struct example e;
    int made, normal, active;

    (void)state;
    init(&e);
    made = add_node(&e, "Conv", INPUT, PARAMETER, 1);
    normal = add_node(&e, "LayerNormalization", made, PARAMETER, 1);
    active = add_node(&e, "Relu", normal, -1, 1);
    add_node(&e, "Conv", active, PARAMETER, 1);
    e.wanted[INPUT] = e.wanted[made] = e.wanted[active] = true;
    solve(&e);
    assert_true(e.kept[INPUT] && e.kept[made] && !e.kept[active] && !e.kept[normal]);
    assert_true(!e.runs[0] && e.runs[1] && e.runs[2] && !e.runs[3]);
}

/* It would have to keep as much in its place. */
static void nothing_is_run_again_where_that_keeps_no_less(void **state)
{
    struct example e;
    int made, active;

    (void)state;
    init(&e);
    made = add_node(&e, "MatMul", INPUT, PARAMETER, 1);
    active = add_node(&e, "Relu", made, -1, 1);
    add_node(&e, "MatMul", active, PARAMETER, 1);
    e.wanted[INPUT] = e.wanted[active] = true;
    solve(&e);
    assert_true(e.kept[INPUT] && !e.kept[made] && e.kept[active]);
    assert_true(!e.runs[0] && !e.runs[1] && !e.runs[2]);
}

/* What an addition and a normalisation make is two values, and one of their inputs is there. */
static void one_value_is_kept_in_place_of_two(void **state)
{
    struct example e;
    int made, sum;

    (void)state;
    init(&e);
    made = add_node(&e, "Linear", INPUT, PARAMETER, 1);
    sum = add_node(&e, "AddLayerNorm", INPUT, made, 2);
    e.wanted[INPUT] = e.wanted[sum] = e.wanted[sum + 1] = true;
    solve(&e);
    assert_true(e.kept[INPUT] && e.kept[made] && !e.kept[sum] && !e.kept[sum + 1]);
    assert_true(!e.runs[0] && e.runs[1]);
}

/* Under full recompute nothing is kept, and what a stage is fed is there, whatever its shape. */
static void a_view_of_what_is_fed_is_not_run_again(void **state)
{
    struct example e;
    int flat, made;

    (void)state;
    init(&e);
    flat = add_node(&e, "Reshape", INPUT, -1, 1);
    e.root[flat] = INPUT;
    made = add_node(&e, "Linear", flat, PARAMETER, 1);
    e.wanted[INPUT] = e.wanted[made] = true;
    recompute_runs(&e.graph, &e.forward, e.root, e.kept, e.wanted, e.runs);
    assert_true(!e.runs[0] && e.runs[1]);
}

static void random_example(struct example *e, unsigned *seed)
{
    static const char *const ops[] = { "Relu", "Add", "MatMul", "Add" };
    int n = 1 + (int)draw(seed, MOST_NODES);

    init(e);
    for (int i = 0; i < n; i++) {
        const char *op = ops[draw(seed, 4)];
        int a = (int)draw(seed, (unsigned)e->graph.n_values);
        int b = (int)draw(seed, (unsigned)e->graph.n_values);

        add_node(e, op, a, b, 1 + (int)draw(seed, 2));
    }
    for (int v = 0; v < e->graph.n_values; v++) {
        e->bytes[v] = v == PARAMETER ? 0 : 1 + draw(seed, 8);
        e->wanted[v] = draw(seed, 2);
    }
}

/* Bytes of a set, -1 where memory-bound operators cannot make from it what is wanted. */
static long bytes_of(const struct example *e, unsigned set)
{
    long bytes = 0;

    for (int v = 0; v < e->graph.n_values; v++) {
        bytes += set >> v & 1 ? (long)e->bytes[v] : 0;
        set |= e->bytes[v] == 0 ? 1u << v : 0;
    }
    for (int i = 0; i < e->forward.n; i++) {
        const struct node *node = &e->nodes[i];
        bool there = !recompute_is_costly(&e->graph, i);

        for (int k = 0; k < node->n_inputs; k++)
            there &= set >> node->inputs[k] & 1;
        for (int k = 0; k < node->n_outputs && there; k++)
            set |= 1u << node->outputs[k];
    }
    for (int v = 0; v < e->graph.n_values; v++)
        if (e->wanted[v] && !(set >> v & 1))
            return -1;
    return bytes;
}

static void no_other_set_has_fewer_bytes(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct example e;
        long best = -1, is;
        unsigned kept = 0;

        random_example(&e, &seed);
        solve(&e);
        for (int v = 0; v < e.graph.n_values; v++)
            kept |= e.kept[v] && e.bytes[v] ? 1u << v : 0;
        is = bytes_of(&e, kept);
        assert_true(is >= 0);
        for (unsigned set = 0; set < 1u << e.graph.n_values; set++) {
            long bytes = bytes_of(&e, set);

            best = bytes >= 0 && (best < 0 || bytes < best) ? bytes : best;
        }
        assert_int_equal(is, best);
        for (int i = 0; i < e.forward.n; i++)
            assert_false(e.runs[i] && recompute_is_costly(&e.graph, i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_activation_is_made_again_from_what_is_kept_anyway),
        cmocka_unit_test(nothing_is_run_again_where_that_keeps_no_less),
        cmocka_unit_test(one_value_is_kept_in_place_of_two),
        cmocka_unit_test(a_view_of_what_is_fed_is_not_run_again),
        cmocka_unit_test(no_other_set_has_fewer_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
