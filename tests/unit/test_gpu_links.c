/* SPDX-License-Identifier: MIT */
#include "recorded.h"

#include <math.h>

#include "topology/cluster.h"
#include "topology/gpu_links.h"
#include "topology/links.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/pairs.h"

/* Two nodes n0 and n1 like a recorded machine, with a rank on each GPU. */
struct lab {
    struct topo_record *record;
    struct cluster *cluster;
    bool *shared;
    struct pairs *pairs;
    struct link_trial *trials;
};

static struct lab new_lab(const char *machine)
{
    struct lab lab = { .record = topo_record_new() };
    struct topo_node *node = recorded_machine(machine);
    struct err err = { 0 };

    topo_node_set_text(&node->switches, "");
    for (int i = 0; i < 2; i++) {
        topo_node_set_text(&node->host, i ? "n1" : "n0");
        assert_int_equal(topo_record_add_node(lab.record, node, &err), 0);
    }
    topo_node_free(node);
    lab.cluster = model_of_record(lab.record, "test", &err);
    assert_non_null(lab.cluster);
    for (int i = 0; i < lab.cluster->n_devices; i++)
        lab.cluster->devices[i].rank = i;
    lab.shared = mem_new((size_t)lab.cluster->n_devices, sizeof(*lab.shared));
    return lab;
}

static void choose(struct lab *lab, bool full)
{
    struct err err = { 0 };

    lab->pairs = pairs_choose_gpus(lab->cluster, lab->record, lab->shared, full, &err);
    assert_non_null(lab->pairs);
}

static void close_lab(struct lab *lab)
{
    topo_record_free(lab->record);
    cluster_free(lab->cluster);
    pairs_free(lab->pairs);
    free(lab->shared);
    free(lab->trials);
}

static int count(const struct lab *lab, const char *class)
{
    const struct pairs *p = lab->pairs;
    int n = 0;

    for (int i = 0; i < p->n_pairs; i++) {
        char *name = pairs_class_name(lab->cluster, &p->classes[p->pairs[i].class]);

        n += strcmp(name, class) == 0;
        free(name);
    }
    return n;
}

/* As the matrix in tests/data/topo/dgx1/expected.text counts them, twice. */
static void each_pair_of_gpus_of_a_node_is_of_the_class_of_its_word(void **state)
{
    struct lab lab = new_lab("dgx1");

    (void)state;
    choose(&lab, true);
    assert_int_equal(count(&lab, "NV1"), 2 * 8);
    assert_int_equal(count(&lab, "NV2"), 2 * 8);
    assert_int_equal(count(&lab, "SYS, same island"), 2 * 12);
    assert_int_equal(count(&lab, "across the network") + count(&lab, "across nodes"), 1);
    assert_int_equal(lab.pairs->n_pairs, 2 * 28 + 1);
    close_lab(&lab);
}

static void pairs_of_a_round_share_no_gpu(void **state)
{
    struct lab lab = new_lab("dgx1");
    const struct pair *p;

    (void)state;
    choose(&lab, true);
    p = lab.pairs->pairs;
    for (int i = 0; i < lab.pairs->n_pairs; i++)
        for (int j = 0; j < i; j++)
            if (p[i].round == p[j].round)
                assert_true(p[i].a != p[j].a && p[i].a != p[j].b && p[i].b != p[j].a &&
                            p[i].b != p[j].b);
    close_lab(&lab);
}

static void quick_takes_one_pair_of_a_class_on_a_node(void **state)
{
    struct lab lab = new_lab("dgx1");

    (void)state;
    choose(&lab, false);
    assert_int_equal(count(&lab, "NV1"), 2);
    assert_int_equal(count(&lab, "NV2"), 2);
    assert_int_equal(count(&lab, "SYS, same island"), 2);
    assert_int_equal(lab.pairs->n_loads, 0);
    close_lab(&lab);
}

static void gpus_without_a_rank_are_left_out_and_shared_ones_meet_themselves(void **state)
{
    struct lab lab = new_lab("one-socket");
    const struct pairs *p;

    (void)state;
    for (int i = 0; i < lab.cluster->n_devices; i++)
        if (i != 1 && i != 3 && i != 6)
            lab.cluster->devices[i].rank = -1;
    lab.shared[3] = true;
    choose(&lab, true);
    p = lab.pairs;
    for (int i = 0; i < p->n_pairs; i++)
        assert_true(lab.cluster->devices[p->pairs[i].a].rank >= 0 &&
                    lab.cluster->devices[p->pairs[i].b].rank >= 0);
    assert_int_equal(count(&lab, "NODE"), 1);
    assert_int_equal(count(&lab, "X"), 1);
    assert_int_equal(p->n_pairs, 3);
    assert_int_equal(p->pairs[2].a, 3);
    assert_int_equal(p->pairs[2].b, 3);
    close_lab(&lab);
}

