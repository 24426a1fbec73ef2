/* SPDX-License-Identifier: MIT */
/* Schedules that give a device several stages: as even as they get, on every number of devices with
 * every number of replicas. Where one is asked for all of that is simulated; else the best by the
 * closed form, beside what was found with one stage for each device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"
#include "scheduler/partition_tried.h"

/* Pipelines that are cut, where there is much to look at. */
#define MOST_CHUNKINGS 64
/* Of those that are cut: looked at, and replicas times micro-batches simulated. */
#define MOST_LOOKED 64
#define MAX_EFFORT 20000
/* By the closed form slower than the best by this: not simulated. */
#define SLACK 1.03
/* The same where there is little. */
#define MOST_CHUNKINGS_FEW 400
#define MOST_LOOKED_FEW 1000
#define MAX_EFFORT_FEW 400000
#define SLACK_FEW 1.05
/* Moved are so many that are not alike, and of these no one that takes so many times as long. */
#define MOST_STARTS 12
#define FAR 1.1
/* Moves that make a device faster by less are noise of the arithmetic. */
#define SAME 1e-9

int request_chunks(const struct plan_request *r)
{
    if (r->list)
        return r->list->n_stages / r->list->n_lists;
    if (!r->schedule || schedule_find(r->schedule) < 0)
        return 1;
    return schedule_chunks((enum schedule_kind)schedule_find(r->schedule),
                           r->chunks ? r->chunks : 2);
}

bool chunks_allowed(const struct plan_request *r)
{
    return !r->schedule && !r->list && !r->policy && !r->block_stage;
}

bool chunks_searched(const struct plan_request *r)
{
    return chunks_allowed(r) ||
           (request_chunks(r) > 1 && !r->list && !r->policy && !r->block_stage);
}

int chunking_most(const struct search *s, int lists)
{
    int most = s->table->n / lists;

    if (s->request->stages)
        most = s->request->stages / lists < most ? s->request->stages / lists : most;
    return most < SCHEDULE_MAX_CHUNKS ? most : SCHEDULE_MAX_CHUNKS;
}

bool is_chunking(const struct search *s, const struct chunking *f)
{
    const struct plan_request *r = s->request;
    int stages = f->lists * f->chunks;

    if (r->schedule && !r->list && (f->kind != least_schedule(r) || f->chunks != request_chunks(r)))
        return false;
    for (int i = 0; i < r->n_replicas; i++)
        if (r->replicas[i] != f->replicas)
            return false;
    return stages <= s->table->n && (!r->stages || r->stages == stages) &&
           (r->list || !schedule_suits(f->kind, f->lists, f->split->micro_batches, NULL)) &&
           shares_allowed(r, f->split->micro_batch, f->replicas);
}

/* A cut goes one place on, or back, where that makes the slower of two devices faster. 'sums': of the
 * stages in front of it and behind it, to each place.
 */
static bool move_cut(const double *const *sums, double *a, double *b,
                     const struct cut_range *range, int *cut, int step)
{
    double more = sums[0][cut[0] + step] - sums[0][cut[0]];
    double less = sums[1][cut[0] + step] - sums[1][cut[0]];

    if (cut[0] + step <= cut[-1] || cut[0] + step >= cut[1] ||
        cut[0] + step < range->from || cut[0] + step > range->to ||
        dmax(*a + more, *b - less) >= dmax(*a, *b) * (1 - SAME))
        return false;
    *a += more;
    *b -= less;
    *cut += step;
    return true;
}

/* Seconds of a stage to each cut, where it runs that again. */
static void sum_work(struct search *s, struct pace pace, enum plan_recompute again, double *sum)
{
    const struct share_table *share = table_sums(table_kind(s->table, pace.kind), pace.samples);

    for (int i = 0; i <= s->table->n; i++)
        sum[i] = share->forward[i] + share->dgrad[i] + share->wgrad[i] +
                 recompute_seconds(again, share->again[i], share->forward[i]);
}

