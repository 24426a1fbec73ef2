/* SPDX-License-Identifier: MIT */
/* A lower bound for plans whose devices have several stages. Device d of L starts when a sample has
 * passed the blocks before its first stage, which are d at least, and has all micro-batches of all
 * its stages to run: no plan is faster than the mean of that over the devices. Where there are few
 * ways to cut, those that may be faster by their slowest device (candidate_least()) are
 * simulated: on all devices that make a difference, and where there are few cuts and devices without
 * those of which one stage, or several of a device, take too long or do not fit.
 *
 * Memory: of a device that is done in T seconds neither the seconds by T nor the bytes by its room
 * are more than 1, and so is no mean of both, however they are weighed. The order says how many
 * micro-batches each stage holds; dynamic programming finds the least sum over all ways to cut, with
 * what has to be run again. Where it is more than the devices no plan takes T.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_way.h"

/* Ways to cut that are looked at in all, and as how many of them one counts that is simulated. */
#define MOST_CUT 20000
#define SIMULATION 10
/* Relative, of sums in another order. */
#define SAME 1e-9
/* By so much less than the bound is tried, each time, where there are few ways to cut. */
#define STEP 1.04
/* So near the bound of plans without chunks memory is not looked at. */
#define NEAR 1.001
/* Stages that are looked at with memory, in all; and of one number of them, with all their ends. */
#define MOST_LOOKED 4e8
#define MOST_ENDS 16e6
/* The weight of seconds at first, bytes have the rest; how often weights are turned, and by how much
 * of what a device has too much, the first time.
 */
#define START 0.75
#define TURNS 20
#define RATE 0.1

struct trip {
    double forward, dgrad;
};

/* Of the seconds of a device by those that it may take, and of its bytes by its room. */
struct weight {
    double seconds, bytes;
};

struct bounding {
    struct search *search;
    struct search *cuts;    /* by which each way to cut is looked at */
    double bound, upper;    /* upper: of plans without chunks */
    bool keep;              /* what is faster than the bound, which it then is, too */
    bool flat;              /* in whatever order devices are taken, plans are the same */
    const struct chunking *chunking;    /* whose cuts are looked at */
    bool prunes;            /* these are not counted first, but left where a device has too much */
    double left;            /* ways to cut that may be looked at */
    int n_first;
    const struct chunking *first;
    struct places places;   /* once any is asked for */
    /* [blocks]: of the smallest share; [blocks + 1]: the shortest way to a block from this one on, and
     * back from there.
     */
    struct trip *each, *ways;
    struct way way;
    int64_t share;          /* of 'sums' */
    struct way_sums sums;
    /* [blocks + 1]: by devices, what no interleaved plan of this share is as fast as. */
    double *slower;
    double *least, *before, *seconds, *kept;    /* [blocks + 1] */
    int *slots;             /* [blocks]: of each stage */
    double looks;           /* at stages, with memory, that are left */
    bool weighs;            /* bytes, not seconds alone */
    struct weight *weights; /* [blocks]: of each device */
    int *next;              /* [stages][blocks + 1]: of a stage from here on, the block behind it, times
                             * RECOMPUTES, and what it runs again */
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
        b->ways[i] = (struct trip){ 0, 0 };
    }
    for (int e = 0; e < cost->n_edges; e++) {
        const struct cost_edge *edge = &cost->edges[e];
        const struct trip *from = &b->ways[edge->from], *own = &b->each[edge->from];
        struct trip *to = &b->ways[edge->to];

        to->forward = dmax(to->forward, from->forward + own->forward);
        if (edge->gradient_bytes[cost->n_sizes - 1] > 0)
            to->dgrad = dmax(to->dgrad, from->dgrad + own->dgrad);
    }
    b->ways[n] = (struct trip){ INFINITY, INFINITY };
    for (int i = n - 1; i >= 0; i--)
        b->ways[i] = (struct trip){ dmin(b->ways[i].forward, b->ways[i + 1].forward),
                                   dmin(b->ways[i].dgrad, b->ways[i + 1].dgrad) };
}

