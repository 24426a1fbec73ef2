/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/links.h"
#include "topology/pairs.h"

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* Eight nodes of two devices, what was measured of them, and what came of it. */
struct lab {
    struct cluster *cluster;
    struct pairs *pairs;
    struct link_trial *trials;
    double *loads;
    struct links *links;
};

#define INSIDE 4e9
#define ACROSS 1e9
#define TOGETHER 1.8e9

static void set_trial(struct link_trial *trial, double latency, double bandwidth)
{
    size_t bytes[LINKS_SIZES];
    int n = links_sizes(true, false, bytes);

    for (int s = 0; s < n; s++) {
        trial->quiet[s] = latency + (double)bytes[s] / bandwidth;
        trial->median[s] = 1.1 * trial->quiet[s];
    }
    trial->there = trial->back = bandwidth;
}

static struct lab new_lab(void)
{
    struct err err = { 0 };
    struct lab lab = {
        .cluster = cluster_open("tree:8x2,inside=9e9,across=7e9,latency=1e-3", &err)
    };

    assert_non_null(lab.cluster);
    lab.pairs = pairs_choose(lab.cluster, true);
    lab.trials = mem_new((size_t)lab.pairs->n_pairs, sizeof(*lab.trials));
    lab.loads = mem_new((size_t)lab.pairs->n_loads, sizeof(*lab.loads));
    for (int i = 0; i < lab.pairs->n_pairs; i++)
        set_trial(&lab.trials[i], lab.pairs->pairs[i].class == 0 ? 2e-6 : 2e-5,
                  lab.pairs->pairs[i].class == 0 ? INSIDE : ACROSS);
    for (int i = 0; i < lab.pairs->n_loads; i++)
        lab.loads[i] = TOGETHER;
    return lab;
}

static void conclude(struct lab *lab)
{
    lab->links = links_new(lab->cluster, lab->pairs, lab->trials, lab->loads, true);
}

static void close_lab(struct lab *lab)
{
    links_free(lab->links);
    pairs_free(lab->pairs);
    cluster_free(lab->cluster);
    free(lab->trials);
    free(lab->loads);
}

static int pair_between(const struct lab *lab, const char *a, const char *b)
{
    for (int i = 0; i < lab->pairs->n_pairs; i++)
        if (strcmp(lab->cluster->devices[lab->pairs->pairs[i].a].id, a) == 0 &&
            strcmp(lab->cluster->devices[lab->pairs->pairs[i].b].id, b) == 0)
            return i;
    fail_msg("%s and %s were not paired", a, b);
    return -1;
}

static void what_was_measured_replaces_the_tables(void **state)
{
    struct lab lab = new_lab();
    struct cluster *c = lab.cluster;
    struct cluster_link near, far;

    (void)state;
    conclude(&lab);
    links_apply(lab.links, c);
    near = cluster_link(c, 0, 1);
    far = cluster_link(c, 1, 2);
    assert_true(close_to(near.bandwidth, INSIDE) && close_to(near.latency, 2e-6));
    assert_true(close_to(far.bandwidth, ACROSS) && close_to(far.latency, 2e-5));
    for (int p = 0; p < c->n_places; p++) {
        assert_true(p == 0 || c->places[p].origin == ORIGIN_MEASURED);
        assert_true(c->places[p].kind == CLUSTER_DEVICE ||
                    c->places[p].latency_origin == ORIGIN_MEASURED);
    }
    close_lab(&lab);
}

static void a_wire_has_what_its_transfers_have_together(void **state)
{
    struct lab lab = new_lab();
    const struct cluster_place *node;

    (void)state;
    conclude(&lab);
    links_apply(lab.links, lab.cluster);
    node = &lab.cluster->places[lab.cluster->devices[0].node];
    assert_true(close_to(node->up_bandwidth, TOGETHER));
    assert_true(close_to(node->flow_bandwidth, ACROSS));
    close_lab(&lab);

    lab = new_lab();
    for (int i = 0; i < lab.pairs->n_loads; i++)
        lab.loads[i] = ACROSS;
    conclude(&lab);
    links_apply(lab.links, lab.cluster);
    node = &lab.cluster->places[lab.cluster->devices[0].node];
    assert_true(close_to(node->up_bandwidth, ACROSS) && isinf(node->flow_bandwidth));
    close_lab(&lab);
}

static void a_device_is_no_slower_than_what_it_sent_to_another_node(void **state)
{
    struct lab lab = new_lab();

    (void)state;
    for (int i = 0; i < lab.pairs->n_pairs; i++)
        if (lab.pairs->pairs[i].class == 1)
            set_trial(&lab.trials[i], 1e-6, 25e9);
    conclude(&lab);
    links_apply(lab.links, lab.cluster);
    assert_true(close_to(cluster_link(lab.cluster, 0, 2).bandwidth, 25e9));
    close_lab(&lab);
}

