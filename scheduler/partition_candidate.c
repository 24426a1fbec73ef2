/* SPDX-License-Identifier: MIT */
/* A candidate: which blocks and which devices its stages have, and what they cost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

#define HALVINGS 50
#define MAX_PER_RUN 6

static int *copy_ints(const int *from, int n)
{
    int *copy = from ? mem_new((size_t)n, sizeof(*copy)) : NULL;

    if (copy)
        memcpy(copy, from, (size_t)n * sizeof(*copy));
    return copy;
}

struct candidate *candidate_copy(const struct candidate *c)
{
    struct candidate *copy = mem_new(1, sizeof(*copy));

    *copy = *c;
    copy->cuts = copy_ints(c->cuts, c->n_stages + 1);
    copy->order = copy_ints(c->order, c->cuts[c->n_stages]);
    copy->replicas = copy_ints(c->replicas, c->n_stages);
    copy->again = NULL;
    copy->more = NULL;
    if (c->again) {
        copy->again = mem_new((size_t)c->n_stages, sizeof(*copy->again));
        memcpy(copy->again, c->again, (size_t)c->n_stages * sizeof(*copy->again));
    }
    copy->devices = copy_ints(c->devices, candidate_pipelines(c) * candidate_devices(c));
    return copy;
}

void candidate_free(struct candidate *c)
{
    if (!c)
        return;
    free(c->cuts);
    free(c->order);
    free(c->replicas);
    free(c->devices);
    free(c->again);
    free(c->more);
    free(c);
}

static bool same_ints(const int *a, const int *b, int n)
{
    return a && b ? memcmp(a, b, (size_t)n * sizeof(*a)) == 0 : a == b;
}

bool candidate_same(const struct candidate *a, const struct candidate *b)
{
    return candidate_pipelines(a) == candidate_pipelines(b) && a->n_stages == b->n_stages &&
           a->micro_batch == b->micro_batch && a->schedule == b->schedule &&
           a->chunks == b->chunks && a->budget <= b->budget && a->budget >= b->budget &&
           same_ints(a->cuts, b->cuts, a->n_stages + 1) &&
           same_ints(a->replicas, b->replicas, a->n_stages) &&
           same_ints(a->order, b->order, a->cuts[a->n_stages]) &&
           same_ints(a->devices, b->devices, candidate_pipelines(a) * candidate_devices(a));
}

int candidate_pipelines(const struct candidate *c)
{
    return c->pipelines ? c->pipelines : 1;
}

static int chunks_of(const struct candidate *c)
{
    return c->chunks ? c->chunks : 1;
}

int candidate_lists(const struct candidate *c)
{
    return c->n_stages / chunks_of(c);
}

int candidate_devices(const struct candidate *c)
{
    int all = 0;

    for (int s = 0; s < candidate_lists(c); s++)
        all += c->replicas[s];
    return all;
}

int candidate_copies(const struct candidate *c)
{
    int most = 1;

    for (int s = 0; s < c->n_stages; s++)
        most = c->replicas[s] > most ? c->replicas[s] : most;
    return candidate_pipelines(c) * most;
}

int candidate_list(const struct candidate *c, int s)
{
    return c->list ? c->list->stages[s].list
                   : schedule_list(c->schedule, candidate_lists(c), s);
}

int candidate_list_first(const struct candidate *c, int l)
{
    return c->list ? c->list->lists[l].stages[0] : l;
}

int candidate_first(const struct candidate *c, int s)
{
    int first = 0;

    for (int before = candidate_list(c, s) - 1; before >= 0; before--)
        first += c->replicas[before];
    return first;
}

int candidate_device(const struct candidate *c, const struct cluster *cluster, int pipeline,
                     int at)
{
    if (c->devices)
        return c->devices[pipeline * candidate_devices(c) + at];
    return pipeline * (cluster->n_devices / candidate_pipelines(c)) + at;
}

int candidate_block(const struct candidate *c, int at)
{
    return c->order ? c->order[at] : at;
}

int *candidate_stages(const struct candidate *c)
{
    int *stage = mem_new((size_t)c->cuts[c->n_stages], sizeof(*stage));

    for (int s = 0; s < c->n_stages; s++)
        for (int i = c->cuts[s]; i < c->cuts[s + 1]; i++)
            stage[candidate_block(c, i)] = s;
    return stage;
}

void candidate_assign(struct candidate *c, const int *stage)
{
    int n = c->cuts[c->n_stages], at = 0;
    bool sorted = true;

    if (!c->order)
        c->order = mem_new((size_t)n, sizeof(*c->order));
    for (int s = 0; s < c->n_stages; s++) {
        c->cuts[s] = at;
        for (int b = 0; b < n; b++)
            if (stage[b] == s) {
                sorted &= at == b;
                c->order[at++] = b;
            }
    }
    if (sorted) {
        free(c->order);
        c->order = NULL;
    }
}

/* The last of these places up to which the sum, which ascends, is no more than 'most' beyond that at
 * 'first'; 'at' where none is.
 */