/* Under interleaved all but the last W of a device are done before its last gradient leaves. */
static double mean_bound(const struct bounding *b, const struct chunking *f,
                         const struct chunking_sums *sums)
{
    double m = (double)f->split->micro_batches, start = 0, back = 0, all;

    for (int l = 0; l < f->lists; l++) {
        start += b->ways[l].forward;
        back += b->ways[l].dgrad;
    }
    all = m * sums->work + start;
    return (f->kind == SCHEDULE_INTERLEAVED ? dmax(all, all + back - sums->wgrad) : all) / f->lists;
}

/* Seconds that count for stage 's' under interleaved, of the first blocks up to here. Device l starts
 * when a micro-batch has passed the first stages of those before it, and all its B are done before a
 * gradient goes back through them: their passes count once for each device behind. All stages are
 * cut among their replicas alike: those of the largest share wait for each other. Where seconds
 * alone count, the last W of no stage does, so that the least of fewer stages is no less.
 */
static double seconds_to(const struct bounding *b, const struct chunking *f, int s,
                         enum plan_recompute c, int block)
{
    const struct way_sums *o = &b->sums;
    bool first = s < f->lists;
    double m = (double)f->split->micro_batches, fill = first ? f->lists - 1 - s : 0;

    return (m + fill) * o->forward[block] + m * o->dgrad[c][block] +
           fill * o->dgrad[PLAN_RECOMPUTE_NONE][block] +
           (m - (first || !b->weighs)) * o->wgrad[block];
}

/* In front of what 'before' has. */
static void add_stage(struct bounding *b, const struct chunking *f, int s, enum plan_recompute c,
                      double seconds)
{
    const struct way_sums *o = &b->sums;
    const struct weight *weight = &b->weights[schedule_list(f->kind, f->lists, s)];
    double per_second = weight->seconds / seconds, room = b->way.room;
    double per_byte = weight->bytes / room;
    const double *fixed = o->fixed, *made = o->made[c == PLAN_RECOMPUTE_SELECTIVE];
    const double *before = b->before, *sums = b->seconds, *kept = b->kept;
    /* Of itself a stage takes no longer than that. */
    double most = s < f->lists ? INFINITY : seconds * (1 + SAME);
    int *next = b->next + (size_t)s * ((size_t)b->way.n + 1);
    int end = b->way.n - (f->lists * f->chunks - 1 - s);
    int known = 0;          /* from there on there is something behind */

    while (known < end && isinf(before[known]))
        known++;
    for (int i = 0; i <= b->way.n; i++) {
        b->seconds[i] = seconds_to(b, f, s, c, i);
        b->kept[i] = fixed[i] + made[i];
    }
    for (int i = end - 1; i >= s; i--) {
        double held = room * (1 + SAME) + fixed[i] + made[i], least = b->least[i];
        int j = i + 1, to = 0;

        for (; j <= end; j++) {
            double own = sums[j] - sums[i], total = before[j] + per_second * own, bytes;

            if (kept[j] > held || own > most)
                break;
            if (total >= least)
                continue;
            bytes = b->weighs ? way_bytes(&b->way, o, c, b->slots[s], i, j) : 0;
            total += per_byte * bytes;
            if (bytes > room || total >= least)
                continue;
            least = total;
            to = j;
        }
        /* From further in front none reaches what is known, either: a longer one takes and keeps more. */
        if (j <= known)
            break;
        b->looks -= j - i;
        b->least[i] = least;
        if (to)
            next[i] = to * RECOMPUTES + (int)c;
    }
}

static size_t ends_of(const struct bounding *b, const struct chunking *f)
{
    return (size_t)f->lists * (size_t)f->chunks * ((size_t)b->way.n + 1);
}

