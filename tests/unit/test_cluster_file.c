/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "topology/cluster.h"
#include "topology/cluster_spec.h"

static const char good[] =
    "{\"schema\": \"tasuki-topo\", \"version\": 1, \"name\": \"two nodes\","
    " \"allreduce\": {\"algorithm\": \"tree\", \"latency_factor\": 1.5, \"bandwidth_factor\": 2, \"source\": \"a paper\"},"
    " \"messages\": {\"send_overlap\": 0.75, \"receive_overlap\": 0.5, \"source\": \"a paper\"},"
    " \"root\": {\"latency\": 5e-6, \"latency_origin\": \"measured\","
    "  \"eager\": {\"bytes\": 4096, \"latency\": 2e-6}, \"children\": ["
    "  {\"kind\": \"node\", \"name\": \"n1\", \"bandwidth\": 1e9, \"origin\": \"reported\","
    "   \"latency\": 1e-6, \"cores\": 2, \"children\": ["
    "    {\"kind\": \"device\", \"id\": \"n1/cpu0\", \"device\": \"cpu\", \"bandwidth\": 4e9,"
    "     \"memory\": 1e9, \"cores\": 1, \"rank\": 0,"
    "     \"efficiency\": {\"matmul\": [[1e6, 0.25], [1e9, 0.75]]},"
    "     \"efficiency_bf16\": {\"matmul\": [[1e6, 0.5]]}},"
    "    {\"kind\": \"device\", \"id\": \"n1/cpu1\", \"bandwidth\": 4e9}]},"
    "  {\"kind\": \"node\", \"name\": \"n2\", \"bandwidth\": 1e9, \"flow_bandwidth\": 4e8,"
    "   \"children\": ["
    "    {\"kind\": \"device\", \"id\": \"n2/cpu0\"}]}]}}";

static struct cluster *parse_some(const char *text, int64_t nodes, struct err *err)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);
    struct cluster *cluster;

    if (!json)
        fail_msg("%s: %s", text, error.text);
    cluster = cluster_from_json("topo.json", json, nodes, err);
    json_decref(json);
    return cluster;
}

static struct cluster *parse(const char *text, struct err *err)
{
    return parse_some(text, 0, err);
}

static void a_file_is_read_with_its_defaults(void **state)
{
    struct err err = { 0 };
    struct cluster *c = parse(good, &err);

    (void)state;
    if (!c)
        fail_msg("%s", err.text);
    assert_string_equal(c->name, "two nodes");
    assert_int_equal(c->n_devices, 3);
    assert_int_equal(c->devices[0].rank, 0);
    assert_int_equal(c->devices[1].rank, -1);
    assert_string_equal(c->devices[1].kind, "");
    assert_true(isinf(c->devices[1].memory));
    assert_int_equal(c->places[1].cores, 2);
    assert_int_equal(cluster_core_place(c, 0), 1);
    assert_int_equal(cluster_core_place(c, 2), 0);
    assert_int_equal(c->places[0].latency_origin, ORIGIN_MEASURED);
    assert_int_equal(c->places[1].origin, ORIGIN_REPORTED);
    assert_true(cluster_link(c, 0, 2).bandwidth == 4e8);
    assert_true(isinf(c->places[1].flow_bandwidth));
    assert_true(c->places[0].eager.bytes == 4096 && c->places[0].eager.latency == 2e-6);
    assert_true(isinf(c->places[0].eager.copy_bandwidth));
    assert_true(c->places[1].eager.bytes == 0);
    assert_true(cluster_link(c, 0, 2).latency == 5e-6);
    assert_true(cluster_link(c, 0, 1).bandwidth == 4e9);
    assert_int_equal(cluster_efficiency(c, &c->devices[0], FACTORS_TF32)->curves[EFFICIENCY_MATMUL].n, 2);
    assert_int_equal(cluster_efficiency(c, &c->devices[0], FACTORS_BF16)->curves[EFFICIENCY_MATMUL].n, 1);
    assert_null(cluster_efficiency(c, &c->devices[1], FACTORS_BF16));
    cluster_free(c);
}

static void measured_factors_stretch_the_algorithm(void **state)
{
    struct err err = { 0 };
    struct cluster *c = parse(good, &err);
    const int devices[] = { 0, 1 };
    double expected = 2 * 1.5 * 1e-6 + 2 * 2 * 8e6 / 4e9;

    (void)state;
    assert_non_null(c);
    assert_true(fabs(cluster_allreduce_time(c, 2, devices, 8e6) - expected) < 1e-12);
    assert_string_equal(c->sources[c->sum_source - 1], "a paper");
    cluster_free(c);
}

static double matmul_share(const struct cluster *c, int device, int factors)
{
    return efficiency_share(cluster_efficiency(c, &c->devices[device], (enum cluster_factors)factors),
                            EFFICIENCY_MATMUL, 3e7);
}

