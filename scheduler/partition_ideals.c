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

/* Of a row that has 'before' up to there. */
static void set_at(struct staircase *s, int row, int column, double before, double figure)
{
    if (figure < before || figure > before)
        staircase_add(s, row, row, column, figure - before);
}

static double shared_bytes(const struct table *t, int i, int j)
{
    const struct cost *cost = t->cost;
    double bytes = 0;

    for (int k = 0; k < cost->n_shared; k++)
        if (has_any(&t->ideals[i], &t->ideals[j], cost->shared[k].blocks,
                    cost->shared[k].n_blocks))
            bytes += cost->shared[k].bytes;
    return bytes;
}

static void fill_shared(struct table *t)
{
    for (int i = 0; i <= t->n; i++) {
        double before = 0;

        for (int j = i + 1; j <= t->n; j++) {
            double bytes = shared_bytes(t, i, j);

            set_at(&t->shared, i, j, before, bytes);
            before = bytes;
        }
    }
    staircase_settle(&t->shared, t->n + 1);
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
    for (int i = 0; i <= t->n; i++)
        for (int b = 0; b < cost->n_blocks; b++)
            if (ideal_has(&t->ideals[i], b)) {
                t->step[i] += cost->blocks[b].step;
                t->parameters[i] += cost->blocks[b].parameters;
                t->prepared[i] += cost->blocks[b].prepared;
            }
    fill_shared(t);
    return t;
}

/* What an interval has that comes from before it. */
struct taken {
    double received, once, gradient, fed, inputs;
};

static void take_value(const struct table *t, const struct cost_edge *edges, int n, int i, int j,
                       double samples, struct taken *taken)
{
    const struct cost *cost = t->cost;
    const struct ideal *from = &t->ideals[i], *to = &t->ideals[j];
    bool scales = cost->blocks[edges->from].batch_axis, read = false, kept = false;
    double back = 0, bytes;

    for (const struct cost_edge *edge = edges; edge < edges + n; edge++) {
        if (!ideal_has(from, edge->from) || ideal_has(from, edge->to) || !ideal_has(to, edge->to))
            continue;
        back = dmax(back, cost_at(cost, edge->gradient_bytes, scales, samples));
        read = true;
        kept |= !edge->once;
    }
    if (!read)
        return;
    bytes = cost_at(cost, edges->bytes, scales, samples);
    taken->received += bytes;
    taken->once += kept ? 0 : bytes;
    taken->gradient += back;
}

static struct taken take(const struct table *t, int i, int j, double samples)
{
    const struct cost *cost = t->cost;
    struct taken taken = { 0 };

    for (int e = 0, end; e < cost->n_edges; e = end) {
        for (end = e; end < cost->n_edges && cost_same_value(&cost->edges[end], &cost->edges[e]);)
            end++;
        take_value(t, &cost->edges[e], end - e, i, j, samples, &taken);
    }
    for (int k = 0; k < cost->n_inputs; k++)
        if (has_any(&t->ideals[i], &t->ideals[j], cost->inputs[k].to, cost->inputs[k].n_to))
            *(cost->inputs[k].once ? &taken.fed : &taken.inputs) +=
                cost_at(cost, cost->inputs[k].bytes, true, samples);
    return taken;
}

/* Of what is no interval, nobody asks. */
static void fill_row(const struct table *t, struct share_table *s, int i)
{
    struct taken before = { 0 };

    for (int j = i + 1; j <= t->n; j++) {
        struct taken taken;

        if (!ideal_within(&t->ideals[i], &t->ideals[j]))
            continue;
        taken = take(t, i, j, (double)s->samples);
        set_at(&s->received, i, j, before.received, taken.received);
        set_at(&s->once, i, j, before.once, taken.once);
        set_at(&s->gradient, i, j, before.gradient, taken.gradient);
        set_at(&s->fed, i, j, before.fed, taken.fed);
        set_at(&s->inputs, i, j, before.inputs, taken.inputs);
        before = taken;
    }
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
        fill_row(t, s, i);
}
