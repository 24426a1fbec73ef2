/* SPDX-License-Identifier: MIT */
/* What runs in a step of the whole network, as a backend has lowered it, for the cost file. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/blocks.h"
#include "scheduler/cost_steps.h"

struct steps_writer {
    struct cost *cost;
    const struct program *program;
    struct cost_steps *steps;
    bool *shared;               /* of each root: prepared, and read by several blocks */
    bool *passed;               /* of each value: a view of what is prepared that is no such itself,
                                 * and is sent to other stages */
    int *value;                 /* of the file, of each in the program; -1: it has none */
    int *step;                  /* of the file, of each node; -1 */
    int *last;                  /* of each value: the last return of it; -1 */
    int *before;                /* of each return, the one of the same value before it; -1 */
};

static int block_of(const struct steps_writer *w, int node)
{
    int block = w->program->graph->nodes[node].block;

    return block >= 0 && block < w->cost->n_blocks ? block : 0;
}

/* Has it a place of a micro-batch? */
static bool is_here(const struct steps_writer *w, int value)
{
    enum value_place place = w->program->values[w->program->values[value].root].place;

    return place == PLACE_SLOT || place == PLACE_SCRATCH;
}

static bool is_listed(const struct steps_writer *w, int root)
{
    return is_here(w, root) || w->shared[root];
}

static void find_shared(struct steps_writer *w)
{
    const struct program *p = w->program;
    int *reader = mem_new((size_t)p->n_values, sizeof(*reader));    /* 1 + its block; 0: none */

    for (int part = PART_FORWARD; part < PART_COUNT; part++)
        for (int i = 0; i < p->list[part].n; i++) {
            const struct node *node = &p->graph->nodes[p->list[part].nodes[i]];
            int block = 1 + block_of(w, p->list[part].nodes[i]);

            for (int k = 0; k < node->n_inputs; k++) {
                int root = node->inputs[k] < 0 ? -1 : p->values[node->inputs[k]].root;

                if (root < 0 || p->values[root].place != PLACE_PREPARED)
                    continue;
                w->shared[root] |= reader[root] && reader[root] != block;
                reader[root] = block;
            }
        }
    free(reader);
}

/* Has it a row for each of BatchNorm's groups of samples? */
static bool is_grouped(const struct graph *graph, int value)
{
    const struct value *v = &graph->values[value];
    const struct op *op = v->producer < 0 ? NULL : graph->nodes[v->producer].op;

    return op && strcmp(op->name, "BatchNormalization") == 0 && v->batch.outer == 0 &&
           v->shape.rank == 2;
}

/* At each size. What is not as large as its elements does not follow the samples: weights. */
static double *bytes_of(const struct steps_writer *w, int value)
{
    const struct program_value *v = &w->program->values[value];
    double groups = is_grouped(w->program->graph, value)
                        ? (double)w->program->graph->values[value].shape.dim[0] : 1;
    bool plain = v->layout.bytes == value_bytes(&w->program->graph->values[value]);
    double *bytes = mem_new((size_t)w->cost->n_sizes, sizeof(*bytes));

    for (int i = 0; i < w->cost->n_sizes; i++)
        bytes[i] = (plain ? blocks_bytes(w->program->graph, w->cost->micro_batch[i], value)
                          : (double)v->layout.bytes) / groups;
    return bytes;
}

/* Does it lie otherwise than where it is sent, or what it is a copy of? */
static bool is_reordered(const struct steps_writer *w, int value)
{
    const struct value_layout *layout = &w->program->values[value].layout, *sent;
    const struct graph *graph = w->program->graph;
    int producer = graph->values[value].producer;

    while (producer >= 0 && strcmp(graph->nodes[producer].op->name, "Reorder") == 0) {
        value = graph->nodes[producer].inputs[0];
        producer = graph->values[value].producer;
    }
    sent = &w->program->values[value].layout;
    return layout->opaque != (sent->crosses ? sent->opaque : NULL);
}

