/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "topology/cluster.h"
#include "topology/gather.h"
#include "base/mem.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"
#include "topology/task.h"

#define MOST 16

struct ranks {
    int n;
    const char *hosts[MOST];
    char *parts[MOST];
    size_t sizes[MOST];
};

/* A rank on a node of 4 cores with two threads each, bound to the PUs [first, first + n). */
static void add(struct ranks *ranks, const char *host, const char *machine, int first, int n)
{
    struct topo_node *node = topo_node_new();
    struct topo_nic *nic = topo_node_add_nic(node, "mlx5_0", 1);
    struct err err = { 0 };
    bool whole = true;

    nic->bandwidth = 25e9;
    for (int i = 0; i < ranks->n; i++)
        whole &= strcmp(ranks->hosts[i], host) != 0;
    topo_node_set_text(&node->host, host);
    topo_node_set_text(&node->machine, machine);
    node->packages = node->numa_nodes = 1;
    node->cores = 4;
    node->pus = 8;
    node->memory = 100e9;
    node->flops = 1e11;
    node->usable = mem_new((size_t)n, sizeof(int));
    for (int i = 0; i < n; i++)
        node->usable[node->n_usable++] = first + i;
    ranks->hosts[ranks->n] = host;
    ranks->parts[ranks->n] = gather_pack(node, whole, &ranks->sizes[ranks->n], &err);
    topo_node_free(node);
    if (!ranks->parts[ranks->n++])
        fail_msg("%s", err.text);
}

static struct cluster *merge(struct ranks *ranks)
{
    struct err err = { 0 };
    struct cluster *c = gather_merge(ranks->n, ranks->hosts,
                                     (const void *const *)ranks->parts, ranks->sizes, "test",
                                     &err);

    if (!c)
        fail_msg("%s", err.text);
    for (int i = 0; i < ranks->n; i++)
        free(ranks->parts[i]);
    return c;
}

static void ranks_of_a_host_share_its_cores_and_memory(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;

    (void)state;
    add(&ranks, "n1", "a", 0, 8);
    add(&ranks, "n1", "a", 0, 8);
    add(&ranks, "n2", "b", 0, 8);
    c = merge(&ranks);
    assert_int_equal(c->n_devices, 3);
    assert_string_equal(c->devices[1].id, "n1/cpu1");
    assert_int_equal(c->devices[1].rank, 1);
    assert_int_equal(c->devices[1].cores, 2);
    assert_int_equal(c->devices[2].cores, 4);
    assert_true(c->devices[1].memory == 45e9 && c->devices[2].memory == 90e9);
    assert_true(c->devices[1].flops == 2e11);
    assert_int_equal(c->places[c->devices[0].node].cores, 4);
    assert_string_equal(c->places[c->devices[2].node].name, "n2");
    assert_true(cluster_link(c, 0, 2).bandwidth < cluster_link(c, 0, 1).bandwidth * 10);
    cluster_free(c);
}

/* srun -m cyclic: the ranks of a node do not come one after the other. */
static void ranks_dealt_out_in_turn_are_put_together_by_host(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;

    (void)state;
    for (int i = 0; i < 4; i++)
        add(&ranks, i % 2 ? "n2" : "n1", i % 2 ? "b" : "a", 0, 8);
    c = merge(&ranks);
    assert_int_equal(c->devices[0].rank, 0);
    assert_int_equal(c->devices[1].rank, 2);
    assert_string_equal(c->devices[1].id, "n1/cpu1");
    assert_int_equal(c->devices[2].rank, 1);
    assert_string_equal(c->devices[3].id, "n2/cpu1");
    cluster_free(c);
}

static void a_bound_rank_has_no_more_cores_than_it_is_bound_to(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;

    (void)state;
    add(&ranks, "n1", "a", 0, 2);
    add(&ranks, "n1", "a", 2, 2);
    c = merge(&ranks);
    assert_int_equal(c->devices[0].cores, 1);
    assert_int_equal(c->places[c->devices[0].node].cores, 2);
    cluster_free(c);
}

static void more_ranks_than_cores_have_one_each_and_share(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;

    (void)state;
    for (int i = 0; i < 6; i++)
        add(&ranks, "n1", "a", 0, 8);
    c = merge(&ranks);
    assert_int_equal(c->devices[5].cores, 1);
    assert_int_equal(c->places[cluster_core_place(c, 5)].cores, 4);
    cluster_free(c);
}

