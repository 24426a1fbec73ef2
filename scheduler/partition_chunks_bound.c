/* SPDX-License-Identifier: MIT */
/* A lower bound for plans whose devices have several stages. Device d of L starts when a sample has
 * passed the blocks before its first stage, which are d at least, and has all micro-batches of all
 * its stages to run: no plan is faster than the mean of that over the devices. Where there are few
 * ways to cut, those that may be faster by their slowest device (candidate_least()) are
 * simulated.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Ways to cut that are looked at in all, and as how many of them one counts that is simulated. */
#define MOST_CUT 20000
#define SIMULATION 10
/* Relative, of sums in another order. */
#define SAME 1e-9
/* By so much less than the bound is tried, each time, where there are few ways to cut. */
#define STEP 1.04
/* So near the bound of plans without chunks memory is not looked at. */
#define NEAR 1.001

struct trip {
    double forward, dgrad;
};

struct bounding {
    struct search *search;
    double bound, upper;    /* upper: of plans without chunks */
    bool keep;              /* what is faster than the bound, which it then is, too */
    double left;            /* ways to cut that may be looked at */
    /* [blocks]: of the smallest share; [blocks + 1]: the shortest way to a block from this one on, and
     * back from there.
     */
    struct trip *each, *way;
    struct distance *distance;
};

/* Edges ascend. */
static void fill_ways(struct bounding *b, const struct chunking *f)
{
    const struct cost *cost = b->search->cost;
    double share = (double)(f->split->micro_batch / f->replicas);
    int n = cost->n_blocks;

    for (int i = 0; i < n; i++) {
        const struct cost_block *block = &cost->blocks[i];

        b->each[i] = (struct trip){ cost_at(cost, block->forward, block->batch_axis, share),
                                    cost_at(cost, block->dgrad, block->batch_axis, share) };
        b->way[i] = (struct trip){ 0, 0 };
    }
    for (int e = 0; e < cost->n_edges; e++) {
        const struct cost_edge *edge = &cost->edges[e];
        const struct trip *from = &b->way[edge->from], *own = &b->each[edge->from];
        struct trip *to = &b->way[edge->to];

        to->forward = fmax(to->forward, from->forward + own->forward);
        if (edge->gradient_bytes[cost->n_sizes - 1] > 0)
            to->dgrad = fmax(to->dgrad, from->dgrad + own->dgrad);
    }
    b->way[n] = (struct trip){ INFINITY, INFINITY };
    for (int i = n - 1; i >= 0; i--)
        b->way[i] = (struct trip){ fmin(b->way[i].forward, b->way[i + 1].forward),
                                   fmin(b->way[i].dgrad, b->way[i + 1].dgrad) };
}

/* Under interleaved all but the last W of a device are done before its last gradient leaves. */
static double mean_bound(const struct bounding *b, const struct chunking *f,
                         const struct chunking_sums *sums)
{
    double m = (double)f->split->micro_batches, start = 0, back = 0, all;

    for (int l = 0; l < f->lists; l++) {
        start += b->way[l].forward;
        back += b->way[l].dgrad;
    }
    all = m * sums->work + start;
    return (f->kind == SCHEDULE_INTERLEAVED ? fmax(all, all + back - sums->wgrad) : all) / f->lists;
}

/* The same with memory, and what is run again so that it suffices. */
static double tight_bound(struct bounding *b, const struct chunking *f,
                          const struct chunking_sums *sums)
{
    double mean = mean_bound(b, f, sums);

    if (mean * NEAR >= b->upper)
        return mean;
    for (double seconds = b->bound; seconds > mean && !b->keep; seconds /= STEP)
        if (distance_slower(b->distance, f, seconds))
            return seconds < b->bound ? seconds : INFINITY;
    return mean;
}

/* What the simulation says is what a plan would say, but for memory that only compiling tells. */
static void end_cuts(struct bounding *b, struct candidate *c)
{
    struct search *s = b->search;
    double least = candidate_least(s, c);

    if (least >= b->bound)
        return;
    if (b->keep || !s->request->memory_of) {
        b->left -= SIMULATION;
        least = search_evaluate(s, c, true, NULL) ? least : c->seconds;
    }
    if (least >= b->bound)
        return;
    b->bound = least;
    if (b->keep)
        search_add(s, candidate_copy(c));
}

