/* SPDX-License-Identifier: MIT */
#include "train/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/blocks.h"
#include "scheduler/layout.h"
#include "scheduler/memory.h"
#include "train/compile.h"
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

/* Where the time of a node that lowering added belongs: to what reads it, through views, else to what
 * made its input.
 */
static int answers_for(const struct graph *graph, int node, int n_original)
{
    const struct node *n = &graph->nodes[node];
    int reader = n->n_outputs > 0 ? first_reader(graph, n->outputs[0], n_original) : -1;

    while (reader >= 0 && graph->nodes[reader].op->flags & OP_VIEW)
        reader = first_reader(graph, graph->nodes[reader].outputs[0], n_original);
    if (reader >= 0)
        return reader;
    reader = n->n_inputs > 0 && n->inputs[0] >= 0 ? graph->values[n->inputs[0]].producer : -1;
    return reader >= 0 && reader < n_original ? reader : -1;
}

/* Where each value is, with one arena behind the other. */
static size_t *places_of(const struct program *p)
{
    size_t *places = mem_new((size_t)p->n_values, sizeof(*places)), end;
    const size_t base[] = {
        [PLACE_PARAM] = 0,
        [PLACE_GRADIENT] = p->param_bytes,
        [PLACE_PREPARED] = p->param_bytes + p->gradient_bytes,
        [PLACE_SLOT] = p->param_bytes + p->gradient_bytes + p->prepared_bytes,
        [PLACE_SCRATCH] = p->param_bytes + p->gradient_bytes + p->prepared_bytes + p->slot_bytes,
    };

    end = base[PLACE_SCRATCH] + p->scratch_bytes;
    for (int v = 0; v < p->n_values; v++) {
        const struct program_value *at = &p->values[v];

        places[v] = at->place == PLACE_NONE ? end : base[at->place] + at->offset;
        end += at->place == PLACE_NONE ? layout_aligned(at->layout.bytes) : 0;
    }
    return places;
}

/* What a device's caches hold between two kernels; of the host so many cores'. */
static size_t near_bytes(const struct profile_options *o)
{
    return o->backend->cache ? o->backend->cache(o->device) : reuse_cache(o->threads);
}

/* The whole step on one device: P, F, then the backward. */
static void reuse_of_program(const struct profile_options *o, struct program *p,
                             const struct value_layout *layouts, struct reuse *reuse)
{
    const struct program_list *lists[] = { &p->list[PART_PREPARE], &p->list[PART_FORWARD],
                                           &p->backward };
    int *order = mem_new((size_t)p->graph->n_nodes + 1, sizeof(*order)), n = 0;
    size_t *places;

    for (int l = 0; l < 3; l++)
        for (int i = 0; i < lists[l]->n; i++)
            order[n++] = lists[l]->nodes[i];
    memory_place(p, BACKWARD_MERGED, 1, 0);
    places = places_of(p);
    reuse_make(reuse, p->graph, n, order, layouts, places, near_bytes(o));
    free(places);
    free(order);
}

/* The step as the backend lowers it, in one stage on one device. */
struct whole {
    struct graph *graph;
    int n_original;             /* nodes before lowering */
    char (*keys)[17];           /* of these, as they were; "": a view */
    bool *ran;                  /* of these, before lowering */
    struct autodiff autodiff;
    struct program *program;
    struct value_layout *layouts;
    struct reuse reuse;
};

static bool *runs_of(const struct program *p, int n_nodes)
{
    bool *runs = mem_new((size_t)n_nodes + 1, sizeof(*runs));

    for (int part = 0; part < PART_COUNT; part++)
        for (int i = 0; i < p->list[part].n; i++)
            if (p->list[part].nodes[i] < n_nodes)
                runs[p->list[part].nodes[i]] = true;
    return runs;
}

static int open_whole(const struct profile_options *o, const struct model_options *options,
                      struct whole *w, struct err *err)
{
    w->graph = model_build(o->model, options, err);
    w->program = w->graph ? blocks_whole(w->graph, &w->autodiff, err) : NULL;
    if (!w->program)
        return -1;
    w->n_original = w->graph->n_nodes;
    w->ran = runs_of(w->program, w->n_original);
    /* Lowering may give a node more to read. */
    w->keys = mem_new((size_t)w->n_original + 1, sizeof(*w->keys));
    for (int n = 0; n < w->n_original; n++)
        if (!(w->graph->nodes[n].op->flags & OP_VIEW))
            timings_key(w->graph, n, w->keys[n]);
    if (o->backend->lower && o->backend->lower(o->device, w->program, err) < 0)
        return -1;
    w->layouts = mem_new((size_t)w->program->n_values, sizeof(*w->layouts));
    for (int v = 0; v < w->program->n_values; v++)
        w->layouts[v] = w->program->values[v].layout;
    reuse_of_program(o, w->program, w->layouts, &w->reuse);
    return 0;
}