static int add_value(struct steps_writer *w, int value)
{
    const struct program_value *from = &w->program->values[value];
    struct cost_steps *s = w->steps;
    struct cost_value *v = mem_push((void **)&s->values, &s->n_values, sizeof(*v));

    v->bytes = bytes_of(w, value);
    v->grouped = is_grouped(w->program->graph, value);
    v->group = w->program->graph->batchnorm_samples;
    v->batch_axis = w->program->graph->values[value].batch.outer != 0;
    v->prepared = from->place == PLACE_PREPARED && !w->passed[value];
    v->reordered = is_reordered(w, value) && !v->prepared;
    v->maker = v->back = v->reader = -1;
    return s->n_values - 1;
}

static int value_of(struct steps_writer *w, int value)
{
    int root = value < 0 ? -1 : w->program->values[value].root;

    if (root < 0 || !(is_listed(w, root) || w->passed[value]))
        return -1;
    if (w->shared[root] && !w->passed[value])
        value = root;
    if (w->value[value] < 0)
        w->value[value] = add_value(w, value);
    return w->value[value];
}

static void add_ids(struct steps_writer *w, const int *values, int n, int **ids, int *n_ids)
{
    for (int k = 0; k < n; k++) {
        int id = value_of(w, values[k]);

        if (id >= 0)
            *(int *)mem_push((void **)ids, n_ids, sizeof(int)) = id;
    }
}

static bool is_view(const struct program *p, int node)
{
    const struct node *n = &p->graph->nodes[node];

    return n->op->flags & OP_VIEW && n->n_inputs > 0 && n->inputs[0] >= 0 &&
           p->values[n->inputs[0]].root == p->values[n->outputs[0]].root;
}

/* Pools and norms go backward as they went forward. */
static int follows(struct steps_writer *w, const struct node *node)
{
    const struct node *source = node->source < 0 ? NULL : &w->program->graph->nodes[node->source];

    if (!source || (!(node->op->flags & OP_NORM) && !strstr(node->op->name, "Pool")))
        return -1;
    return source->n_inputs > 0 ? value_of(w, source->inputs[0]) : -1;
}

static void add_part(struct steps_writer *w, enum part part)
{
    const struct program_list *list = &w->program->list[part];

    for (int i = 0; i < list->n; i++) {
        const struct node *node = &w->program->graph->nodes[list->nodes[i]];
        struct cost_step step = { .op = node->op, .part = part,
                                  .block = block_of(w, list->nodes[i]) };
        bool view = is_view(w->program, list->nodes[i]);

        if (view && part == PART_FORWARD && !is_here(w, node->inputs[0]))
            w->passed[node->outputs[0]] = true;
        else if (view && !is_here(w, node->inputs[0]))
            continue;
        add_ids(w, node->inputs, view ? 1 : node->n_inputs, &step.reads, &step.n_reads);
        add_ids(w, node->outputs, view ? 1 : node->n_outputs, &step.makes, &step.n_makes);
        step.follows = follows(w, node);
        w->step[list->nodes[i]] = w->steps->n;
        *(struct cost_step *)mem_push((void **)&w->steps->items, &w->steps->n, sizeof(step)) = step;
    }
}

static bool reads(const struct cost_step *step, int value)
{
    for (int k = 0; k < step->n_reads; k++)
        if (step->reads[k] == value)
            return true;
    return false;
}

/* What a node reads there is the other; if not itself then what its own block makes of that for it
 * in another layout, or what the other block made of it.
 */
static void exchange(struct steps_writer *w, int node, int read, int from, int to)
{
    struct cost_step *step = w->step[node] < 0 ? NULL : &w->steps->items[w->step[node]];
    const struct graph *graph = w->program->graph;
    int value = read < graph->nodes[node].n_inputs ? graph->nodes[node].inputs[read] : -1;
    int id = value < 0 ? -1 : value_of(w, value), maker = value < 0 ? -1 : graph->values[value].producer;

    if (!step || id < 0)
        return;
    if (id != from) {
        const bool reordered = maker >= 0 && w->step[maker] >= 0 &&
                               strcmp(graph->nodes[maker].op->name, "Reorder") == 0;
        struct cost_step *reorder = reordered ? &w->steps->items[w->step[maker]] : NULL;

        if (reorder && reorder->block != step->block && reads(reorder, from))
            from = id;
        else if (reorder)
            step = reorder;
        if (step->block != block_of(w, node))
            return;
    }
    for (int k = 0; k < step->n_reads; k++)
        if (step->reads[k] == from)
            step->reads[k] = to;
}

