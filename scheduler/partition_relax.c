/* SPDX-License-Identifier: MIT */
/* A lower bound with bubbles. Each stage on its own says when an iteration can be over at the
 * earliest: it starts when the shortest way there is done, runs all its micro-batches, none backward
 * before the first has been through all that is behind the stage, and the way back and the
 * all-reduce follow. No plan is faster than its slowest stage in this sense,
 * and for a given time dynamic programming tells whether the devices suffice for any pipeline
 * whose stages all keep to it; where there is little to try and not all devices have the same
 * memory, whether those do that have more than the smallest. There each way to cut is looked at on its
 * own, too: partition_relax_few.c.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "base/order.h"
#include "scheduler/partition_relax.h"

/* Relative, of the bound. */
#define PRECISION 1e-4

/* Is it not said which slots a stage has: by a list, or chunks? */
static bool is_open(const struct plan_request *q)
{
    return q->list || (q->schedule &&
                       schedule_chunks((enum schedule_kind)schedule_find(q->schedule), 2) > 1);
}

static void add_kinds(const struct relaxation *r, struct choice *choice)
{
    choice->fast = table_share(r->fast, choice->share->samples);
    choice->rest = table_share(r->rest, choice->share->samples);
    choice->smallest = table_share(r->rest, r->b / choice->replicas);
    choice->larger = (int)(r->b % choice->replicas);
}

static void fill_choices(struct relaxation *r)
{
    const struct plan_request *q = r->search->request;
    int64_t room = r->devices - (r->stages && !is_open(q) ? r->stages - 1 : 0), last = 0;
    int64_t most = r->b < room ? r->b : room;

    r->choices = mem_new((size_t)most, sizeof(*r->choices));
    for (int k = 1; k <= most; k++) {
        int64_t share = candidate_share(r->b, k);

        if (!shares_allowed(q, r->b, k))
            continue;
        if (!q->n_replicas && share == last && !r->fast) {
            if (r->search->zero)
                r->choices[r->n_choices - 1].most = k;
            continue;
        }
        last = share;
        r->choices[r->n_choices++] = (struct choice){ .replicas = k, .most = k,
                                                      .share = table_share(r->table, share) };
        if (r->fast)
            add_kinds(r, &r->choices[r->n_choices - 1]);
    }
}

/* Of the shares that a replica may have the one for which F, or B, of a block is shortest. */
static double least_seconds(const struct relaxation *r, const struct cost_block *block,
                            const double *seconds)
{
    double least = INFINITY;

    for (int k = 0; k < r->n_choices; k++) {
        double share = (double)r->choices[k].share->samples;
        double smallest = (double)(r->b / r->choices[k].most);

        least = dmin(least, cost_at(r->search->cost, seconds, block->batch_axis, share));
        least = dmin(least, cost_at(r->search->cost, seconds, block->batch_axis, smallest));
    }
    return least;
}

static bool has_gradient(const struct cost *cost, const struct cost_edge *e)
{
    return e->gradient_bytes[cost->n_sizes - 1] > 0;
}

static void fill_ways(struct relaxation *r)
{
    const struct cost *cost = r->search->cost;

    for (int b = 0; b < cost->n_blocks; b++) {
        r->to[b] = r->back[b] = 0;
        for (int i = r->start[b]; i < r->start[b + 1]; i++) {
            const struct cost_edge *e = &cost->edges[r->into[i]];

            r->to[b] = dmax(r->to[b], r->to[e->from]);
            if (has_gradient(cost, e))
                r->back[b] = dmax(r->back[b], r->back[e->from]);
        }
        r->to[b] += least_seconds(r, &cost->blocks[b], cost->blocks[b].forward);
        r->back[b] += least_seconds(r, &cost->blocks[b], cost->blocks[b].dgrad);
    }
}

/* A backward waits for the gradients of all that is read of its block. */
static void fill_rounds(struct relaxation *r)
{
    const struct cost *cost = r->search->cost;

    for (int b = 0; b < cost->n_blocks; b++)
        r->round[b] = 0;
    for (int b = cost->n_blocks - 1; b >= 0; b--) {
        r->round[b] += least_seconds(r, &cost->blocks[b], cost->blocks[b].forward) +
                       least_seconds(r, &cost->blocks[b], cost->blocks[b].dgrad);
        for (int i = r->start[b]; i < r->start[b + 1]; i++) {
            const struct cost_edge *e = &cost->edges[r->into[i]];

            if (has_gradient(cost, e))
                r->round[e->from] = dmax(r->round[e->from], r->round[b]);
        }
    }
}

