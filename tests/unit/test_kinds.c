/* SPDX-License-Identifier: MIT */
/* Plans for devices of several kinds, each with costs of its own; for nodes of unequal size, and for
 * one that hangs on a slow wire.
 */
#include "cost_text.h"
#include "planning.h"

#include <math.h>

#include "scheduler/partition_private.h"
#include "scheduler/simulate.h"
#include "scheduler/sizes.h"
#include "scheduler/stage_layout.h"

#define CLOSE 1e-9
#define FREE "bandwidth=1e12,latency=0,memory=1e30"

/* even_cost() on devices on which all takes 1/'times' as long. */
static struct cost *one_kind(const char *kind, int blocks, double bytes, double parameters,
                             double times)
{
    unsigned seed = 1;
    struct cost *even = even_cost(blocks, bytes, parameters);
    struct cost *cost = cost_on(even, kind, 1 / times, 1 / times, &seed);

    cost_free(even);
    return cost;
}

/* On devices that are slow, too. */
static struct cost *two_kinds(int blocks, double bytes, double parameters, double times)
{
    struct cost *both = cost_join(one_kind("fast", blocks, bytes, parameters, times),
                                  one_kind("slow", blocks, bytes, parameters, 1), NULL);

    assert_non_null(both);
    return both;
}

static struct cluster *cluster_of(const char *spec, const char *kinds)
{
    struct cluster *cluster = open_cluster(spec);

    set_kinds(cluster, kinds);
    return cluster;
}

static struct plan *plan_of(const struct cost *cost, const struct cluster *cluster,
                            const struct plan_request *request)
{
    struct err err = { 0 };
    struct plan *plan = partition(cost, cluster, request, NULL, &err);

    if (!plan)
        fail_msg("%s", err.text);
    assert_true(plan->lower_bound_seconds <= plan->iteration_seconds * (1 + CLOSE));
    return plan;
}

static bool is_fast(const struct cluster *cluster, const char *id)
{
    return strcmp(cluster->devices[cluster_find_device(cluster, id)].kind, "fast") == 0;
}

/* Six blocks on two devices, one of them twice as fast: four of them there, wherever it is. */
static void the_faster_device_gets_more_blocks(void **state)
{
    struct cost *cost = two_kinds(6, 1, 1e6, 2), *alone = one_kind("slow", 6, 1, 1e6, 1);

    (void)state;
    for (int way = 0; way < 2; way++) {
        struct cluster *cluster = cluster_of("flat:2," FREE, way ? "fs" : "sf");
        struct plan_request request = { .global_batch = 8, .stages = 2, .micro_batches = 8 };
        struct plan *plan = plan_of(cost, cluster, &request);
        struct plan *slow = plan_of(alone, cluster, &request);

        for (int s = 0; s < 2; s++) {
            assert_int_equal(plan->stages[s].n_blocks,
                             is_fast(cluster, plan->stages[s].devices[0]) ? 4 : 2);
            /* Of its own device. */
            assert_true(plan->stages[s].forward == 2);
            assert_true(plan->stages[s].dgrad == 2);
        }
        assert_true(plan->iteration_seconds < 0.7 * slow->iteration_seconds);
        assert_true(simulate_seconds(plan, cost, cluster, NULL) == plan->iteration_seconds);
        plan_free(slow);
        plan_free(plan);
        cluster_free(cluster);
    }
    cost_free(alone);
    cost_free(cost);
}

/* Of three samples two. */
static void the_faster_replica_gets_the_larger_share(void **state)
{
    struct cost *cost = two_kinds(1, 1, 1, 2);

    (void)state;
    for (int way = 0; way < 2; way++) {
        struct cluster *cluster = cluster_of("flat:2," FREE, way ? "fs" : "sf");
        struct plan_request request = { .global_batch = 12, .n_replicas = 1,
                                        .replicas = (int[]){ 2 }, .micro_batch = 3 };
        struct plan *plan = plan_of(cost, cluster, &request);

        for (int i = 0; i < 2; i++)
            assert_int_equal(plan->stages[0].samples[i],
                             is_fast(cluster, plan->stages[0].devices[i]) ? 2 : 1);
        /* Four micro-batches of 3 s. */
        assert_true(fabs(plan->iteration_seconds - 12) < 1e-6);
        plan_free(plan);
        cluster_free(cluster);
    }
    cost_free(cost);
}

