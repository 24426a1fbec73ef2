/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "topology/cluster.h"
#include "topology/cluster_spec.h"

static struct cluster *open_spec(const char *spec)
{
    struct err err = { 0 };
    struct cluster *cluster = cluster_from_spec(spec, &err);

    if (!cluster)
        fail_msg("%s", err.text);
    assert_int_equal(cluster_check(cluster, &err), 0);
    return cluster;
}

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

static void flat_is_equal_devices_on_one_crossbar(void **state)
{
    struct cluster *c = open_spec("flat:16,bandwidth=1e9,latency=2e-6,memory=16e9");
    struct cluster_link link = cluster_link(c, 3, 12);

    (void)state;
    assert_int_equal(c->n_devices, 16);
    assert_string_equal(c->devices[15].id, "15");
    assert_int_equal(c->devices[7].node, 0);
    assert_true(c->devices[0].memory == 16e9);
    assert_true(link.bandwidth == 1e9 && link.latency == 2e-6);
    cluster_free(c);
}

static void tree_has_wires_inside_and_across_nodes(void **state)
{
    struct cluster *c = open_spec("tree:4x8,inside=150e9,across=12.5e9,memory=32e9,"
                                  "latency=5e-6,inside-latency=1e-6");
    struct cluster_link inside = cluster_link(c, 8, 15), across = cluster_link(c, 7, 8);

    (void)state;
    assert_int_equal(c->n_devices, 32);
    assert_int_equal(cluster_find_device(c, "n1/gpu0"), 8);
    assert_int_equal(cluster_find_device(c, "n4/gpu0"), -1);
    assert_int_equal(c->places[c->devices[8].node].kind, CLUSTER_NODE);
    assert_true(inside.bandwidth == 150e9 && inside.latency == 1e-6);
    assert_true(across.bandwidth == 12.5e9 && across.latency == 5e-6);
    cluster_free(c);
}

static void devices_are_found_by_their_ids_in_a_part_too(void **state)
{
    struct cluster *c = open_spec("tree:40x8,inside=2e9,across=1e9");
    struct cluster *part = cluster_first(c, 100);

    (void)state;
    for (int d = 0; d < c->n_devices; d++) {
        assert_int_equal(cluster_find_device(c, c->devices[d].id), d);
        assert_int_equal(cluster_find_device(part, c->devices[d].id), d < 100 ? d : -1);
    }
    assert_int_equal(cluster_find_device(c, ""), -1);
    cluster_free(part);
    cluster_free(c);
}

static void a_device_reaches_itself_at_no_cost(void **state)
{
    struct cluster *c = open_spec("flat:2,bandwidth=1e9,latency=1");
    struct cluster_link link = cluster_link(c, 1, 1);

    (void)state;
    assert_true(isinf(link.bandwidth) && link.latency == 0);
    assert_true(isinf(c->devices[0].memory));
    cluster_free(c);
}

static void a_route_climbs_to_where_the_two_meet_and_descends(void **state)
{
    struct cluster *c = open_spec("tree:2x2,inside=2e9,across=1e9");
    int wires[16], up, n = cluster_route(c, 0, 3, wires, &up);

    (void)state;
    assert_int_equal(n, 4);
    assert_int_equal(up, 2);
    assert_int_equal(wires[0], c->devices[0].place);
    assert_int_equal(wires[1], c->devices[0].node);
    assert_int_equal(wires[2], c->devices[3].node);
    assert_int_equal(wires[3], c->devices[3].place);
    assert_int_equal(cluster_route(c, 0, 1, wires, &up), 2);
    assert_int_equal(cluster_route(c, 2, 2, wires, &up), 0);
    cluster_free(c);
}

static void a_ring_takes_2_n_minus_1_rounds_of_its_slowest_hop(void **state)
{
    struct cluster *c = open_spec("tree:2x2,inside=4e9,across=1e9,latency=1e-3");
    const int inside[] = { 0, 1 }, all[] = { 3, 0, 2, 1 }, one[] = { 2 };

    (void)state;
    assert_true(cluster_allreduce_time(c, 1, one, 1e9) == 0);
    assert_true(close_to(cluster_allreduce_time(c, 2, inside, 8e9), 2 * 4e9 / 4e9));
    assert_true(close_to(cluster_allreduce_time(c, 4, all, 4e9), 6 * (1e-3 + 1e9 / 1e9)));
    cluster_free(c);
}