static void virtual_nodes_share_the_cores_of_their_machine(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;
    int place;

    (void)state;
    add(&ranks, "n1", "same", 0, 8);
    add(&ranks, "n2", "same", 0, 8);
    add(&ranks, "n3", "other", 0, 8);
    c = merge(&ranks);
    place = cluster_core_place(c, 0);
    assert_int_equal(place, cluster_core_place(c, 1));
    assert_int_equal(c->places[place].kind, CLUSTER_SWITCH);
    assert_int_equal(c->places[place].cores, 4);
    assert_int_not_equal(place, cluster_core_place(c, 2));
    assert_int_equal(c->devices[0].cores, 2);
    assert_true(c->devices[0].memory == 45e9);
    cluster_free(c);
}

static void the_network_is_that_of_the_fastest_nic(void **state)
{
    struct ranks ranks = { 0 };
    struct cluster *c;

    (void)state;
    add(&ranks, "n1", "a", 0, 8);
    add(&ranks, "n2", "b", 0, 8);
    c = merge(&ranks);
    assert_true(c->places[c->devices[0].node].up_bandwidth == 25e9);
    assert_true(c->places[0].latency < 10e-6);
    cluster_free(c);
}

static void a_node_has_the_wires_of_its_rails_and_one_transfer_takes_one(void **state)
{
    struct topo_node *node = topo_node_new();
    struct model_network network;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[16];
        struct topo_nic *nic;

        snprintf(name, sizeof(name), "mlx5_%d", i);
        nic = topo_node_add_nic(node, name, 1);
        nic->hca = true;
        nic->bandwidth = 25e9;
        topo_node_set_text(&nic->state, i == 1 ? "DOWN" : "ACTIVE");
    }
    network = model_network(node);
    assert_true(network.bandwidth == 50e9 && network.flow_bandwidth == 25e9);
    assert_int_equal(network.origin, ORIGIN_REPORTED);
    topo_node_set_text(&node->nics[2].state, "DOWN");
    network = model_network(node);
    assert_true(network.bandwidth == 25e9 && isinf(network.flow_bandwidth));
    topo_node_free(node);
}

static void what_a_rank_sent_broken_is_named_by_rank(void **state)
{
    static const char *const bad[] = { "", "{", "{}", "[1]", "{\"host\": \"n1\"}",
                                       "{\"host\": 3}", "{\"host\": \"n1\", \"own\": {}}\n",
                                       "{\"host\": \"n1\", \"own\": {}}\n{}",
                                       "{\"host\": \"n1\", \"own\": 1}\n{}" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *host = "n1";
        const void *part = bad[i];
        size_t size = strlen(bad[i]);
        struct err err = { 0 };

        assert_null(gather_merge(1, &host, &part, &size, "test", &err));
        if (strncmp(err.text, "rank 0: n1", 10))
            fail_msg("%s", err.text);
    }
}

/* --gpus-per-task: rank i sees GPU i of four alone; the one of rank 2 has errors. */
static void gpus_that_are_hidden_from_the_first_rank_are_described_by_others(void **state)
{
    const void *parts[4];
    size_t sizes[4];
    struct err err = { 0 };
    struct topo_record *record;
    struct topo_tasks *tasks;
    struct topo_node *node;

    (void)state;
    for (int r = 0; r < 4; r++) {
        node = topo_node_new();
        topo_node_set_text(&node->host, "n1");
        node->cores = node->pus = 8;
        for (int i = 0; i < 4; i++) {
            char address[32];
            struct topo_gpu *gpu;

            snprintf(address, sizeof(address), "0000:%d0:00.0", i + 1);
            gpu = topo_node_add_gpu(node, address);
            gpu->seen = i == r;
            gpu->memory = gpu->seen ? 80e9 : 0;
            gpu->ecc_uncorrected = gpu->seen ? r == 2 : -1;
        }
        parts[r] = gather_pack(node, r == 0, &sizes[r], &err);
        assert_non_null(parts[r]);
        topo_node_free(node);
    }
    record = gather_record_of(4, parts, sizes, &err);
    assert_int_equal(topo_record_hosts(record), 1);
    assert_int_equal(topo_record_kinds(record), 1);
    node = topo_record_node(record, 0, &err);
    for (int i = 0; i < 4; i++) {
        assert_true(node->gpus[i].seen && node->gpus[i].memory == 80e9);
        assert_int_equal(node->gpus[i].ecc_uncorrected, i == 2);
    }
    tasks = gather_tasks(record, 4, parts, sizes, &err);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(tasks->list[r].n_visible, 1);
        assert_int_equal(tasks->list[r].visible[0], r);
        free((void *)parts[r]);
    }
    topo_tasks_free(tasks);
    topo_node_free(node);
    topo_record_free(record);
}

