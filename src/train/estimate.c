/* SPDX-License-Identifier: MIT */
#include "train/estimate.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "graph/program.h"
#include "scheduler/blocks.h"

/* The stages of all nodes, with every block a stage of its own. */
static int *differentiate(struct graph *graph, const struct blocks *blocks,
                          struct autodiff *result, struct err *err)
{
    int *stage = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*stage));

    for (int n = 0; n < graph->n_nodes; n++)
        stage[n] = graph->nodes[n].block;
    return autodiff(graph, stage, blocks->n, result, &stage, err) ? NULL : stage;
}

/* Of a byte of parameters: an update reads parameter, gradient and state and writes all but the
 * gradient, in long stretches.
 */
static double step_seconds(const struct cluster_device *device, const struct efficiency *efficiency,
                           int states)
{
    return device->memory_bandwidth > 0
               ? (3 + 2 * states) / device->memory_bandwidth /
                     efficiency_share(efficiency, EFFICIENCY_MEMORY, INFINITY)
               : 0;
}

/* What is offloaded comes and goes meanwhile, each way at once. */
struct cost *estimate_cost(const struct graph *built, int n_sizes, const int64_t *sizes,
                           const struct cluster *cluster, const struct cluster_device *device,
                           int optimizer_states, int offloaded, bool steps, struct err *err)
{
    const struct efficiency *efficiency = cluster_efficiency(cluster, device);
    struct block_timing *timings = mem_new((size_t)n_sizes, sizeof(*timings));
    double step = dmax(step_seconds(device, efficiency, optimizer_states - offloaded),
                       offloaded / cluster_host_bandwidth(cluster, device));
    struct graph *graph = graph_copy(built);
    struct blocks *blocks = blocks_new(graph, err);
    struct autodiff gradients;
    const int *stage = blocks ? differentiate(graph, blocks, &gradients, err) : NULL;
    struct cost *cost = NULL;
    struct graph *whole = steps ? graph_copy(built) : NULL;
    struct autodiff uncut;
    struct program *program = whole ? blocks_whole(whole, &uncut, err) : NULL;
    bool bad = !stage || (steps && !program);

    for (int i = 0; i < n_sizes && !bad; i++) {
        double *seconds = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*seconds));

        blocks_roofline(graph, sizes[i], device->flops, device->memory_bandwidth, efficiency,
                        seconds);
        timings[i] = (struct block_timing){ sizes[i], graph, &gradients, stage, seconds, NULL, NULL,
                                            NULL, program, NULL };
    }
    if (!bad)
        cost = blocks_cost(blocks, n_sizes, timings, step, optimizer_states, device->kind, err);
    program_free(program);
    graph_free(whole);
    blocks_free(blocks);
    graph_free(graph);
    free(timings);
    return cost;
}

bool estimate_knows(const struct cluster *cluster, const char *kind)
{
    const struct cluster_device *device = cluster_slowest_of(cluster, kind);

    return device->flops > 0 || device->memory_bandwidth > 0;
}

/* Those whose speed is known; of more than costs have room for, that of the slowest. */
static const char **known_kinds(const struct cluster *cluster, int *n)
{
    int all;
    const char **kinds = cluster_kinds(cluster, &all);

    *n = 0;
    for (int k = 0; k < all && all <= COST_MOST_KINDS; k++)
        if (estimate_knows(cluster, kinds[k]))
            kinds[(*n)++] = kinds[k];
    if (*n == 0)
        kinds[(*n)++] = cluster_slowest(cluster)->kind;
    return kinds;
}

struct cost *estimate_kinds(const struct graph *built, int n_sizes, const int64_t *sizes,
                            const struct cluster *cluster, int optimizer_states, int offloaded,
                            bool steps, struct err *err)
{
    struct cost *joined = NULL;
    int n;
    const char **kinds = known_kinds(cluster, &n);

    for (int k = 0; k < n; k++) {
        const struct cluster_device *device = cluster_slowest_of(cluster, kinds[k]);
        struct cost *cost = NULL;

        if (device->flops <= 0 && device->memory_bandwidth <= 0)
            err_set(err, "%s: nothing says how fast its devices are", cluster->name);
        else
            cost = estimate_cost(built, n_sizes, sizes, cluster, device, optimizer_states,
                                 offloaded, steps, err);
        if (!cost)
            cost_free(joined);
        joined = !cost || !joined ? cost : cost_join(joined, cost, err);
        if (!joined)
            break;
    }
    free(kinds);
    return joined;
}