/* Half the samples are half the bytes: pieces of a message add up to it. */
static bool proportional(const struct cost *cost, const double *bytes)
{
    double each = bytes[0] / (double)cost->micro_batch[0];

    for (int i = 1; i < cost->n_sizes; i++)
        if (fabs(bytes[i] / (double)cost->micro_batch[i] - each) > 1e-9 * each)
            return false;
    return true;
}

static double least_start(const struct cluster *cluster, int a, int b)
{
    struct cluster_link link = cluster_link(cluster, a, b);

    return cluster_link_least(&link);
}

static void fill_wires(struct relaxation *r)
{
    const struct cost *cost = r->search->cost;
    const struct cluster *c = r->search->cluster;

    r->latency = c->n_devices > 1 ? INFINITY : 0;
    for (int d = 0; d < c->n_devices; d++) {
        r->bandwidth = dmax(r->bandwidth, c->places[c->devices[d].place].up_bandwidth);
        if (d > 0)
            r->latency = dmin(r->latency, least_start(c, d - 1, d));
    }
    r->messages = r->bandwidth;
    for (int e = 0; e < cost->n_edges; e++)
        if (cost->blocks[cost->edges[e].from].batch_axis &&
            (!proportional(cost, cost->edges[e].bytes) ||
             !proportional(cost, cost->edges[e].gradient_bytes)))
            r->messages = INFINITY;
}

/* As much as a schedule lets stage 's' put off, and keep. Where the number of stages is not known:
 * as much as the last of as many as there can be.
 */
void relax_schedules(struct relaxation *r, int s)
{
    const struct plan_request *q = r->search->request;
    int most = r->devices < r->search->cost->n_blocks ? r->devices : r->search->cost->n_blocks;
    int stages = r->stages ? r->stages : most, late = 0;

    r->slots = r->stages ? INT_MAX : 1;
    for (int k = 0; k < SCHEDULE_KINDS; k++) {
        enum schedule_kind kind = (enum schedule_kind)k;
        double memory = q->schedule_memory > 0 ? q->schedule_memory : 1;
        int delay = schedule_delay(kind, q->schedule_memory, stages, r->m,
                                   r->stages && !is_open(q) ? s : stages - 1);
        int slots = schedule_slots(kind, memory, stages, r->m, s);

        if (!schedule_allowed(q, kind))
            continue;
        late = delay > late ? delay : late;
        r->slots = slots < r->slots ? slots : r->slots;
    }
    r->late = q->list ? (double)r->m : late + 1;
    if (is_open(q))
        r->slots = 1;
}

/* An edge into the interval. */
static void widen(const struct relaxation *r, const struct cost_edge *e, struct border *border)
{
    border->first = border->reads ? dmin(border->first, r->to[e->from]) : r->to[e->from];
    border->last = dmax(border->last, r->to[e->from]);
    border->reads = true;
    if (!has_gradient(r->search->cost, e))
        return;
    border->back_first = border->returns ? dmin(border->back_first, r->back[e->from])
                                         : r->back[e->from];
    border->back_last = dmax(border->back_last, r->back[e->from]);
    border->returns = true;
}

static struct border *border_at(const struct relaxation *r, int i, int j)
{
    return &r->borders[(size_t)i * ((size_t)r->table->n + 1) + (size_t)j];
}

const struct border *relax_border(const struct relaxation *r, int i, int j)
{
    return border_at(r, i, j);
}

bool relax_is_interval(const struct relaxation *r, int i, int j)
{
    return !r->table->ideals || ideal_within(&r->table->ideals[i], &r->table->ideals[j]);
}

