/* SPDX-License-Identifier: MIT */
#include "scheduler/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/stage.h"

/* Rank of a weight from which on it is a matrix; below are biases, scales and shifts. */
#define MATRIX_RANK 2

struct maker {
    struct graph *graph;
    int n;
    bool *fixed;        /* depends on no sample: weights and what is made of them */
    bool *matrix;       /* value that is a weight matrix, or made of one */
    double *crossing;   /* elements per sample that cross before each node */
};

static bool is_source(const struct value *v)
{
    return v->kind == VALUE_PARAM || v->kind == VALUE_CONST || v->kind == VALUE_STAT;
}

static void mark_fixed(struct maker *m)
{
    const struct graph *graph = m->graph;

    for (int v = 0; v < graph->n_values; v++)
        m->matrix[v] = (graph->values[v].kind == VALUE_PARAM || graph->values[v].frozen) &&
                       graph->values[v].shape.rank >= MATRIX_RANK;
    for (int n = 0; n < m->n; n++) {
        const struct node *node = &graph->nodes[n];
        bool matrix = false;

        m->fixed[n] = true;
        for (int i = 0; i < node->n_inputs; i++) {
            const struct value *v = node->inputs[i] < 0 ? NULL
                                                        : &graph->values[node->inputs[i]];

            if (!v)
                continue;
            m->fixed[n] &= is_source(v) || (v->producer >= 0 && m->fixed[v->producer]);
            matrix |= m->matrix[node->inputs[i]];
        }
        for (int i = 0; i < node->n_outputs && m->fixed[n]; i++)
            if (node->outputs[i] >= 0)
                m->matrix[node->outputs[i]] = matrix;
    }
}

/* Does the node start a block: real work on a weight matrix? */
static bool is_heavy(const struct maker *m, int n)
{
    const struct node *node = &m->graph->nodes[n];
    bool matrix = false;

    if (m->fixed[n])
        return false;
    for (int i = 0; i < node->n_inputs; i++)
        matrix |= node->inputs[i] >= 0 && m->matrix[node->inputs[i]];
    return matrix && (node->op->flops || strcmp(node->op->name, "Gather") == 0);
}

static double elements_per_sample(const struct graph *graph, const struct value *v)
{
    double elements = (double)shape_elements(&v->shape);

    return v->batch.outer ? elements / (double)graph->batch : elements;
}

/* Values made before a node and read there or later. */
static void count_crossing(struct maker *m)
{
    const struct graph *graph = m->graph;

    for (int v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        int last = -1;

        if (value->producer < 0 || value->producer >= m->n || m->fixed[value->producer])
            continue;
        for (int i = 0; i < value->n_consumers; i++)
            if (value->consumers[i] < m->n && value->consumers[i] > last)
                last = value->consumers[i];
        if (last < 0)
            continue;
        m->crossing[value->producer + 1] += elements_per_sample(graph, value);
        m->crossing[last + 1] -= elements_per_sample(graph, value);
    }
    for (int n = 1; n <= m->n; n++)
        m->crossing[n] += m->crossing[n - 1];
}

static struct block *add_block(struct blocks *blocks, const char *name)
{
    struct block *b = mem_push((void **)&blocks->items, &blocks->n, sizeof(*b));

    b->name = mem_strdup(name);
    return b;
}

/* Where to cut between two heavy nodes: before a node in (first, second]. */
static int thinnest(const struct maker *m, int first, int second)
{
    int best = first + 1;

    for (int n = first + 1; n <= second; n++)
        if (m->crossing[n] <= m->crossing[best])
            best = n;
    return best;
}

/* Blocks are intervals of the topological order, hence convex. */
static void assign(struct maker *m, struct blocks *blocks)
{
    int last_heavy = -1, start = 0;

    for (int n = 0; n < m->n; n++) {
        int end;

        if (!is_heavy(m, n))
            continue;
        end = last_heavy < 0 ? 0 : thinnest(m, last_heavy, n);
        for (; start < end; start++)
            m->graph->nodes[start].block = blocks->n - 1;
        add_block(blocks, m->graph->nodes[n].name);
        last_heavy = n;
    }
    if (blocks->n == 0)
        add_block(blocks, m->graph->nodes[m->n - 1].name);
    for (; start < m->n; start++)
        m->graph->nodes[start].block = blocks->n - 1;
}

