/* SPDX-License-Identifier: MIT */
/* Another topological order of the blocks: stages are intervals of it, and what an order has side by
 * side, such as the blocks of two branches in turn, all crosses each cut.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Less is not worth a search, of all bytes that cross cuts. */
#define MUCH_LESS 0.9
/* Differences below this are noise of the arithmetic. */
#define SAME 1e-9

/* An order that goes on, where it can, with what the last block feeds: from the first block on, or, as
 * what feeds the last one, from the end.
 */
struct walk {
    const struct cost *cost;
    bool back;
    int *start, *edges;     /* of each block, those that lead on */
    int *missing;           /* of each block: edges from such as are not there yet */
    int *since;             /* of each block that may be next: when it began to */
    int *ready, n_ready;    /* these */
};

static int near_end(const struct walk *w, int e)
{
    return w->back ? w->cost->edges[e].to : w->cost->edges[e].from;
}

static int far_end(const struct walk *w, int e)
{
    return w->back ? w->cost->edges[e].from : w->cost->edges[e].to;
}

static void walk_init(struct walk *w, const struct cost *cost, bool back)
{
    size_t n = (size_t)cost->n_blocks;

    *w = (struct walk){ .cost = cost, .back = back };
    w->start = mem_new(n + 2, sizeof(int));
    w->edges = mem_new((size_t)cost->n_edges, sizeof(int));
    w->missing = mem_new(n, sizeof(int));
    w->since = mem_new(n, sizeof(int));
    w->ready = mem_new(n, sizeof(int));
    for (int e = 0; e < cost->n_edges; e++) {
        w->start[near_end(w, e) + 2]++;
        w->missing[far_end(w, e)]++;
    }
    for (int b = 0; b < cost->n_blocks; b++) {
        w->start[b + 2] += w->start[b + 1];
        if (w->missing[b] == 0)
            w->ready[w->n_ready++] = b;
    }
    for (int e = 0; e < cost->n_edges; e++)
        w->edges[w->start[near_end(w, e) + 1]++] = e;
}

static void walk_free(struct walk *w)
{
    free(w->start);
    free(w->edges);
    free(w->missing);
    free(w->since);
    free(w->ready);
}

/* The one that may be next since the latest; names decide what the order of the file must not. */
static int take_next(struct walk *w)
{
    int best = 0, block;

    for (int i = 1; i < w->n_ready; i++) {
        int a = w->ready[i], b = w->ready[best];

        if (w->since[a] != w->since[b]
                ? w->since[a] > w->since[b]
                : strcmp(w->cost->blocks[a].name, w->cost->blocks[b].name) < 0)
            best = i;
    }
    block = w->ready[best];
    w->ready[best] = w->ready[--w->n_ready];
    return block;
}

static void fill_order(const struct cost *cost, bool back, int *order)
{
    int n = cost->n_blocks;
    struct walk w;

    walk_init(&w, cost, back);
    for (int i = 0; i < n; i++) {
        int block = order[back ? n - 1 - i : i] = take_next(&w);

        for (int k = w.start[block]; k < w.start[block + 1]; k++) {
            int next = far_end(&w, w.edges[k]);

            if (--w.missing[next] == 0) {
                w.since[next] = i + 1;
                w.ready[w.n_ready++] = next;
            }
        }
    }
    walk_free(&w);
}

static double bytes_of(const struct cost_edge *edge)
{
    return edge->bytes[0] + edge->gradient_bytes[0];
}

/* Summed up over all cuts, a value once for each that its last reader is behind. */
static double crossing_bytes(const struct cost *cost, const int *order)
{
    int n = cost->n_blocks, values = 0, *place = mem_new((size_t)n, sizeof(*place)), *last;
    double sum = 0;

    for (int i = 0; i < n; i++)
        place[order ? order[i] : i] = i;
    for (int e = 0; e < cost->n_edges; e++)
        values = cost->edges[e].id >= values ? cost->edges[e].id + 1 : values;
    last = mem_new((size_t)values, sizeof(*last));
    for (int e = 0; e < cost->n_edges; e++) {
        const struct cost_edge *edge = &cost->edges[e];
        int from = place[edge->from], to = place[edge->to];

        if (last[edge->id] < from)
            last[edge->id] = from;
        if (to > last[edge->id])
            sum += bytes_of(edge) * (to - last[edge->id]);
        last[edge->id] = to > last[edge->id] ? to : last[edge->id];
    }
    free(place);
    free(last);
    return sum;
}

/* In such an order; NULL: there is none. */
static struct cost *narrowed_of(const struct cost *cost)
{
    int *order = mem_new((size_t)cost->n_blocks, sizeof(*order));
    double best = crossing_bytes(cost, NULL) * MUCH_LESS;
    struct cost *narrowed = NULL;

    for (int back = 0; back < 2; back++) {
        double bytes;

        fill_order(cost, back, order);
        bytes = crossing_bytes(cost, order);
        if (bytes >= best)
            continue;
        best = bytes;
        cost_free(narrowed);
        narrowed = cost_reordered(cost, order);
    }
    free(order);
    return narrowed;
}

/* Is there something to gain by another order of the blocks, of which the search tries few or none itself? */
static bool is_reordered(const struct cost *cost, const struct cluster *cluster,
                         const struct plan_request *r)
{
    int most = cost->n_blocks < MAX_CUTS ? cost->n_blocks : MAX_CUTS;

    return cluster->n_devices > 1 && most * cluster->n_devices > FEW && !r->n_pins &&
           !r->policy && !r->list && r->stages != 1;
}

struct plan *partition_orders(const struct cost *cost, const struct cluster *cluster,
                                     struct plan_request *request, char **why, struct err *err)
{
    struct plan *plan = partition_any(cost, cluster, request, why, err), *other;
    struct cost *narrowed;
    struct err local = { 0 };
    char *reasons = NULL;

    if (!is_reordered(cost, cluster, request) || (!plan && err->code == EXIT_USAGE) ||
        !(narrowed = narrowed_of(cost)))
        return plan;
    other = partition_any(narrowed, cluster, request, why ? &reasons : NULL, &local);
    cost_free(narrowed);
    if (!other || (plan && other->iteration_seconds >= plan->iteration_seconds * (1 - SAME))) {
        plan_free(other);
        free(reasons);
        return plan;
    }
    plan_free(plan);
    *err = local;
    if (why) {
        free(*why);
        *why = reasons;
    }
    return other;
}