/* 3 nodes of 4: of the devices 0, 1, 2 | 4, 5 | 8, in this order. */
static void trees_and_hierarchies_take_what_the_formulas_say(void **state)
{
    struct cluster *c = open_spec("tree:3x4,inside=4e9,across=1e9,latency=1e-3,"
                                  "inside-latency=1e-5");
    const int some[] = { 8, 0, 4, 1, 5, 2 }, inside[] = { 0, 1, 2 }, across[] = { 0, 4, 8 };
    double ring, tree, chains;

    (void)state;
    c->sum_latency_factor = 2;
    c->sum_bandwidth_factor = 3;
    ring = 10 * 2 * 1e-3 + 10.0 / 6 * 6e9 * 3 / 1e9;
    assert_true(close_to(cluster_allreduce_time(c, 6, some, 6e9), ring));
    /* Pairs of the three levels, by their places in the row: 0-1, 2-3, 4-5; 0-2; 0-4. */
    c->sum_algorithm = ALLREDUCE_TREE;
    tree = 2 * 2 * (1e-3 + 1e-5 + 1e-3) + 2 * 6e9 * 3 / 1e9;
    assert_true(close_to(cluster_allreduce_time(c, 6, some, 6e9), tree));
    assert_true(close_to(cluster_allreduce_time(c, 3, inside, 6e9),
                         2 * 2 * 2e-5 + 2 * 6e9 * 3 / 4e9));
    c->sum_algorithm = ALLREDUCE_HIERARCHICAL;
    chains = 2 * (2 * 2 * 1e-5 + 6e9 * 3 / 4e9) + 4 * 2 * 1e-3 + 4.0 / 3 * 6e9 * 3 / 1e9;
    assert_true(close_to(cluster_allreduce_time(c, 6, some, 6e9), chains));
    /* One node, or one device in each: the ring. */
    assert_true(close_to(cluster_allreduce_time(c, 3, inside, 3e9),
                         4 * 2e-5 + 4.0 / 3 * 3e9 * 3 / 4e9));
    assert_true(close_to(cluster_allreduce_time(c, 3, across, 3e9),
                         4 * 2e-3 + 4.0 / 3 * 3e9 * 3 / 1e9));
    c->sum_algorithm = ALLREDUCE_BEST;
    assert_true(close_to(cluster_allreduce_time(c, 6, some, 6e9), fmin(ring, chains)));
    assert_true(close_to(cluster_allreduce_time(c, 6, some, 0), 2 * 2 * (2e-3 + 1e-5)));
    assert_true(close_to(allreduce_time(c, 6, some, true, 6e9), ring));
    assert_true(cluster_allreduce_time(c, 1, some, 1e9) == 0);
    cluster_free(c);
}

static void one_transfer_takes_one_of_the_wires_of_a_node(void **state)
{
    struct cluster *c = open_spec("tree:2x2,inside=4e9,across=2e9,latency=1e-3");
    const int across[] = { 1, 2 };

    (void)state;
    c->places[c->devices[2].node].flow_bandwidth = 5e8;
    assert_true(cluster_link(c, 1, 2).bandwidth == 5e8);
    assert_true(cluster_link(c, 2, 3).bandwidth == 4e9);
    assert_true(close_to(cluster_allreduce_time(c, 2, across, 1e9), 2 * (1e-3 + 1)));
    assert_false(cluster_alike(c, c->devices[0].node, c->devices[2].node));
    cluster_free(c);
}

static void short_messages_may_start_sooner(void **state)
{
    struct cluster *c = open_spec("tree:2x2,inside=4e9,across=2e9,latency=1e-3");
    struct cluster_link link;

    (void)state;
    c->places[0].eager = (struct cluster_eager){ 4096, 1e-4, 1e9 };
    link = cluster_link(c, 1, 2);
    assert_true(close_to(cluster_link_start(&link, 0), 1e-4));
    assert_true(close_to(cluster_link_start(&link, 4096), 1e-4 + 4096 / 1e9));
    assert_true(close_to(cluster_link_start(&link, 4097), 1e-3));
    assert_true(close_to(cluster_link_least(&link), 1e-4));
    link = cluster_link(c, 0, 1);
    assert_true(close_to(cluster_link_start(&link, 8), cluster_link_least(&link)));
    cluster_free(c);
}

static void sizes_may_have_suffixes(void **state)
{
    struct cluster *c = open_spec("flat:1,bandwidth=10GB,memory=16G");

    (void)state;
    assert_true(c->places[1].up_bandwidth == 10e9);
    assert_true(c->devices[0].memory == 16.0 * 1024 * 1024 * 1024);
    cluster_free(c);
}