/* What is made of weights alone goes to its first reader: its inputs are everywhere. */
static void move_fixed(struct maker *m)
{
    struct graph *graph = m->graph;

    for (int n = m->n - 1; n >= 0; n--) {
        struct node *node = &graph->nodes[n];
        int first = -1;

        if (!m->fixed[n])
            continue;
        for (int i = 0; i < node->n_outputs; i++) {
            const struct value *v = node->outputs[i] < 0 ? NULL
                                                         : &graph->values[node->outputs[i]];

            for (int k = 0; v && k < v->n_consumers; k++) {
                int block = graph->nodes[v->consumers[k]].block;

                first = first < 0 || block < first ? block : first;
            }
        }
        node->block = first < 0 ? node->block : first;
    }
}

static void list_nodes(const struct graph *graph, int n_nodes, struct blocks *blocks)
{
    for (int n = 0; n < n_nodes; n++) {
        struct block *b = &blocks->items[graph->nodes[n].block];

        *(int *)mem_push((void **)&b->nodes, &b->n_nodes, sizeof(int)) = n;
    }
}

struct blocks *blocks_new(struct graph *graph, struct err *err)
{
    struct maker m = { .graph = graph, .n = graph->n_nodes };
    struct blocks *blocks;

    if (graph->n_nodes == 0) {
        err_set(err, "the graph has no nodes: there is nothing to plan");
        return NULL;
    }
    blocks = mem_new(1, sizeof(*blocks));
    m.fixed = mem_new((size_t)m.n, sizeof(*m.fixed));
    m.matrix = mem_new((size_t)graph->n_values, sizeof(*m.matrix));
    m.crossing = mem_new((size_t)m.n + 2, sizeof(*m.crossing));
    mark_fixed(&m);
    count_crossing(&m);
    assign(&m, blocks);
    move_fixed(&m);
    list_nodes(graph, m.n, blocks);
    free(m.fixed);
    free(m.matrix);
    free(m.crossing);
    return blocks;
}

void blocks_free(struct blocks *blocks)
{
    if (!blocks)
        return;
    for (int i = 0; i < blocks->n; i++) {
        free(blocks->items[i].name);
        free(blocks->items[i].nodes);
    }
    free(blocks->items);
    free(blocks);
}

/* The stage of each block. */
static int *match_plan(const struct blocks *blocks, const struct plan *plan, struct err *err)
{
    const char **names = mem_new((size_t)blocks->n, sizeof(*names));
    int *stage;

    for (int b = 0; b < blocks->n; b++)
        names[b] = blocks->items[b].name;
    stage = stage_by_name(plan, names, blocks->n, "model", err);
    free(names);
    return stage;
}

/* No block reads of a later stage. */
static int check_order(const struct graph *graph, const struct blocks *blocks, const int *stage,
                       struct err *err)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_inputs; i++) {
            int value = graph->nodes[n].inputs[i], to = graph->nodes[n].block;
            int producer = value < 0 ? -1 : graph->values[value].producer;

            if (producer >= 0 && stage[graph->nodes[producer].block] > stage[to])
                return err_set(err, "the plan puts block \"%s\" before \"%s\", which it reads",
                               blocks->items[to].name,
                               blocks->items[graph->nodes[producer].block].name);
        }
    return 0;
}

int *blocks_stages(struct graph *graph, const struct plan *plan, struct err *err)
{
    struct blocks *blocks = blocks_new(graph, err);
    int *of_block, *result = NULL;

    if (!blocks)
        return NULL;
    of_block = match_plan(blocks, plan, err);
    if (of_block && check_order(graph, blocks, of_block, err) == 0) {
        result = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*result));
        for (int n = 0; n < graph->n_nodes; n++)
            result[n] = of_block[graph->nodes[n].block];
    }
    free(of_block);
    blocks_free(blocks);
    return result;
}