static void close_whole(struct whole *w)
{
    reuse_clear(&w->reuse);
    free(w->layouts);
    free(w->keys);
    free(w->ran);
    program_free(w->program);
    graph_free(w->graph);
}

static int time_lowered(const struct profile_options *o, const struct whole *w, int node,
                        struct lowered *lowered, struct err *err)
{
    double seconds = timings_node(o->timings, w->graph, node, w->layouts, &w->reuse, err);
    int of = node < w->n_original ? node : answers_for(w->graph, node, w->n_original);
    struct lowered_entry *e;

    if (seconds < 0)
        return -1;
    if (of < 0)
        return 0;
    e = find_entry(lowered, w->keys[of], true);
    e->sum += seconds;
    e->count += of == node;
    return 0;
}

/* What lowering made a view takes no time, nor does what is part of another node now. */
static void note_nothing(const struct whole *w, int node, struct lowered *lowered)
{
    if (node < w->n_original && *w->keys[node])
        find_entry(lowered, w->keys[node], true)->count++;
}

static void note_gone(const struct whole *w, struct lowered *lowered)
{
    bool *runs = runs_of(w->program, w->n_original);

    for (int n = 0; n < w->n_original; n++)
        if (w->ran[n] && !runs[n])
            note_nothing(w, n, lowered);
    free(runs);
}

static bool is_preparation(const struct whole *w, int node)
{
    return node >= w->n_original && w->graph->nodes[node].part == PART_PREPARE;
}

static int time_whole(const struct profile_options *o, const struct whole *w,
                      struct lowered *lowered, struct err *err)
{
    for (int part = 0; part < PART_COUNT; part++) {
        const struct program_list *list = &w->program->list[part];

        for (int i = 0; i < list->n; i++) {
            int node = list->nodes[i];

            if (w->graph->nodes[node].op->flags & OP_VIEW)
                note_nothing(w, node, lowered);
            else if (!is_preparation(w, node) && time_lowered(o, w, node, lowered, err) < 0)
                return -1;
        }
    }
    note_gone(w, lowered);
    return 0;
}

/* One size: its graph with a stage for each block, and the seconds of its nodes. */
struct size {
    struct graph *graph;
    struct whole whole;
    struct reuse reuse;
    struct autodiff autodiff;
    struct blocks *blocks;
    int *stage_of;
    double *seconds;
    double *kernels;            /* bytes that these ask for, by block */
    double *preparing;          /* seconds of what lowering put into P, by block */
    size_t *crossing;           /* bytes of values where they are sent; NULL: plain */
};

static void reuse_of_graph(const struct profile_options *o, const struct graph *graph,
                           struct reuse *reuse)
{
    int *order = mem_new((size_t)graph->n_nodes + 1, sizeof(*order));

    for (int n = 0; n < graph->n_nodes; n++)
        order[n] = n;
    reuse_make(reuse, graph, graph->n_nodes, order, NULL, NULL, near_bytes(o));
    free(order);
}

/* Sums of what several blocks contribute are made where the cuts put them: see stage_layout.h. */
static bool is_parameter_sum(const struct graph *graph, int node)
{
    return strcmp(graph->nodes[node].op->name, "AddN") == 0 &&
           graph->nodes[node].part == PART_WGRAD;
}

/* What its kernels ask for, the largest of them, and the divisor of the loss. */
static int find_kernels(const struct profile_options *o, const struct whole *w,
                        const struct program_list *list, int n_blocks, double *most,
                        struct err *err)
{
    for (int i = 0; i < list->n; i++) {
        int node = list->nodes[i], block = w->graph->nodes[node].block;
        struct kernel *kernel;
        double bytes;

        if ((w->graph->nodes[node].op->flags & OP_VIEW) || block < 0 || block >= n_blocks ||
            !o->backend->supports(o->device, w->graph, node))
            continue;
        kernel = o->backend->kernel_new(o->device, w->graph, node, w->layouts, err);
        if (!kernel)
            return -1;
        bytes = (double)layout_aligned(o->backend->kernel_workspace(kernel)) + MEMORY_SCALARS;
        if (!o->backend->kernel_accumulates(kernel) && !is_parameter_sum(w->graph, node))
            bytes += (double)compile_gradient_bytes(w->program, node);
        o->backend->kernel_free(kernel);
        most[block] = bytes > most[block] ? bytes : most[block];
    }
    return 0;
}

