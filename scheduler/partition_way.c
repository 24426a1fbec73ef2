/* SPDX-License-Identifier: MIT */
#include "scheduler/partition_way.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"

static bool compiles(const struct way *w)
{
    return w->search->request->memory_of != NULL;
}

/* Bytes are a constant and so many for each sample: beyond the listed sizes, too. */
static double bytes_at(const struct cost *cost, const double *bytes, bool scales, double samples)
{
    int last = cost->n_sizes - 1;
    double most = (double)cost->micro_batch[last];
    double at = bytes ? cost_at(cost, bytes, scales, dmin(samples, most)) : 0;

    if (!bytes || !scales || samples <= most || !last)
        return at;
    return at + dmax(0, (samples - most) * (bytes[last] - bytes[last - 1]) /
                            (most - (double)cost->micro_batch[last - 1]));
}

static double trip(const struct cost *cost, const struct cost_block *b, double samples)
{
    return cost_at(cost, b->forward, b->batch_axis, samples) +
           cost_at(cost, b->dgrad, b->batch_axis, samples);
}

/* The longest way along which gradients come back. */
static void find_way(struct way *w)
{
    const struct cost *cost = w->search->cost;
    double *to = mem_new((size_t)cost->n_blocks, sizeof(*to));
    int *before = mem_new((size_t)cost->n_blocks, sizeof(*before)), end = 0, edge = 0;

    for (int b = 0; b < cost->n_blocks; b++)
        before[b] = -1;
    for (int b = 0; b < cost->n_blocks; b++) {
        to[b] += trip(cost, &cost->blocks[b], (double)cost->micro_batch[0]);
        end = to[b] > to[end] ? b : end;
        for (; edge < cost->n_edges && cost->edges[edge].from == b; edge++) {
            const struct cost_edge *e = &cost->edges[edge];

            if (e->gradient_bytes[cost->n_sizes - 1] > 0 && to[b] > to[e->to]) {
                to[e->to] = to[b];
                before[e->to] = b;
            }
        }
    }
    for (int b = end; b >= 0; b = before[b])
        w->n++;
    for (int b = end, i = w->n; b >= 0; b = before[b])
        w->blocks[--i] = b;
    free(to);
    free(before);
}

/* Is it another value than that of the edge before? They are sorted. */
static bool is_first(const struct cost *cost, int e)
{
    return !e || !cost_same_value(&cost->edges[e], &cost->edges[e - 1]);
}

/* What goes from block to block on the way goes from stage to stage where these are cut apart. */
static void fill_messages(const struct way *w, double samples, struct way_sums *o)
{
    const struct cost *cost = w->search->cost;
    int i = 1;

    for (int e = 0; e < cost->n_edges && i < w->n; e++) {
        const struct cost_edge *edge = &cost->edges[e];
        bool scales = cost->blocks[edge->from].batch_axis;

        while (i < w->n - 1 && edge->from > w->blocks[i - 1])
            i++;
        if (edge->from != w->blocks[i - 1] || edge->to != w->blocks[i])
            continue;
        o->out[i] += bytes_at(cost, edge->bytes, scales, samples);
        o->in[i] += bytes_at(cost, edge->bytes, scales, samples) +
                    bytes_at(cost, edge->gradient_bytes, scales, samples);
    }
}

/* Where the way has all blocks: of what crosses each cut the smallest value; by the planner's own
 * sums, what the first block reads.
 */
static void fill_arrives(const struct way *w, double samples, struct way_sums *o)
{
    const struct cost *cost = w->search->cost;

    for (int i = 0; i <= w->n; i++)
        o->arrives[i] = compiles(w) ? INFINITY : 0;
    for (int e = 0, next; e < cost->n_edges; e = next) {
        const struct cost_edge *edge = &cost->edges[e];
        double bytes = bytes_at(cost, edge->bytes, cost->blocks[edge->from].batch_axis, samples);
        int last = edge->to;

        for (next = e + 1; next < cost->n_edges && !is_first(cost, next); next++)
            last = cost->edges[next].to > last ? cost->edges[next].to : last;
        for (int i = edge->from + 1; i <= last && compiles(w); i++)
            o->arrives[i] = dmin(o->arrives[i], bytes);
        for (int k = e; k < next && !compiles(w); k++)
            o->arrives[cost->edges[k].to] += bytes;
    }
    for (int i = 0; i <= w->n; i++)
        o->arrives[i] = isinf(o->arrives[i]) ? 0 : o->arrives[i];
}

/* Where stages are compiled, what is read by a backward within a block has to be made again from
 * what arrives: from one value at least, where no input of the network is read on the way there.
 */
static void fill_within(struct way *w)
{
    const struct cost *cost = w->search->cost;
    double *own = mem_new((size_t)cost->n_blocks, sizeof(*own));
    bool *reads = mem_new((size_t)cost->n_blocks, sizeof(*reads));

    for (int b = 0; b < cost->n_blocks; b++)
        if (cost->blocks[b].read_from_others && cost->blocks[b].read_by_backward)
            own[b] = cost->blocks[b].read_by_backward[0] - cost->blocks[b].read_from_others[0];
    for (int i = 0; i < cost->n_inputs; i++)
        for (int k = 0; k < cost->inputs[i].n_to; k++)
            reads[cost->inputs[i].to[k]] = true;
    for (int i = w->n - 1; i >= 0; i--)
        w->within[i] = !compiles(w) ? i
                     : !way_is_chain(w) || reads[i] || !cost->blocks[i].batch_axis ? w->n
                     : own[i] > 0 ? i : i + 1 < w->n ? w->within[i + 1] : w->n;
    free(own);
    free(reads);
}