/* A line for each class: NVLinks, what is in their island without one, the network. */
static double seconds_of(const char *class, double bytes)
{
    return strncmp(class, "NV", 2) == 0    ? 1e-5 + bytes / 40e9
           : strncmp(class, "SYS", 3) == 0 ? 5e-5 + bytes / 8e9
                                           : 2e-5 + bytes / 10e9;
}

static void run_trials(struct lab *lab)
{
    size_t bytes[LINKS_SIZES];
    int n = links_sizes(false, true, bytes);

    lab->trials = mem_new((size_t)lab->pairs->n_pairs, sizeof(*lab->trials));
    for (int i = 0; i < lab->pairs->n_pairs; i++) {
        char *name = pairs_class_name(lab->cluster,
                                      &lab->pairs->classes[lab->pairs->pairs[i].class]);

        for (int s = 0; s < n; s++)
            lab->trials[i].quiet[s] = lab->trials[i].median[s] =
                seconds_of(name, (double)bytes[s]);
        free(name);
    }
}

static void assert_link(const struct cluster *c, int a, int b, double latency, double bandwidth)
{
    struct cluster_link link = cluster_link(c, a, b);

    assert_true(fabs(link.latency / latency - 1) < 1e-6);
    assert_true(fabs(link.bandwidth / bandwidth - 1) < 1e-6);
}

static void the_tree_has_what_nvlinks_and_the_network_showed(void **state)
{
    struct lab lab = new_lab("dgx1");
    struct pairs *places;
    struct links *links;

    (void)state;
    choose(&lab, false);
    run_trials(&lab);
    places = pairs_by_place(lab.pairs);
    links = links_new(lab.cluster, places, lab.trials, NULL, false);
    links_apply(links, lab.cluster);
    assert_link(lab.cluster, 0, 1, 1e-5, 40e9);
    assert_link(lab.cluster, 8, 11, 1e-5, 40e9);
    assert_link(lab.cluster, 0, 8, 2e-5, 10e9);
    links_free(links);
    pairs_free(places);
    close_lab(&lab);
}

/* A node whose ranks have these GPUs, as gather_merge() describes it. */
static void add_ranks(struct cluster *hosts, const char *host, int n, const int *gpus)
{
    int node = cluster_add_place(hosts, CLUSTER_NODE, host, 0, 25e9);

    hosts->places[node].latency = 1e-6;
    hosts->places[node].cores = 8;
    for (int i = 0; i < n; i++) {
        char *id = mem_printf("%s/gpu%d", host, gpus[i]);
        int index = cluster_add_device(hosts, id, "GPU", node, 4e9);

        hosts->devices[index].rank = index;
        hosts->devices[index].memory = 16e9 + index;
        free(id);
    }
}

