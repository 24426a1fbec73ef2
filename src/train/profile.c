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

/* The whole step on one device: P, F, then the backward. */
static void reuse_of_program(const struct profile_options *o, const struct program *p,
                             const struct value_layout *layouts, struct reuse *reuse)
{
    const struct program_list *lists[] = { &p->list[PART_PREPARE], &p->list[PART_FORWARD],
                                           &p->backward };
    int *order = mem_new((size_t)p->graph->n_nodes + 1, sizeof(*order)), n = 0;

    for (int l = 0; l < 3; l++)
        for (int i = 0; i < lists[l]->n; i++)
            order[n++] = lists[l]->nodes[i];
    reuse_make(reuse, p->graph, n, order, layouts, reuse_cache(o->threads));
    free(order);
}

static int time_program(const struct profile_options *o, struct program *p, int n_original,
                        struct lowered *lowered, struct err *err)
{
    struct value_layout *layouts = mem_new((size_t)p->n_values, sizeof(*layouts));
    struct reuse reuse;
    int bad = 0;

    for (int v = 0; v < p->n_values; v++)
        layouts[v] = p->values[v].layout;
    reuse_of_program(o, p, layouts, &reuse);
    for (int part = 0; part < PART_COUNT; part++) {
        for (int i = 0; i < p->list[part].n && !bad; i++) {
            int node = p->list[part].nodes[i], of = node;
            struct lowered_entry *e;
            char key[17];
            double seconds;

            if (p->graph->nodes[node].op->flags & OP_VIEW)
                continue;
            seconds = timings_node(o->timings, p->graph, node, layouts, &reuse, err);
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
    reuse_clear(&reuse);
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
    struct reuse reuse;
    struct autodiff autodiff;
    struct blocks *blocks;
    int *stage_of;
    double *seconds;
};

static void reuse_of_graph(const struct profile_options *o, const struct graph *graph,
                           struct reuse *reuse)
{
    int *order = mem_new((size_t)graph->n_nodes + 1, sizeof(*order));

    for (int n = 0; n < graph->n_nodes; n++)
        order[n] = n;
    reuse_make(reuse, graph, graph->n_nodes, order, NULL, reuse_cache(o->threads));
    free(order);
}

static int time_nodes(const struct profile_options *o, struct size *s, struct lowered *lowered,
                      struct err *err)
{
    reuse_of_graph(o, s->graph, &s->reuse);
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
            s->seconds[n] = timings_node(o->timings, s->graph, n, NULL, &s->reuse, err);
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

static void clear_sizes(struct size *sizes, int n)
{
    for (int i = 0; i < n; i++) {
        free(sizes[i].seconds);
        reuse_clear(&sizes[i].reuse);
        blocks_free(sizes[i].blocks);
        graph_free(sizes[i].graph);
        sizes[i] = (struct size){ 0 };
    }
}

/* One round over all sizes and the optimizer. */
static int profile_sizes(const struct profile_options *o, struct size *sizes, double *step,
                         struct err *err)
{
    for (int i = 0; i < o->n_sizes; i++)
        if (profile_size(o, o->sizes[i], &sizes[i], err) < 0)
            return -1;
    *step = timings_update(o->timings, &o->optimizer, sizes[o->n_sizes - 1].reuse.ring, err);
    return *step < 0 ? -1 : 0;
}

static struct cost *cost_of(const struct profile_options *o, const struct size *sizes,
                            double step, struct err *err)
{
    struct block_timing *timings = mem_new((size_t)o->n_sizes, sizeof(*timings));
    struct cost *cost;

    for (int i = 0; i < o->n_sizes; i++)
        timings[i] = (struct block_timing){ sizes[i].graph, &sizes[i].autodiff,
                                            sizes[i].stage_of, sizes[i].seconds };
    cost = blocks_cost(sizes[0].blocks, o->n_sizes, timings, step,
                       optimizer_states(o->optimizer.kind), o->backend->device_name(o->device),
                       err);
    free(timings);
    return cost;
}

struct cost *profile_cost(const struct profile_options *options, struct err *err)
{
    const struct profile_options *o = options;
    struct size *sizes = mem_new((size_t)o->n_sizes, sizeof(*sizes));
    struct cost *cost = NULL;
    double step = 0;
    int bad;

    do {
        clear_sizes(sizes, o->n_sizes);
        bad = profile_sizes(o, sizes, &step, err);
    } while (!bad && timings_round(o->timings));
    if (!bad)
        cost = cost_of(o, sizes, step, err);
    clear_sizes(sizes, o->n_sizes);
    free(sizes);
    return cost;
}
