/* SPDX-License-Identifier: MIT */
#include "recorded.h"

#include <time.h>

#include "base/json.h"
#include "base/mem.h"
#include "topology/check.h"
#include "topology/cluster.h"
#include "topology/gather.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Eight GPUs, eight NICs and NVSwitches. */
static struct topo_node *big_node(void)
{
    return recorded_machine("hgx-h100");
}

/* What no two healthy nodes share. */
static void make_own(struct topo_node *node, int number)
{
    char text[64];

    snprintf(text, sizeof(text), "n%05d", number);
    topo_node_set_text(&node->host, text);
    snprintf(text, sizeof(text), "boot-%d", number);
    topo_node_set_text(&node->machine, text);
    for (int i = 0; i < node->n_gpus; i++) {
        snprintf(text, sizeof(text), "GPU-%08x-1234-5678-9abc-%012x", (unsigned)number,
                 (unsigned)i);
        topo_node_set_text(&node->gpus[i].uuid, text);
        node->gpus[i].clock = 1000 + (number + i) % 900;
        node->gpus[i].throttle = number % 2 ? TOPO_THROTTLE_IDLE : TOPO_THROTTLE_POWER_CAP;
    }
    for (int i = 0; i < node->n_nics; i++)
        node->nics[i].lid = (number * 8 + i) % 0xc000;
}

static char *dump(const struct topo_node *node)
{
    json_t *json = topo_node_to_json(node);
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);

    json_decref(json);
    return text;
}

static void nodes_that_differ_in_serials_alone_are_one_kind(void **state)
{
    struct topo_record *record = topo_record_new();
    struct topo_node *node = big_node(), *back;
    struct err err = { 0 };
    char *before = NULL, *after;

    (void)state;
    for (int i = 0; i < 20; i++) {
        make_own(node, i);
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        if (i == 13)
            before = dump(node);
    }
    assert_int_equal(topo_record_hosts(record), 20);
    assert_int_equal(topo_record_kinds(record), 1);
    back = topo_record_node(record, topo_record_find(record, "n00013"), &err);
    after = dump(back);
    assert_string_equal(before, after);
    free(before);
    free(after);
    topo_node_free(back);
    topo_node_free(node);
    topo_record_free(record);
}

static void a_node_that_is_throttled_or_lacks_a_link_is_another_kind(void **state)
{
    struct topo_record *record = topo_record_new();
    struct topo_node *node = big_node();
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        make_own(node, i);
        if (i == 1)
            node->gpus[3].throttle |= TOPO_THROTTLE_HW_THERMAL;
        if (i == 2)
            node->gpus[3].links[5].up = 0;
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
    }
    assert_int_equal(topo_record_kinds(record), 3);
    topo_node_free(node);
    topo_record_free(record);
}

/* Host 'number' after 'change' is like one that nothing happened to, or not. */
static bool stays_alike(int number, void (*change)(struct topo_node *node))
{
    struct topo_record *record = topo_record_new();
    struct topo_node *node = big_node();
    char *text[2];
    bool alike;

    for (int i = 0; i < 2; i++) {
        struct err err = { 0 };

        make_own(node, i * number);
        if (i == 1 && change)
            change(node);
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
        text[i] = topo_record_likeness(record, i);
        assert_true(topo_record_memory(record, i) == node->memory);
    }
    alike = strcmp(text[0], text[1]) == 0;
    free(text[0]);
    free(text[1]);
    topo_node_free(node);
    topo_record_free(record);
    return alike;
}

static void lose_memory(struct topo_node *node)
{
    node->memory /= 2;
    node->numas[0].memory /= 2;
}

static void hide_gpu(struct topo_node *node)
{
    node->gpus[2].seen = !node->gpus[2].seen;
}

static void bind_tighter(struct topo_node *node)
{
    assert_true(node->n_usable > 1);
    node->n_usable--;
}

static void throttle(struct topo_node *node)
{
    node->gpus[3].throttle |= TOPO_THROTTLE_HW_THERMAL;
}

static void hosts_are_alike_whatever_their_serials_clocks_and_memory(void **state)
{
    (void)state;
    assert_true(stays_alike(7, NULL));
    assert_true(stays_alike(7, lose_memory));
    assert_false(stays_alike(7, hide_gpu));
    assert_false(stays_alike(7, bind_tighter));
    assert_false(stays_alike(7, throttle));
}