static void ranks_are_on_the_islands_of_their_gpus(void **state)
{
    static const char *const machines[] = { "dgx1", "omni-path" };

    (void)state;
    for (int m = 0; m < 2; m++) {
        struct lab lab = new_lab(machines[m]);
        struct topo_node *node = recorded_machine(machines[m]);
        struct cluster *hosts = cluster_new("test"), *tree;
        int n = node->n_gpus, all[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
        struct model_gpu gpus[16];
        struct err err = { 0 };

        hosts->places[0].latency = lab.cluster->places[0].latency;
        add_ranks(hosts, "n0", n, all);
        add_ranks(hosts, "n1", n, all);
        for (int i = 0; i < 2 * n; i++)
            gpus[i] = model_gpu(node, i % n);
        tree = model_of_ranks(hosts, gpus);
        assert_int_equal(cluster_check(tree, &err), 0);
        assert_int_equal(tree->n_places, lab.cluster->n_places);
        for (int d = 0; d < 2 * n; d++) {
            int a = tree->devices[d].place, b = lab.cluster->devices[d].place;

            assert_string_equal(tree->devices[d].id, lab.cluster->devices[d].id);
            assert_true(tree->devices[d].rank == d && tree->devices[d].memory == 16e9 + d);
            assert_int_equal(cluster_find_device(tree, tree->devices[d].id), d);
            for (; tree->places[a].kind != CLUSTER_NODE; a = tree->places[a].parent) {
                assert_true(tree->places[a].kind == lab.cluster->places[b].kind &&
                            tree->places[a].up_bandwidth == lab.cluster->places[b].up_bandwidth &&
                            tree->places[a].latency == lab.cluster->places[b].latency &&
                            tree->places[a].origin == lab.cluster->places[b].origin);
                b = lab.cluster->places[b].parent;
            }
            assert_true(tree->places[a].up_bandwidth == 25e9 && tree->places[a].cores == 8);
        }
        cluster_free(tree);
        cluster_free(hosts);
        topo_node_free(node);
        close_lab(&lab);
    }
}

/* Ranks 0 to 3 have GPUs of two islands in turn, 4 is alone on its, 5's is not known. */
static void gpus_of_other_islands_and_lone_ones_are_apart(void **state)
{
    static const struct model_gpu near = { "0000:06:00.0", 40e9, 16e9, ORIGIN_REPORTED, ORIGIN_REPORTED };
    static const struct model_gpu far = { "0000:86:00.0", 20e9, 12e9, ORIGIN_REPORTED, ORIGIN_TABLE };
    const struct model_gpu gpus[] = { near, far, near, far, near, model_gpu(NULL, -1) };
    struct cluster *hosts = cluster_new("test"), *tree;
    struct err err = { 0 };

    (void)state;
    add_ranks(hosts, "n0", 4, (const int[]){ 0, 2, 1, 3 });
    add_ranks(hosts, "n1", 2, (const int[]){ 0, 7 });
    tree = model_of_ranks(hosts, gpus);
    assert_int_equal(cluster_check(tree, &err), 0);
    assert_string_equal(tree->devices[1].id, "n0/gpu1");
    assert_int_equal(tree->devices[1].rank, 2);
    assert_int_equal(tree->devices[2].rank, 1);
    assert_true(cluster_link(tree, 0, 1).bandwidth == 40e9);
    assert_true(cluster_link(tree, 0, 1).latency < cluster_link(tree, 0, 2).latency);
    assert_true(cluster_link(tree, 2, 3).bandwidth == 20e9);
    assert_true(cluster_link(tree, 0, 2).bandwidth == 20e9);    /* out of an island: what all have */
    assert_int_equal(tree->places[tree->places[tree->devices[2].place].parent].origin, ORIGIN_TABLE);
    assert_int_equal(tree->places[tree->devices[4].place].parent, tree->devices[4].node);
    assert_true(tree->places[tree->devices[4].place].up_bandwidth == 16e9);
    assert_int_equal(tree->places[tree->devices[5].place].origin, ORIGIN_TABLE);
    cluster_free(tree);
    cluster_free(hosts);
}

static void a_file_gives_back_what_was_measured(void **state)
{
    struct lab lab = new_lab("hgx-h100");
    struct gpu_links gpus = { .library = mem_strdup("NCCL 2.28.9"), .note = mem_strdup("no") };
    struct gpu_links *again;
    struct err err = { 0 };
    json_t *json, *second;
    char *text, *copy;

    (void)state;
    choose(&lab, false);
    run_trials(&lab);
    for (int i = 0; i < lab.pairs->n_classes; i++)
        lab.pairs->classes[i].way = "NCCL";
    gpus.links = links_new(lab.cluster, lab.pairs, lab.trials, NULL, false);
    gpus.cluster = lab.cluster;
    json = gpu_links_to_json(&gpus);
    again = gpu_links_from_json("file", json, &err);
    if (!again)
        fail_msg("%s", err.text);
    second = gpu_links_to_json(again);
    assert_true(json_equal(json, second));
    text = gpu_links_text(&gpus);
    copy = gpu_links_text(again);
    assert_string_equal(text, copy);
    assert_non_null(strstr(text, "NV18, NCCL"));
    assert_non_null(strstr(text, "GPU links: no\n"));
    free(text);
    free(copy);
    json_decref(json);
    json_decref(second);
    gpu_links_free(again);
    links_free(gpus.links);
    free(gpus.library);
    free(gpus.note);
    close_lab(&lab);
}

static void what_is_wrong_in_a_file_is_named(void **state)
{
    static const struct { const char *text, *name; } wrong[] = {
        { "[]", "gpus" },
        { "{\"x\": 1}", "unknown key \"x\"" },
        { "{\"note\": 1}", "gpus.note" },
        { "{\"measured\": {}}", "gpus.cluster" },
        { "{\"library\": \"NCCL\"}", "gpus.cluster" },
        { "{\"cluster\": {}}", "gpus.measured" },
        { "{\"cluster\": {}, \"measured\": {}}", "gpus.library" },
        { "{\"cluster\": {}, \"measured\": {}, \"library\": \"\"}", "schema" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *json = json_loads(wrong[i].text, 0, NULL);
        struct err err = { 0 };

        assert_null(gpu_links_from_json("file", json, &err));
        assert_contains(err.text, wrong[i].name);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pair_of_gpus_of_a_node_is_of_the_class_of_its_word),
        cmocka_unit_test(pairs_of_a_round_share_no_gpu),
        cmocka_unit_test(quick_takes_one_pair_of_a_class_on_a_node),
        cmocka_unit_test(gpus_without_a_rank_are_left_out_and_shared_ones_meet_themselves),
        cmocka_unit_test(the_tree_has_what_nvlinks_and_the_network_showed),
        cmocka_unit_test(ranks_are_on_the_islands_of_their_gpus),
        cmocka_unit_test(gpus_of_other_islands_and_lone_ones_are_apart),
        cmocka_unit_test(a_file_gives_back_what_was_measured),
        cmocka_unit_test(what_is_wrong_in_a_file_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