struct program *blocks_whole(struct graph *graph, struct autodiff *gradients, struct err *err)
{
    struct blocks *blocks = blocks_new(graph, err);     /* notes the blocks in the nodes */
    int *stages;

    if (!blocks)
        return NULL;
    blocks_free(blocks);
    stages = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*stages));
    if (autodiff(graph, stages, 1, gradients, &stages, err) < 0)
        return NULL;
    return program_new(graph, gradients, stages, 0, 1, err);
}

double blocks_bytes(const struct graph *graph, int64_t batch, int value)
{
    const struct value *v = &graph->values[value];
    double bytes = (double)value_bytes(v);

    return v->batch.outer ? bytes / (double)graph->batch * (double)batch : bytes;
}

static enum efficiency_class class_of(const struct op *op)
{
    return op->flags & OP_MATMUL      ? EFFICIENCY_MATMUL
           : op->flags & OP_CONV      ? EFFICIENCY_CONV
           : op->flags & OP_ATTENTION ? EFFICIENCY_ATTENTION
           : op->flags & OP_NORM      ? EFFICIENCY_NORM
                                      : EFFICIENCY_MEMORY;
}

struct node_work blocks_work(const struct graph *graph, int64_t batch, int node)
{
    const struct node *n = &graph->nodes[node];
    struct node_work work = { .of = class_of(n->op), .flops = op_flops(graph, node) };
    bool samples = false;

    for (int i = 0; i < n->n_inputs + n->n_outputs; i++) {
        int v = i < n->n_inputs ? n->inputs[i] : n->outputs[i - n->n_inputs];

        if (v < 0)
            continue;
        work.bytes += blocks_bytes(graph, batch, v);
        samples |= graph->values[v].batch.outer != 0;
    }
    if (samples)
        work.flops *= (double)batch / (double)graph->batch;
    return work;
}

/* Bytes that are not there, since operands are narrow. */
static double spared_bytes(const struct graph *graph, int64_t batch, int node,
                           const struct roofline *r)
{
    const struct node *n = &graph->nodes[node];
    double bytes = 0;

    for (int i = 0; r->is_narrow && i < n->n_inputs + n->n_outputs; i++) {
        int v = i < n->n_inputs ? n->inputs[i] : n->outputs[i - n->n_inputs];

        if (v >= 0 && r->is_narrow(graph, node, i))
            bytes += blocks_bytes(graph, batch, v) / 2;
    }
    return bytes;
}

static double speed_of(const struct graph *graph, int node, enum efficiency_class of,
                       const struct roofline *r)
{
    bool narrow = r->is_narrow && graph->nodes[node].n_inputs > 0 && r->is_narrow(graph, node, 0);
    double products = narrow ? r->narrow_flops : r->wide_flops;

    return of < EFFICIENCY_NORM && products > 0 ? products : r->flops;
}

void blocks_roofline(const struct graph *graph, int64_t batch, const struct roofline *roofline,
                     double *seconds)
{
    const struct roofline *r = roofline;

    for (int n = 0; n < graph->n_nodes; n++) {
        struct node_work w = blocks_work(graph, batch, n);
        double flops = speed_of(graph, n, w.of, r), move, work;

        w.bytes -= spared_bytes(graph, batch, n, r);
        move = r->memory_bandwidth > 0 ? w.bytes / r->memory_bandwidth : 0;
        work = flops > 0 ? w.flops / flops : 0;
        if (w.of >= EFFICIENCY_NORM)
            move /= efficiency_share(r->efficiency, w.of, w.bytes);
        else
            work /= efficiency_share(r->efficiency, w.of, w.flops);
        seconds[n] = graph->nodes[n].op->flags & OP_VIEW ? 0 : dmax(work, move);
    }
}