static void what_is_wrong_in_a_spec_is_quoted(void **state)
{
    static const struct { const char *spec, *quoted; } cases[] = {
        { "flat:", "devices from 1 to 1048576, got \"\"" },
        { "flat:0,bandwidth=1", "\"0\"" },
        { "flat:-4,bandwidth=1", "\"-4\"" },
        { "flat:4x,bandwidth=1", "\"4x\"" },
        { "flat:4", "missing key \"bandwidth\", as in flat:16,bandwidth=1e9" },
        { "flat:4,", "\"\"" },
        { "flat:4,bandwidth", "\"bandwidth\"" },
        { "flat:4,bandwidth=", "\"bandwidth=\"" },
        { "flat:4,bandwidth=0", "\"bandwidth=0\"" },
        { "flat:4,bandwidth=-1", "\"bandwidth=-1\"" },
        { "flat:4,bandwidth=1e999", "\"bandwidth=1e999\"" },
        { "flat:4,bandwidth=inf", "\"bandwidth=inf\"" },
        { "flat:4,bandwidth=0x10", "\"bandwidth=0x10\"" },
        { "flat:4,bandwidth=1Q", "\"bandwidth=1Q\"" },
        { "flat:4,bandwidth=1KiB", "\"bandwidth=1KiB\"" },
        { "flat:4,bandwidth=1,bandwidth=2", "given twice: \"bandwidth\"" },
        { "flat:4,bandwidth=1,latency=1K", "\"latency=1K\"" },
        { "flat:4,bandwidth=1,memory=0", "\"memory=0\"" },
        { "flat:4,bandwidth=1,inside=1", "unknown key \"inside\"" },
        { "flat:4,bandwith=1", "unknown key \"bandwith\"" },
        { "flat:99999999,bandwidth=1", "\"99999999\"" },
        { "tree:4,inside=1,across=1", "\"4\"" },
        { "tree:x8,inside=1,across=1", "\"x8\"" },
        { "tree:4x8,inside=1", "missing key \"across\", as in tree:4x8,inside=" },
        { "tree:4x8,inside=1,across=1,bandwidth=1", "unknown key \"bandwidth\"" },
        { "tree:1048576x1048576,inside=1,across=1", "\"1048576x1048576\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(cluster_from_spec(cases[i].spec, &err));
        assert_int_equal(err.code, EXIT_USAGE);
        if (!strstr(err.text, cases[i].quoted))
            fail_msg("%s: %s", cases[i].spec, err.text);
    }
}

static void a_cluster_whose_devices_are_not_in_order_is_refused(void **state)
{
    struct cluster *c = cluster_new("made by hand");
    struct err err = { 0 };

    (void)state;
    assert_int_equal(cluster_check(c, &err), -1);
    cluster_add_device(c, "a", "cpu", 0, 1e9);
    cluster_add_device(c, "b", "cpu", 0, 1e9);
    assert_int_equal(cluster_check(c, &err), 0);
    c->devices[0].place = 2;
    c->devices[1].place = 1;
    assert_int_equal(cluster_check(c, &err), -1);
    assert_non_null(strstr(err.text, "\"b\" is not in tree order"));
    cluster_free(c);
}

static void two_devices_of_one_name_are_refused(void **state)
{
    struct cluster *c = cluster_new("made by hand");
    struct err err = { 0 };

    (void)state;
    cluster_add_device(c, "n1/cpu0", "cpu", 0, 1e9);
    cluster_add_device(c, "n1/cpu0", "cpu", 0, 1e9);
    assert_int_equal(cluster_check(c, &err), -1);
    assert_non_null(strstr(err.text, "\"n1/cpu0\""));
    cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_is_equal_devices_on_one_crossbar),
        cmocka_unit_test(tree_has_wires_inside_and_across_nodes),
        cmocka_unit_test(devices_are_found_by_their_ids_in_a_part_too),
        cmocka_unit_test(a_device_reaches_itself_at_no_cost),
        cmocka_unit_test(a_route_climbs_to_where_the_two_meet_and_descends),
        cmocka_unit_test(a_ring_takes_2_n_minus_1_rounds_of_its_slowest_hop),
        cmocka_unit_test(trees_and_hierarchies_take_what_the_formulas_say),
        cmocka_unit_test(one_transfer_takes_one_of_the_wires_of_a_node),
        cmocka_unit_test(short_messages_may_start_sooner),
        cmocka_unit_test(sizes_may_have_suffixes),
        cmocka_unit_test(what_is_wrong_in_a_spec_is_quoted),
        cmocka_unit_test(a_cluster_whose_devices_are_not_in_order_is_refused),
        cmocka_unit_test(two_devices_of_one_name_are_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
