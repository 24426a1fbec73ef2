/* SPDX-License-Identifier: MIT */
#include "train/built.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/blocks.h"

struct built {
    struct model *model;
    struct model_options options;
    int n, n_cut;
    struct graph **graphs;
    size_t cut_bytes;
    char *cut;                      /* which blocks are in which stage of 'cut_graphs' */
    struct differentiated **cut_graphs;
};

struct built *built_new(struct model *model, const struct model_options *options)
{
    struct built *built = mem_new(1, sizeof(*built));

    built->model = model;
    built->options = *options;
    return built;
}

static void clear_cut(struct built *built)
{
    for (int i = 0; i < built->n_cut; i++) {
        graph_free(built->cut_graphs[i]->graph);
        free(built->cut_graphs[i]);
    }
    free(built->cut_graphs);
    free(built->cut);
    built->cut_graphs = NULL;
    built->cut = NULL;
    built->n_cut = 0;
}

void built_free(struct built *built)
{
    if (!built)
        return;
    clear_cut(built);
    for (int i = 0; i < built->n; i++)
        graph_free(built->graphs[i]);
    free(built->graphs);
    free(built);
}

static bool is_for(const struct graph *graph, int64_t batch, int64_t batchnorm_samples)
{
    return graph->batch == batch && graph->batchnorm_samples == batchnorm_samples;
}

const struct graph *built_graph(struct built *built, int64_t batch, int64_t batchnorm_samples,
                                struct err *err)
{
    struct model_options options = built->options;
    struct graph *graph;

    for (int i = 0; i < built->n; i++)
        if (is_for(built->graphs[i], batch, batchnorm_samples))
            return built->graphs[i];
    options.batch = batch;
    options.batchnorm_samples = batchnorm_samples;
    graph = model_build(built->model, &options, err);
    if (graph)
        *(struct graph **)mem_push((void **)&built->graphs, &built->n, sizeof(graph)) = graph;
    return graph;
}

/* One stage needs no blocks: a plan for a single device may leave them out. What a device makes of nodes
 * goes by them all the same.
 */
static int *assign_stages(struct graph *graph, const struct plan *plan, struct err *err)
{
    struct err ignored = { 0 };

    if (plan->n_stages == 1)
        blocks_free(blocks_new(graph, &ignored));
    if (plan->n_stages == 1)
        return arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(int));
    return blocks_stages(graph, plan, err);
}

int differentiate(struct differentiated *d, struct graph *graph, const struct model *model,
                  const struct plan *plan, struct err *err)
{
    int *stage;

    d->graph = graph;
    if (graph->loss < 0)
        return err_set(err, "%s: no loss", model_path(model));
    stage = assign_stages(graph, plan, err);
    if (!stage)
        return -1;
    return autodiff(graph, stage, plan->n_stages, &d->autodiff, &d->stage_of, err);
}

/* The names of all blocks, an empty one behind each stage's. */
static char *describe_cut(const struct plan *plan, size_t *bytes)
{
    size_t n = (size_t)plan->n_stages;
    char *text, *end;

    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_blocks; i++)
            n += strlen(plan->stages[s].blocks[i].name) + 1;
    end = text = mem_new(n, 1);
    for (int s = 0; s < plan->n_stages; s++, end++)
        for (int i = 0; i < plan->stages[s].n_blocks; i++)
            end = stpcpy(end, plan->stages[s].blocks[i].name) + 1;
    *bytes = n;
    return text;
}

/* Forget the graphs that are cut otherwise. */
static void set_cut(struct built *built, const struct plan *plan)
{
    size_t bytes;
    char *cut = describe_cut(plan, &bytes);

    if (built->cut && built->cut_bytes == bytes && memcmp(built->cut, cut, bytes) == 0) {
        free(cut);
        return;
    }
    clear_cut(built);
    built->cut = cut;
    built->cut_bytes = bytes;
}

const struct differentiated *built_differentiated(struct built *built, const struct plan *plan,
                                                  int64_t batch, struct err *err)
{
    const struct graph *graph = built_graph(built, batch, plan->batchnorm_samples, err);
    struct differentiated *d;

    if (!graph)
        return NULL;
    set_cut(built, plan);
    for (int i = 0; i < built->n_cut; i++)
        if (is_for(built->cut_graphs[i]->graph, batch, plan->batchnorm_samples))
            return built->cut_graphs[i];
    d = mem_new(1, sizeof(*d));
    if (differentiate(d, graph_copy(graph), built->model, plan, err) < 0) {
        graph_free(d->graph);
        free(d);
        return NULL;
    }
    *(struct differentiated **)mem_push((void **)&built->cut_graphs, &built->n_cut,
                                        sizeof(d)) = d;
    return d;
}
