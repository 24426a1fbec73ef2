/* SPDX-License-Identifier: MIT */
#include "graph/recompute.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/program.h"

#define NO_LIMIT (INT64_MAX / 4)

bool recompute_is_costly(const struct graph *graph, int node)
{
    static const char *const names[] = { "MatMul", "Gemm", "Linear", "Conv", "ConvTranspose",
                                         "Attention" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names_same(graph->nodes[node].op->name, names[i]))
            return true;
    return false;
}

/* Arcs stand in pairs: i ^ 1 is the way back. */
struct arc {
    int to, next;
    int64_t left;
};

/* A value is two points, in and out, and the arc between them has its bytes; then there is one for
 * each node that may be run again, and the sink.
 */
struct flow {
    int n_points, sink, n_arcs;
    int *head;              /* [n_points]: first arc; -1 */
    struct arc *arcs;
    bool *dead;             /* nothing more gets from here to the sink */
    int *from, *queue;      /* of a search: the arc that led to a point, -1: not seen */
    bool *source;           /* [n_values] */
};

static void add_arc(struct flow *f, int from, int to, int64_t most)
{
    const int ends[] = { from, to };

    for (int i = 0; i < 2; i++) {
        struct arc *a = mem_push((void **)&f->arcs, &f->n_arcs, sizeof(*a));

        *a = (struct arc){ ends[1 - i], f->head[ends[i]], i == 0 ? most : 0 };
        f->head[ends[i]] = f->n_arcs - 1;
    }
}

static int point_in(int value)
{
    return 2 * value;
}

static int point_out(int value)
{
    return 2 * value + 1;
}

static void add_node(struct flow *f, const struct node *node, int point, const int *root,
                     const size_t *bytes)
{
    for (int k = 0; k < node->n_inputs; k++)
        if (node->inputs[k] >= 0 && bytes[root[node->inputs[k]]])
            add_arc(f, point_out(root[node->inputs[k]]), point, NO_LIMIT);
    for (int k = 0; k < node->n_outputs; k++) {
        if (node->outputs[k] < 0)
            continue;
        add_arc(f, point, point_in(root[node->outputs[k]]), NO_LIMIT);
        f->source[root[node->outputs[k]]] = false;
    }
}

static bool is_view(const struct node *node, const int *root)
{
    return node->op->flags & OP_VIEW && node->inputs[0] >= 0 && node->outputs[0] >= 0 &&
           root[node->inputs[0]] == root[node->outputs[0]];
}

static void flow_init(struct flow *f, const struct graph *graph,
                      const struct program_list *forward, const int *root, const size_t *bytes,
                      const bool *wanted)
{
    int n = graph->n_values;

    f->sink = 2 * n + forward->n;
    f->n_points = f->sink + 1;
    f->head = mem_new((size_t)f->n_points, sizeof(*f->head));
    f->dead = mem_new((size_t)f->n_points, sizeof(*f->dead));
    f->from = mem_new((size_t)f->n_points, sizeof(*f->from));
    f->queue = mem_new((size_t)f->n_points, sizeof(*f->queue));
    f->source = mem_new((size_t)n, sizeof(*f->source));
    for (int p = 0; p < f->n_points; p++)
        f->head[p] = f->from[p] = -1;
    for (int v = 0; v < n; v++) {
        f->source[v] = root[v] == v && bytes[v] > 0;
        if (f->source[v])
            add_arc(f, point_in(v), point_out(v), (int64_t)bytes[v]);
        if (f->source[v] && wanted[v])
            add_arc(f, point_out(v), f->sink, NO_LIMIT);
    }
    for (int i = 0; i < forward->n; i++) {
        const struct node *node = &graph->nodes[forward->nodes[i]];

        if (!recompute_is_costly(graph, forward->nodes[i]) && !is_view(node, root))
            add_node(f, node, 2 * n + i, root, bytes);
    }
}

static void flow_clear(struct flow *f)
{
    free(f->head);
    free(f->arcs);
    free(f->dead);
    free(f->from);
    free(f->queue);
    free(f->source);
}

/* Along the way that a search found. */
static void push(struct flow *f, int start)
{
    int64_t most = NO_LIMIT;

    for (int p = f->sink; p != start; p = f->arcs[f->from[p] ^ 1].to)
        if (f->arcs[f->from[p]].left < most)
            most = f->arcs[f->from[p]].left;
    for (int p = f->sink; p != start; p = f->arcs[f->from[p] ^ 1].to) {
        f->arcs[f->from[p]].left -= most;
        f->arcs[f->from[p] ^ 1].left += most;
    }
}

/* The shortest way to the sink takes as much as it can: false where there is none. What was seen
 * then is closed, and stays so.
 */
static bool augment(struct flow *f, int start)
{
    int n = 0;
    bool found = false;

    f->queue[n++] = start;
    f->from[start] = 0;
    for (int i = 0; i < n && !found; i++)
        for (int a = f->head[f->queue[i]]; a >= 0 && !found; a = f->arcs[a].next) {
            int to = f->arcs[a].to;

            if (f->arcs[a].left <= 0 || f->from[to] >= 0 || f->dead[to])
                continue;
            f->from[to] = a;
            f->queue[n++] = to;
            found = to == f->sink;
        }
    if (found)
        push(f, start);
    for (int i = 0; i < n; i++) {
        f->from[f->queue[i]] = -1;
        f->dead[f->queue[i]] = !found;
    }
    return found;
}

/* From where does something get to the sink? The cut is in front of these. */
static bool *find_behind(struct flow *f)
{
    bool *behind = mem_new((size_t)f->n_points, sizeof(*behind));
    int n = 0;

    f->queue[n++] = f->sink;
    behind[f->sink] = true;
    for (int i = 0; i < n; i++)
        for (int a = f->head[f->queue[i]]; a >= 0; a = f->arcs[a].next) {
            int to = f->arcs[a].to;

            if (behind[to] || f->arcs[a ^ 1].left <= 0)
                continue;
            behind[to] = true;
            f->queue[n++] = to;
        }
    return behind;
}

void recompute_keep(const struct graph *graph, const struct program_list *forward,
                    const int *root, const size_t *bytes, const bool *wanted, bool *kept)
{
    struct flow f = { 0 };
    bool *behind;

    flow_init(&f, graph, forward, root, bytes, wanted);
    for (int v = 0; v < graph->n_values; v++)
        while (f.source[v] && !f.dead[point_in(v)] && augment(&f, point_in(v)))
            ;
    behind = find_behind(&f);
    for (int v = 0; v < graph->n_values; v++)
        kept[v] = bytes[v] == 0 || (root[v] == v && !behind[point_in(v)] && behind[point_out(v)]);
    free(behind);
    flow_clear(&f);
}

void recompute_runs(const struct graph *graph, const struct program_list *forward,
                    const int *root, const bool *kept, bool *wanted, bool *runs)
{
    for (int i = forward->n - 1; i >= 0; i--) {
        const struct node *node = &graph->nodes[forward->nodes[i]];

        runs[i] = false;
        if (is_view(node, root))    /* has no bytes of its own: who reads it asks for its root */
            continue;
        for (int k = 0; k < node->n_outputs; k++)
            runs[i] |= node->outputs[k] >= 0 && wanted[root[node->outputs[k]]] &&
                       !kept[root[node->outputs[k]]];
        for (int k = 0; runs[i] && k < node->n_inputs; k++)
            if (node->inputs[k] >= 0)
                wanted[root[node->inputs[k]]] = true;
    }
}
