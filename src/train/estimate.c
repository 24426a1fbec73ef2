/* SPDX-License-Identifier: MIT */
#include "train/estimate.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "graph/program.h"
#include "kernels/backend.h"
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
 * gradient, in long stretches; of 16 bits is a copy, made once a step.
 */
static double step_seconds(const struct estimate *e, const struct cluster_device *device,
                           const struct efficiency *efficiency)
{
    double bytes = 3 + 2 * (e->optimizer_states - e->offloaded);

    if (e->factors >= FACTORS_BF16)
        bytes += 1.5;
    return device->memory_bandwidth > 0
               ? bytes / device->memory_bandwidth /
                     efficiency_share(efficiency, EFFICIENCY_MEMORY, INFINITY)
               : 0;
}

/* Of a graph with its gradients; NULL: plain. */
static size_t *crossing_of(const struct estimate *e, const struct graph *graph,
                           const struct autodiff *gradients)
{
    const struct backend *backend = e->factors == FACTORS_BF16   ? backend_find("cuda-bf16")
                                    : e->factors == FACTORS_FP16 ? backend_find("cuda-fp16")
                                                                 : NULL;

    return backend ? backend->crossing(graph, gradients) : NULL;
}

static struct roofline roofline_of(const struct estimate *e, const struct cluster_device *device,
                                   const struct efficiency *efficiency)
{
    bool narrow = e->factors >= FACTORS_BF16;

    return (struct roofline){
        .flops = device->flops, .memory_bandwidth = device->memory_bandwidth,
        .narrow_flops = narrow ? cluster_product_flops(device, e->factors) : 0,
        .wide_flops = e->factors == FACTORS_FLOAT32 ? 0 : cluster_product_flops(device, FACTORS_TF32),
        .is_narrow = narrow ? backend_narrows : NULL, .efficiency = efficiency,
    };
}

static bool is_known(const struct cluster_device *device, enum cluster_factors factors)
{
    return factors == FACTORS_FLOAT32 ? device->flops > 0 || device->memory_bandwidth > 0
                                      : device->product_flops[factors] > 0;
}

static int check_known(const struct estimate *e, const struct cluster_device *device, struct err *err)
{
    if (is_known(device, e->factors))
        return 0;
    if (e->factors == FACTORS_FLOAT32)
        return err_set(err, "%s: nothing says how fast its devices are", e->cluster->name);
    err_set(err, "%s: nothing says how fast its devices%s%s are in %s", e->cluster->name,
            *device->kind ? " " : "", device->kind, cluster_factors_names[e->factors]);
    return err_hint(err, "a device of a topology file has \"%s\", flat: and tree: take flops-%s; or give "
                    "costs by --cost FILE", cluster_factors_keys[e->factors],
                    cluster_factors_names[e->factors]);
}

/* What is offloaded comes and goes meanwhile, each way at once. */
struct cost *estimate_cost(const struct estimate *estimate, const struct cluster_device *device,
                           struct err *err)
{
    const struct estimate *e = estimate;
    const struct efficiency *efficiency = cluster_efficiency(e->cluster, device, e->factors);
    const struct roofline roofline = roofline_of(e, device, efficiency);
    struct block_timing *timings = mem_new((size_t)e->n_sizes, sizeof(*timings));
    double step = dmax(step_seconds(e, device, efficiency),
                       e->offloaded / cluster_host_bandwidth(e->cluster, device));
    struct graph *graph = graph_copy(e->graph);
    struct blocks *blocks = check_known(e, device, err) ? NULL : blocks_new(graph, err);
    struct autodiff gradients;
    const int *stage = blocks ? differentiate(graph, blocks, &gradients, err) : NULL;
    struct cost *cost = NULL;
    struct graph *whole = e->steps ? graph_copy(e->graph) : NULL;
    struct autodiff uncut;
    struct program *program = whole ? blocks_whole(whole, &uncut, err) : NULL;
    bool bad = !stage || (e->steps && !program);
    size_t *crossing = bad ? NULL : crossing_of(e, graph, &gradients);

    for (int i = 0; i < e->n_sizes && !bad; i++) {
        double *seconds = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*seconds));

        blocks_roofline(graph, e->sizes[i], &roofline, seconds);
        timings[i] = (struct block_timing){ e->sizes[i], graph, &gradients, stage, seconds, NULL, NULL,
                                            NULL, program, NULL, crossing };
    }
    if (!bad)
        cost = blocks_cost(blocks, e->n_sizes, timings, step, e->optimizer_states, device->kind, err);
    free(crossing);
    program_free(program);
    graph_free(whole);
    blocks_free(blocks);
    graph_free(graph);
    free(timings);
    return cost;
}

bool estimate_knows(const struct cluster *cluster, const char *kind)
{
    return is_known(cluster_slowest_of(cluster, kind), FACTORS_FLOAT32);
}

/* Those whose speed is known, in float32; of more than costs have room for, that of the slowest. */
static const char **known_kinds(const struct estimate *e, int *n)
{
    int all;
    const char **kinds = cluster_kinds(e->cluster, &all);

    *n = 0;
    for (int k = 0; k < all && all <= COST_MOST_KINDS; k++)
        if (e->factors != FACTORS_FLOAT32 || estimate_knows(e->cluster, kinds[k]))
            kinds[(*n)++] = kinds[k];
    if (*n == 0)
        kinds[(*n)++] = cluster_slowest(e->cluster)->kind;
    return kinds;
}

struct cost *estimate_kinds(const struct estimate *estimate, struct err *err)
{
    struct cost *joined = NULL;
    int n;
    const char **kinds = known_kinds(estimate, &n);

    for (int k = 0; k < n; k++) {
        const struct cluster_device *device = cluster_slowest_of(estimate->cluster, kinds[k]);
        struct cost *cost = estimate_cost(estimate, device, err);

        if (!cost)
            cost_free(joined);
        joined = !cost || !joined ? cost : cost_join(joined, cost, err);
        if (!joined)
            break;
    }
    free(kinds);
    return joined;
}