static void fill_borders(struct relaxation *r)
{
    const struct cost *cost = r->search->cost;
    const struct ideal *ideals = r->table->ideals;

    /* Full when an iteration begins: nobody waits for the others to start, or to end. */
    if (request_versions(r->search->request) > 1)
        return;
    for (int i = 0; i < r->table->n; i++)
        for (int j = i + 1; j <= r->table->n; j++) {
            struct border *border = border_at(r, i, j);

            *border = (struct border){ 0 };
            if (!ideals) {
                *border = j > i + 1 ? border[-1] : *border;
                for (int k = r->start[j - 1]; k < r->start[j]; k++)
                    if (cost->edges[r->into[k]].from < i)
                        widen(r, &cost->edges[r->into[k]], border);
                continue;
            }
            for (int e = 0; e < cost->n_edges && relax_is_interval(r, i, j); e++)
                if (ideal_has(&ideals[i], cost->edges[e].from) &&
                    !ideal_has(&ideals[i], cost->edges[e].to) &&
                    ideal_has(&ideals[j], cost->edges[e].to))
                    widen(r, &cost->edges[e], border);
        }
}

bool relax_has_block(const struct relaxation *r, int i, int j, int b)
{
    const struct ideal *ideals = r->table->ideals;

    return ideals ? ideal_has(&ideals[j], b) && !ideal_has(&ideals[i], b) : b >= i && b < j;
}

/* The gradients that are reduced when all blocks are done: those of the first block, and of what is
 * in one bucket with it, as far as all blocks are known.
 */
static double last_gradients(const struct relaxation *r, int i, int j)
{
    const struct cost *cost = r->search->cost;
    double own = stage_gradient_bytes(cost, r->table->parameters[j] - r->table->parameters[i]);
    double limit = r->table->partial ? 0 : stage_bucket_bytes(own), bucket = 0, first = 0;

    for (int b = cost->n_blocks - 1; b >= 0; b--) {
        if (!relax_has_block(r, i, j, b))
            continue;
        first = stage_gradient_bytes(cost, cost->blocks[b].parameters);
        bucket = bucket + first > limit ? first : bucket + first;
    }
    return first > 0 ? bucket : 0;
}

/* What no gradient comes to begins when it is done, all else when the first gradient comes. */
static double first_backward(const struct relaxation *r, int i, int j, bool *awaits)
{
    const struct cost *cost = r->search->cost;
    double first = INFINITY;

    for (int b = 0; b < cost->n_blocks; b++)
        awaits[b] = false;
    for (int e = 0; e < cost->n_edges; e++) {
        int from = cost->edges[e].from, to = cost->edges[e].to;

        if (!has_gradient(cost, &cost->edges[e]) || !relax_has_block(r, i, j, from))
            continue;
        awaits[from] = true;
        if (!relax_has_block(r, i, j, to))
            first = dmin(first, r->to[from] + r->round[to]);
    }
    for (int b = 0; b < cost->n_blocks; b++)
        if (!awaits[b] && relax_has_block(r, i, j, b))
            first = dmin(first, r->to[b]);
    return first;
}

static void fill_turns(struct relaxation *r)
{
    bool *awaits = mem_new((size_t)r->search->cost->n_blocks, sizeof(*awaits));
    bool known = r->search->few && !r->table->partial &&
                 request_versions(r->search->request) == 1;

    for (int i = 0; i < r->table->n; i++)
        for (int j = i + 1; j <= r->table->n; j++)
            if (relax_is_interval(r, i, j))
                border_at(r, i, j)->turn = known ? first_backward(r, i, j, awaits) : 0;
    free(awaits);
}

static void fill_last(struct relaxation *r)
{
    size_t cuts = (size_t)r->table->n + 1;

    r->last = mem_new(cuts * cuts, sizeof(*r->last));
    for (int i = 0; i < r->table->n; i++)
        for (int j = i + 1; j <= r->table->n; j++)
            if (relax_is_interval(r, i, j))
                r->last[(size_t)i * cuts + (size_t)j] = last_gradients(r, i, j);
}

/* By the way that the cluster may take, if all wires were the best one but that which is the slowest
 * among so many devices, wherever they are: over it goes what a ring or the trees have on each wire,
 * or between nodes no less than all.
 */