static void thousands_of_ranks_become_one_small_record(void **state)
{
    enum { NODES = 1000 };
    struct topo_node *node = big_node();
    const void **parts = mem_new(NODES, sizeof(*parts));
    size_t *sizes = mem_new(NODES, sizeof(*sizes));
    struct topo_record *record;
    struct err err = { 0 };
    double start;
    json_t *json;
    char *text;

    (void)state;
    for (int i = 0; i < NODES; i++) {
        make_own(node, i);
        parts[i] = gather_pack(node, true, &sizes[i], &err);
    }
    start = now();
    record = gather_record_of(NODES, parts, sizes, &err);
    printf("# %d nodes merged in %.3f s\n", NODES, now() - start);
    assert_non_null(record);
    assert_int_equal(topo_record_hosts(record), NODES);
    assert_int_equal(topo_record_kinds(record), 1);
    json = topo_record_to_json(record);
    text = json_dumps(json, JSON_COMPACT);
    printf("# in %zu bytes, of %zu that they sent\n", strlen(text), NODES * sizes[0]);
    assert_true(strlen(text) < NODES * sizes[0] / 10);
    for (int i = 0; i < NODES; i++)
        free((void *)parts[i]);
    free(parts);
    free(sizes);
    free(text);
    json_decref(json);
    topo_record_free(record);
    topo_node_free(node);
}

/* As "tasuki topo --format json" writes it. */
static void write_file(const char *path, int nodes)
{
    struct topo_record *record = topo_record_new();
    struct topo_node *node = big_node();
    struct err err = { 0 };
    struct cluster *cluster;
    json_t *json;

    for (int i = 0; i < nodes; i++) {
        make_own(node, i);
        assert_int_equal(topo_record_add_node(record, node, &err), 0);
    }
    cluster = model_of_record(record, "many", &err);
    assert_non_null(cluster);
    json = cluster_to_json(cluster);
    json_object_set_new(json, "nodes", topo_record_to_json(record));
    assert_int_equal(json_save(json, path, &err), 0);
    json_decref(json);
    cluster_free(cluster);
    topo_record_free(record);
    topo_node_free(node);
}

/* TASUKI_TEST_NODES: fewer, where it is slow, or all have been read by another build. */
static void a_file_of_ten_thousand_nodes_is_read_and_reported(void **state)
{
    const char *number = getenv("TASUKI_TEST_NODES");
    int nodes = number ? atoi(number) : 10000;
    char alike[96], count[32];
    char *path = mem_printf("%s/topo.json", unit_directory()), *text;
    struct findings *findings;
    struct cluster *cluster;
    struct topo_record *record;
    struct err err = { 0 };
    double start;
    json_t *json;

    (void)state;
    assert_true(nodes > 3);
    snprintf(count, sizeof(count), "%d x", nodes);
    snprintf(alike, sizeof(alike), "%d nodes alike: n00000, n00001, n00002 ... n%05d;", nodes,
             nodes - 1);
    write_file(path, nodes);
    start = now();
    json = json_load(path, &err);
    assert_non_null(json);
    cluster = cluster_from_json(path, json, 0, &err);
    record = topo_record_from_json(path, json_object_get(json, "nodes"), &err);
    assert_non_null(cluster);
    assert_non_null(record);
    assert_string_equal(cluster->devices[8 * 3 + 5].id, "n00003/gpu5");
    printf("# %d nodes loaded in %.3f s\n", nodes, now() - start);
    assert_int_equal(cluster->n_devices, 8 * nodes);
    start = now();
    text = report_cluster(cluster);
    assert_contains(text, count);
    free(text);
    text = report_record(record, &err);
    assert_contains(text, alike);
    printf("# reported in %.3f s\n", now() - start);
    free(text);
    start = now();
    findings = topo_check(record, NULL, NULL, NULL, &err);
    assert_non_null(findings);
    assert_int_equal(findings->n, 0);
    printf("# checked in %.3f s\n", now() - start);
    findings_free(findings);
    json_decref(json);
    cluster_free(cluster);
    topo_record_free(record);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    free(path);
}

static void refuse(const char *text, const char *part)
{
    json_t *json = json_loads(text, 0, NULL);
    struct err err = { 0 };

    assert_non_null(json);
    assert_null(topo_record_from_json("t.json", json, &err));
    assert_contains(err.text, part);
    json_decref(json);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    refuse("[3]", "nodes[0]");
    refuse("[{\"hosts\": [\"a\"], \"own\": [], \"node\": {}}]", "nodes[0].own");
    refuse("[{\"hosts\": [\"a\", \"a\"], \"own\": [{}, {}], \"node\": {}}]", "twice");
    refuse("[{\"hosts\": [\"a\"], \"own\": [{}], \"node\": {}}]", "nodes[0].node: a: cores");
    refuse("[{\"hosts\": [7], \"own\": [{}], \"node\": {}}]", "nodes[0].hosts");
    refuse("[{\"hosts\": [\"a\"], \"own\": [5], \"node\": {}}]", "nodes[0].own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_differ_in_serials_alone_are_one_kind),
        cmocka_unit_test(a_node_that_is_throttled_or_lacks_a_link_is_another_kind),
        cmocka_unit_test(hosts_are_alike_whatever_their_serials_clocks_and_memory),
        cmocka_unit_test(thousands_of_ranks_become_one_small_record),
        cmocka_unit_test(a_file_of_ten_thousand_nodes_is_read_and_reported),
        cmocka_unit_test(what_is_wrong_is_named),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