/* The one to which the AddN adds this as the 'index'-th, or all that the node's own backward is. */
static void exchange_readers(struct steps_writer *w, const struct grad_contribution *c, int index,
                             int from, int to)
{
    const struct graph *graph = w->program->graph;
    int producer = graph->values[c->value].producer;

    if (c->sum != c->gradient) {
        exchange(w, graph->values[c->sum].producer, index, from, to);
        return;
    }
    for (int part = PART_DGRAD; part < PART_COUNT; part++)
        for (int i = 0; i < w->program->list[part].n; i++) {
            int node = w->program->list[part].nodes[i];

            if (graph->nodes[node].source == producer)
                for (int k = 0; k < graph->nodes[node].n_inputs; k++)
                    exchange(w, node, k, from, to);
        }
}

/* What a block that hands a gradient on has of it: it may have been handed that itself. */
static int handed(const struct steps_writer *w, int value, int block)
{
    for (int i = w->last[value]; i >= 0; i = w->before[i])
        if (w->steps->returns[i].to == block)
            return w->steps->returns[i].received;
    return w->value[value];
}

static void add_return(struct steps_writer *w, const struct grad_contribution *c, int index)
{
    const struct graph *graph = w->program->graph;
    int value = c->gradient, n = w->steps->n_returns;
    int from = block_of(w, c->node), to = block_of(w, graph->values[c->value].producer), received;
    struct cost_return *r;

    if (c->sum < 0 || from == to || w->value[value] < 0)
        return;
    received = add_value(w, value);
    exchange_readers(w, c, index, w->value[value], received);
    r = mem_push((void **)&w->steps->returns, &w->steps->n_returns, sizeof(*r));
    *r = (struct cost_return){ handed(w, value, from), received, from, to };
    *(int *)mem_push((void **)&w->before, &n, sizeof(int)) = w->last[value];
    w->last[value] = n - 1;
}

static void add_returns(struct steps_writer *w)
{
    const struct autodiff *ad = w->program->autodiff;
    int *count = mem_new((size_t)w->program->n_values, sizeof(*count));

    for (int i = 0; i < ad->n_contributions; i++) {
        const struct grad_contribution *c = &ad->contributions[i];

        add_return(w, c, count[c->value]++);
    }
    free(count);
}

static void mark_results(struct steps_writer *w)
{
    const struct graph *graph = w->program->graph;
    int n = graph->n_outputs + 2;

    for (int i = 0; i < n; i++) {
        int value = i < graph->n_outputs ? graph->outputs[i]
                    : i == graph->n_outputs ? graph->loss : graph->correct;

        if (value >= 0 && w->value[value] >= 0)
            w->steps->values[w->value[value]].result = true;
    }
}

void blocks_steps(struct cost *cost, const struct program *program)
{
    struct steps_writer w = { .cost = cost, .program = program };
    size_t n = (size_t)program->n_values;

    w.steps = cost->steps = mem_new(1, sizeof(*w.steps));
    w.shared = mem_new(n, sizeof(bool));
    w.passed = mem_new(n, sizeof(bool));
    w.value = mem_new(n, sizeof(int));
    w.last = mem_new(n, sizeof(int));
    w.step = mem_new((size_t)program->graph->n_nodes, sizeof(int));
    for (size_t v = 0; v < n; v++)
        w.value[v] = w.last[v] = -1;
    for (int i = 0; i < program->graph->n_nodes; i++)
        w.step[i] = -1;
    find_shared(&w);
    for (int part = PART_FORWARD; part < PART_COUNT; part++)
        add_part(&w, (enum part)part);
    add_returns(&w);
    mark_results(&w);
    if (w.steps->n > COST_MOST_STEPS || w.steps->n_values > COST_MOST_STEPS ||
        w.steps->n_returns > COST_MOST_STEPS) {
        cost_steps_free(w.steps);
        cost->steps = NULL;
    }
    free(w.shared);
    free(w.passed);
    free(w.value);
    free(w.last);
    free(w.step);
    free(w.before);
}