static void a_slow_pair_is_named(void **state)
{
    struct lab lab = new_lab();
    bool *suspect = mem_new((size_t)lab.pairs->n_pairs, sizeof(*suspect));
    int slow = pair_between(&lab, "n2/gpu0", "n3/gpu0");
    char *evidence, *text;

    (void)state;
    set_trial(&lab.trials[slow], 2e-5, ACROSS / 4);
    assert_int_equal(links_suspects(lab.pairs, lab.trials, true, suspect), 1);
    assert_true(suspect[slow]);
    conclude(&lab);
    assert_int_equal(lab.links->n_slow, 1);
    assert_string_equal(lab.links->slow[0].what, "n2 - n3");
    assert_string_equal(lab.links->slow[0].class, "across nodes");
    evidence = links_evidence(&lab.links->slow[0]);
    assert_non_null(strstr(evidence, " of "));
    assert_non_null(strstr(evidence, "MB/s"));
    text = links_text(lab.links, "links");
    assert_non_null(strstr(text, "slow: n2 - n3: "));
    /* One pair does not change the class. */
    assert_true(close_to(lab.links->classes[1].curve.line.bandwidth, ACROSS));
    free(text);
    free(evidence);
    free(suspect);
    close_lab(&lab);
}

static void a_slow_direction_is_named_with_an_arrow(void **state)
{
    struct lab lab = new_lab();

    (void)state;
    lab.trials[pair_between(&lab, "n2/gpu0", "n3/gpu0")].back = ACROSS / 3;
    conclude(&lab);
    assert_int_equal(lab.links->n_slow, 1);
    assert_string_equal(lab.links->slow[0].what, "n3 -> n2");
    close_lab(&lab);
}

/* Other work slowed what went back between the others, so that 0.25 is within their scatter. */
static void a_pair_is_slow_both_ways_however_the_others_scatter(void **state)
{
    static const double noisy[] = { 1, 0.55, 0.9, 0.75, 0.6 };
    struct lab lab = new_lab();
    int slow = pair_between(&lab, "n2/gpu0", "n3/gpu0");

    (void)state;
    for (int i = 0; i < lab.pairs->n_pairs; i++)
        if (lab.pairs->pairs[i].class == lab.pairs->pairs[slow].class)
            lab.trials[i].back = ACROSS * noisy[i % 5];
    set_trial(&lab.trials[slow], 2e-5, ACROSS / 4);
    conclude(&lab);
    assert_int_equal(lab.links->n_slow, 1);
    assert_string_equal(lab.links->slow[0].what, "n2 - n3");
    close_lab(&lab);
}

static void the_node_that_is_in_most_slow_pairs_is_blamed(void **state)
{
    struct lab lab = new_lab();

    (void)state;
    for (int i = 0; i < lab.pairs->n_pairs; i++) {
        const struct pair *pair = &lab.pairs->pairs[i];

        if (pair->class == 1 && (lab.cluster->devices[pair->a].id[1] == '5' ||
                                 lab.cluster->devices[pair->b].id[1] == '5'))
            set_trial(&lab.trials[i], 2e-5, ACROSS / 5);
    }
    conclude(&lab);
    assert_true(lab.links->n_slow >= 3);
    for (int i = 0; i < lab.links->n_slow; i++)
        assert_string_equal(lab.links->slow[i].host, "n5");
    close_lab(&lab);
}

/* As much as sums of noise and of what is far: nobody is blamed. */
static void pairs_that_differ_a_little_are_not_slow(void **state)
{
    struct lab lab = new_lab();

    (void)state;
    for (int i = 0; i < lab.pairs->n_pairs; i++) {
        double share = 0.7 + 0.3 * (i * 7 % 11) / 10;

        set_trial(&lab.trials[i], lab.pairs->pairs[i].class == 0 ? 2e-6 / share : 2e-5 / share,
                  share * (lab.pairs->pairs[i].class == 0 ? INSIDE : ACROSS));
    }
    conclude(&lab);
    assert_int_equal(lab.links->n_slow, 0);
    close_lab(&lab);
}

static void what_was_measured_twice_keeps_the_better(void **state)
{
    struct link_trial one, other;

    (void)state;
    set_trial(&one, 2e-5, ACROSS / 4);
    set_trial(&other, 1e-5, ACROSS);
    links_merge(&one, &other);
    assert_true(close_to(one.quiet[0], other.quiet[0]) && close_to(one.there, ACROSS));
}