static int reach(const double *sum, int first, int at, int last, double most)
{
    while (at < last) {
        int middle = (at + last + 1) / 2;

        if (sum[middle] - sum[first] <= most)
            at = middle;
        else
            last = middle - 1;
    }
    return at;
}

/* Of stages that are filled one after the other, each up to so many seconds: do they suffice; the
 * longest; and what the next limit is that fills them otherwise.
 */
struct filling {
    bool whole;
    double longest, next;
};

static struct filling fill_cuts(const double *const *sums, int n, int n_stages,
                                const struct cut_range *ranges, double seconds, int *cuts)
{
    struct filling f = { .next = INFINITY };
    int at = 0;

    cuts[0] = 0;
    for (int k = 0; k < n_stages; k++) {
        const double *sum = sums[k];
        int first = at++, last = ranges ? ranges[k + 1].to : n - (n_stages - 1 - k);

        if (ranges && at < ranges[k + 1].from)
            at = ranges[k + 1].from;
        at = reach(sum, first, at, last, seconds);
        if (sum[at] - sum[first] > seconds) {
            f.next = dmin(f.next, sum[at] - sum[first]);
            return f;
        }
        f.longest = dmax(f.longest, sum[at] - sum[first]);
        if (at < last)
            f.next = dmin(f.next, sum[at + 1] - sum[first]);
        cuts[k + 1] = at;
    }
    f.whole = at == n;
    return f;
}

/* The least that suffices: up to it and down to it in turn by what stages take. */
static double least_seconds(const double *const *sums, int n, int n_stages,
                            const struct cut_range *ranges, double high, int *cuts)
{
    double low = 0;

    while (low < high) {
        double middle = low + (high - low) / 2;
        /* Of two neighbours it may be the upper one, of which it is known. */
        struct filling f = fill_cuts(sums, n, n_stages, ranges, middle < high ? middle : low, cuts);

        if (f.whole)
            high = f.longest;
        else
            low = f.next;
    }
    return high;
}

void even_cuts(const double *const *sums, int n, int n_stages, const struct cut_range *ranges,
               int *cuts)
{
    double low = 0, high = 0, least;

    for (int k = 0; k < n_stages; k++)
        high = dmax(high, sums[k][n]);
    least = least_seconds(sums, n, n_stages, ranges, high, cuts);
    /* A little more: sums of like parts differ in their last digits. */
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;

        if (middle >= least)
            high = middle;
        else
            low = middle;
    }
    fill_cuts(sums, n, n_stages, ranges, high, cuts);
}

int64_t candidate_share(int64_t b, int r)
{
    return (b + r - 1) / r;
}

int candidate_slots(const struct plan_request *request, const struct candidate *c, int s)
{
    if (request->list)
        return request->list->stages[s].slots;
    if (chunks_of(c) > 1)
        return schedule_chunk_slots(c->schedule, c->n_stages / c->chunks, c->chunks,
                                    (int)c->micro_batches, s);
    return schedule_slots(c->schedule, c->budget, c->n_stages, c->micro_batches, s);
}

/* A stage that is an interval between the table's cuts? */
static bool in_table(const struct table *table, const struct candidate *c, int s, int *i, int *j)
{
    if (c->order || table->ideals)
        return false;
    *i = table_cut(table, c->cuts[s]);
    *j = table_cut(table, c->cuts[s + 1]);
    return table->cuts[*i] == c->cuts[s] && table->cuts[*j] == c->cuts[s + 1];
}

/* What a stage receives and gives back, and what it sends, a value once. */
static void add_traffic(const struct cost *cost, const int *stage, int s, double samples,
                        struct interval_cost *result)
{
    struct traffic_list *list = traffic_new(cost, stage);

    for (int i = 0; i < list->n; i++) {
        const struct traffic *t = &list->items[i];

        if (t->to == s) {
            result->received += traffic_bytes(cost, t, samples, true, false);
            result->gradient += traffic_bytes(cost, t, samples, true, true);
        } else if (t->from == s) {
            result->sent += traffic_bytes(cost, t, samples, true, false);
        }
    }
    traffic_free(list);
}