static double least_sum(const struct relaxation *r, enum allreduce kind, int replicas,
                        double bytes)
{
    const struct cluster *c = r->search->cluster;
    double n = replicas, ring, chains;
    double latency = r->latency * c->sum_latency_factor;
    double seconds = bytes * c->sum_bandwidth_factor / r->bandwidth;
    double slowest = bytes * c->sum_bandwidth_factor / r->widest[replicas];

    if (kind == ALLREDUCE_TREE)
        return 2 * ceil(log2(n)) * latency + 2 * slowest;
    ring = 2 * (n - 1) * (latency + slowest / n);
    if (kind == ALLREDUCE_RING)
        return ring;
    /* k nodes of n/k devices in the fullest or more, k > 1: chains there and back, and a ring:
     * 2 (n/k - 1) + 2 (k - 1) latencies, which k = sqrt(n) makes least; of bytes twice all, and
     * 2 (k - 1) / k.
     */
    chains = 4 * (sqrt(n) - 1) * latency + 2 * seconds + slowest;
    return dmin(ring, chains);
}

static double all_reduce(const struct relaxation *r, int replicas, double bytes)
{
    double least = INFINITY;

    if (replicas < 2 || bytes <= 0)
        return 0;
    if (r->group) {
        const struct cluster *cluster = r->search->cluster;

        least = allreduce_time(cluster, replicas, r->group, false, bytes);
        if (r->search->zero)
            least = dmin(least, allreduce_time(cluster, replicas, r->group, true, bytes));
        return least;
    }
    for (int k = 0; k < ALLREDUCE_KINDS; k++)
        if (allreduce_allowed(r->search->cluster, (enum allreduce)k, false) ||
            (r->search->zero && allreduce_allowed(r->search->cluster, (enum allreduce)k, true)))
            least = dmin(least, least_sum(r, (enum allreduce)k, replicas, bytes));
    return least;
}

/* Gradients are reduced from the last block to the first: some when all is done, none before the
 * last backward, which has in it what is run again. Forwards that a list runs ahead may hide all
 * of them.
 */
double relax_tail(const struct relaxation *r, int i, int j, const struct choice *choice,
                  const struct interval_cost *c, enum plan_recompute again)
{
    const struct table *t = r->table;
    const struct cost *cost = r->search->cost;
    double own = t->parameters[j] - t->parameters[i];
    double last = r->last[(size_t)i * ((size_t)t->n + 1) + (size_t)j];
    int replicas = r->pipelines * choice->replicas;
    const struct schedule *list = r->search->request->list;
    double step = c->step / (r->search->zero ? r->pipelines * choice->most : 1);

    if (list && list->versions > 1)
        return step;
    return step + dmax(all_reduce(r, replicas, last),
                       all_reduce(r, replicas, stage_gradient_bytes(cost, own)) - c->dgrad -
                           c->wgrad - interval_again(c, again));
}

/* Seconds that an iteration with this stage takes at least. */
static double least_time(const struct relaxation *r, int i, int j, const struct choice *choice,
                         const struct border *border, enum plan_recompute again)
{
    double m = (double)r->m, start = 0, end, most;
    struct interval_cost c;

    table_interval(r->table, choice->share, i, j, &c);
    if (border->reads)
        start = r->latency + dmax(border->last, border->first + c.received / r->messages);
    end = start + m * (c.forward + c.dgrad + c.wgrad + interval_again(&c, again));
    end = dmax(end, border->turn + m * (c.dgrad + c.wgrad));
    most = end + relax_tail(r, i, j, choice, &c, again);
    if (border->returns)
        most = dmax(most, end - r->late * c.wgrad + r->latency +
                              dmax(border->back_last,
                                   border->back_first + c.gradient / r->messages));
    return dmax(most, m * dmax(c.received, c.gradient) / r->messages);
}

bool relax_fits(const struct relaxation *r, int i, int j, const struct choice *choice,
                enum plan_recompute again, double room)
{
    struct interval_cost c;
    int copies = r->pipelines * choice->most;

    if (r->search->request->memory_of)
        return true;
    table_interval(r->table, choice->share, i, j, &c);
    /* Nothing that one form of the backward, or neighbours on one device, may do without, nor what
     * sums take where there are that many replicas.
     */
    c.received = c.gradient = c.sent = 0;
    return search_memory(r->search, &c, r->m, r->slots, copies, BACKWARD_MERGED, again) -
               stage_sum_bytes(stage_gradient_bytes(r->search->cost, c.parameters),
                               search_message_buffers(r->search), copies) <= room;
}