/* Of all devices, over all ways to cut. */
static double least_mean(struct bounding *b, const struct chunking *f, double seconds)
{
    const struct plan_request *q = b->search->request;
    enum plan_recompute from = recompute_asked(q);
    enum plan_recompute most = b->weighs ? recompute_most(q, f->kind) : from;

    b->next = mem_resize(b->next, ends_of(b, f), sizeof(*b->next));
    for (int i = 0; i <= b->way.n; i++)
        b->least[i] = i < b->way.n ? INFINITY : 0;
    for (int s = f->lists * f->chunks - 1; s >= 0; s--) {
        double *before = b->least;

        b->least = b->before;
        b->before = before;
        for (int i = 0; i <= b->way.n; i++)
            b->least[i] = INFINITY;
        for (enum plan_recompute c = from; c <= most; c++)
            add_stage(b, f, s, c, seconds);
    }
    return b->least[0];
}

static void set_weights(struct bounding *b, const struct chunking *f, struct weight weight)
{
    b->weighs = weight.bytes > 0;
    for (int l = 0; l < f->lists; l++)
        b->weights[l] = weight;
}

/* What no plan is above that keeps to the seconds and the room. */
static double all_weights(const struct bounding *b, const struct chunking *f)
{
    double sum = 0;

    for (int l = 0; l < f->lists; l++)
        sum += b->weights[l].seconds + b->weights[l].bytes;
    return sum;
}

/* More for that of which a device had too much in the least that was found, by so much of the excess. */
static void turn_weights(struct bounding *b, const struct chunking *f, double seconds, double rate)
{
    for (int l = 0; l < f->lists; l++) {
        b->weights[l].seconds -= rate;
        b->weights[l].bytes -= rate;
    }
    for (int s = 0, i = 0; s < f->lists * f->chunks; s++) {
        int next = b->next[(size_t)s * ((size_t)b->way.n + 1) + (size_t)i], j = next / RECOMPUTES;
        enum plan_recompute c = (enum plan_recompute)(next % RECOMPUTES);
        struct weight *weight = &b->weights[schedule_list(f->kind, f->lists, s)];

        weight->seconds +=
            rate * (seconds_to(b, f, s, c, j) - seconds_to(b, f, s, c, i)) / seconds;
        weight->bytes +=
            rate * way_bytes(&b->way, &b->sums, c, b->slots[s], i, j) / b->way.room;
        i = j;
    }
    for (int l = 0; l < f->lists; l++) {
        b->weights[l].seconds = dmax(0, b->weights[l].seconds);
        b->weights[l].bytes = dmax(0, b->weights[l].bytes);
    }
}

/* Is no plan with so many chunks as fast as that? */
static bool is_slower(struct bounding *b, const struct chunking *f, double seconds)
{
    for (int s = 0; s < f->lists * f->chunks; s++)
        b->slots[s] = schedule_chunk_slots(f->kind, f->lists, f->chunks,
                                           (int)f->split->micro_batches, s);
    set_weights(b, f, (struct weight){ START, 1 - START });
    for (int i = 0; i < TURNS; i++) {
        if (least_mean(b, f, seconds) > all_weights(b, f) * (1 + SAME))
            return true;
        turn_weights(b, f, seconds, RATE / sqrt(1 + i));
    }
    return false;
}

/* Under zb-v nothing is run again, and a stage with n behind it holds n micro-batches at least, of
 * which each takes as long as all may at most: so many does each block have behind it.
 */
static bool lack_memory(const struct bounding *b, const struct chunking *f, double seconds)
{
    const struct way_sums *o = &b->sums;
    double m = (double)f->split->micro_batches, bytes = o->fixed[b->way.n], behind = 0;

    for (int i = b->way.n - 1; i >= 0; i--) {
        double stages;

        behind += m * (o->forward[i + 1] - o->forward[i] + o->wgrad[i + 1] - o->wgrad[i] +
                       o->dgrad[PLAN_RECOMPUTE_NONE][i + 1] - o->dgrad[PLAN_RECOMPUTE_NONE][i]);
        stages = ceil(behind / seconds * (1 - SAME)) - 1;
        bytes += (o->made[PLAN_RECOMPUTE_NONE][i + 1] - o->made[PLAN_RECOMPUTE_NONE][i]) *
                 dmax(1, dmin(dmax(stages, 2 * f->lists - 1 - i), m));
    }
    return bytes > f->lists * b->way.room * (1 + SAME);
}