static int find_all_kernels(const struct profile_options *o, struct size *s, struct err *err)
{
    int bad = 0;

    s->kernels = mem_new((size_t)s->blocks->n, sizeof(double));
    for (int part = 0; part < PART_COUNT && !bad; part++)
        bad = find_kernels(o, &s->whole, &s->whole.program->list[part], s->blocks->n, s->kernels,
                           err);
    return bad;
}

static int open_size(const struct profile_options *o, int64_t samples, struct size *s,
                     struct err *err)
{
    struct model_options options = o->model_options;
    int *stages;

    options.batch = samples;
    s->graph = model_build(o->model, &options, err);
    s->blocks = s->graph ? blocks_new(s->graph, err) : NULL;
    if (!s->blocks)
        return -1;
    stages = arena_alloc(s->graph->arena, (size_t)s->graph->n_nodes, sizeof(int));
    for (int n = 0; n < s->graph->n_nodes; n++)
        stages[n] = s->graph->nodes[n].block;
    if (autodiff(s->graph, stages, s->blocks->n, &s->autodiff, &s->stage_of, err) < 0)
        return -1;
    s->crossing = o->backend->crossing ? o->backend->crossing(s->graph, &s->autodiff) : NULL;
    reuse_of_graph(o, s->graph, &s->reuse);
    s->seconds = mem_new((size_t)s->graph->n_nodes, sizeof(double));
    s->preparing = mem_new((size_t)s->blocks->n, sizeof(double));
    if (open_whole(o, &options, &s->whole, err) < 0)
        return -1;
    return find_all_kernels(o, s, err);
}

