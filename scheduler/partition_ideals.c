/* SPDX-License-Identifier: MIT */
/* A table whose cuts are all that a graph has: sets of blocks that hold whatever these read, each
 * of them what stages up to some place may have. The first is empty, the last has all blocks
 * but those that cost nothing and connect nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

bool ideal_has(const struct ideal *ideal, int block)
{
    return ideal->bits[block / 64] >> (block % 64) & 1;
}

bool ideal_within(const struct ideal *a, const struct ideal *b)
{
    for (int i = 0; i < IDEAL_WORDS; i++)
        if (a->bits[i] & ~b->bits[i])
            return false;
    return true;
}

static void add_block(struct ideal *ideal, int block)
{
    ideal->bits[block / 64] |= (uint64_t)1 << (block % 64);
}

static bool is_new(const struct table *t, int n, const struct ideal *ideal)
{
    for (int i = n - 1; i >= 0; i--)
        if (memcmp(&t->ideals[i], ideal, sizeof(*ideal)) == 0)
            return false;
    return true;
}

static bool is_free(const struct cost_block *b, int n_sizes)
{
    for (int i = 0; i < n_sizes; i++)
        if (b->forward[i] > 0 || b->dgrad[i] > 0 || (b->wgrad && b->wgrad[i] > 0))
            return false;
    return b->parameters <= 0 && b->step <= 0;
}

/* Has a block nothing on one side, but for what is left out? */
static bool is_end(const struct cost *cost, const bool *out, int block)
{
    bool reads = false, read = false;

    for (int e = 0; e < cost->n_edges; e++) {
        reads |= cost->edges[e].to == block && !out[cost->edges[e].from];
        read |= cost->edges[e].from == block && !out[cost->edges[e].to];
    }
    return !reads || !read;
}

/* Masks, and what nobody reads: what costs nothing and is on no way between other blocks. Without
 * it a graph has fewer cuts, and no plan takes longer. malloc'ed.
 */
static bool *find_left_out(const struct cost *cost)
{
    bool *out = mem_new((size_t)cost->n_blocks, sizeof(*out)), more = true;

    while (more) {
        more = false;
        for (int b = 0; b < cost->n_blocks; b++)
            if (!out[b] && is_free(&cost->blocks[b], cost->n_sizes) && is_end(cost, out, b))
                out[b] = more = true;
    }
    return out;
}

/* All sets, by size; false where there are too many. */
static bool find_ideals(struct table *t)
{
    const struct cost *cost = t->cost;
    struct ideal *reads = mem_new((size_t)cost->n_blocks, sizeof(*reads));
    bool *out = find_left_out(cost);
    int n = 1;

    for (int b = 0; b < cost->n_blocks; b++)
        t->partial |= out[b];
    for (int e = 0; e < cost->n_edges; e++)
        if (!out[cost->edges[e].from])
            add_block(&reads[cost->edges[e].to], cost->edges[e].from);
    for (int i = 0; i < n && n <= MOST_CUTS + 1; i++)
        for (int b = 0; b < cost->n_blocks && n <= MOST_CUTS + 1; b++) {
            struct ideal more = t->ideals[i];

            if (out[b] || ideal_has(&more, b) || !ideal_within(&reads[b], &more))
                continue;
            add_block(&more, b);
            if (is_new(t, n, &more))
                t->ideals[n++] = more;
        }
    free(out);
    free(reads);
    t->n = n - 1;
    return n <= MOST_CUTS + 1;
}

/* Does a stage between two cuts have one of these blocks? */
static bool has_any(const struct ideal *from, const struct ideal *to, const int *blocks, int n)
{
    for (int i = 0; i < n; i++)
        if (ideal_has(to, blocks[i]) && !ideal_has(from, blocks[i]))
            return true;
    return false;
}

struct table *table_ideals(const struct cost *cost)
{
    struct table *t = mem_new(1, sizeof(*t));
    size_t width;

