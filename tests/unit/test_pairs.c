/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/pairs.h"

/* Switches of nodes of devices; the nodes have cores that their devices share. */
static struct cluster *tree(int switches, int nodes, int devices)
{
    struct cluster *c = cluster_new("test");
    char name[64];

    for (int s = 0; s < switches; s++) {
        int leaf = 0;

        snprintf(name, sizeof(name), "leaf%d", s);
        if (switches > 1)
            leaf = cluster_add_place(c, CLUSTER_SWITCH, name, 0, 1e10);
        for (int n = 0; n < nodes; n++) {
            int node;

            snprintf(name, sizeof(name), "n%d", s * nodes + n);
            node = cluster_add_place(c, CLUSTER_NODE, name, leaf, 1e10);
            c->places[node].cores = devices;
            for (int d = 0; d < devices; d++) {
                snprintf(name, sizeof(name), "n%d/cpu%d", s * nodes + n, d);
                cluster_add_device(c, name, "cpu", node, 4e9);
            }
        }
    }
    return c;
}

static void assert_class(const struct cluster *c, const struct pairs *p, int class,
                         const char *name)
{
    char *text = pairs_class_name(c, &p->classes[class]);

    assert_string_equal(text, name);
    free(text);
}

static void each_kind_of_place_is_a_class(void **state)
{
    struct cluster *c = tree(2, 4, 2), *flat = tree(1, 3, 1);
    struct pairs *p = pairs_choose(c, true), *q = pairs_choose(flat, true);

    (void)state;
    assert_int_equal(p->n_classes, 3);
    assert_class(c, p, 0, "same node");
    assert_class(c, p, 1, "same switch");
    assert_class(c, p, 2, "across switches");
    assert_int_equal(q->n_classes, 1);
    assert_class(flat, q, 0, "across nodes");
    pairs_free(p);
    pairs_free(q);
    cluster_free(c);
    cluster_free(flat);
}

/* Two pairs of a round have no wire, no device and no node's cores in common. */
static void assert_undisturbed(const struct cluster *c, const struct pairs *p)
{
    int *used = mem_new((size_t)c->n_places, sizeof(*used));    /* the last round, from 1 */

    for (int round = 0; round < p->n_rounds; round++)
        for (int i = 0; i < p->n_pairs; i++) {
            int nodes[] = { c->devices[p->pairs[i].a].node, c->devices[p->pairs[i].b].node };
            int list[18], up, n = cluster_route(c, p->pairs[i].a, p->pairs[i].b, list, &up);

            if (p->pairs[i].round != round)
                continue;
            /* Across nodes their wires stand for them already. */
            if (nodes[0] == nodes[1])
                list[n++] = nodes[0];
            for (int j = 0; j < n; j++) {
                assert_int_not_equal(used[list[j]], round + 1);
                used[list[j]] = round + 1;
            }
        }
    free(used);
}

static void pairs_of_a_round_share_nothing(void **state)
{
    static const int shapes[][3] = { { 2, 4, 2 }, { 3, 5, 3 }, { 1, 7, 4 }, { 4, 2, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cluster *c = tree(shapes[i][0], shapes[i][1], shapes[i][2]);
        struct pairs *p = pairs_choose(c, true);

        assert_true(p->n_pairs > 0);
        assert_undisturbed(c, p);
        pairs_free(p);
        cluster_free(c);
    }
}

/* The ends of a pair are in different children, and both orders do not occur. */
static void no_pair_is_chosen_twice(void **state)
{
    struct cluster *c = tree(4, 6, 4);
    struct pairs *p = pairs_choose(c, true);

    (void)state;
    for (int i = 0; i < p->n_pairs; i++) {
        assert_int_not_equal(p->pairs[i].a, p->pairs[i].b);
        for (int j = 0; j < i; j++)
            assert_false((p->pairs[i].a == p->pairs[j].a && p->pairs[i].b == p->pairs[j].b) ||
                         (p->pairs[i].a == p->pairs[j].b && p->pairs[i].b == p->pairs[j].a));
    }
    pairs_free(p);
    cluster_free(c);
}

static void a_thousand_nodes_take_few_rounds_and_each_takes_part(void **state)
{
    struct cluster *c = tree(40, 25, 8);
    struct pairs *p = pairs_choose(c, true);
    char *seen = mem_new((size_t)c->n_places * 3, 1);

    (void)state;
    /* First fit needs at most twice as many rounds as pairs that want the same thing: in a node
     * 12 pairs, 3 of a node below its switch, and 25 * 3 through the wire of a switch.
     */
    assert_true(p->n_rounds <= 2 * (12 + 3 + 75));
    for (int i = 0; i < p->n_pairs; i++) {
        seen[3 * c->devices[p->pairs[i].a].node + p->pairs[i].class] = 1;
        seen[3 * c->devices[p->pairs[i].b].node + p->pairs[i].class] = 1;
    }
    for (int i = 0; i < c->n_places; i++)
        if (c->places[i].kind == CLUSTER_NODE)
            assert_memory_equal(&seen[3 * i], "\1\1\1", 3);
    free(seen);
    pairs_free(p);
    cluster_free(c);
}

static void quick_is_one_pair_in_each_of_four_places(void **state)
{
    struct cluster *c = tree(6, 5, 3);
    struct pairs *p = pairs_choose(c, false);

    (void)state;
    assert_int_equal(p->n_pairs, 4 + 4 + 1);
    assert_int_equal(p->n_loads, 0);
    assert_undisturbed(c, p);
    pairs_free(p);
    cluster_free(c);
}

static void a_load_is_all_devices_of_one_child_towards_another(void **state)
{
    struct cluster *c = tree(1, 4, 3);
    struct pairs *p = pairs_choose(c, true);

    (void)state;
    assert_int_equal(p->n_loads, 2);
    for (int i = 0; i < p->n_flows; i++) {
        assert_int_equal(p->flows[i].b, p->flows[i].a + 3);
        assert_int_not_equal(c->devices[p->flows[i].a].node, c->devices[p->flows[i].b].node);
    }
    assert_int_equal(p->loads[1].first, 3);
    assert_int_equal(p->loads[1].n, 3);
    pairs_free(p);
    cluster_free(c);
}

static void one_device_has_nothing_to_measure(void **state)
{
    struct cluster *c = tree(1, 1, 1);
    struct pairs *p = pairs_choose(c, true);

    (void)state;
    assert_int_equal(p->n_pairs, 0);
    assert_int_equal(p->n_rounds, 0);
    pairs_free(p);
    cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_place_is_a_class),
        cmocka_unit_test(pairs_of_a_round_share_nothing),
        cmocka_unit_test(no_pair_is_chosen_twice),
        cmocka_unit_test(a_thousand_nodes_take_few_rounds_and_each_takes_part),
        cmocka_unit_test(quick_is_one_pair_in_each_of_four_places),
        cmocka_unit_test(a_load_is_all_devices_of_one_child_towards_another),
        cmocka_unit_test(one_device_has_nothing_to_measure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