/* Of shares that are the same: whatever the number of replicas. */
static bool all_slower(struct bounding *b, struct chunking *f, double seconds)
{
    double *known = &b->slower[f->lists];
    double bytes = b->sums.fixed[b->way.n] + b->sums.made[PLAN_RECOMPUTE_SELECTIVE][b->way.n];
    int stages = b->search->request->stages, most = b->way.n / f->lists;

    if (bytes > f->lists * b->way.room)
        return true;
    if (f->kind == SCHEDULE_ZB_V)
        return lack_memory(b, f, seconds);
    if (*known >= seconds)
        return true;
    most = most < SCHEDULE_MAX_CHUNKS ? most : SCHEDULE_MAX_CHUNKS;
    for (f->chunks = most; f->chunks >= 2; f->chunks--) {
        if (stages && stages != f->lists * f->chunks)
            continue;
        if (b->looks < 0 || (double)ends_of(b, f) > MOST_ENDS)
            return false;
        /* With fewer chunks devices wait longer for their first micro-batch. */
        set_weights(b, f, (struct weight){ 1, 0 });
        if (least_mean(b, f, seconds) > f->lists * (1 + SAME))
            break;
        if (!is_slower(b, f, seconds))
            return false;
    }
    *known = seconds;
    return true;
}

/* Of the largest share. Where the plain bound is as good as other plans' nobody asks for them. */
static void set_sums(struct bounding *b, const struct chunking *f)
{
    int64_t share = candidate_share(f->split->micro_batch, f->replicas);

    if (share == b->share)
        return;
    way_sums_clear(&b->sums);
    way_sums_init(&b->sums, &b->way, share, f->split->micro_batches, 1, 1,
                  b->search->cluster->n_devices);
    memset(b->slower, 0, ((size_t)b->way.n + 1) * sizeof(*b->slower));
    b->share = share;
}

/* The same with memory, and what is run again so that it suffices. */
static double tight_bound(struct bounding *b, struct chunking *f, const struct chunking_sums *sums)
{
    double mean = mean_bound(b, f, sums);

    if (b->keep || mean * NEAR >= b->upper || !way_is_chain(&b->way))
        return mean;
    set_sums(b, f);
    for (double seconds = b->bound; seconds > mean; seconds /= STEP)
        if (all_slower(b, f, seconds))
            return seconds < b->bound ? seconds : INFINITY;
    return mean;
}

/* Whatever its stages run again, others of a device might: as if they had room to run nothing.
 * INFINITY: they never fit.
 */
static double simulate_least(struct search *s, struct candidate *c, double least)
{
    double memory = s->memory, seconds;

    if (search_evaluate(s, c, true, NULL))
        return least;
    seconds = c->seconds;
    if (isinf(seconds) || !chooses_again(s, c))
        return seconds;
    s->memory = INFINITY;
    least = search_evaluate(s, c, true, NULL) ? least : dmin(c->seconds, seconds);
    s->memory = memory;
    return least;
}

/* What the simulation says is what a plan would say, but for memory that only compiling tells. */
static void try_placed(struct bounding *b, struct candidate *c)
{
    struct search *s = b->cuts;
    double least = candidate_least(s, c);

    if (least >= b->bound)
        return;
    if (b->keep) {
        b->left -= SIMULATION;
        least = search_evaluate(s, c, true, NULL) ? least : c->seconds;
    } else if (!s->request->memory_of) {
        b->left -= SIMULATION;
        least = simulate_least(s, c, least);
    }
    if (least >= b->bound)
        return;
    b->bound = least;
    if (b->keep)
        search_add(s, candidate_copy(c));
}