/* Of each stage, on devices of several kinds; all are to be freed with the first. */
static const double **sum_mixed(struct search *s, const struct candidate *c, double **all)
{
    size_t n = (size_t)s->table->n + 1;
    const double **sums = mem_new((size_t)c->n_stages, sizeof(*sums));

    *all = mem_new((size_t)c->n_stages * n, sizeof(**all));
    for (int k = 0; k < c->n_stages; k++) {
        double *own = *all + (size_t)k * n;

        sum_work(s, candidate_slowest_pace(s, c, k),
                 c->again ? c->again[k] : PLAN_RECOMPUTE_NONE, own);
        sums[k] = own;
    }
    return sums;
}

/* Of each stage: those that run the same again have theirs in common. The first one's is to be freed. */
static const double **sum_stages(struct search *s, const struct candidate *c, double **all)
{
    size_t n = (size_t)s->table->n + 1, used = 0;
    const double **sums;

    if (s->mixed)
        return sum_mixed(s, c, all);
    sums = mem_new((size_t)c->n_stages, sizeof(*sums));
    *all = mem_new(RECOMPUTES * n, sizeof(**all));
    for (enum plan_recompute again = PLAN_RECOMPUTE_NONE; again < RECOMPUTES; again++) {
        bool any = false;

        for (int k = 0; k < c->n_stages; k++) {
            if ((c->again ? c->again[k] : PLAN_RECOMPUTE_NONE) != again)
                continue;
            sums[k] = *all + used;
            any = true;
        }
        if (any) {
            sum_work(s, (struct pace){ 0, candidate_share(c->micro_batch, c->replicas[0]) }, again,
                     *all + used);
            used += n;
        }
    }
    return sums;
}

/* The slowest stage as fast as it gets, then devices more even, by all that they have; within the
 * pins, where they leave a way.
 */
static void cut_evenly(struct search *s, struct candidate *c)
{
    int *cuts = c->cuts;
    double *all;
    const double **sums = sum_stages(s, c, &all);
    double *load = mem_new((size_t)c->n_stages, sizeof(*load));
    struct cut_range *ranges = pins_ranges(s->request->block_stage, s->table, c->n_stages);
    bool moved = ranges != NULL;

    even_cuts(sums, s->table->n, c->n_stages, ranges, cuts);
    for (int k = 0; k < c->n_stages; k++)
        load[candidate_list(c, k)] += sums[k][cuts[k + 1]] - sums[k][cuts[k]];
    while (moved) {
        moved = false;
        for (int k = 1; k < c->n_stages; k++) {
            double *a = &load[candidate_list(c, k - 1)], *b = &load[candidate_list(c, k)];

            moved |= a != b && (move_cut(&sums[k - 1], a, b, &ranges[k], &cuts[k], 1) ||
                                move_cut(&sums[k - 1], a, b, &ranges[k], &cuts[k], -1));
        }
    }
    for (int k = 0; k <= c->n_stages; k++)
        cuts[k] = s->table->cuts[cuts[k]];
    free(all);
    free(sums);
    free(load);
    free(ranges);
}

bool chunking_order(struct search *s, const struct chunking *f)
{
    return f->order == DEVICES_IN_ORDER ||
           (s->mixed && search_order_devices(s, f->split->pipelines, f->order));
}

void chunking_place(const struct search *s, const struct chunking *f, struct candidate *c)
{
    int n = search_devices(s, f->split->pipelines), each = f->lists * f->replicas;
    bool last = f->order == DEVICES_REVERSED || f->order == DEVICES_LARGEST_LAST ||
                f->order == DEVICES_FASTEST_LAST;
    int from = last ? n - each : 0;

    free(c->devices);
    c->devices = NULL;
    if (f->order == DEVICES_IN_ORDER)
        return;
    c->devices = mem_new((size_t)(f->split->pipelines * each), sizeof(*c->devices));
    for (int i = 0; i < f->split->pipelines * each; i++)
        c->devices[i] = s->order[i / each * n + from + i % each];
}

struct candidate *chunking_new(struct search *s, const struct chunking *f)
{
    int stages = f->lists * f->chunks;
    struct candidate *c = mem_new(1, sizeof(*c));

    *c = (struct candidate){
        .pipelines = f->split->pipelines, .n_stages = stages,
        .micro_batch = f->split->micro_batch, .micro_batches = f->split->micro_batches,
        .chunks = f->chunks, .list = s->request->list, .zero = s->zero, .schedule = f->kind,
        .cuts = mem_new((size_t)stages + 1, sizeof(int)),
        .replicas = mem_new((size_t)stages, sizeof(int)),
    };
    for (int k = 0; k < stages; k++)
        c->replicas[k] = f->replicas;
    chunking_place(s, f, c);
    cut_evenly(s, c);
    search_choose_devices(s, c);
    return c;
}

