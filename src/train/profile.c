/* SPDX-License-Identifier: MIT */
#include "train/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/blocks.h"
#include "train/optimizer.h"

/* How long a kind of node takes inside a lowered program: with the layouts that the backend
 * chose there, and the reorders that these cost.
 */
struct lowered {
    int n;
    struct lowered_entry {
        char key[17];
        double sum;
        int count;
    } *items;
};

static struct lowered_entry *find_entry(struct lowered *l, const char *key, bool make)
{
    struct lowered_entry *e;

    for (int i = 0; i < l->n; i++)
        if (strcmp(l->items[i].key, key) == 0)
            return &l->items[i];
    if (!make)
        return NULL;
    e = mem_push((void **)&l->items, &l->n, sizeof(*e));
    memcpy(e->key, key, sizeof(e->key));
    return e;
}

static int first_reader(const struct graph *graph, int value, int n_nodes)
{
    for (int n = 0; n < n_nodes; n++)
        for (int k = 0; k < graph->nodes[n].n_inputs; k++)
            if (graph->nodes[n].inputs[k] == value)
                return n;
    return -1;
}

/* Where the time of a node that lowering added belongs: to what reads it, else to what made
 * its input.
 */
static int answers_for(const struct graph *graph, int node, int n_original)
{
    const struct node *n = &graph->nodes[node];
    int reader = n->n_outputs > 0 ? first_reader(graph, n->outputs[0], n_original) : -1;

    if (reader >= 0)
        return reader;
    reader = n->n_inputs > 0 && n->inputs[0] >= 0 ? graph->values[n->inputs[0]].producer : -1;
    return reader >= 0 && reader < n_original ? reader : -1;
}

static int time_program(const struct profile_options *o, struct program *p, int n_original,
                        struct lowered *lowered, struct err *err)
{
    struct value_layout *layouts = mem_new((size_t)p->n_values, sizeof(*layouts));
    int bad = 0;

    for (int v = 0; v < p->n_values; v++)
        layouts[v] = p->values[v].layout;
    for (int part = 0; part < PART_COUNT; part++) {
        for (int i = 0; i < p->list[part].n && !bad; i++) {
            int node = p->list[part].nodes[i], of = node;
            struct lowered_entry *e;
            char key[17];
            double seconds;

            if (p->graph->nodes[node].op->flags & OP_VIEW)
                continue;
            seconds = timings_node(o->timings, p->graph, node, layouts, NULL, err);
            if (seconds < 0)
                bad = -1;
            if (node >= n_original)
                of = answers_for(p->graph, node, n_original);
            if (bad || of < 0)
                continue;
            timings_key(p->graph, of, key);
            e = find_entry(lowered, key, true);
            e->sum += seconds;
            e->count += of == node;
        }
    }
    free(layouts);
    return bad;
}

static int time_lowered(const struct profile_options *o, const struct model_options *options,
                        struct lowered *lowered, struct err *err)
{
    struct graph *graph;
    struct program *program = NULL;
    struct autodiff ad;
    int *stages, bad = -1, n_original;

    if (!o->backend->lower)
        return 0;
    graph = model_build(o->model, options, err);
    if (!graph)
        return -1;
    stages = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(int));
    if (autodiff(graph, stages, 1, &ad, &stages, err) == 0)
        program = program_new(graph, &ad, stages, 0, 1, err);
    n_original = graph->n_nodes;
    if (program && o->backend->lower(o->device, program, err) == 0)
        bad = time_program(o, program, n_original, lowered, err);
    program_free(program);
    graph_free(graph);
    return bad;
}

/* One size: its graph with a stage for each block, and the seconds of its nodes. */
struct size {
    struct graph *graph;
    struct autodiff autodiff;
    struct blocks *blocks;
    int *stage_of;
    double *seconds;
};

static int time_nodes(const struct profile_options *o, struct size *s, struct lowered *lowered,
                      struct err *err)
{
    s->seconds = mem_new((size_t)s->graph->n_nodes, sizeof(double));
    for (int n = 0; n < s->graph->n_nodes; n++) {
        const struct lowered_entry *e;
        char key[17];

        if (s->graph->nodes[n].op->flags & OP_VIEW)
            continue;
        timings_key(s->graph, n, key);
        e = find_entry(lowered, key, false);
        if (e && e->count > 0)
            s->seconds[n] = e->sum / e->count;
        else
            s->seconds[n] = timings_node(o->timings, s->graph, n, NULL, NULL, err);
        if (s->seconds[n] < 0)
            return -1;
    }
    return 0;
}

static int profile_size(const struct profile_options *o, int64_t samples, struct size *s,
                        struct err *err)
{
    struct model_options options = o->model_options;
    struct lowered lowered = { 0 };
    int *stages, bad = -1;

    options.batch = samples;
    s->graph = model_build(o->model, &options, err);
    s->blocks = s->graph ? blocks_new(s->graph, err) : NULL;
    if (!s->blocks)
        return -1;
    stages = arena_alloc(s->graph->arena, (size_t)s->graph->n_nodes, sizeof(int));
    for (int n = 0; n < s->graph->n_nodes; n++)
        stages[n] = s->graph->nodes[n].block;
    if (autodiff(s->graph, stages, s->blocks->n, &s->autodiff, &s->stage_of, err) == 0 &&
        time_lowered(o, &options, &lowered, err) == 0)
        bad = time_nodes(o, s, &lowered, err);
    free(lowered.items);
    return bad;
}

struct cost *profile_cost(const struct profile_options *options, struct err *err)
{
    const struct profile_options *o = options;
    struct size *sizes = mem_new((size_t)o->n_sizes, sizeof(*sizes));
    struct block_timing *timings = mem_new((size_t)o->n_sizes, sizeof(*timings));
    double step = timings_update(o->timings, &o->optimizer, err);
    int bad = step < 0 ? -1 : 0;
    struct cost *cost = NULL;

    for (int i = 0; i < o->n_sizes && !bad; i++) {
        bad = profile_size(o, o->sizes[i], &sizes[i], err);
        timings[i] = (struct block_timing){ sizes[i].graph, &sizes[i].autodiff,
                                            sizes[i].stage_of, sizes[i].seconds };
    }
    if (!bad)
        cost = blocks_cost(sizes[0].blocks, o->n_sizes, timings, step,
                           optimizer_states(o->optimizer.kind),
                           o->backend->device_name(o->device), err);
    for (int i = 0; i < o->n_sizes; i++) {
        free(sizes[i].seconds);
        blocks_free(sizes[i].blocks);
        graph_free(sizes[i].graph);
    }
    free(sizes);
    free(timings);
    return cost;
}