static void devices_of_one_kind_are_planned_by_its_costs_alone(void **state)
{
    struct cost *cost = two_kinds(7, 1e3, 1e5, 3);
    struct plan_request request = { .global_batch = 24 };

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct cluster *cluster = cluster_of("tree:2x2,inside=1e9,across=1e6", k ? "ffff" : "ssss");
        struct plan *both = plan_of(cost, cluster, &request);
        struct cost *alone = one_kind(k ? "fast" : "slow", 7, 1e3, 1e5, k ? 3 : 1);
        struct plan *own = plan_of(alone, cluster, &request);
        json_t *a = plan_to_json(both), *b = plan_to_json(own);

        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
        plan_free(both);
        plan_free(own);
        cost_free(alone);
        cluster_free(cluster);
    }
    cost_free(cost);
}

/* More devices and blocks than are all tried: nodes of four, the slow ones first, or last, or each
 * of both kinds. Were all slow it would be the sum of 24 stages; the fast ones are worth 3 each.
 */
static void many_devices_get_work_as_they_are_fast(void **state)
{
    static const char *const kinds[] = { "ssssssssffffffff", "ffffffffssssssss",
                                         "sfsfsfsfsfsfsfsf" };
    struct cost *cost = two_kinds(64, 1e3, 1e6, 3), *alone = one_kind("slow", 64, 1e3, 1e6, 1);
    struct plan_request request = { .global_batch = 64, .micro_batch = 1 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct cluster *cluster = cluster_of("tree:4x4,inside=1e9,across=1e7,memory=20e6",
                                             kinds[i]);
        struct plan *plan = plan_of(cost, cluster, &request);
        struct plan *slow = plan_of(alone, cluster, &request);

        /* 64 samples of 64 blocks of 3 s over 8 + 8 * 3. */
        assert_true(plan->lower_bound_seconds >= 64.0 * 64 * 3 / 32 * (1 - CLOSE));
        assert_true(plan->iteration_seconds < 0.75 * slow->iteration_seconds);
        assert_true(plan->iteration_seconds < 1.1 * 64 * 64 * 3 / 32);
        plan_free(plan);
        plan_free(slow);
        cluster_free(cluster);
    }
    cost_free(alone);
    cost_free(cost);
}