/* The same where no PCI tree names the others: each rank knows one GPU, and calls it GPU 0. */
static void gpus_that_each_rank_calls_by_one_number_are_told_apart(void **state)
{
    const void *parts[3];
    size_t sizes[3];
    struct err err = { 0 };
    struct topo_record *record;
    struct topo_tasks *tasks;
    struct topo_node *node;

    (void)state;
    for (int r = 0; r < 3; r++) {
        char address[32];
        struct topo_gpu *gpu;

        node = topo_node_new();
        topo_node_set_text(&node->host, "n1");
        node->cores = node->pus = 8;
        snprintf(address, sizeof(address), "0000:%d0:00.0", r + 1);
        gpu = topo_node_add_gpu(node, address);
        gpu->seen = true;
        topo_node_set_text(&gpu->p2p, "X");
        node->n_visible = 1;
        node->visible = mem_new(1, sizeof(int));
        parts[r] = gather_pack(node, r == 0, &sizes[r], &err);
        assert_non_null(parts[r]);
        topo_node_free(node);
    }
    record = gather_record_of(3, parts, sizes, &err);
    assert_non_null(record);
    node = topo_record_node(record, 0, &err);
    assert_int_equal(node->n_gpus, 3);
    assert_string_equal(node->gpus[2].address, "0000:30:00.0");
    tasks = gather_tasks(record, 3, parts, sizes, &err);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(tasks->list[r].n_visible, 1);
        assert_int_equal(tasks->list[r].visible[0], r);
        assert_int_equal(tasks->list[r].n_shown, 1);
        assert_int_equal(tasks->list[r].shown[0], r);
        free((void *)parts[r]);
    }
    topo_tasks_free(tasks);
    topo_node_free(node);
    topo_record_free(record);
}

static void this_node_has_cores_and_memory(void **state)
{
    struct err err = { 0 };
    struct topo_node *node = topo_node_discover(NULL, &err);
    char *text;

    (void)state;
    if (!node)
        fail_msg("%s", err.text);
    assert_true(node->cores >= 1 && node->pus >= node->cores);
    assert_true(node->n_usable >= 1 && node->memory > 0);
    text = report_node(node);
    assert_non_null(strstr(text, node->host));
    free(text);
    topo_node_free(node);
}

static void places_that_are_alike_share_a_line_of_the_report(void **state)
{
    struct err err = { 0 };
    struct cluster *c = cluster_open("tree:4x8,inside=150e9,across=12.5e9,memory=32e9", &err);
    char *text = report_cluster(c);

    (void)state;
    assert_non_null(strstr(text, "4 nodes, 32 devices"));
    assert_non_null(strstr(text, "n0 ... n3"));
    assert_non_null(strstr(text, "n0/gpu0 ... n0/gpu7"));
    assert_null(strstr(text, "n1/gpu0"));
    assert_non_null(strstr(text, "12.5 GB/s"));
    free(text);
    cluster_free(c);
}

static void figures_are_rounded_to_three_digits_of_a_fitting_unit(void **state)
{
    char text[24];

    (void)state;
    assert_string_equal(report_bytes(1536, text), "1.5 KiB");
    assert_string_equal(report_bytes(1023.9, text), "1 KiB");
    assert_string_equal(report_rate(12.5e9, text), "12.5 GB/s");
    assert_string_equal(report_rate(999.9, text), "1 KB/s");
    assert_string_equal(report_time(25e-6, text), "25 us");
    assert_string_equal(report_time(2, text), "2 s");
    assert_string_equal(report_time(0, text), "0 ns");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_host_share_its_cores_and_memory),
        cmocka_unit_test(ranks_dealt_out_in_turn_are_put_together_by_host),
        cmocka_unit_test(a_bound_rank_has_no_more_cores_than_it_is_bound_to),
        cmocka_unit_test(more_ranks_than_cores_have_one_each_and_share),
        cmocka_unit_test(virtual_nodes_share_the_cores_of_their_machine),
        cmocka_unit_test(the_network_is_that_of_the_fastest_nic),
        cmocka_unit_test(a_node_has_the_wires_of_its_rails_and_one_transfer_takes_one),
        cmocka_unit_test(what_a_rank_sent_broken_is_named_by_rank),
        cmocka_unit_test(gpus_that_are_hidden_from_the_first_rank_are_described_by_others),
        cmocka_unit_test(gpus_that_each_rank_calls_by_one_number_are_told_apart),
        cmocka_unit_test(this_node_has_cores_and_memory),
        cmocka_unit_test(places_that_are_alike_share_a_line_of_the_report),
        cmocka_unit_test(figures_are_rounded_to_three_digits_of_a_fitting_unit),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
