/* SPDX-License-Identifier: MIT */
#include "train/plan_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/blocks.h"

static struct graph *build(const struct planning *planning, bool fuse, struct err *err)
{
    struct model_options options = planning->model_options;
    int64_t group = planning->request.batchnorm_samples;

    options.fuse = fuse && options.fuse;
    options.batch = group ? group : 1;
    options.batchnorm_samples = group;
    return model_build(planning->model, &options, err);
}

/* Names of nodes, sorted. */
struct named {
    const char *name;
    int block;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static struct named *sort_names(const struct graph *graph)
{
    struct named *names = mem_new((size_t)graph->n_nodes, sizeof(*names));

    for (int n = 0; n < graph->n_nodes; n++)
        names[n] = (struct named){ graph->nodes[n].name, graph->nodes[n].block };
    qsort(names, (size_t)graph->n_nodes, sizeof(*names), by_name);
    return names;
}

/* The last node of a pattern stands for all of it: what is gone is in the block of its readers. */
static int block_of(const struct graph *plain, int node, const int *block)
{
    for (int k = 0; k < plain->nodes[node].n_outputs; k++) {
        int v = plain->nodes[node].outputs[k];

        for (int i = 0; v >= 0 && i < plain->values[v].n_consumers; i++)
            if (block[plain->values[v].consumers[i]] >= 0)
                return block[plain->values[v].consumers[i]];
    }
    return -1;
}

static void fill(struct plan_names *names)
{
    const struct graph *plain = names->plain;
    struct named *fused = sort_names(names->fused);
    int *block = mem_new((size_t)plain->n_nodes, sizeof(*block));

    names->items = mem_new((size_t)plain->n_nodes, sizeof(*names->items));
    for (int n = plain->n_nodes - 1; n >= 0; n--) {
        struct named wanted = { plain->nodes[n].name, -1 };
        const struct named *found = bsearch(&wanted, fused, (size_t)names->fused->n_nodes,
                                            sizeof(*fused), by_name);

        block[n] = found ? found->block : block_of(plain, n, block);
        if (block[n] >= 0)
            names->items[names->n++] =
                (struct plan_node){ plain->nodes[n].name, names->blocks->items[block[n]].name };
    }
    free(block);
    free(fused);
}

struct plan_names *plan_names_new(const struct planning *planning, struct err *err)
{
    struct plan_names *names = mem_new(1, sizeof(*names));

    names->plain = build(planning, false, err);
    names->fused = names->plain ? build(planning, true, err) : NULL;
    names->blocks = names->fused ? blocks_new(names->fused, err) : NULL;
    if (!names->blocks) {
        plan_names_free(names);
        return NULL;
    }
    fill(names);
    return names;
}

void plan_names_free(struct plan_names *names)
{
    if (!names)
        return;
    blocks_free(names->blocks);
    graph_free(names->plain);
    graph_free(names->fused);
    free(names->items);
    free(names);
}