    t->cost = cost;
    t->ideals = mem_new(MOST_CUTS + 2, sizeof(*t->ideals));
    if (cost->n_blocks > MOST_CUTS || !find_ideals(t)) {
        table_free(t);
        return NULL;
    }
    width = (size_t)t->n + 1;
    t->step = mem_new(width, sizeof(double));
    t->parameters = mem_new(width, sizeof(double));
    t->prepared = mem_new(width, sizeof(double));
    t->shared = mem_new(table_pairs(t), sizeof(double));
    for (int i = 0; i <= t->n; i++)
        for (int b = 0; b < cost->n_blocks; b++)
            if (ideal_has(&t->ideals[i], b)) {
                t->step[i] += cost->blocks[b].step;
                t->parameters[i] += cost->blocks[b].parameters;
                t->prepared[i] += cost->blocks[b].prepared;
            }
    for (int i = 0; i <= t->n; i++)
        for (int j = i + 1; j <= t->n; j++)
            for (int k = 0; k < cost->n_shared; k++)
                if (has_any(&t->ideals[i], &t->ideals[j], cost->shared[k].blocks,
                            cost->shared[k].n_blocks))
                    t->shared[table_pair(t, i, j)] += cost->shared[k].bytes;
    return t;
}

static void fill_pair(const struct table *t, struct share_table *s, int i, int j)
{
    const struct cost *cost = t->cost;
    const struct ideal *from = &t->ideals[i], *to = &t->ideals[j];
    size_t at = table_pair(t, i, j);
    double n = (double)s->samples;

    for (int e = 0, end; e < cost->n_edges; e = end) {
        const struct cost_edge *first = &cost->edges[e];
        bool scales = cost->blocks[first->from].batch_axis, read = false, kept = false;
        double back = 0;

        for (end = e; end < cost->n_edges && cost_same_value(&cost->edges[end], first); end++) {
            const struct cost_edge *edge = &cost->edges[end];
            double bytes;

            if (!ideal_has(from, edge->from) || ideal_has(from, edge->to) ||
                !ideal_has(to, edge->to))
                continue;
            bytes = cost_at(cost, edge->gradient_bytes, scales, n);
            back = bytes > back ? bytes : back;
            read = true;
            kept |= !edge->once;
        }
        s->received[at] += read ? cost_at(cost, first->bytes, scales, n) : 0;
        s->once[at] += read && !kept ? cost_at(cost, first->bytes, scales, n) : 0;
        s->gradient[at] += back;
    }
    for (int k = 0; k < cost->n_inputs; k++)
        if (has_any(from, to, cost->inputs[k].to, cost->inputs[k].n_to))
            *(cost->inputs[k].once ? &s->fed[at] : &s->inputs[at]) +=
                cost_at(cost, cost->inputs[k].bytes, true, n);
}

void table_fill_ideals(const struct table *t, struct share_table *s)
{
    const struct cost *cost = t->cost;
    double n = (double)s->samples;

    for (int i = 0; i <= t->n; i++)
        for (int b = 0; b < cost->n_blocks; b++) {
            const struct cost_block *block = &cost->blocks[b];

            if (!ideal_has(&t->ideals[i], b))
                continue;
            s->forward[i] += cost_at(cost, block->forward, block->batch_axis, n);
            s->dgrad[i] += cost_at(cost, block->dgrad, block->batch_axis, n);
            s->wgrad[i] += block->wgrad ? cost_at(cost, block->wgrad, block->batch_axis, n) : 0;
            s->activations[i] += block_kept(cost, block, n);
            block_selective(cost, block, n, &s->again[i], &s->dropped[i]);
            s->made_again[i] += block_made_again(cost, block, n);
        }
    for (int i = 0; i <= t->n; i++)
        for (int j = i + 1; j <= t->n; j++)
            if (ideal_within(&t->ideals[i], &t->ideals[j]))
                fill_pair(t, s, i, j);
}