/* What it runs again, so that it fits, is to be even, too: the faster of both is left, with its
 * closed form. Is that another one?
 */
static bool even_again(struct search *s, struct candidate **c)
{
    struct candidate *other;
    bool again = false, faster;

    (*c)->closed = partition_closed(s, *c);
    for (int k = 0; k < (*c)->n_stages && isfinite((*c)->closed); k++)
        again |= (*c)->again[k] != PLAN_RECOMPUTE_NONE;
    if (!again)
        return false;
    other = candidate_copy(*c);
    cut_evenly(s, other);
    search_choose_devices(s, other);
    other->closed = partition_closed(s, other);
    faster = other->closed < (*c)->closed;
    candidate_free(faster ? *c : other);
    *c = faster ? other : *c;
    return faster;
}

void search_add(struct search *s, struct candidate *c)
{
    s->found = mem_resize(s->found, (size_t)s->n_found + 1, sizeof(c));
    s->found[s->n_found++] = c;
}

static void add_orders(struct search *s, struct chunking *f)
{
    for (int order = 0; order < DEVICE_ORDERS && is_chunking(s, f); order++) {
        struct candidate *c;

        f->order = (enum device_order)order;
        if (!chunking_order(s, f))
            continue;
        c = chunking_new(s, f);
        even_again(s, &c);
        search_add(s, c);
    }
}

void search_chunks(struct search *s)
{
    const struct plan_request *r = s->request;
    struct chunking f = { .kind = least_schedule(r), .chunks = request_chunks(r) };

    for (int i = 0; i < s->n_splits; i++) {
        int devices = search_devices(s, s->splits[i].pipelines);

        f.split = &s->splits[i];
        for (f.lists = 1; f.lists <= devices; f.lists++)
            for (f.replicas = 1; f.lists * f.replicas <= devices; f.replicas++)
                add_orders(s, &f);
    }
}

/* Unasked ------------------------------------------------------------------------------ */

struct chunkings {
    struct search *search;
    double best;            /* seconds of what was found */
    double least;           /* seconds over closed form, at least */
    double room;            /* of the largest device */
    double speed;           /* search_mean_speed() */
    /* Of each schedule: seconds over closed form, as far as it was off the least; 0: not known. */
    double off[SCHEDULE_KINDS];
    int n;
    struct chunking *items;
};

/* Bytes of each device, if all had as much: of parameters and what goes with them. */
static double fixed_bytes(const struct search *s, const struct chunking *f)
{
    const struct table *t = s->table;
    const struct interval_cost whole = {
        .parameters = t->parameters[t->n] + staircase_at(&t->shared, 0, t->n),
    };

    return s->factor_fixed / f->lists *
           interval_bytes(s, &whole, f->split->micro_batches, 1,
                          f->split->pipelines * f->replicas, BACKWARD_MERGED,
                          PLAN_RECOMPUTE_FULL).fixed;
}

/* Seconds under the schedule that waits least, as if cuts were nowhere in the way, and devices had
 * what one micro-batch keeps in all of them in flight.
 */
static double least_closed(const struct chunkings *all, struct chunking *f,
                           const struct chunking_sums *sums)
{
    const struct search *s = all->search;
    double m = (double)f->split->micro_batches, work = sums->work, least = INFINITY;
    double room = all->room - fixed_bytes(s, f);
    bool keeps = sums->activations * dmin(1, m / f->lists) <= room;

    f->kind = SCHEDULE_ZB_V;
    f->chunks = 2;
    if (keeps && is_chunking(s, f))
        least = m * work + (f->lists - 1) * sums->forward / 2;
    f->kind = SCHEDULE_INTERLEAVED;
    f->chunks = s->request->schedule ? request_chunks(s->request) : chunking_most(s, f->lists);
    if (!keeps && recompute_most(s->request, f->kind) == PLAN_RECOMPUTE_FULL)
        work += sums->forward;
    else if (!keeps)
        return least;
    if (room > 0 && f->chunks > 1 && is_chunking(s, f))
        least = dmin(least, (m + (double)(f->lists - 1) / f->chunks) * work);
    return least;
}