static double fixed_bytes(const struct way *w, const struct cost_block *b, int copies)
{
    const struct search *s = w->search;
    const struct stage_cost trained = { .parameters = b->parameters -
                                                      (compiles(w) ? b->statistics : 0) };

    return stage_memory(s->cost, &trained, 0, 1, s->state_bytes / (s->zero ? copies : 1));
}

struct shares {
    double largest, smallest;
    int copies;
};

static void fill_block(const struct way *w, struct way_sums *o, const struct shares *shares, int i)
{
    const struct cost *cost = w->search->cost;
    const struct cost_block *b = &cost->blocks[w->blocks[i]];
    double share = shares->largest, least = shares->smallest;
    double forward = cost_at(cost, b->forward, b->batch_axis, share), again = 0, ignored = 0;
    double dgrad = cost_at(cost, b->dgrad, b->batch_axis, share), small = 0;
    const double *made = compiles(w) ? b->read_by_backward : b->activations;
    const double *selective = compiles(w) ? b->read_selectively
                              : b->selective_activations ? b->selective_activations : made;

    /* By the planner's own sums that is not kept where a stage ends behind it. */
    double passed = compiles(w) ? 0 : bytes_at(cost, b->passed_on, b->batch_axis, share);
    double kept, less;

    block_selective(cost, b, share, &again, &ignored);
    block_selective(cost, b, least, &small, &ignored);
    o->forward[i + 1] = o->forward[i] + forward;
    o->wgrad[i + 1] = o->wgrad[i] +
                      (b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, share) : 0);
    /* From a block off the way, or before it: that may be in the same stage. */
    if (compiles(w) && way_is_chain(w))
        o->read[i] = bytes_at(cost, b->read_from_others, b->batch_axis, share);
    o->fixed[i + 1] = o->fixed[i] + fixed_bytes(w, b, shares->copies);
    kept = dmax(0, bytes_at(cost, made, b->batch_axis, share) - passed);
    less = dmax(0, bytes_at(cost, selective, b->batch_axis, share) - passed);
    o->made[0][i + 1] = o->made[0][i] + kept;
    o->made[1][i + 1] = o->made[1][i] + dmin(kept, less);
    for (enum plan_recompute c = PLAN_RECOMPUTE_NONE; c < RECOMPUTES; c++) {
        double f = cost_at(cost, b->forward, b->batch_axis, least);

        o->dgrad[c][i + 1] = o->dgrad[c][i] + dgrad + dmax(0, recompute_seconds(c, again, forward));
        o->trip[c][i + 1] = o->trip[c][i] +
                            dmin(forward + dgrad + dmax(0, recompute_seconds(c, again, forward)),
                                 trip(cost, b, least) + dmax(0, recompute_seconds(c, small, f)));
    }
}

void way_sums_init(struct way_sums *sums, const struct way *way, int64_t b, int64_t m, int replicas,
                   int most, int copies)
{
    size_t n = (size_t)way->n + 1;
    double *rows = mem_new(n * (6 + 3 * RECOMPUTES), sizeof(double));
    struct shares shares = { (double)candidate_share(b, replicas), (double)(b / most), copies };

    *sums = (struct way_sums){ .replicas = replicas,
                               .sends = dmin(search_message_buffers(way->search), (double)m) };
    /* The rows lie end to end, and are freed by the first. */
    sums->forward = rows;
    sums->wgrad = rows += n;
    sums->fixed = rows += n;
    sums->in = rows += n;
    sums->out = rows += n;
    sums->arrives = rows += n;
    sums->read = rows += n;
    for (int c = 0; c < RECOMPUTES; c++) {
        sums->trip[c] = rows += n;
        sums->dgrad[c] = rows += n;
    }
    for (int c = 0; c < RECOMPUTES - 1; c++)
        sums->made[c] = rows += n;
    for (int i = 0; i < way->n; i++)
        fill_block(way, sums, &shares, i);
    fill_messages(way, shares.largest, sums);
    if (way_is_chain(way))
        fill_arrives(way, shares.largest, sums);
}

void way_sums_clear(struct way_sums *sums)
{
    free(sums->forward);
}

bool way_is_chain(const struct way *way)
{
    return way->n == way->search->cost->n_blocks;
}

void way_init(struct way *way, struct search *search)
{
    size_t n = (size_t)search->cost->n_blocks;
    double smallest;

    *way = (struct way){ .search = search, .blocks = mem_new(n, sizeof(int)),
                         .within = mem_new(n, sizeof(int)) };
    search_rooms(search, &smallest, &way->room);
    find_way(way);
    fill_within(way);
}

void way_clear(struct way *way)
{
    free(way->blocks);
    free(way->within);
}