/* Each way to put the cuts from number 'k' on. */
static void cut_on(struct bounding *b, struct candidate *c, int k)
{
    const struct table *table = b->search->table;
    int last = k == 1 ? 0 : table_cut(table, c->cuts[k - 1]);

    if (k == c->n_stages) {
        end_cuts(b, c);
        return;
    }
    for (int at = last + 1; at <= table->n - (c->n_stages - k); at++) {
        c->cuts[k] = table->cuts[at];
        cut_on(b, c, k + 1);
    }
}

static double ways_to_cut(int parts, int stages)
{
    double ways = 1;

    for (int i = 1; i < stages; i++)
        ways *= (double)(parts - i) / i;
    return ways;
}

/* False where there are too many. */
static bool look_at_cuts(struct bounding *b, struct chunking *f)
{
    struct search *s = b->search;
    double ways = 0;

    for (int pass = 0; pass < 2; pass++)
        for (f->chunks = 2; f->chunks <= chunking_most(s, f->lists); f->chunks++)
            for (int v = f->chunks > 2; v < 2; v++) {
                struct candidate *c;

                f->kind = v ? SCHEDULE_INTERLEAVED : SCHEDULE_ZB_V;
                if (!is_chunking(s, f))
                    continue;
                if (!pass) {
                    ways += ways_to_cut(s->table->n, f->lists * f->chunks);
                    if (ways > b->left)
                        return false;
                    continue;
                }
                c = chunking_new(s, f);
                cut_on(b, c, 1);
                candidate_free(c);
            }
    b->left -= ways;
    return true;
}

/* All plans with one split and as many replicas. */
static void bound_split(struct bounding *b, struct chunking *f)
{
    const struct search *s = b->search;
    int devices = search_devices(s, f->split->pipelines) / f->replicas;
    bool many = ways_to_cut(s->table->n, 4) > MOST_CUT && !s->request->micro_batch;
    int64_t share = candidate_share(f->split->micro_batch, f->replicas);
    struct chunking_sums sums = chunking_sum(s->cost, share);

    /* Where no cut is looked at replicas of one pipeline do as well. */
    if (many && f->split->pipelines > s->splits[0].pipelines)
        return;
    fill_ways(b, f);
    for (f->lists = 2; f->lists <= devices && 2 * f->lists <= s->table->n; f->lists++) {
        double least = INFINITY, before = b->bound;

        for (int v = 0; v < 2; v++) {
            f->kind = v ? SCHEDULE_ZB_V : SCHEDULE_INTERLEAVED;
            if (!schedule_suits(f->kind, f->lists, f->split->micro_batches, NULL))
                least = fmin(least, tight_bound(b, f, &sums) * (1 - SAME));
        }
        if (least >= before)
            continue;
        if (look_at_cuts(b, f) && !b->keep)
            b->bound = fmax(b->bound, least);
        else if (!b->keep)
            b->bound = least;
    }
}

/* The least that such a plan takes, where that is less than 'upper'. */
static double bound_all(struct search *s, double upper, bool keep)
{
    size_t n = (size_t)s->cost->n_blocks;
    struct bounding b = { .search = s, .bound = upper, .upper = upper, .keep = keep,
                          .left = MOST_CUT, .each = mem_new(n, sizeof(struct trip)),
                          .way = mem_new(n + 1, sizeof(struct trip)),
                          .distance = distance_new(s) };

    for (int i = 0; i < s->n_splits && chunks_allowed(s->request); i++) {
        struct chunking f = { .split = &s->splits[i] };

        for (f.replicas = 1; 2 * f.replicas <= search_devices(s, f.split->pipelines) &&
                             f.replicas <= f.split->micro_batch; f.replicas++)
            bound_split(&b, &f);
    }
    free(b.each);
    free(b.way);
    distance_free(b.distance);
    return b.bound;
}

double partition_chunks_bound(struct search *s, double upper)
{
    return bound_all(s, upper, false) * (1 - SAME);
}

void search_cut_chunks(struct search *s)
{
    bool tight = s->tight;

    bound_all(s, s->n_found ? s->found[0]->seconds : INFINITY, true);
    s->tight = tight;
    search_sort(s);
}