static void add_chunkings(struct chunkings *all, struct chunking *f)
{
    struct search *s = all->search;
    int devices = search_devices(s, f->split->pipelines) / f->replicas;
    int64_t share = candidate_share(f->split->micro_batch, f->replicas);
    const struct chunking_sums *sums = chunking_sum(s->table, share);

    for (f->lists = 2; f->lists <= devices && 2 * f->lists <= s->table->n; f->lists++) {
        f->closed = s->slow * least_closed(all, f, sums) / f->lists / all->speed;
        if (f->closed < all->best)
            *(struct chunking *)mem_push((void **)&all->items, &all->n, sizeof(*f)) = *f;
    }
}

static int by_closed(const void *a, const void *b)
{
    double x = ((const struct chunking *)a)->closed, y = ((const struct chunking *)b)->closed;

    return x < y ? -1 : x > y;
}

static void collect(struct chunkings *all)
{
    const struct search *s = all->search;

    for (int i = 0; i < s->n_splits; i++) {
        struct chunking f = { .split = &s->splits[i] };
        int64_t last = 0;

        for (f.replicas = 1; 2 * f.replicas <= search_devices(s, f.split->pipelines) &&
                             f.replicas <= f.split->micro_batch; f.replicas++) {
            int64_t share = candidate_share(f.split->micro_batch, f.replicas);

            if (share != last || s->request->n_replicas)
                add_chunkings(all, &f);
            last = share;
        }
    }
    if (all->n)
        qsort(all->items, (size_t)all->n, sizeof(*all->items), by_closed);
}

static void push_candidate(struct candidate ***list, int *n, struct search *s,
                           struct chunking *f)
{
    for (int order = 0; order < DEVICE_ORDERS && is_chunking(s, f); order++) {
        struct candidate *c;

        f->order = (enum device_order)order;
        if (!chunking_order(s, f))
            continue;
        c = chunking_new(s, f);
        c->closed = chunks_closed(s, c);
        *(struct candidate **)mem_push((void **)list, n, sizeof(c)) = c;
    }
}

/* Every number of chunks, of many some. The chunkings are then sorted by the fastest of each. */
static struct candidate **cut_all(struct chunkings *all, int *n)
{
    struct search *s = all->search;
    int most = s->few ? MOST_CHUNKINGS_FEW : MOST_CHUNKINGS;
    struct candidate **list = NULL;

    *n = 0;
    for (int i = 0; i < all->n && i < most; i++) {
        struct chunking f = all->items[i];
        int chunks = chunking_most(s, f.lists), before = *n;

        f.kind = SCHEDULE_ZB_V;
        f.chunks = 2;
        push_candidate(&list, n, s, &f);
        f.kind = SCHEDULE_INTERLEAVED;
        if (s->request->schedule)
            f.chunks = request_chunks(s->request);
        for (; f.chunks <= chunks; f.chunks += s->few || f.chunks < 4 ? 1 : f.chunks / 2)
            push_candidate(&list, n, s, &f);
        all->items[i].closed = INFINITY;
        for (int k = before; k < *n; k++)
            all->items[i].closed = dmin(all->items[i].closed, list[k]->closed);
    }
    if (all->n)
        qsort(all->items, (size_t)all->n, sizeof(*all->items), by_closed);
    return list;
}

static double slack(const struct search *s)
{
    return s->few ? SLACK_FEW : SLACK;
}

/* What is to be beaten. The closed form may have that slower than it is, and others as well. */
static void hold_against(struct chunkings *all, const struct candidate *c)
{
    all->best = c->seconds;
    all->least = isfinite(c->seconds) ? dmin(1, c->seconds / c->closed) : 1;
}

/* By the least that it takes. */
static bool may_win(const struct chunkings *all, const struct candidate *c)
{
    return candidate_least(all->search, c) < all->best;
}

/* By its closed form, which others like it may be slower than; they need not be alike where few are. */
static bool is_promising(const struct chunkings *all, const struct candidate *c)
{
    double off = all->search->few ? 0 : all->off[c->schedule];

    return c->closed * dmax(off, all->least) < slack(all->search) * all->best;
}

