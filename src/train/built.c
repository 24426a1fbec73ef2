/* SPDX-License-Identifier: MIT */
#include "train/built.h"

#include <stdlib.h>

#include "base/mem.h"

struct built {
    struct model *model;
    struct model_options options;
    int n;
    struct graph **graphs;
};

struct built *built_new(struct model *model, const struct model_options *options)
{
    struct built *built = mem_new(1, sizeof(*built));

    built->model = model;
    built->options = *options;
    return built;
}

void built_free(struct built *built)
{
    if (!built)
        return;
    for (int i = 0; i < built->n; i++)
        graph_free(built->graphs[i]);
    free(built->graphs);
    free(built);
}

const struct graph *built_graph(struct built *built, int64_t batch, int64_t batchnorm_samples,
                                struct err *err)
{
    struct model_options options = built->options;
    struct graph *graph;

    for (int i = 0; i < built->n; i++)
        if (built->graphs[i]->batch == batch &&
            built->graphs[i]->batchnorm_samples == batchnorm_samples)
            return built->graphs[i];
    options.batch = batch;
    options.batchnorm_samples = batchnorm_samples;
    graph = model_build(built->model, &options, err);
    if (graph)
        *(struct graph **)mem_push((void **)&built->graphs, &built->n, sizeof(graph)) = graph;
    return graph;
}
