/* SPDX-License-Identifier: MIT */
#include "train/reuse.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "graph/op.h"

#define RING_MAX ((size_t)64 << 20)
#define NEVER (-1)

struct walk {
    const struct graph *graph;
    const struct value_layout *layouts;
    struct reuse *reuse;
    size_t cache;
    int *root;              /* of each value: the one whose bytes it shows */
    int64_t *touched;       /* of each root: the clock then; NEVER */
    int *writer;            /* of each root: the node that wrote it and nobody has read yet */
    int64_t clock;          /* bytes touched so far */
};

static size_t bytes_of(const struct walk *w, int value)
{
    return w->layouts ? w->layouts[value].bytes : value_bytes(&w->graph->values[value]);
}

static bool is_far(const struct walk *w, int root)
{
    return w->touched[root] != NEVER &&
           w->clock - w->touched[root] > (int64_t)w->cache;
}

static void mark(struct walk *w, int node, int operand)
{
    if (operand < REUSE_OPERANDS)
        w->reuse->far[node] |= (uint64_t)1 << operand;
}

static void mark_output(struct walk *w, int node, int root)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] >= 0 && w->root[n->outputs[k]] == root)
            mark(w, node, n->n_inputs + k);
}

static void read_operands(struct walk *w, int node)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_inputs; k++) {
        int root = n->inputs[k] < 0 ? -1 : w->root[n->inputs[k]];

        if (root < 0)
            continue;
        if (is_far(w, root)) {
            mark(w, node, k);
            if (w->writer[root] >= 0)
                mark_output(w, w->writer[root], root);
        }
        w->writer[root] = -1;
    }
}

/* What nobody read before it is written again is a result of the step: read after it. */
static void write_operands(struct walk *w, int node)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_outputs; k++) {
        int root = n->outputs[k] < 0 ? -1 : w->root[n->outputs[k]];

        if (root < 0)
            continue;
        if (w->writer[root] == node) {
            w->reuse->result[node] = true;
            if (is_far(w, root))
                mark(w, node, n->n_inputs + k);
        }
        w->writer[root] = node;
    }
}

static void touch_operands(struct walk *w, const int *values, int n)
{
    for (int k = 0; k < n; k++)
        if (values[k] >= 0)
            w->clock += (int64_t)bytes_of(w, values[k]);
}

static void stamp(struct walk *w, const int *values, int n)
{
    for (int k = 0; k < n; k++)
        if (values[k] >= 0)
            w->touched[w->root[values[k]]] = w->clock;
}

static void walk_node(struct walk *w, int node)
{
    const struct node *n = &w->graph->nodes[node];

    if ((n->op->flags & OP_VIEW) && n->inputs[0] >= 0 && n->outputs[0] >= 0) {
        w->root[n->outputs[0]] = w->root[n->inputs[0]];
        return;
    }
    read_operands(w, node);
    write_operands(w, node);
    touch_operands(w, n->inputs, n->n_inputs);
    touch_operands(w, n->outputs, n->n_outputs);
    stamp(w, n->inputs, n->n_inputs);
    stamp(w, n->outputs, n->n_outputs);
}

/* A power of two, so that networks of about one size share their measurements. */
static size_t ring_of(int64_t bytes, size_t cache)
{
    size_t ring = (size_t)1 << 20;

    if (bytes <= (int64_t)cache)
        return 0;
    while (ring < RING_MAX && (int64_t)ring < bytes)
        ring *= 2;
    return ring;
}

void reuse_make(struct reuse *reuse, const struct graph *graph, int n, const int *order,
                const struct value_layout *layouts, size_t cache)
{
    size_t n_values = (size_t)graph->n_values;
    struct walk w = { .graph = graph, .layouts = layouts, .reuse = reuse, .cache = cache };

    *reuse = (struct reuse){ .n_nodes = graph->n_nodes };
    reuse->far = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->far));
    reuse->result = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->result));
    w.root = mem_new(n_values, sizeof(*w.root));
    w.touched = mem_new(n_values, sizeof(*w.touched));
    w.writer = mem_new(n_values, sizeof(*w.writer));
    for (int v = 0; v < graph->n_values; v++) {
        w.root[v] = v;
        w.touched[v] = NEVER;
        w.writer[v] = -1;
    }
    /* The second time round everything has a past. */
    for (int round = 0; round < 2; round++) {
        int64_t start = w.clock;

        for (int i = 0; i < n; i++)
            walk_node(&w, order[i]);
        reuse->ring = ring_of(w.clock - start, cache);
    }
    free(w.root);
    free(w.touched);
    free(w.writer);
}

void reuse_clear(struct reuse *reuse)
{
    free(reuse->far);
    free(reuse->result);
    *reuse = (struct reuse){ 0 };
}

size_t reuse_cache(int threads)
{
    long bytes = -1;

#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    if (bytes <= 0)
        bytes = 1 << 20;
    return (size_t)bytes * (size_t)(threads > 0 ? threads : 1);
}