/* Costs that cannot be those of one network; each error names where they differ. */
static void costs_of_other_networks_are_refused(void **state)
{
    static const char head[] = "{\"schema\":\"tasuki-cost\",\"version\":1,\"device\":\"x\",";
    static const char first[] = "\"micro_batch\":[1],\"blocks\":["
        "{\"name\":\"a\",\"forward\":1,\"dgrad\":1,\"wgrad\":1},"
        "{\"name\":\"b\",\"forward\":1,\"dgrad\":1,\"wgrad\":1}],"
        "\"edges\":[{\"from\":\"a\",\"to\":\"b\",\"value\":\"h\",\"bytes\":10}]}";
    static const struct {
        const char *old, *new, *message;
    } cases[] = {
        { "[1]", "[2]", "\"micro_batch\" sizes" },
        { "\"b\"", "\"c\"", "block \"b\"" },
        { "\"h\"", "\"i\"", "the edge of \"h\"" },
        { "\"bytes\":10", "\"bytes\":11", "the edge of \"h\"" },
        { ",\"wgrad\":1}]", "}]", "block \"b\"" },
        { "\"micro", "\"precision\":\"bf16\",\"micro", "in bf16" },
        { "},{\"name\":\"b\"", "},{\"name\":\"m\",\"forward\":1,\"dgrad\":1},{\"name\":\"b\"",
          "2 blocks, the other 3" },
        { "]}", "],\"inputs\":[{\"name\":\"x\",\"bytes\":1,\"to\":[\"a\"]}]}", "an input" },
        { "]}", "],\"shared\":[{\"name\":\"w\",\"bytes\":1,\"blocks\":[\"a\"]}]}",
          "a shared parameter" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char a[1024], b[1024], *at = b;
        struct err err = { 0 };
        struct cost *joined;

        snprintf(a, sizeof(a), "%s%s", head, first);
        /* Every place where it stands. */
        for (const char *from = a; *from;)
            if (strncmp(from, cases[i].old, strlen(cases[i].old)) == 0) {
                at += sprintf(at, "%s", cases[i].new);
                from += strlen(cases[i].old);
            } else {
                *at++ = *from++;
            }
        *at = 0;
        joined = cost_join(cost_of_text(a, NULL), cost_of_text(b, NULL), &err);
        assert_null(joined);
        assert_contains(err.text, cases[i].message);
    }
}

/* Whatever device a stage gets, it fits by the larger of what both say. */
static void of_bytes_the_larger_count(void **state)
{
    static const char text[] = "{\"schema\":\"tasuki-cost\",\"version\":1,\"micro_batch\":[1],"
        "\"blocks\":[{\"name\":\"a\",\"forward\":%s,\"dgrad\":1,\"parameters\":%s,"
        "\"activations\":%s%s}],\"edges\":[]}";
    char a[512], b[512];
    struct cost *joined;

    (void)state;
    snprintf(a, sizeof(a), text, "2", "10", "30", ",\"peak\":70,\"kernels\":3");
    snprintf(b, sizeof(b), text, "1", "20", "7", ",\"workspace\":5,\"peak\":80");
    joined = cost_join(cost_of_text(b, NULL), cost_of_text(a, NULL), NULL);
    assert_true(joined->blocks[0].forward[0] == 2);
    assert_true(joined->others[0]->blocks[0].forward[0] == 1);
    assert_true(joined->blocks[0].parameters == 20);
    assert_true(joined->blocks[0].activations[0] == 30);
    assert_true(joined->blocks[0].workspace[0] == 5);
    assert_true(joined->blocks[0].peak[0] == 80);
    assert_true(joined->blocks[0].kernels[0] == 3);
    cost_free(joined);
    /* Without that list it may be all that is kept. */
    snprintf(b, sizeof(b), text, "1", "20", "7", "");
    joined = cost_join(cost_of_text(b, NULL), cost_of_text(a, NULL), NULL);
    assert_null(joined->blocks[0].peak);
    cost_free(joined);
}

/* Of steps the layout counts: that of the kind that keeps most, in whatever order they come. */
static void of_steps_the_larger_layout_counts(void **state)
{
    static const char text[] = "{\"schema\":\"tasuki-cost\",\"version\":1,\"device\":\"%s\","
        "\"micro_batch\":[1],\"blocks\":[{\"name\":\"a\",\"forward\":%d,\"dgrad\":1}],"
        "\"edges\":[]%s}";
    static const char steps[] = ",\"values\":[{\"bytes\":%d},{\"bytes\":64,\"result\":true}],"
        "\"steps\":[{\"op\":\"Linear\",\"part\":\"forward\",\"block\":\"a\",\"reads\":[0],"
        "\"makes\":[1]},{\"op\":\"LinearWgrad\",\"part\":\"wgrad\",\"block\":\"a\",\"reads\":[0],"
        "\"makes\":[]}],\"returns\":[]";
    struct cluster *cluster = cluster_of("flat:2," FREE, "sf");
    struct plan_request request = { .global_batch = 1 };

    (void)state;
    for (int way = 0; way < 3; way++) {
        char own[512], slow[1024], fast[1024];
        struct cost *cost, *alone;
        struct plan *plan;

        snprintf(own, sizeof(own), steps, way == 0 ? 4096 : 1 << 20);
        snprintf(slow, sizeof(slow), text, "slow", 2, own);
        snprintf(own, sizeof(own), steps, way == 0 ? 1 << 20 : 4096);
        snprintf(fast, sizeof(fast), text, "fast", 1, way == 2 ? "" : own);
        cost = cost_join(cost_of_text(slow, NULL), cost_of_text(fast, NULL), NULL);
        alone = cost_of_text(way ? slow : fast, NULL);
        assert_non_null(cost);
        /* Where one kind has no steps its lists would not be looked at. */
        assert_int_equal(cost->steps != NULL, way < 2);
        plan = plan_of(cost, cluster, &request);
        if (way < 2) {
            assert_true(plan->stages[0].memory >= 1 << 20);
            assert_true(stage_layout_total(cost, plan, 0) == stage_layout_total(alone, plan, 0));
        }
        plan_free(plan);
        cost_free(alone);
        cost_free(cost);
    }
    cluster_free(cluster);
}

/* No bound is 0 / 0: the fast device has all, and what is asked of the slow one counts. */
static void a_kind_that_takes_no_time_is_planned(void **state)
{
    struct cost *cost = two_kinds(10, 1, 1, INFINITY);
    struct cluster *cluster = cluster_of("flat:2," FREE, "sf");
    struct plan_request unflushed = { .global_batch = 8, .schedule = "2bw" };

    (void)state;
    assert_true(partition_lower_bound(cost, cluster, &unflushed) >= 0);
    for (int stages = 1; stages <= 2; stages++) {
        struct plan_request request = { .global_batch = 8, .stages = stages };
        struct plan *plan = plan_of(cost, cluster, &request);

        assert_true(plan->lower_bound_seconds >= 0);
        assert_true(plan->iteration_seconds <= (stages - 1) * 8 * 3 + 1e-6);
        plan_free(plan);
    }
    cluster_free(cluster);
    cost_free(cost);
}

struct shares {
    const struct cost *cost;
    struct plan_request request;
};

static struct plan *plan_part(void *user, const struct cluster *part, struct err *err)
{
    const struct shares *shares = user;

    return partition(shares->cost, part, &shares->request, NULL, err);
}

/* Two samples on the fast device, one on the slow one: both compute as long. One each: not. */
static void shares_are_even_where_replicas_compute_as_long(void **state)
{
    struct cluster *cluster = cluster_of("flat:2," FREE, "fs");
    struct shares shares = { .cost = two_kinds(1, 1, 1, 2),
                             .request = { .n_replicas = 1, .replicas = (int[]){ 2 } } };
    struct size_request request = { .first = 2, .last = 2, .plan = plan_part, .user = &shares };

    (void)state;
    for (int64_t samples = 2; samples <= 3; samples++) {
        struct sizes *sizes;
        double even;

        shares.request.micro_batch = samples;
        shares.request.global_batch = 4 * samples;
        sizes = sizes_new(cluster, &request, NULL);
        assert_non_null(sizes->rows[0].plan);
        even = sizes->rows[0].parts[SIZE_UNEVEN] / sizes->rows[0].step;
        /* A quarter of both devices' time: one is done after a half of it. */
        assert_true(fabs(even - (samples == 2 ? 0.25 : 0)) < 1e-6);
        sizes_free(sizes);
    }
    cost_free((struct cost *)shares.cost);
    cluster_free(cluster);
}

/* More of them than one cost may have figures of. */
static void too_many_kinds_are_one_clear_error(void **state)
{
    struct cost *cost = one_kind("k0", 1, 1, 1, 1);
    struct err err = { 0 };

    (void)state;
    for (int k = 1; k <= COST_MOST_KINDS; k++) {
        char kind[8];

        assert_non_null(cost);
        snprintf(kind, sizeof(kind), "k%d", k);
        cost = cost_join(cost, one_kind(kind, 1, 1, 1, 1 + k), &err);
    }
    assert_null(cost);
    assert_contains(err.text, "more than 8 kinds of device; give one that names no device");
}

static struct cluster *cluster_from_text(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    struct err err = { 0 };
    struct cluster *cluster = cluster_from_json("drawn", json, 0, &err);

    json_decref(json);
    if (!cluster)
        fail_msg("%s", err.text);
    return cluster;
}

static int node_of(const struct cluster *cluster, const char *id)
{
    return cluster->devices[cluster_find_device(cluster, id)].node;
}

/* Borders of stages, each on one node, where messages leave one; that node alone, if it is said. */
static int crossings(const struct cluster *cluster, const struct plan *plan, const char *name)
{
    int n = 0;

    for (int s = 1; s < plan->n_stages; s++) {
        int a = node_of(cluster, plan->stages[s - 1].devices[0]);
        int b = node_of(cluster, plan->stages[s].devices[0]);

        n += a != b && (!name || strcmp(cluster->places[a].name, name) == 0 ||
                        strcmp(cluster->places[b].name, name) == 0);
    }
    return n;
}

/* A node of four GPUs and one of two: each of six blocks has a device of its own, and messages, which
 * take long between nodes, go from one to the other once.
 */
static void nodes_of_unequal_size_are_all_used(void **state)
{
    static const char text[] =
        "{\"schema\":\"tasuki-topo\",\"version\":1,\"root\":{\"children\":["
        "{\"kind\":\"node\",\"name\":\"a\",\"bandwidth\":%s,\"children\":["
        "{\"kind\":\"device\",\"count\":%d,\"id\":\"/gpu#\",\"bandwidth\":1e9}]},"
        "{\"kind\":\"node\",\"name\":\"b\",\"bandwidth\":1e6,\"children\":["
        "{\"kind\":\"device\",\"count\":%d,\"id\":\"/gpu#\",\"bandwidth\":1e9}]}]}}";
    struct cost *cost = even_cost(6, 2e5, 4e7);

    (void)state;
    for (int first = 2; first <= 4; first += 2) {
        struct plan_request request = { .global_batch = 24 };
        char own[1024];
        struct cluster *cluster;
        struct plan *plan;

        snprintf(own, sizeof(own), text, "1e6", first, 6 - first);
        cluster = cluster_from_text(own);
        plan = plan_of(cost, cluster, &request);
        assert_int_equal(plan->pipelines, 1);
        assert_int_equal(plan->n_stages, 6);
        assert_int_equal(crossings(cluster, plan, NULL), 1);
        /* 24 samples of 3 s, and five stages to fill. */
        assert_true(plan->iteration_seconds < 1.1 * (24 + 5) * 3);
        plan_free(plan);
        cluster_free(cluster);
    }
    cost_free(cost);
}

/* Of three nodes of two GPUs one hangs on a wire of a hundredth: it is at an end of the pipeline,
 * where one message crosses it, and not two; and no sum does.
 */
static void a_node_on_a_slow_wire_is_at_an_end_of_the_pipeline(void **state)
{
    static const char text[] =
        "{\"schema\":\"tasuki-topo\",\"version\":1,\"root\":{\"children\":["
        "{\"kind\":\"node\",\"name\":\"a\",\"bandwidth\":%s,\"children\":["
        "{\"kind\":\"device\",\"count\":2,\"id\":\"/gpu#\",\"bandwidth\":1e9}]},"
        "{\"kind\":\"node\",\"name\":\"b\",\"bandwidth\":%s,\"children\":["
        "{\"kind\":\"device\",\"count\":2,\"id\":\"/gpu#\",\"bandwidth\":1e9}]},"
        "{\"kind\":\"node\",\"name\":\"c\",\"bandwidth\":%s,\"children\":["
        "{\"kind\":\"device\",\"count\":2,\"id\":\"/gpu#\",\"bandwidth\":1e9}]}]}}";
    struct cost *cost = even_cost(6, 1e6, 2e8);

    (void)state;
    for (int slow = 0; slow < 3; slow += some_apart(3)) {
        struct plan_request request = { .global_batch = 24 };
        char own[1024];
        struct cluster *cluster;
        struct plan *plan;
        int devices = 0;

        snprintf(own, sizeof(own), text, slow == 0 ? "1e6" : "1e8", slow == 1 ? "1e6" : "1e8",
                 slow == 2 ? "1e6" : "1e8");
        cluster = cluster_from_text(own);
        plan = plan_of(cost, cluster, &request);
        assert_int_equal(plan->pipelines, 1);
        for (int s = 0; s < plan->n_stages; s++) {
            devices += plan->stages[s].replicas;
            for (int i = 1; i < plan->stages[s].replicas; i++)
                assert_int_equal(node_of(cluster, plan->stages[s].devices[i]),
                                 node_of(cluster, plan->stages[s].devices[0]));
        }
        assert_int_equal(devices, 6);
        assert_int_equal(crossings(cluster, plan, slow == 0 ? "a" : slow == 1 ? "b" : "c"), 1);
        plan_free(plan);
        cluster_free(cluster);
    }
    cost_free(cost);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_device_gets_more_blocks),
        cmocka_unit_test(the_faster_replica_gets_the_larger_share),
        cmocka_unit_test(devices_of_one_kind_are_planned_by_its_costs_alone),
        cmocka_unit_test(many_devices_get_work_as_they_are_fast),
        cmocka_unit_test(costs_of_other_networks_are_refused),
        cmocka_unit_test(of_bytes_the_larger_count),
        cmocka_unit_test(of_steps_the_larger_layout_counts),
        cmocka_unit_test(a_kind_that_takes_no_time_is_planned),
        cmocka_unit_test(shares_are_even_where_replicas_compute_as_long),
        cmocka_unit_test(too_many_kinds_are_one_clear_error),
        cmocka_unit_test(nodes_of_unequal_size_are_all_used),
        cmocka_unit_test(a_node_on_a_slow_wire_is_at_an_end_of_the_pipeline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
