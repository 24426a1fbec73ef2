/* SPDX-License-Identifier: MIT */
/* Dynamic programming over cuts of other topological orders than that of the cost file. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

/* That are tried, and where nothing was found. */
#define ORDERS 32
#define MORE_ORDERS 512

/* A topological order that goes on, where it can, with what the last block feeds: from the first
 * block on, or, as what feeds the last one, from the end. Which of several is as 'seed' says.
 */
static void fill_order(const struct cost *cost, unsigned seed, int *order)
{
    int n = cost->n_blocks, *missing = mem_new((size_t)n, sizeof(*missing));
    int *ready = mem_new((size_t)n, sizeof(*ready)), n_ready = 0;
    bool back = seed % 2;

    /* The first numbers are as regular as their seeds. */
    seed *= 2654435761u;
    for (int e = 0; e < cost->n_edges; e++)
        missing[back ? cost->edges[e].from : cost->edges[e].to]++;
    for (int b = n - 1; b >= 0; b--)
        if (missing[b] == 0)
            ready[n_ready++] = b;
    for (int i = 0; i < n; i++) {
        int pick = n_ready - 1, block;

        seed = seed * 1664525u + 1013904223u;
        if (seed >> 31)
            pick = (int)((seed >> 8) % (unsigned)n_ready);
        block = order[back ? n - 1 - i : i] = ready[pick];
        memmove(&ready[pick], &ready[pick + 1], (size_t)(--n_ready - pick) * sizeof(*ready));
        for (int e = 0; e < cost->n_edges; e++) {
            int near = back ? cost->edges[e].to : cost->edges[e].from;
            int next = back ? cost->edges[e].from : cost->edges[e].to;

            if (near == block && --missing[next] == 0)
                ready[n_ready++] = next;
        }
    }
    free(missing);
    free(ready);
}

static bool is_sorted(const int *order, int n)
{
    for (int i = 0; i < n; i++)
        if (order[i] != i)
            return false;
    return true;
}

/* What was found by cuts of the order becomes a candidate of the search. */
static void take_found(struct search *s, struct search *other, const int *order)
{
    int n = s->cost->n_blocks;

    s->found = mem_resize(s->found, (size_t)(s->n_found + other->n_found), sizeof(*s->found));
    for (int i = 0; i < other->n_found; i++) {
        struct candidate *c = other->found[i];

        c->order = mem_new((size_t)n, sizeof(*c->order));
        memcpy(c->order, order, (size_t)n * sizeof(*c->order));
        s->found[s->n_found++] = c;
    }
    other->n_found = 0;
    s->best = other->best < s->best ? other->best : s->best;
}

static void search_order(struct search *s, const int *order)
{
    struct cost *cost = cost_reordered(s->cost, order);
    struct search *other = search_new(cost, s->cluster, s->request);

    other->zero = s->zero;
    other->factor_fixed = s->factor_fixed;
    other->factor_moving = s->factor_moving;
    other->best = s->best;
    search_cuts(other, 0);
    take_found(s, other, order);
    search_free(other);
    cost_free(cost);
}

void search_orders(struct search *s)
{
    int n = s->cost->n_blocks, *order = mem_new((size_t)n, sizeof(*order));

    /* Pins are by the order of the cost file. */
    for (unsigned seed = 0; s->some && !s->request->block_stage &&
                            seed < (s->n_found || !s->few ? ORDERS : MORE_ORDERS); seed++) {
        fill_order(s->cost, seed, order);
        if (!is_sorted(order, n))
            search_order(s, order);
    }
    free(order);
}