static void assert_same(const struct cluster *a, const struct cluster *b)
{
    assert_int_equal(a->n_places, b->n_places);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_true(a->sum_latency_factor == b->sum_latency_factor && a->sum_source == b->sum_source);
    assert_true(a->send_overlap == b->send_overlap && a->receive_overlap == b->receive_overlap);
    assert_int_equal(a->message_source, b->message_source);
    assert_int_equal(a->sum_algorithm, b->sum_algorithm);
    for (int i = 0; i < a->n_places; i++) {
        const struct cluster_place *p = &a->places[i], *q = &b->places[i];

        assert_int_equal(p->kind, q->kind);
        assert_string_equal(p->name, q->name);
        assert_int_equal(p->parent, q->parent);
        assert_true(p->up_bandwidth == q->up_bandwidth && p->latency == q->latency);
        assert_true(p->flow_bandwidth == q->flow_bandwidth);
        assert_true(p->eager.bytes == q->eager.bytes && p->eager.latency == q->eager.latency);
        assert_true(p->eager.copy_bandwidth == q->eager.copy_bandwidth);
        assert_int_equal(p->source, q->source);
        assert_int_equal(p->cores, q->cores);
        assert_int_equal(p->origin, q->origin);
    }
    for (int i = 0; i < a->n_devices; i++) {
        assert_string_equal(a->devices[i].id, b->devices[i].id);
        assert_string_equal(a->devices[i].kind, b->devices[i].kind);
        assert_int_equal(a->devices[i].node, b->devices[i].node);
        assert_int_equal(a->devices[i].rank, b->devices[i].rank);
        assert_true(a->devices[i].memory == b->devices[i].memory);
        assert_true(a->devices[i].flops == b->devices[i].flops);
        for (int f = 0; f < FACTORS; f++)
            assert_true(a->devices[i].product_flops[f] == b->devices[i].product_flops[f]);
        for (int f = 0; f < FACTORS; f++)
            assert_true(matmul_share(a, i, f) == matmul_share(b, i, f));
    }
}

static void what_is_written_is_read_back(void **state)
{
    static const char *const specs[] = {
        "flat:5,bandwidth=1e9,latency=2e-6,memory=16e9,flops=1e12,flops-tf32=2e12,flops-bf16=4e12,"
        "flops-fp16=8e12,memory-bandwidth=1e11",
        "tree:3x4,inside=150e9,across=12.5e9",
    };
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        char path[] = "topoXXXXXX";
        int fd = mkstemp(path);
        struct cluster *a = i < 2 ? cluster_open(specs[i], &err) : parse(good, &err), *b;

        assert_true(fd >= 0);
        close(fd);
        assert_non_null(a);
        assert_int_equal(cluster_save(a, path, &err), 0);
        b = cluster_open(path, &err);
        unlink(path);
        if (!b)
            fail_msg("%s", err.text);
        assert_same(a, b);
        cluster_free(a);
        cluster_free(b);
    }
}

#define TOP(root) "{\"schema\": \"tasuki-topo\", \"version\": 1, \"root\": " root "}"
#define DEVICE(more) TOP("{\"children\": [{\"kind\": \"device\", \"id\": \"a\"" more "}]}")

/* Leaves of 3 nodes and of 2, two GPUs in each. */
#define NODES "{\"kind\": \"node\", \"name\": \"n#\", \"children\": [{\"kind\": \"device\"," \
    " \"id\": \"/gpu#\", \"count\": 2, \"memory\": 16e9, \"bandwidth\": 1e10," \
    " \"source\": {\"memory\": \"the driver\", \"bandwidth\": \"a guess\"}}], \"count\": "
#define LEAVES(n, nodes) "{\"kind\": \"switch\", \"name\": \"leaf#\", \"count\": " n "," \
    " \"bandwidth\": " nodes "e9, \"children\": [" NODES nodes "}]}"
#define MACHINE(more) "{\"schema\": \"tasuki-topo\", \"version\": 1, " more "," \
    " \"root\": {\"children\": [" LEAVES("2", "3") ", " LEAVES("4", "2") "]}}"