double relax_most_room(const struct relaxation *r, const struct choice *choice)
{
    return r->rooms[r->search->cluster->n_devices - r->pipelines * choice->replicas];
}

/* Seconds without anything that may shrink with more blocks: what is too long stays so. */
static double growing_time(const struct relaxation *r, int i, int j,
                           const struct choice *choice, const struct border *border)
{
    const struct share_table *s = choice->share;
    double each = s->forward[j] - s->forward[i] + s->dgrad[j] - s->dgrad[i] + s->wgrad[j] -
                  s->wgrad[i];

    return (border->reads ? r->latency + border->last : 0) + (double)r->m * each;
}

/* Does a stage fit into so many bytes, and take no longer than that, with what it runs again? */
static bool keeps_to(const struct relaxation *r, int i, int j, const struct choice *choice,
                     double room, double seconds)
{
    const struct plan_request *q = r->search->request;
    const struct border *border = border_at(r, i, j);
    enum plan_recompute again = recompute_asked(q);

    for (; again <= recompute_most(q, SCHEDULE_1F1B); again++) {
        if (!relax_fits(r, i, j, choice, again, room))
            continue;
        if (least_time(r, i, j, choice, border, again) <= seconds)
            return true;
        if (again == PLAN_RECOMPUTE_NONE)
            return false;
    }
    return false;
}

/* The same where all replicas, or one, take what this share says. */
static bool keeps_with(const struct relaxation *r, int i, int j, const struct choice *choice,
                       const struct share_table *share, double seconds)
{
    struct choice own = *choice;

    own.share = share;
    return keeps_to(r, i, j, &own, relax_most_room(r, choice), seconds);
}

/* The fewest devices with such a stage, 'large' of them fast ones at most; by what is behind it. All
 * replicas are slow, or fast, or those are fast that have the larger shares.
 */
static int needed_of_kinds(const struct relaxation *r, int i, int j, const struct choice *choice,
                           int large, const int *behind, double seconds)
{
    int width = r->table->n + 1, best = r->devices + 1, all = choice->replicas;

    if (!keeps_with(r, i, j, choice, choice->share, seconds))
        return best;
    if (keeps_with(r, i, j, choice, choice->rest, seconds))
        return all + behind[j];
    if (large < choice->larger || !keeps_with(r, i, j, choice, choice->fast, seconds))
        return best;
    if (choice->larger > 0 && keeps_with(r, i, j, choice, choice->smallest, seconds))
        best = all + behind[j - choice->larger * width];
    else if (all <= large)
        best = all + behind[j - all * width];
    return best;
}

/* The fewest devices from cut 'i' on within so many seconds, 'large' of them at most, by those
 * from later cuts on. 'pinned' replicas of this stage; 0: any.
 */
static int needed_from(const struct relaxation *r, int i, int large, double seconds,
                       const int *all_behind, int pinned)
{
    int width = r->table->n + 1, best = r->devices + 1;
    const int *behind = all_behind + large * width;

    for (int j = i + 1, first = 0; j <= r->table->n; j++) {
        const struct border *border = border_at(r, i, j);

        if (behind[j] >= best || !relax_is_interval(r, i, j))
            continue;
        first = r->table->ideals ? 0 : first;
        while (first < r->n_choices &&
               growing_time(r, i, j, &r->choices[first], border) > seconds)
            first++;
        for (int k = first; k < r->n_choices; k++) {
            const struct choice *choice = &r->choices[k];

            if (choice->replicas + behind[j] >= best)
                break;
            if (pinned && choice->replicas != pinned)
                continue;
            if (r->fast) {
                int needed = needed_of_kinds(r, i, j, choice, large, behind, seconds);

                best = needed < best ? needed : best;
                continue;
            }
            if (keeps_to(r, i, j, choice, r->uneven ? r->rooms[0] : relax_most_room(r, choice),
                         seconds))
                best = choice->replicas + behind[j];
            else if (r->uneven && choice->replicas <= large &&
                     choice->replicas + behind[j - choice->replicas * width] < best &&
                     keeps_to(r, i, j, choice, relax_most_room(r, choice), seconds))
                best = choice->replicas + behind[j - choice->replicas * width];
        }
    }
    return best;
}

