/* SPDX-License-Identifier: MIT */
#include "train/reuse.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "graph/op.h"
#include "scheduler/layout.h"

#define RING_MIN ((size_t)1 << 20)
#define RING_STEPS 2    /* of each power of two */
#define NEVER (-1)
#define PAGES ((size_t)1 << 18)

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
    const size_t *places;   /* of each root: where its bytes are */
    size_t page;            /* bytes */
    int64_t *touched;       /* of each page: the clock then; NEVER */
    int *writer;            /* of each root: the node that wrote it and nobody has read yet */
    int64_t clock;          /* bytes touched so far, */
    int64_t held, made;     /* of all values, and of what nodes write, each once */
    double once;            /* held of what a round touches; 0 in the first, which marks nothing */
    struct weight *weights; /* [nodes] */
};

static size_t bytes_of(const struct walk *w, int value)
{
    return w->layouts ? w->layouts[value].bytes : value_bytes(&w->graph->values[value]);
}

struct pages {
    size_t begin, end;
};

static struct pages pages_of(const struct walk *w, int root)
{
    size_t end = w->places[root] + bytes_of(w, root);

    return (struct pages){ w->places[root] / w->page, (end + w->page - 1) / w->page };
}

/* In the mean of its pages. */
static int64_t distance(const struct walk *w, int root)
{
    struct pages pages = pages_of(w, root);
    double sum = 0;

    for (size_t i = pages.begin; i < pages.end; i++)
        sum += w->touched[i] == NEVER ? 0 : (double)(w->clock - w->touched[i]);
    return pages.end > pages.begin ? (int64_t)(sum / (double)(pages.end - pages.begin)) : 0;
}

static bool is_far(const struct walk *w, int root)
{
    return distance(w, root) > (int64_t)w->cache;
}

static void mark(struct walk *w, int node, int operand, int root)
{
    double bytes = (double)bytes_of(w, root), between = w->once * (double)distance(w, root);
    uint64_t bit = (uint64_t)1 << operand;

    if (operand >= REUSE_OPERANDS || w->once <= 0)
        return;
    w->reuse->far[node] |= bit;
    if (between >= (double)REUSE_LONGEST) {
        w->reuse->gone[node] |= bit;
        return;
    }
    w->weights[node].bytes += bytes;
    w->weights[node].logarithms += bytes * log2(between);
}

static void read_operands(struct walk *w, int node)
{
    const struct node *n = &w->graph->nodes[node];

    for (int k = 0; k < n->n_inputs; k++) {
        int root = n->inputs[k] < 0 ? -1 : w->root[n->inputs[k]];

        if (root < 0)
            continue;
        if (is_far(w, root))
            mark(w, node, k, root);
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
        if (w->writer[root] == node)
            w->reuse->result[node] = true;
        if (is_far(w, root))
            mark(w, node, n->n_inputs + k, root);
        w->writer[root] = node;
    }
}

static void touch_operands(struct walk *w, const int *values, int n, bool written)
{
    for (int k = 0; k < n; k++) {
        struct pages pages;

        if (values[k] < 0)
            continue;
        pages = pages_of(w, w->root[values[k]]);
        w->clock += (int64_t)bytes_of(w, values[k]);
        for (size_t i = pages.begin; i < pages.end; i++) {
            if (w->touched[i] == NEVER) {
                w->held += (int64_t)w->page;
                w->made += written ? (int64_t)w->page : 0;
            }
            w->touched[i] = w->clock;
        }
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

    return ring < RING_MIN ? RING_MIN : ring > REUSE_LONGEST ? REUSE_LONGEST : ring;
}

static void fill_rings(const struct walk *w)
{
    for (int n = 0; n < w->graph->n_nodes; n++)
        if (w->weights[n].bytes > 0)
            w->reuse->rings[n] =
                ring_of(exp2(w->weights[n].logarithms / w->weights[n].bytes));
    w->reuse->written = w->held > 0 ? (int)(4 * (double)w->made / (double)w->held + 0.5) : 0;
    w->reuse->held = (double)w->held;
    w->reuse->ring = w->held > (int64_t)w->cache ? ring_of((double)w->held) : 0;
}

/* One value after the other. */
static size_t *new_places(const struct walk *w)
{
    size_t *places = mem_new((size_t)w->graph->n_values, sizeof(*places)), at = 0;

    for (int v = 0; v < w->graph->n_values; v++) {
        places[v] = at;
        at += layout_aligned(bytes_of(w, v));
    }
    return places;
}

/* Of what is touched, never more than PAGES and no smaller than a line of a cache. */
static void open_pages(struct walk *w)
{
    size_t end = 0, n;

    for (int v = 0; v < w->graph->n_values; v++) {
        size_t to = w->places[v] + bytes_of(w, v);

        end = to > end ? to : end;
    }
    w->page = layout_aligned(end / PAGES + 1);
    n = end / w->page + 1;
    w->touched = mem_new(n, sizeof(*w->touched));
    for (size_t i = 0; i < n; i++)
        w->touched[i] = NEVER;
}

void reuse_make(struct reuse *reuse, const struct graph *graph, int n, const int *order,
                const struct value_layout *layouts, const size_t *places, size_t cache)
{
    size_t n_values = (size_t)graph->n_values;
    struct walk w = { .graph = graph, .layouts = layouts, .reuse = reuse, .cache = cache };
    size_t *own = places ? NULL : new_places(&w);

    *reuse = (struct reuse){ .n_nodes = graph->n_nodes };
    reuse->far = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->far));
    reuse->gone = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->gone));
    reuse->rings = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->rings));
    reuse->result = mem_new((size_t)graph->n_nodes + 1, sizeof(*reuse->result));
    w.places = own ? own : places;
    w.root = mem_new(n_values, sizeof(*w.root));
    w.writer = mem_new(n_values, sizeof(*w.writer));
    w.weights = mem_new((size_t)graph->n_nodes + 1, sizeof(*w.weights));
    for (int v = 0; v < graph->n_values; v++) {
        w.root[v] = v;
        w.writer[v] = NEVER;
    }
    open_pages(&w);
    /* The second time round everything has a past. */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n; i++)
            walk_node(&w, order[i]);
        w.once = w.clock > 0 && round == 0 ? (double)w.held / (double)w.clock : 0;
    }
    fill_rings(&w);
    free(own);
    free(w.weights);
    free(w.root);
    free(w.touched);
    free(w.writer);
}

void reuse_clear(struct reuse *reuse)
{
    free(reuse->far);
    free(reuse->gone);
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