/* On all devices that make a difference, from number 'k' on; pipelines are alike. */
static void place_on(struct bounding *b, struct candidate *c, int k)
{
    int each = candidate_devices(c), n = b->search->cluster->n_devices;

    if (k == candidate_pipelines(c) * each) {
        b->left -= b->prunes;
        try_placed(b, c);
        return;
    }
    for (int d = k > 0 && k % each == 0 ? c->devices[k - each] + 1 : 0; d < n; d++) {
        if ((b->prunes && b->left < 0) || !places_offer(&b->places, d))
            continue;
        c->devices[k] = d;
        places_take(&b->places, d, 1);
        place_on(b, c, k + 1);
        places_take(&b->places, d, -1);
    }
}

/* A bound has to know every order that matters; of kinds of devices many do. */
static bool places_all(const struct bounding *b)
{
    return (!b->keep || b->prunes) && !b->flat;
}

/* At most: some differ in nothing. */
static double ways_to_place(const struct bounding *b, const struct chunking *f)
{
    int devices = f->split->pipelines * f->lists * f->replicas;
    double ways = 1;

    for (int i = 0; places_all(b) && i < devices; i++)
        ways *= b->search->cluster->n_devices - i;
    return ways;
}

static void try_cuts(struct bounding *b, struct candidate *c)
{
    chunking_place(b->cuts, b->chunking, c);
    if (places_all(b)) {
        if (!b->places.cluster)
            places_init(&b->places, b->search->cluster);
        free(c->devices);
        c->devices = mem_new((size_t)b->search->cluster->n_devices, sizeof(*c->devices));
        place_on(b, c, 0);
        return;
    }
    search_choose_devices(b->cuts, c);
    try_placed(b, c);
}

/* State that is not in shards may be summed up in other ways. */
static void end_cuts(struct bounding *b, struct candidate *c)
{
    struct search *s = b->cuts;

    try_cuts(b, c);
    if (b->keep || !s->zero || s->request->zero == PLAN_ZERO)
        return;
    s->zero = c->zero = false;
    try_cuts(b, c);
    s->zero = c->zero = true;
}

/* A stage's part of what its device takes at least: seconds for all micro-batches by its largest share,
 * and bytes, whatever it runs again.
 */
static struct weight part_of(struct bounding *b, struct candidate *c, int s)
{
    const struct plan_request *q = b->search->request;
    int64_t share = candidate_share(c->micro_batch, c->replicas[s]);
    struct weight part = { 0, q->memory_of ? 0 : INFINITY };
    struct interval_cost cost;

    candidate_interval(b->search, c, s, share, &cost);
    part.seconds = (double)c->micro_batches * (cost.forward + cost.dgrad + cost.wgrad);
    for (enum plan_recompute r = recompute_asked(q);
         r <= recompute_most(q, c->schedule) && !q->memory_of; r++) {
        c->again[s] = r;
        part.bytes = dmin(part.bytes, search_interval_bytes(b->search, c, s, &cost));
    }
    return part;
}

static void cut_on(struct bounding *b, struct candidate *c, int k);

/* The stage before cut 'k', and all ways from there on, unless that is too much for its device. */
static void close_stage(struct bounding *b, struct candidate *c, int k)
{
    struct weight *device = &b->weights[candidate_list(c, k - 1)], before = *device;

    if (b->prunes) {
        struct weight part = part_of(b, c, k - 1);

        b->left--;
        device->seconds += part.seconds;
        device->bytes += part.bytes;
        if (b->left < 0 || device->seconds * (1 - SAME) >= b->bound || device->bytes > b->way.room) {
            *device = before;
            return;
        }
    }
    if (k == c->n_stages)
        end_cuts(b, c);
    else
        cut_on(b, c, k + 1);
    *device = before;
}