static int time_nodes(const struct profile_options *o, struct size *s, struct lowered *lowered,
                      struct err *err)
{
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

/* The block for which a value is prepared of a parameter or constant: of several that read that the
 * first. -1: none does.
 */
static int prepared_for(const struct size *s, int value)
{
    const struct graph *whole = s->whole.graph;

    while (whole->values[value].producer >= 0)
        value = whole->nodes[whole->values[value].producer].inputs[0];
    if (value >= s->graph->n_values || s->graph->values[value].n_consumers == 0)
        return -1;
    return s->stage_of[s->graph->values[value].consumers[0]];
}

/* Bytes that the backend makes of parameters once per step, and of constants, by block. */
static void find_prepared(const struct size *s, double *prepared)
{
    const struct program *p = s->whole.program;

    for (int v = 0; v < p->n_values; v++) {
        int block;

        if (p->values[v].place != PLACE_PREPARED || p->values[v].root != v)
            continue;
        block = prepared_for(s, v);
        if (block >= 0)
            prepared[block] += (double)layout_aligned(p->values[v].layout.bytes);
    }
}

static int time_preparing(const struct profile_options *o, struct size *s, struct err *err)
{
    const struct program_list *list = &s->whole.program->list[PART_PREPARE];

    memset(s->preparing, 0, (size_t)s->blocks->n * sizeof(*s->preparing));
    for (int i = 0; i < list->n; i++) {
        int node = list->nodes[i], block;
        double seconds;

        if (!is_preparation(&s->whole, node))
            continue;
        seconds = timings_node(o->timings, s->whole.graph, node, s->whole.layouts,
                               &s->whole.reuse, err);
        if (seconds < 0)
            return -1;
        block = prepared_for(s, s->whole.graph->nodes[node].outputs[0]);
        if (block >= 0)
            s->preparing[block] += seconds;
    }
    return 0;
}

static int time_size(const struct profile_options *o, struct size *s, struct err *err)
{
    struct lowered lowered = { 0 };
    int bad = time_whole(o, &s->whole, &lowered, err);

    if (!bad)
        bad = time_nodes(o, s, &lowered, err);
    if (!bad)
        bad = time_preparing(o, s, err);
    free(lowered.items);
    return bad;
}

/* The most at any size: some constants follow the samples, some weights are laid out by them. */
static double *most_prepared(const struct profile_options *o, const struct size *sizes)
{
    size_t n = (size_t)sizes[0].blocks->n;
    double *most = mem_new(n, sizeof(*most)), *at = mem_new(n, sizeof(*at));

    for (int i = 0; i < o->n_sizes; i++) {
        memset(at, 0, n * sizeof(*at));
        find_prepared(&sizes[i], at);
        for (size_t b = 0; b < n; b++)
            most[b] = at[b] > most[b] ? at[b] : most[b];
    }
    free(at);
    return most;
}

static void clear_sizes(struct size *sizes, int n)
{
    for (int i = 0; i < n; i++) {
        free(sizes[i].seconds);
        free(sizes[i].kernels);
        free(sizes[i].preparing);
        free(sizes[i].crossing);
        close_whole(&sizes[i].whole);
        reuse_clear(&sizes[i].reuse);
        blocks_free(sizes[i].blocks);
        graph_free(sizes[i].graph);
    }
}

/* One round over all sizes and the optimizer. */
static int profile_sizes(const struct profile_options *o, struct size *sizes, double *step,
                         struct err *err)
{
    for (int i = 0; i < o->n_sizes; i++)
        if (time_size(o, &sizes[i], err) < 0)
            return -1;
    *step = timings_update(o->timings, &o->optimizer, o->offload, &sizes[o->n_sizes - 1].reuse, err);
    return *step < 0 ? -1 : 0;
}

/* By what was measured so far. */
static void find_paces(const struct profile_options *o, struct size *sizes)
{
    for (int i = 0; i < o->n_sizes; i++) {
        double seconds = 0;

        for (int n = 0; n < sizes[i].graph->n_nodes; n++)
            seconds += sizes[i].seconds[n];
        sizes[i].reuse.pace = seconds / fmax(1, sizes[i].reuse.held);
        sizes[i].whole.reuse.pace = seconds / fmax(1, sizes[i].whole.reuse.held);
    }
}

static struct cost *cost_of(const struct profile_options *o, const struct size *sizes,
                            double step, struct err *err)
{
    struct block_timing *timings = mem_new((size_t)o->n_sizes, sizeof(*timings));
    double *prepared = most_prepared(o, sizes);
    struct cost *cost;

    for (int i = 0; i < o->n_sizes; i++)
        timings[i] = (struct block_timing){ o->sizes[i], sizes[i].graph, &sizes[i].autodiff,
                                            sizes[i].stage_of, sizes[i].seconds, prepared,
                                            sizes[i].whole.program, sizes[i].kernels,
                                            o->steps ? sizes[i].whole.program : NULL,
                                            sizes[i].preparing, sizes[i].crossing };
    cost = blocks_cost(sizes[0].blocks, o->n_sizes, timings, step,
                       optimizer_states(o->optimizer.kind), o->backend->device_name(o->device),
                       err);
    free(prepared);
    free(timings);
    return cost;
}

/* 'sizes' are the caller's to clear. */
static int measure_sizes(const struct profile_options *o, struct size *sizes, double *step,
                         struct err *err)
{
    int bad = 0;

    for (int i = 0; i < o->n_sizes && !bad; i++)
        bad = open_size(o, o->sizes[i], &sizes[i], err);
    do {
        bad = bad ? bad : profile_sizes(o, sizes, step, err);
        if (!bad)
            find_paces(o, sizes);
    } while (!bad && timings_round(o->timings));
    return bad;
}

struct cost *profile_cost(const struct profile_options *options, struct err *err)
{
    const struct profile_options *o = options;
    struct size *sizes = mem_new((size_t)o->n_sizes, sizeof(*sizes));
    struct cost *cost = NULL;
    double step = 0;

    if (measure_sizes(o, sizes, &step, err) == 0)
        cost = cost_of(o, sizes, step, err);
    if (cost)
        cost->spread = timings_usual_spread(o->timings);
    clear_sizes(sizes, o->n_sizes);
    free(sizes);
    return cost;
}

int profile_calibrate(const struct profile_options *options, struct calibration *calibration,
                      struct err *err)
{
    const struct profile_options *o = options;
    struct size *sizes = mem_new((size_t)o->n_sizes, sizeof(*sizes));
    double step = 0;
    int bad = measure_sizes(o, sizes, &step, err);

    for (int i = 0; i < o->n_sizes && !bad; i++)
        for (int n = 0; n < sizes[i].graph->n_nodes; n++) {
            struct node_work work = blocks_work(sizes[i].graph, o->sizes[i], n);

            calibration_add(calibration, &work, sizes[i].seconds[n]);
        }
    clear_sizes(sizes, o->n_sizes);
    free(sizes);
    return bad;
}