/* Simulate it where that is 'worth' it; takes it, to what was found where it fits. */
static int look_at(struct chunkings *all, struct candidate *c, bool worth, struct err *err)
{
    struct search *s = all->search;
    bool tight = s->tight;
    double off;

    if (!worth) {
        candidate_free(c);
        return 0;
    }
    if (search_evaluate(s, c, false, err)) {
        candidate_free(c);
        return -1;
    }
    /* What is short for these is no reason to shard the state of others. */
    s->tight = tight;
    if (isinf(c->seconds)) {
        candidate_free(c);
        return 0;
    }
    all->best = dmin(all->best, c->seconds);
    off = c->seconds / c->closed;
    all->off[c->schedule] = all->off[c->schedule] > 0 ? dmin(all->off[c->schedule], off) : off;
    search_add(s, c);
    return 0;
}

/* What is to be looked at, the most promising first. */
struct look {
    struct candidate *candidate;    /* NULL: it was looked at */
    double seconds;                 /* by its closed form, as far as that is known to be off */
};

static int by_seconds(const void *a, const void *b)
{
    const struct look *x = a, *y = b;

    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

static void sort_looks(const struct chunkings *all, struct look *looks, int n)
{
    for (int i = 0; i < n; i++) {
        const struct candidate *c = looks[i].candidate;
        double off = c && !all->search->few ? all->off[c->schedule] : 0;

        looks[i].seconds = !c ? INFINITY : off > 0 ? off * c->closed : c->closed;
    }
    if (n)
        qsort(looks, (size_t)n, sizeof(*looks), by_seconds);
}

/* Real steps may have shown it to be the fastest. */
static bool was_tried(const struct search *s, const struct candidate *c)
{
    return search_tried(s, c) < 2 * s->request->n_tried;
}

static int look_at_even(struct chunkings *all, struct candidate *c, struct err *err)
{
    bool tried = was_tried(all->search, c), may = may_win(all, c) || tried;

    if (may && even_again(all->search, &c))
        may = may_win(all, c) || tried;
    return look_at(all, c, may && (is_promising(all, c) || tried), err);
}

static int look_at_moved(struct chunkings *all, struct candidate *c, struct err *err)
{
    bool may = may_win(all, c);

    if (may)
        c->closed = partition_closed(all->search, c);
    return look_at(all, c, may && is_promising(all, c), err);
}

static bool is_late(const struct search *s, double before)
{
    return s->effort - before > (s->few ? MAX_EFFORT_FEW : MAX_EFFORT);
}

static bool is_like(const struct candidate *a, const struct candidate *b)
{
    return a->schedule == b->schedule && a->chunks == b->chunks && a->n_stages == b->n_stages &&
           a->pipelines == b->pipelines && a->micro_batches == b->micro_batches;
}

/* The fastest like it: at the latest it itself. */
static const struct candidate *best_like(const struct search *s, const struct candidate *c)
{
    int i = 0;

    while (!is_like(s->found[i], c))
        i++;
    return s->found[i];
}

/* One cut of it moved by a place, where it is then faster, as long as it is. */
static int improve_one(struct search *s, const struct candidate *from, double before, struct err *err)
{
    struct chunkings all = { .search = s };
    const struct candidate *next = from;

    for (bool faster = true; faster; from = next) {
        for (int k = 1; k < from->n_stages; k++)
            for (int step = -1; step <= 1 && !is_late(s, before); step += 2) {
                int at = table_cut(s->table, from->cuts[k]) + step;
                struct candidate *c;

                if (s->table->cuts[at] <= from->cuts[k - 1] ||
                    s->table->cuts[at] >= from->cuts[k + 1])
                    continue;
                c = candidate_copy(from);
                c->cuts[k] = s->table->cuts[at];
                hold_against(&all, from);
                if (look_at_moved(&all, c, err))
                    return -1;
            }
        search_sort(s);
        next = best_like(s, from);
        faster = next->seconds < from->seconds * (1 - SAME) && !is_late(s, before);
    }
    return 0;
}

/* The fastest with several stages of a device that are not alike, where they are not far behind. */
static int improve(struct search *s, double before, struct err *err)
{
    const struct candidate *starts[MOST_STARTS];
    int most = s->few ? MOST_STARTS : 1, n = 0, bad = 0;

    for (int i = 0; i < s->n_found && n < most; i++) {
        const struct candidate *c = s->found[i];
        bool seen = c->chunks < 2 || !(c->seconds < FAR * s->found[0]->seconds);

        for (int k = 0; k < n && !seen; k++)
            seen = is_like(c, starts[k]);
        if (!seen)
            starts[n++] = c;
    }
    for (int k = 0; k < n && !bad; k++)
        bad = improve_one(s, starts[k], before, err);
    return bad;
}

/* How far the closed form is off differs by schedule: the first of each is simulated, then the others in the
 * order that this shows. '*before': the effort when these begin.
 */
static int look_at_all(struct chunkings *all, struct candidate **list, int n, double *before,
                       struct err *err)
{
    const struct search *s = all->search;
    struct look *looks = mem_new((size_t)n + 1, sizeof(*looks));
    int bad = 0, most = s->few ? MOST_LOOKED_FEW : MOST_LOOKED;
    bool seen[SCHEDULE_KINDS] = { false };

    for (int i = 0; i < n; i++)
        looks[i].candidate = list[i];
    sort_looks(all, looks, n);
    for (int i = 0; i < n && !bad && !s->few; i++) {
        struct candidate *c = looks[i].candidate;

        if (seen[c->schedule])
            continue;
        seen[c->schedule] = true;
        looks[i].candidate = NULL;
        bad = look_at_even(all, c, err);
    }
    *before = s->effort;
    sort_looks(all, looks, n);
    for (int i = 0; i < n; i++) {
        struct candidate *c = looks[i].candidate;

        if (!c)
            continue;
        if (!bad && i < most && !is_late(s, *before) &&
            (c->closed * all->least < slack(s) * all->best || was_tried(s, c)))
            bad = look_at_even(all, c, err);
        else
            candidate_free(c);
    }
    free(looks);
    return bad;
}

int search_beside_chunks(struct search *s, struct err *err)
{
    struct chunkings all = { .search = s, .best = INFINITY, .least = 1,
                             .speed = search_mean_speed(s) };
    struct candidate **list;
    double before;
    int n, bad;

    /* Where devices share cores others compute while one waits: there is little to win, and each
     * stage more is a message more.
     */
    if (!chunks_searched(s->request) || s->request->exhaustive ||
        (s->slow > 1 && (s->n_found || !s->request->stages)))
        return 0;
    if (s->n_found)
        hold_against(&all, s->found[0]);
    for (int d = 0; d < s->cluster->n_devices; d++)
        all.room = dmax(all.room, search_limit(s, d));
    collect(&all);
    list = cut_all(&all, &n);
    bad = look_at_all(&all, list, n, &before, err);
    free(list);
    search_sort(s);
    if (s->few && !bad)
        search_cut_chunks(s, all.n, all.items);
    free(all.items);
    return bad || search_settle(s, err) || improve(s, before, err) || search_settle(s, err)
               ? -1 : 0;
}

int check_chunks(const struct plan_request *r, struct err *err)
{
    int chunks = request_chunks(r);
    const char *source = r->list ? r->list->source : NULL;

    if (r->chunks && !r->list && (!r->schedule || schedule_find(r->schedule) != SCHEDULE_INTERLEAVED))
        return err_set_code(err, EXIT_USAGE, "--chunks is about --schedule interleaved alone");
    if (chunks == 1)
        return 0;
    if (r->policy || (r->list && r->exhaustive))
        return err_set_code(err, EXIT_USAGE, "--schedule %s and --%s: leave one of them out",
                            source ? source : r->schedule, r->policy ? "policy" : "exhaustive");
    if (r->stages % chunks)
        return err_set_code(err, EXIT_USAGE, "--stages %d: --schedule %s has %d on each device",
                            r->stages, r->schedule, chunks);
    for (int i = 1; i < r->n_replicas; i++)
        if (r->replicas[i] != r->replicas[0])
            return err_set_code(err, EXIT_USAGE, "--replicas: --schedule %s has the same number "
                                "for all stages", source ? source : r->schedule);
    if (r->stages && r->micro_batches && !r->list &&
        schedule_suits(least_schedule(r), r->stages / chunks, r->micro_batches, err)) {
        err->code = EXIT_USAGE;
        return -1;
    }
    return 0;
}