/* Each way to put the cuts from number 'k' on. */
static void cut_on(struct bounding *b, struct candidate *c, int k)
{
    const struct table *table = b->search->table;
    int last = k == 1 ? 0 : table_cut(table, c->cuts[k - 1]);

    if (k == c->n_stages) {
        close_stage(b, c, k);
        return;
    }
    for (int at = last + 1; at <= table->n - (c->n_stages - k); at++) {
        c->cuts[k] = table->cuts[at];
        close_stage(b, c, k);
    }
}

static double ways_to_cut(int parts, int stages)
{
    double ways = 1;

    for (int i = 1; i < stages; i++)
        ways *= (double)(parts - i) / i;
    return ways;
}

/* In the orders of devices that a search looks at, or all. Returns how many ways there are; 'count':
 * does no more.
 */
static double look_at_orders(struct bounding *b, struct chunking *f, bool count)
{
    double ways = 0;

    for (int order = 0; order < (places_all(b) ? 1 : DEVICE_ORDERS); order++) {
        struct candidate *c;

        f->order = (enum device_order)order;
        if (!chunking_order(b->cuts, f))
            continue;
        ways += ways_to_cut(b->search->table->n, f->lists * f->chunks) * ways_to_place(b, f);
        if (count)
            continue;
        b->chunking = f;
        memset(b->weights, 0, (size_t)f->lists * sizeof(*b->weights));
        c = chunking_new(b->cuts, f);
        if (b->prunes)
            c->again = mem_resize(c->again, (size_t)c->n_stages, sizeof(*c->again));
        cut_on(b, c, 1);
        candidate_free(c);
    }
    return ways;
}

/* False where there are too many, or more than the table has. */
static bool look_at_cuts(struct bounding *b, struct chunking *f)
{
    struct search *s = b->search;
    double ways = 0;

    if (s->table->n < s->cost->n_blocks)
        return false;
    for (int pass = b->prunes; pass < 2; pass++)
        for (f->chunks = 2; f->chunks <= chunking_most(s, f->lists); f->chunks++)
            for (int v = f->chunks > 2; v < 2; v++) {
                f->kind = v ? SCHEDULE_INTERLEAVED : SCHEDULE_ZB_V;
                if (!is_chunking(s, f))
                    continue;
                if (pass)
                    look_at_orders(b, f, false);
                else
                    ways += look_at_orders(b, f, true);
                if (!pass && ways > b->left)
                    return false;
            }
    b->left -= ways;
    return !b->prunes || b->left >= 0;
}

/* All plans with one split, as many replicas and as many lists. */
static void bound_lists(struct bounding *b, struct chunking *f, const struct chunking_sums *sums)
{
    double least = INFINITY, before = b->bound;

    for (int v = 0; v < 2; v++) {
        f->kind = v ? SCHEDULE_ZB_V : SCHEDULE_INTERLEAVED;
        if (!schedule_suits(f->kind, f->lists, f->split->micro_batches, NULL))
            least = dmin(least, tight_bound(b, f, sums) * (1 - SAME));
    }
    if (least >= before)
        return;
    if (look_at_cuts(b, f) && !b->keep)
        b->bound = dmax(b->bound, least);
    else if (!b->keep)
        b->bound = dmin(b->bound, least);
}

/* With the first ones. */
static bool was_looked_at(const struct bounding *b, const struct chunking *f)
{
    for (int i = 0; i < b->n_first; i++) {
        const struct chunking *first = &b->first[i];

        if (first->split->pipelines == f->split->pipelines &&
            first->split->micro_batch == f->split->micro_batch &&
            first->replicas == f->replicas && first->lists == f->lists)
            return true;
    }
    return false;
}