static struct interval_cost sum_up(const struct cost *cost, const struct candidate *c, int s,
                                   int64_t samples)
{
    int *stage = candidate_stages(c);
    struct interval_cost result;
    struct stage_cost sums;

    stage_cost_get(cost, stage, s, (double)samples, &sums);
    result = (struct interval_cost){
        .forward = sums.forward, .dgrad = sums.dgrad, .wgrad = sums.wgrad, .step = sums.step,
        .parameters = sums.parameters, .prepared = sums.prepared, .workspace = sums.workspace,
        .activations = sums.activations, .slot = sums.activations + sums.received,
        .delayed = sums.delayed, .turn = sums.turn, .held = sums.held, .rest = sums.rest,
        .again = sums.again, .dropped = sums.dropped, .made_again = sums.made_again,
        .peak = sums.peak, .peak_again = sums.peak_again, .behind = sums.behind,
        .copies = sums.copies, .border = sums.border, .border_peak = sums.border_peak,
        .copied = sums.copied, .fed = sums.fed, .left = sums.left, .ahead = sums.ahead,
        .kernels = sums.kernels,
    };
    add_traffic(cost, stage, s, (double)samples, &result);
    free(stage);
    return result;
}

/* The last block that reads what these have. */
static int reach_of(const struct cost *cost, int first, int end)
{
    int reach = end - 1;

    for (int i = 0; i < cost->n_edges; i++)
        if (cost->edges[i].from >= first && cost->edges[i].from < end &&
            cost->edges[i].to > reach)
            reach = cost->edges[i].to;
    return reach;
}

/* Moves change few stages of a candidate, and leave the others as they were. What one sends depends
 * on where the stages behind it end, unless the next one reads all of it.
 */
static const struct interval_cost *keep_interval(struct table *table, const struct candidate *c,
                                                 int s, int64_t samples)
{
    const struct cost *cost = table->cost;
    int first = c->cuts[s], end = c->cuts[s + 1];
    int next = s + 2 <= c->n_stages ? c->cuts[s + 2] : end;
    size_t at = ((size_t)first * 31 + (size_t)end * 1009 + (size_t)samples) % KEPT_INTERVALS;
    struct kept_interval *kept;

    if (!table->kept)
        table->kept = mem_new(KEPT_INTERVALS, sizeof(*table->kept));
    kept = &table->kept[at];
    if (kept->samples != samples || kept->first != first || kept->end != end ||
        kept->reach >= next) {
        *kept = (struct kept_interval){ first, end, reach_of(cost, first, end), samples,
                                        sum_up(cost, c, s, samples) };
        if (kept->reach >= next)
            kept->samples = 0;
    }
    return &kept->cost;
}

static void get_interval(struct table *table, const struct candidate *c, int s, int64_t samples,
                         struct interval_cost *result)
{
    const struct share_table *share;
    int i, j;

    if (in_table(table, c, s, &i, &j) && (share = table_share_if_asked(table, samples)))
        table_interval(table, share, i, j, result);
    else if (c->order)
        *result = sum_up(table->cost, c, s, samples);
    else
        *result = *keep_interval(table, c, s, samples);
}

void candidate_interval(struct search *search, const struct candidate *c, int s, int64_t samples,
                        struct interval_cost *result)
{
    get_interval(search->table, c, s, samples, result);
}

int candidate_paces(const struct search *search, const struct candidate *c, int s,
                    struct pace paces[COST_MOST_KINDS])
{
    int r = c->replicas[s], first = candidate_first(c, s), n = 0;
    int64_t most[COST_MOST_KINDS] = { 0 };

    for (int p = 0; p < candidate_pipelines(c); p++)
        for (int i = 0; i < r; i++) {
            int device = candidate_device(c, search->cluster, p, first + i);
            int64_t *own = &most[search->kind[device]];
            int64_t share = plan_share_start(c->micro_batch, r, i + 1) -
                            plan_share_start(c->micro_batch, r, i);

            *own = share > *own ? share : *own;
        }
    for (int k = 0; k < search->n_kinds; k++)
        if (most[k] > 0)
            paces[n++] = (struct pace){ k, most[k] };
    return n;
}

struct pace candidate_slowest_pace(const struct search *search, const struct candidate *c, int s)
{
    struct pace paces[COST_MOST_KINDS], slowest;
    double most = -1;
    int n = candidate_paces(search, c, s, paces);

