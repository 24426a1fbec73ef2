/* SPDX-License-Identifier: MIT */
#include "train/reuse.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "graph/op.h"

#define RING_MIN ((size_t)1 << 20)
#define RING_MAX ((size_t)64 << 20)
#define RING_STEPS 2    /* of each power of two */
#define NEVER (-1)

/* Of the far operands of a node: bytes, and these times the logarithm of how far they are. */
struct weight {
    double bytes, logarithms;
};

struct walk {
    const struct graph *graph;
    const struct value_layout *layouts;
    struct reuse *reuse;
    size_t cache;
    int *root;              /* of each value: the one whose bytes it shows */
    int64_t *touched;       /* of each root: the clock then; NEVER */
    int *writer;            /* of each root: the node that wrote it and nobody has read yet */
    int64_t clock;          /* bytes touched so far, */
    int64_t held, made;     /* of all values, and of what nodes write, each once */
    struct weight *weights; /* [nodes] */
};

static size_t bytes_of(const struct walk *w, int value)
{
    return w->layouts ? w->layouts[value].bytes : value_bytes(&w->graph->values[value]);
}

static int64_t distance(const struct walk *w, int root)
{
    return w->touched[root] == NEVER ? 0 : w->clock - w->touched[root];
}

static bool is_far(const struct walk *w, int root)
{
    return distance(w, root) > (int64_t)w->cache;
}

static void mark(struct walk *w, int node, int operand, int root)
{
    double bytes = (double)bytes_of(w, root);

    if (operand >= REUSE_OPERANDS)
        return;
    w->reuse->far[node] |= (uint64_t)1 << operand;
    w->weights[node].bytes += bytes;
    w->weights[node].logarithms += bytes * log2((double)distance(w, root));
}

static void mark_output(struct walk *w, int node, int root)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] >= 0 && w->root[n->outputs[k]] == root)
            mark(w, node, n->n_inputs + k, root);
}

static void read_operands(struct walk *w, int node)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_inputs; k++) {
        int root = n->inputs[k] < 0 ? -1 : w->root[n->inputs[k]];

        if (root < 0)
            continue;
        if (is_far(w, root)) {
            mark(w, node, k, root);
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
                mark(w, node, n->n_inputs + k, root);
        }
        w->writer[root] = node;
    }
}

static void touch_operands(struct walk *w, const int *values, int n, bool written)
{
    for (int k = 0; k < n; k++)
        if (values[k] >= 0) {
            w->clock += (int64_t)bytes_of(w, values[k]);
            if (w->touched[w->root[values[k]]] == NEVER) {
                w->held += (int64_t)bytes_of(w, values[k]);
                w->made += written ? (int64_t)bytes_of(w, values[k]) : 0;
            }
            w->touched[w->root[values[k]]] = w->clock;
        }
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
    touch_operands(w, n->inputs, n->n_inputs, false);
    touch_operands(w, n->outputs, n->n_outputs, true);
}

/* The nearest power of the root of two: layers far into a network, and networks of about one size,
 * share their measurements.
 */
static size_t ring_of(double bytes)
{
    size_t ring = (size_t)exp2(round(RING_STEPS * log2(bytes)) / RING_STEPS);

    return ring < RING_MIN ? RING_MIN : ring > RING_MAX ? RING_MAX : ring;
}

/* What is touched between two uses, each byte once: as it is in the whole step. */
static void fill_rings(const struct walk *w, int64_t round)
{
    double once = round > 0 ? (double)w->held / (double)round : 1;

    for (int n = 0; n < w->graph->n_nodes; n++)
        if (w->weights[n].bytes > 0)
            w->reuse->rings[n] =
                ring_of(once * exp2(w->weights[n].logarithms / w->weights[n].bytes));
    w->reuse->written = w->held > 0 ? (int)(4 * (double)w->made / (double)w->held + 0.5) : 0;
    w->reuse->ring = w->held > (int64_t)w->cache ? ring_of((double)w->held) : 0;
}

void reuse_make(struct reuse *reuse, const struct graph *graph, int n, const int *order,
                const struct value_layout *layouts, size_t cache)
{
    size_t n_values = (size_t)graph->n_values;
    struct walk w = { .graph = graph, .layouts = layouts, .reuse = reuse, .cache = cache };

    *reuse = (struct reuse){ .n_nodes = graph->n_nodes };
    reuse->far = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->far));
    reuse->rings = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->rings));
    reuse->result = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->result));
    w.root = mem_new(n_values, sizeof(*w.root));
    w.touched = mem_new(n_values, sizeof(*w.touched));
    w.writer = mem_new(n_values, sizeof(*w.writer));
    w.weights = mem_new((size_t)graph->n_nodes + 1, sizeof(*w.weights));
    for (int v = 0; v < graph->n_values; v++) {
        w.root[v] = v;
        w.touched[v] = NEVER;
        w.writer[v] = -1;
    }
    /* The second time round everything has a past. */
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n; i++)
            walk_node(&w, order[i]);
    fill_rings(&w, w.clock / 2);
    free(w.weights);
    free(w.root);
    free(w.touched);
    free(w.writer);
}

void reuse_clear(struct reuse *reuse)
{
    free(reuse->far);
    free(reuse->rings);
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