static void what_is_wrong_in_a_file_is_named(void **state)
{
    static const struct { const char *text, *named; } cases[] = {
        { "[]", "topo.json" },
        { "{\"schema\": \"tasuki-plan\", \"version\": 1, \"root\": {}}", "schema" },
        { "{\"schema\": \"tasuki-topo\", \"version\": 2, \"root\": {}}", "version" },
        { "{\"schema\": \"tasuki-topo\", \"version\": 1}", "root" },
        { TOP("{}"), "children" },
        { TOP("{\"children\": []}"), "no device" },
        { TOP("{\"children\": [3]}"), "children[0]" },
        { TOP("{\"children\": [{\"kind\": \"rack\"}]}"), "rack" },
        { TOP("{\"children\": [{\"kind\": \"root\", \"children\": []}]}"), "root" },
        { TOP("{\"children\": [{\"kind\": \"device\"}]}"), "id" },
        { DEVICE(", \"colour\": 3"), "colour" },
        { DEVICE(", \"bandwidth\": 0"), "bandwidth" },
        { DEVICE(", \"bandwidth\": -1"), "bandwidth" },
        { DEVICE(", \"flow_bandwidth\": 0"), "flow_bandwidth" },
        { DEVICE(", \"eager\": {}"), "eager.bytes" },
        { DEVICE(", \"eager\": {\"bytes\": 1, \"latency\": -1}"), "eager.latency" },
        { DEVICE(", \"eager\": {\"bytes\": 1, \"latency\": 1, \"copy_bandwidth\": 0}"),
          "copy_bandwidth" },
        { DEVICE(", \"flow_bandwidth\": true"), "flow_bandwidth" },
        { DEVICE(", \"source\": 3"), "source" },
        { DEVICE(", \"source\": {\"memory\": \"a data sheet\"}"), "\"memory\"" },
        { DEVICE(", \"memory\": 1, \"source\": {\"memory\": 1}"), "\"memory\"" },
        { DEVICE(", \"count\": 0"), "count" },
        { DEVICE(", \"count\": 1048577"), "count" },
        { DEVICE(", \"count\": 2"), "\"a\"" },
        { DEVICE(", \"names\": [\"a\"]"), "names" },
        { MACHINE("\"extend_to\": -1"), "extend_to" },
        { MACHINE("\"allreduce\": {\"algorithm\": \"star\"}"), "allreduce.algorithm: \"star\"" },
        { MACHINE("\"messages\": {\"send_overlap\": 1.5}"), "messages.send_overlap" },
        { MACHINE("\"storage\": 1"), "storage" },
        { MACHINE("\"storage\": {\"speed\": 1}"), "\"speed\"" },
        { MACHINE("\"storage\": {\"bandwidth\": -1}"), "storage.bandwidth" },
        { MACHINE("\"storage\": {\"slow_down\": \"little\"}"), "storage.slow_down" },
        { MACHINE("\"storage\": {\"name\": 1}"), "storage.name" },
        { DEVICE(", \"memory\": 0"), "memory" },
        { DEVICE(", \"memory\": \"16G\""), "memory" },
        { DEVICE(", \"cores\": 1.5"), "cores" },
        { DEVICE(", \"rank\": -2"), "rank" },
        { DEVICE(", \"efficiency\": {\"matmul\": [[1, 2]]}"), "[0].efficiency.matmul" },
        { DEVICE(", \"origin\": \"guess\""), "guess" },
        { DEVICE(", \"children\": []"), "children" },
        { TOP("{\"children\": [{\"kind\": \"device\", \"id\": \"a\"},"
              " {\"kind\": \"device\", \"id\": \"a\"}]}"), "\"a\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_null(parse(cases[i].text, &err));
        if (!strstr(err.text, cases[i].named) || !strstr(err.text, "topo.json"))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

static struct cluster *take(const char *text, int64_t nodes)
{
    struct err err = { 0 };
    struct cluster *c = parse_some(text, nodes, &err);

    if (!c)
        fail_msg("%s", err.text);
    return c;
}

static int count_places(const struct cluster *c, enum cluster_kind kind)
{
    int n = 0;

    for (int i = 0; i < c->n_places; i++)
        n += c->places[i].kind == kind;
    return n;
}

static void places_that_are_alike_are_counted_and_numbered(void **state)
{
    struct cluster *c = take(MACHINE("\"source\": \"a brochure\""), 0);
    const struct cluster_device *last = &c->devices[c->n_devices - 1];

    (void)state;
    assert_int_equal(count_places(c, CLUSTER_NODE), 2 * 3 + 4 * 2);
    assert_int_equal(c->n_devices, 2 * (2 * 3 + 4 * 2));
    assert_string_equal(c->devices[0].id, "n0/gpu0");
    assert_string_equal(c->devices[7].id, "n3/gpu1");
    assert_string_equal(last->id, "n13/gpu1");
    assert_string_equal(c->places[c->places[last->node].parent].name, "leaf5");
    assert_true(last->memory == 16e9);
    assert_string_equal(c->sources[c->source - 1], "a brochure");
    assert_string_equal(c->sources[c->places[last->place].source - 1],
                        "memory: the driver; bandwidth: a guess");
    cluster_free(c);
}

/* Of leaves with 3, 3, 2, 2, 2 and 2 nodes. */
static void some_nodes_are_taken_under_as_few_switches_as_can_be(void **state)
{
    static const struct { int nodes, switches, first; } cases[] = {
        { 1, 1, 2 }, { 2, 1, 2 }, { 3, 1, 3 }, { 4, 2, 3 }, { 5, 2, 3 }, { 6, 2, 3 },
        { 7, 3, 3 }, { 8, 3, 3 }, { 13, 6, 3 }, { 14, 6, 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cluster *c = take(MACHINE("\"name\": \"m\""), cases[i].nodes);

        assert_int_equal(count_places(c, CLUSTER_NODE), cases[i].nodes);
        assert_int_equal(count_places(c, CLUSTER_SWITCH), cases[i].switches);
        assert_true(c->places[1].up_bandwidth == (cases[i].first == 3 ? 3e9 : 2e9));
        assert_string_equal(c->devices[0].id, "n0/gpu0");
        cluster_free(c);
    }
}

static void more_nodes_than_there_are_need_a_machine_that_may_grow(void **state)
{
    static const struct { const char *top; int nodes; const char *named; } bad[] = {
        { MACHINE("\"name\": \"m\""), 15, "has 14 nodes, not 15" },
        { MACHINE("\"extend_to\": 20"), 21, "has 20 nodes, not 21" },
        { DEVICE(""), 1, "no nodes" },
    };
    struct cluster *c = take(MACHINE("\"extend_to\": 20"), 20);

    (void)state;
    assert_int_equal(count_places(c, CLUSTER_NODE), 20);
    assert_int_equal(count_places(c, CLUSTER_SWITCH), 6 + 2);
    assert_string_equal(c->devices[c->n_devices - 1].id, "n19/gpu1");
    cluster_free(c);
    c = take(MACHINE("\"extend_to\": 0"), 1000);
    assert_int_equal(count_places(c, CLUSTER_NODE), 1000);
    cluster_free(c);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = { 0 };

        assert_null(parse_some(bad[i].top, bad[i].nodes, &err));
        if (!strstr(err.text, bad[i].named) || err.code != EXIT_USAGE)
            fail_msg("%s", err.text);
    }
}

/* Two nodes were seen, under one leaf of one spine. */
static void a_network_grows_below_its_only_spine(void **state)
{
    static const char text[] = "{\"schema\": \"tasuki-topo\", \"version\": 1, \"extend_to\": 0,"
        " \"root\": {\"children\": [{\"kind\": \"switch\", \"name\": \"spine\","
        " \"children\": [" LEAVES("1", "2") "]}]}}";
    struct cluster *c = take(text, 5);

    (void)state;
    assert_int_equal(count_places(c, CLUSTER_NODE), 5);
    assert_int_equal(count_places(c, CLUSTER_SWITCH), 1 + 3);
    assert_string_equal(c->places[1].name, "spine");
    assert_int_equal(cluster_end(c, 1), c->n_places);
    assert_string_equal(c->devices[9].id, "n4/gpu1");
    cluster_free(c);
}

static void counts_that_multiply_beyond_what_may_be_are_refused(void **state)
{
    const char *text = TOP("{\"children\": [{\"kind\": \"switch\", \"name\": \"a\","
                           " \"count\": 1000000, \"children\": [{\"kind\": \"switch\","
                           " \"name\": \"b\", \"count\": 1000000, \"children\": []}]}]}");
    struct err err = { 0 };

    (void)state;
    assert_null(parse(text, &err));
    assert_non_null(strstr(err.text, "too many"));
}

static void a_tree_that_is_too_deep_is_refused(void **state)
{
    char text[4096] = "{\"kind\": \"device\", \"id\": \"a\"}";
    char whole[8192];
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 9; i++) {
        char inner[4096];

        strcpy(inner, text);
        snprintf(text, sizeof(text),
                 "{\"kind\": \"switch\", \"name\": \"s\", \"children\": [%.3900s]}", inner);
    }
    snprintf(whole, sizeof(whole), TOP("{\"children\": [%s]}"), text);
    assert_null(parse(whole, &err));
    assert_non_null(strstr(err.text, "levels"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_with_its_defaults),
        cmocka_unit_test(measured_factors_stretch_the_algorithm),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(what_is_wrong_in_a_file_is_named),
        cmocka_unit_test(places_that_are_alike_are_counted_and_numbered),
        cmocka_unit_test(some_nodes_are_taken_under_as_few_switches_as_can_be),
        cmocka_unit_test(more_nodes_than_there_are_need_a_machine_that_may_grow),
        cmocka_unit_test(a_network_grows_below_its_only_spine),
        cmocka_unit_test(counts_that_multiply_beyond_what_may_be_are_refused),
        cmocka_unit_test(a_tree_that_is_too_deep_is_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