/* Before a cut: a stage, by those 'behind' it. */
static void fill_needed(struct relaxation *r, int i, double seconds, const int *behind, int pinned)
{
    for (int large = 0; large <= r->large; large++)
        r->needed[large * (r->table->n + 1) + i] =
            needed_from(r, i, large, seconds, behind, pinned);
}

static void end_needed(struct relaxation *r, int devices)
{
    for (int large = 0; large <= r->large; large++)
        r->needed[large * (r->table->n + 1) + r->table->n] = devices;
}

/* Do the devices suffice for stages that each keep to so many seconds? */
static bool possible(struct relaxation *r, double seconds)
{
    const struct plan_request *q = r->search->request;
    int n = r->table->n, *swap;

    for (int i = 0; i < (r->large + 1) * (n + 1); i++)
        r->needed[i] = r->devices + 1;
    end_needed(r, 0);
    if (!r->stages) {
        relax_schedules(r, 0);
        for (int i = n - 1; i >= 0; i--)
            fill_needed(r, i, seconds, r->needed, 0);
        return r->needed[r->large * (n + 1)] <= r->devices;
    }
    for (int s = r->stages - 1; s >= 0; s--) {
        relax_schedules(r, s);
        swap = r->behind;
        r->behind = r->needed;
        r->needed = swap;
        for (int i = 0; i < n; i++)
            fill_needed(r, i, seconds, r->behind, q->n_replicas ? q->replicas[s] : 0);
        end_needed(r, r->devices + 1);
        if (r->rows)
            memcpy(r->rows + (size_t)s * ((size_t)n + 1), r->needed + r->large * (n + 1),
                   ((size_t)n + 1) * sizeof(*r->needed));
    }
    return r->needed[r->large * (n + 1)] <= r->devices;
}

bool relax_needed(struct relaxation *r, double seconds, int *needed)
{
    bool may_be;

    r->rows = needed;
    may_be = possible(r, seconds);
    r->rows = NULL;
    return may_be;
}