static void a_file_gives_back_what_was_measured(void **state)
{
    struct lab lab = new_lab();
    struct err err = { 0 };
    struct links *again;
    json_t *json, *second;
    char *text, *copy;

    (void)state;
    set_trial(&lab.trials[pair_between(&lab, "n2/gpu0", "n3/gpu0")], 2e-5, ACROSS / 4);
    /* Short messages sooner, so that there are two lines. */
    for (int i = 0; i < lab.pairs->n_pairs; i++)
        for (int s = 0; s < 4; s++)
            lab.trials[i].quiet[s] /= 4;
    conclude(&lab);
    assert_true(lab.links->classes[1].curve.eager_bytes > 0);
    json = links_to_json(lab.links);
    again = links_from_json("file", json, &err);
    if (!again)
        fail_msg("%s", err.text);
    second = links_to_json(again);
    assert_true(json_equal(json, second));
    text = links_text(lab.links, "links");
    copy = links_text(again, "links");
    assert_string_equal(text, copy);
    free(text);
    free(copy);
    json_decref(json);
    json_decref(second);
    links_free(again);
    close_lab(&lab);
}

static void what_is_wrong_in_a_file_is_named(void **state)
{
    static const struct { const char *text, *name; } wrong[] = {
        { "{}", "measure" },
        { "{\"measure\": \"full\", \"bytes\": [], \"classes\": [], \"slow\": []}", "bytes" },
        { "{\"measure\": \"full\", \"bytes\": [-8], \"classes\": [], \"slow\": []}", "bytes" },
        { "{\"measure\": \"full\", \"bytes\": [8], \"classes\": [{}], \"slow\": []}",
          "classes[0].class" },
        { "{\"measure\": \"full\", \"bytes\": [8], \"classes\": [], \"slow\": [{}]}",
          "slow[0].host" },
        { "{\"measure\": \"full\", \"bytes\": [8], \"classes\": [], \"slow\": [], \"x\": 1}",
          "x" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *json = json_loads(wrong[i].text, 0, NULL);
        struct err err = { 0 };

        assert_null(links_from_json("file", json, &err));
        if (!strstr(err.text, wrong[i].name))
            fail_msg("\"%s\" in \"%s\"", wrong[i].name, err.text);
        json_decref(json);
    }
}

static void the_factors_of_sums_give_back_their_times(void **state)
{
    struct err err = { 0 };
    struct cluster *c = cluster_open("flat:4,bandwidth=2e9,latency=5e-6", &err);
    const int all[] = { 0, 1, 2, 3 };
    struct links_sums sums;
    int n = links_sum_sizes(true, false, sums.floats);

    (void)state;
    for (int s = 0; s < n; s++)
        sums.seconds[s] = 7e-5 + 4 * (double)sums.floats[s] / 5e8;
    links_apply_sums(c, n, &sums);
    assert_true(close_to(cluster_allreduce_time(c, 4, all, 1e5), 7e-5 + 1e5 / 5e8));
    assert_true(close_to(cluster_allreduce_time(c, 4, all, 1e7), 7e-5 + 1e7 / 5e8));
    cluster_free(c);
}

/* As the fit of messages leaves them where others took the machine meanwhile. */
static void sums_over_wires_without_a_slope_can_be_saved(void **state)
{
    struct cluster *c = cluster_open("flat:4,bandwidth=1e20,latency=1e-6", NULL), *again;
    struct links_sums sums;
    struct err err = { 0 };
    int n = links_sum_sizes(false, false, sums.floats);
    json_t *json;

    (void)state;
    for (int s = 0; s < n; s++)
        sums.seconds[s] = 7e-5 + 4 * (double)sums.floats[s] / 5e8;
    links_apply_sums(c, n, &sums);
    json = cluster_to_json(c);
    again = cluster_from_json("saved", json, 0, &err);
    if (!again)
        fail_msg("%s", err.text);
    cluster_free(again);
    json_decref(json);
    cluster_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_replaces_the_tables),
        cmocka_unit_test(a_wire_has_what_its_transfers_have_together),
        cmocka_unit_test(a_device_is_no_slower_than_what_it_sent_to_another_node),
        cmocka_unit_test(a_slow_pair_is_named),
        cmocka_unit_test(a_slow_direction_is_named_with_an_arrow),
        cmocka_unit_test(a_pair_is_slow_both_ways_however_the_others_scatter),
        cmocka_unit_test(the_node_that_is_in_most_slow_pairs_is_blamed),
        cmocka_unit_test(pairs_that_differ_a_little_are_not_slow),
        cmocka_unit_test(what_was_measured_twice_keeps_the_better),
        cmocka_unit_test(a_file_gives_back_what_was_measured),
        cmocka_unit_test(what_is_wrong_in_a_file_is_named),
        cmocka_unit_test(the_factors_of_sums_give_back_their_times),
        cmocka_unit_test(sums_over_wires_without_a_slope_can_be_saved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