/* All plans with one split and as many replicas. */
static void bound_split(struct bounding *b, struct chunking *f)
{
    const struct search *s = b->search;
    int devices = search_devices(s, f->split->pipelines) / f->replicas;
    bool many = ways_to_cut(s->table->n, 4) > MOST_CUT && !s->request->micro_batch;
    int64_t share = candidate_share(f->split->micro_batch, f->replicas);
    const struct chunking_sums *sums;

    /* Where no cut is looked at replicas of one pipeline do as well. */
    if (many && f->split->pipelines > s->splits[0].pipelines)
        return;
    sums = chunking_sum(s->table, share);
    fill_ways(b, f);
    for (f->lists = 2; f->lists <= devices && 2 * f->lists <= s->cost->n_blocks; f->lists++)
        if (!was_looked_at(b, f))
            bound_lists(b, f, sums);
}

static void bound_splits(struct bounding *b)
{
    const struct search *s = b->search;

    for (int i = 0; i < s->n_splits; i++) {
        struct chunking f = { .split = &s->splits[i] };

        b->share = 0;
        for (f.replicas = 1; 2 * f.replicas <= search_devices(s, f.split->pipelines) &&
                             f.replicas <= f.split->micro_batch; f.replicas++)
            bound_split(b, &f);
    }
}

static void bound_first(struct bounding *b)
{
    for (int i = 0; i < b->n_first; i++) {
        struct chunking f = b->first[i];
        int64_t share = candidate_share(f.split->micro_batch, f.replicas);

        b->share = 0;
        fill_ways(b, &f);
        bound_lists(b, &f, chunking_sum(b->search->table, share));
    }
}

/* The least that such a plan takes, where that is less than 'upper'; 'all': on all devices, as far as
 * there are few. The first ones are looked at before the others.
 */
static double bound_all(struct search *s, double upper, bool keep, bool all, int n_first,
                        const struct chunking *first)
{
    size_t n = (size_t)s->cost->n_blocks;
    struct search *cuts = s->actual ? s->actual : s;
    bool zero = cuts->zero;
    bool may = keep ? chunks_searched(s->request) : chunks_allowed(s->request);
    struct bounding b = { .search = s, .cuts = cuts, .bound = upper, .upper = upper, .keep = keep,
                          .flat = !s->actual && s->flat, .prunes = s->few && all,
                          .left = MOST_CUT, .n_first = n_first, .first = first, .each = mem_new(n, sizeof(struct trip)),
                          .ways = mem_new(n + 1, sizeof(struct trip)),
                          .slower = mem_new(n + 1, sizeof(double)),
                          .least = mem_new(n + 1, sizeof(double)),
                          .before = mem_new(n + 1, sizeof(double)),
                          .seconds = mem_new(n + 1, sizeof(double)),
                          .kept = mem_new(n + 1, sizeof(double)),
                          .slots = mem_new(n, sizeof(int)), .weights = mem_new(n, sizeof(struct weight)),
                          .looks = MOST_LOOKED };

    cuts->zero = s->zero;
    way_init(&b.way, s);
    if (may) {
        bound_first(&b);
        bound_splits(&b);
    }
    cuts->zero = zero;
    free(b.each);
    free(b.ways);
    free(b.slower);
    free(b.least);
    free(b.before);
    free(b.seconds);
    free(b.kept);
    free(b.slots);
    places_clear(&b.places);
    free(b.weights);
    free(b.next);
    way_sums_clear(&b.sums);
    way_clear(&b.way);
    return b.bound;
}

double partition_chunks_bound(struct search *s, double upper)
{
    return bound_all(s, upper, false, true, 0, NULL) * (1 - SAME);
}

static double found_seconds(const struct search *s)
{
    return s->n_found ? s->found[0]->seconds : INFINITY;
}

void search_cut_chunks(struct search *s, int n, const struct chunking *chunkings)
{
    struct search *least = s->mixed ? search_least_new(s) : NULL;
    bool tight = s->tight;

    bound_all(least ? least : s, found_seconds(s), true, false, n, chunkings);
    search_sort(s);
    /* Of devices of several kinds each may want another stage. */
    if (least) {
        double effort = s->effort;

        bound_all(least, found_seconds(s), true, true, n, chunkings);
        search_least_free(least);
        s->effort = effort;
        search_sort(s);
    }
    s->tight = tight;
}
