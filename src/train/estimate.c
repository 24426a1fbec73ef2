/* SPDX-License-Identifier: MIT */
#include "train/estimate.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/blocks.h"

/* One batch size: the graph with every block a stage of its own. */
struct size {
    struct graph *graph;
    struct blocks *blocks;
    struct autodiff autodiff;
    double *seconds;
};

static int size_fill(struct size *s, struct block_timing *timing, struct model *model,
                     const struct model_options *options, int64_t batch,
                     const struct cluster_device *device, struct err *err)
{
    struct model_options m = *options;
    int *stage;

    m.batch = batch;
    s->graph = model_build(model, &m, err);
    if (!s->graph)
        return -1;
    s->blocks = blocks_new(s->graph, err);
    if (!s->blocks)
        return -1;
    stage = arena_alloc(s->graph->arena, (size_t)s->graph->n_nodes, sizeof(*stage));
    for (int n = 0; n < s->graph->n_nodes; n++)
        stage[n] = s->graph->nodes[n].block;
    if (autodiff(s->graph, stage, s->blocks->n, &s->autodiff, &stage, err))
        return -1;
    s->seconds = mem_new((size_t)s->graph->n_nodes, sizeof(*s->seconds));
    blocks_roofline(s->graph, device->flops, device->memory_bandwidth, s->seconds);
    *timing = (struct block_timing){ s->graph, &s->autodiff, stage, s->seconds };
    return 0;
}

struct cost *estimate_cost(struct model *model, const struct model_options *options,
                           int n_sizes, const int64_t *sizes,
                           const struct cluster_device *device, int optimizer_states,
                           struct err *err)
{
    struct size *all = mem_new((size_t)n_sizes, sizeof(*all));
    struct block_timing *timings = mem_new((size_t)n_sizes, sizeof(*timings));
    /* An update reads parameter, gradient and state and writes all but the gradient. */
    double step = device->memory_bandwidth > 0
                      ? (3 + 2 * optimizer_states) / device->memory_bandwidth : 0;
    struct cost *cost = NULL;
    int made = 0;

    while (made < n_sizes &&
           size_fill(&all[made], &timings[made], model, options, sizes[made], device, err) == 0)
        made++;
    if (made == n_sizes)
        cost = blocks_cost(all[0].blocks, n_sizes, timings, step, optimizer_states,
                           device->kind, err);
    for (int i = 0; i < n_sizes; i++) {
        blocks_free(all[i].blocks);
        free(all[i].seconds);
        graph_free(all[i].graph);
    }
    free(timings);
    free(all);
    return cost;
}