/* The least time that is possible, where that is less than 'upper'. */
static double least_possible(struct relaxation *r, double upper)
{
    double low = 0, high = upper * (1 - PRECISION);

    if (!possible(r, high))
        return upper;
    while (high - low > high * PRECISION) {
        double middle = low + (high - low) / 2;

        if (possible(r, middle))
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* So few cuts and devices that each number of stages is looked at on its own? */
static bool knows_stages(const struct relaxation *r)
{
    double n = (double)r->table->n * r->devices;

    return n * n <= 1e6 && !is_open(r->search->request) && !r->table->partial;
}

/* The least time of all plans with one split and as many stages. */
static double relax_stages(struct relaxation *r, struct few *few, int stages, double bound)
{
    /* A pipeline of this split cannot have as many. */
    if (stages > r->devices && !is_open(r->search->request))
        return bound;
    r->stages = stages;
    r->n_choices = 0;
    fill_choices(r);
    fill_ways(r);
    fill_rounds(r);
    fill_borders(r);
    fill_turns(r);
    bound = least_possible(r, bound);
    if (few)
        relax_few_add(few);
    free(r->choices);
    return bound;
}

static void fill_rooms(struct relaxation *r)
{
    int n = r->search->cluster->n_devices;

    r->rooms = mem_new((size_t)n, sizeof(*r->rooms));
    for (int d = 0; d < n; d++)
        r->rooms[d] = search_limit(r->search, d);
    qsort(r->rooms, (size_t)n, sizeof(*r->rooms), order_doubles);
}

/* Devices. */
static int larger_than_least(const struct relaxation *r)
{
    int n = r->search->cluster->n_devices, least = 0;

    while (least < n && r->rooms[least] <= r->rooms[0])
        least++;
    return n - least;
}

static double relax(struct relaxation *r, double upper, bool keep)
{
    const struct search *s = r->search;
    size_t blocks = (size_t)s->cost->n_blocks, cuts = (size_t)r->table->n + 1, most;
    double bound = upper;
    struct few *few;

    r->to = mem_new(blocks, sizeof(double));
    r->round = mem_new(blocks, sizeof(double));
    r->back = mem_new(blocks, sizeof(double));
    r->borders = mem_new(cuts * cuts, sizeof(*r->borders));
    r->uneven = !r->fast && !s->uniform && s->few && !s->request->memory_of;
    most = r->uneven || r->fast ? (size_t)s->cluster->n_devices : 0;
    r->needed = mem_new((most + 1) * cuts, sizeof(int));
    r->behind = mem_new((most + 1) * cuts, sizeof(int));
    cost_edges_into(s->cost, &r->start, &r->into);
    fill_wires(r);
    r->widest = search_widest(s);
    fill_rooms(r);
    fill_last(r);
    few = relax_has_few(r) ? relax_few_new(r, upper, keep) : NULL;
    for (int i = 0; i < s->n_splits; i++) {
        /* Stages of nothing but blocks that were left out are not seen. */
        int first = r->table->partial ? 0 : s->request->stages, last = first;

        r->pipelines = s->splits[i].pipelines;
        r->b = s->splits[i].micro_batch;
        r->m = s->splits[i].micro_batches;
        r->devices = search_devices(s, r->pipelines);
        r->large = (r->fast ? s->n_fast : r->uneven ? larger_than_least(r) : 0) / r->pipelines;
        if (!first && knows_stages(r)) {
            first = 1;
            last = r->devices < s->cost->n_blocks ? r->devices : s->cost->n_blocks;
        }
        for (int stages = first; stages <= last; stages++)
            bound = relax_stages(r, few, stages, bound);
    }
    if (few) {
        bound = dmax(bound, relax_few_least(few));
        relax_few_free(few);
    }
    free(r->start);
    free(r->into);
    free(r->to);
    free(r->round);
    free(r->back);
    free(r->borders);
    free(r->widest);
    free(r->last);
    free(r->rooms);
    free(r->needed);
    free(r->behind);
    return bound * (1 - PRECISION);
}

/* With the same cuts, of another kind of device; NULL where it has others, since what takes no time
 * there may be left out.
 */
static struct table *table_like(const struct table *table, const struct cost *cost)
{
    struct table *like;

    if (!table->ideals)
        return table_at(cost, table->n, table->cuts);
    like = table_ideals(cost);
    if (like && like->n == table->n && like->partial == table->partial &&
        memcmp(like->ideals, table->ideals,
               ((size_t)table->n + 1) * sizeof(*table->ideals)) == 0)
        return like;
    table_free(like);
    return NULL;
}

/* The fast devices are told from the others where there is little to look at. */
static void add_tables(struct relaxation *r)
{
    const struct search *s = r->search;

    if (!s->fast || !s->few)
        return;
    r->fast = table_like(r->table, s->fast);
    r->rest = table_like(r->table, s->rest);
    if (r->fast && r->rest)
        return;
    table_free(r->fast);
    table_free(r->rest);
    r->fast = r->rest = NULL;
}

static double relax_all(struct search *search, double upper, bool keep)
{
    struct relaxation r = { .search = search };
    double bound;

    r.table = table_ideals(search->cost);
    if (!r.table || r.table->n == 0) {
        table_free(r.table);
        return 0;
    }
    /* A graph that is a chain has no other cuts than its order. */
    if (r.table->n == search->cost->n_blocks) {
        table_free(r.table);
        r.table = table_new(search->cost, MOST_CUTS);
    }
    add_tables(&r);
    bound = relax(&r, upper, keep);
    table_free(r.fast);
    table_free(r.rest);
    table_free(r.table);
    return bound;
}

double partition_relaxed(struct search *search, double upper)
{
    return relax_all(search, upper, false);
}

void search_cut_few(struct search *s)
{
    struct search *least;

    if (!s->mixed || !s->few || !s->n_found || isinf(s->found[0]->seconds) || s->request->exhaustive)
        return;
    least = search_least_new(s);
    relax_all(least, s->found[0]->seconds, true);
    search_least_free(least);
    search_sort(s);
}