    slowest = paces[0];
    for (int i = 0; i < n; i++) {
        struct table *table = table_kind(search->table, paces[i].kind);
        double all = table_work(table, paces[i].samples)[search->cost->n_blocks];

        if (all > most)
            slowest = paces[i];
        most = dmax(most, all);
    }
    return slowest;
}

static double work_of(const struct interval_cost *cost)
{
    return cost->forward + cost->dgrad + cost->wgrad;
}

static void take_seconds(struct interval_cost *to, const struct interval_cost *from)
{
    to->forward = from->forward;
    to->dgrad = from->dgrad;
    to->wgrad = from->wgrad;
    to->step = from->step;
    to->again = from->again;
}

void candidate_slowest(struct search *search, const struct candidate *c, int s,
                       struct interval_cost *result)
{
    struct pace paces[COST_MOST_KINDS];
    struct interval_cost slowest = { 0 };
    int n;

    candidate_interval(search, c, s, candidate_share(c->micro_batch, c->replicas[s]), result);
    if (!search->mixed)
        return;
    n = candidate_paces(search, c, s, paces);
    for (int i = 0; i < n; i++) {
        struct interval_cost own;

        get_interval(table_kind(search->table, paces[i].kind), c, s, paces[i].samples, &own);
        if (i == 0 || work_of(&own) > work_of(&slowest))
            slowest = own;
    }
    take_seconds(result, &slowest);
}

void candidate_soonest(struct search *search, const struct candidate *c, int s, bool smallest,
                       struct interval_cost *result)
{
    int64_t share = smallest ? c->micro_batch / c->replicas[s]
                             : candidate_share(c->micro_batch, c->replicas[s]);
    struct pace paces[COST_MOST_KINDS];
    int n;

    candidate_interval(search, c, s, share, result);
    if (!search->mixed)
        return;
    n = candidate_paces(search, c, s, paces);
    for (int i = 0; i < n; i++) {
        struct interval_cost own;

        get_interval(table_kind(search->table, paces[i].kind), c, s,
                     smallest ? share : paces[i].samples, &own);
        if (i == 0)
            take_seconds(result, &own);
        result->forward = dmin(result->forward, own.forward);
        result->dgrad = dmin(result->dgrad, own.dgrad);
        result->wgrad = dmin(result->wgrad, own.wgrad);
    }
}

double candidate_room(const struct search *search, const struct candidate *c, int s)
{
    int first = candidate_first(c, s);
    double room;

    room = search_limit(search, candidate_device(c, search->cluster, 0, first));
    for (int p = 0; p < candidate_pipelines(c) && !search->uniform; p++)
        for (int i = 0; i < c->replicas[s]; i++) {
            int device = candidate_device(c, search->cluster, p, first + i);
            double limit = search_limit(search, device);

            room = limit < room ? limit : room;
        }
    return room;
}

static int candidate_order(const void *a, const void *b)
{
    const struct candidate *x = *(struct candidate *const *)a;
    const struct candidate *y = *(struct candidate *const *)b;

    if (x->closed < y->closed || x->closed > y->closed)
        return x->closed < y->closed ? -1 : 1;
    /* Ties, for one result: fewer stages, pipelines, micro-batches, 1f1b before others. */
    if (x->n_stages != y->n_stages)
        return x->n_stages < y->n_stages ? -1 : 1;
    if (x->pipelines != y->pipelines)
        return x->pipelines < y->pipelines ? -1 : 1;
    if (x->micro_batches != y->micro_batches)
        return x->micro_batches < y->micro_batches ? -1 : 1;
    return (int)x->schedule - (int)y->schedule;
}

void search_sort_closed(struct search *search)
{
    if (search->n_found)
        qsort(search->found, (size_t)search->n_found, sizeof(*search->found), candidate_order);
}

void search_keep(struct search *search, struct candidate **some, int n)
{
    qsort(some, (size_t)n, sizeof(*some), candidate_order);
    for (int i = MAX_PER_RUN; i < n; i++)
        candidate_free(some[i]);
    n = n < MAX_PER_RUN ? n : MAX_PER_RUN;
    search->found = mem_resize(search->found, (size_t)(search->n_found + n),
                               sizeof(*search->found));
    memcpy(search->found + search->n_found, some, (size_t)n * sizeof(*some));
    search->n_found += n;
    search_sort_closed(search);
    for (; search->n_found > search->most_found; search->n_found--)
        candidate_free(search->found[search->n_found - 1]);
}
