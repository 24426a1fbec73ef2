/* SPDX-License-Identifier: MIT */
/* Random networks as cost files, for tests of the planner and the simulator. */
#ifndef TASUKI_TESTS_PLANNING_H
#define TASUKI_TESTS_PLANNING_H

#include "unit.h"

#include "base/mem.h"
#include "scheduler/cost.h"
#include "scheduler/partition.h"
#include "topology/cluster.h"

static inline struct cluster *open_cluster(const char *spec)
{
    struct err err = { 0 };
    struct cluster *cluster = cluster_open(spec, &err);

    if (!cluster)
        fail_msg("%s", err.text);
    return cluster;
}

static inline unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline double random_in(unsigned *state, double low, double high)
{
    return low + (high - low) * (next_random(state) % 10001) / 10000.0;
}

static inline json_t *random_block(int i, unsigned *seed)
{
    double f = random_in(seed, 1e-3, 10e-3);
    char name[16];
    json_t *block;

    snprintf(name, sizeof(name), "b%d", i);
    /* Two samples cost less than twice one. */
    block = json_pack("{s:s, s:[f,f], s:f, s:f, s:f, s:f, s:f}", "name", name, "forward", f,
                      f * 1.7, "dgrad", random_in(seed, 1e-3, 10e-3), "step",
                      random_in(seed, 0, 1e-3), "parameters", random_in(seed, 1e3, 1e6),
                      "activations", random_in(seed, 1e3, 1e6), "workspace",
                      random_in(seed, 0, 1e4));
    if (next_random(seed) % 4)
        json_object_set_new(block, "wgrad", json_real(random_in(seed, 1e-3, 10e-3)));
    json_object_set_new(block, "variants",
                        json_pack("[{s:s, s:f, s:f}]", "recompute", "selective", "dgrad",
                                  json_real_value(json_object_get(block, "dgrad")) + 0.3 * f,
                                  "activations",
                                  0.6 * json_real_value(json_object_get(block, "activations"))));
    return block;
}

/* A chain with skips: an edge from each block to the next, some further ahead. */
static inline json_t *random_edges(int n, unsigned *seed)
{
    json_t *edges = json_array();

    for (int i = 0; i < n; i++) {
        double bytes = random_in(seed, 1e3, 1e6);

        for (int k = i + 1; k < n; k++) {
            char from[16], to[16];
            json_t *edge;

            if (k > i + 1 && next_random(seed) % 8)
                continue;
            snprintf(from, sizeof(from), "b%d", i);
            snprintf(to, sizeof(to), "b%d", k);
            edge = json_pack("{s:s, s:s, s:s, s:f}", "from", from, "to", to, "value", "h",
                             "bytes", bytes);
            if (next_random(seed) % 6 == 0)
                json_object_set_new(edge, "gradient_bytes", json_integer(0));
            json_array_append_new(edges, edge);
        }
    }
    return edges;
}

static inline struct cost *random_cost(int n, unsigned seed)
{
    json_t *top = json_pack("{s:s, s:i, s:[i,i], s:[], s:o}", "schema", "tasuki-cost",
                            "version", 1, "micro_batch", 1, 2, "blocks", "edges",
                            random_edges(n, &seed));
    struct err err = { 0 };
    struct cost *cost;

    for (int i = 0; i < n; i++)
        json_array_append_new(json_object_get(top, "blocks"), random_block(i, &seed));
    cost = cost_from_json("random", top, &err);
    json_decref(top);
    if (!cost)
        fail_msg("%s", err.text);
    return cost;
}

/* Blocks b0 … of 1 s forward, 1 s dgrad and 1 s wgrad for each sample, 'bytes' between
 * neighbours and 'parameters' each.
 */
static inline struct cost *even_cost(int n, double bytes, double parameters)
{
    json_t *top = json_pack("{s:s, s:i, s:[i], s:[], s:[]}", "schema", "tasuki-cost", "version",
                            1, "micro_batch", 1, "blocks", "edges");
    struct cost *cost;

    for (int i = 0; i < n; i++) {
        char name[16], before[16];

        snprintf(name, sizeof(name), "b%d", i);
        snprintf(before, sizeof(before), "b%d", i - 1);
        json_array_append_new(json_object_get(top, "blocks"),
                              json_pack("{s:s, s:i, s:i, s:i, s:f, s:i}", "name", name,
                                        "forward", 1, "dgrad", 1, "wgrad", 1, "parameters",
                                        parameters, "activations", 100));
        if (i)
            json_array_append_new(json_object_get(top, "edges"),
                                  json_pack("{s:s, s:s, s:s, s:f}", "from", before, "to", name,
                                            "value", "h", "bytes", bytes));
    }
    cost = cost_from_json("even", top, NULL);
    json_decref(top);
    return cost;
}

static inline void scale_list(double *list, int n, double times)
{
    for (int i = 0; i < n && list; i++)
        list[i] *= times;
}

/* The same network on another kind of device, on which each block takes 'low' to 'high' times as
 * long.
 */
static inline struct cost *cost_on(const struct cost *cost, const char *device, double low,
                                   double high, unsigned *seed)
{
    json_t *json = cost_to_json(cost);
    struct cost *copy = cost_from_json(device, json, NULL);

    json_decref(json);
    free(copy->device);
    copy->device = mem_strdup(device);
    for (int b = 0; b < copy->n_blocks; b++) {
        struct cost_block *block = &copy->blocks[b];
        double times = random_in(seed, low, high);

        scale_list(block->forward, copy->n_sizes, times);
        scale_list(block->dgrad, copy->n_sizes, times);
        scale_list(block->wgrad, copy->n_sizes, times);
        scale_list(block->selective_dgrad, copy->n_sizes, times);
        block->step *= times;
    }
    return copy;
}

/* Of each device, by a letter: 'f'ast or 's'low. */
static inline void set_kinds(struct cluster *cluster, const char *kinds)
{
    assert_int_equal(strlen(kinds), cluster->n_devices);
    for (int d = 0; d < cluster->n_devices; d++) {
        free(cluster->devices[d].kind);
        cluster->devices[d].kind = mem_strdup(kinds[d] == 'f' ? "fast" : "slow");
    }
}

#define ROOMY "flat:4,bandwidth=1e9,latency=0,memory=1e30"

/* A plan for even_cost() with messages of a byte and 1000 bytes of parameters each. */
static inline struct plan *plan_for(int blocks, const char *spec,
                                    const struct plan_request *request, struct err *err)
{
    struct cost *cost = even_cost(blocks, 1, 1000);
    struct cluster *cluster = open_cluster(spec);
    struct plan *plan = partition(cost, cluster, request, NULL, err);

    cluster_free(cluster);
    cost_free(cost);
    return plan;
}

#endif
