/* SPDX-License-Identifier: MIT */
/* Other cuts for what partition_dp() found under 1f1b, by a form of the iteration that is closer to
 * what a simulation says than its own: W is nothing that others wait for, and of the forwards of a
 * stage those that it runs ahead, one for each stage behind it, fall into the time in which the
 * pipeline fills. For M micro-batches and a stage with 'ahead' behind it
 *   A = sum of F + B + messages
 *   w = (M - 1 - ahead) F + (M - 1) (B + W), or M - 1 messages where these take longer
 *   T = A + max of w
 * beside sums over replicas and updates. Stages in front may therefore be longer. For each of some limits of w dynamic programming over
 * (stage, cut) finds the least A, stages and their replicas as they are.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Of as many micro-batches one is cut anew; so many, at most. */
#define MOST_RECUT 4
/* The limit of w, times that of the candidate: where it begins, each time, and how often. */
#define WIDER 1.1
#define STEP 0.98
#define STEPS 24

/* A stage from cut 'first' on. */
struct piece {
    int first;
    double path, work;      /* its part of A; w */
};

struct recut {
    struct search *search;
    const struct candidate *from;
    int n, stages;
    int n_pieces;
    struct piece *pieces;   /* by stage and end */
    int *at;                /* [(stages + 1) * (n + 1) + 1]: where those begin */
    double *least;          /* [(stages + 1) * (n + 1)]: A of the stages from there on */
    int *next;              /* the cut behind */
};

static int place_of(const struct recut *r, int stage, int cut)
{
    return stage * (r->n + 1) + cut;
}

/* What all pieces of one stage have. */
struct frame {
    const struct share_table *pace; /* of the devices that take longest; NULL: all take as long */
    const struct share_table *own, *sent, *larger;  /* its share, that before it, both's larger */
    struct message_link link;
    double room, ahead;
    int slots, copies;
};

static struct frame frame_of(const struct recut *r, int s)
{
    const struct candidate *c = r->from;
    struct table *table = r->search->table;
    int64_t share = candidate_share(c->micro_batch, c->replicas[s]);
    struct frame frame = { .own = table_share(table, share),
                           .room = candidate_room(r->search, c, s),
                           .ahead = dmin((double)c->micro_batches - 1, r->stages - 1 - s),
                           .slots = candidate_slots(r->search->request, c, s),
                           .copies = candidate_pipelines(c) * c->replicas[s] };

    if (r->search->mixed) {
        struct pace pace = candidate_slowest_pace(r->search, c, s);

        frame.pace = table_sums(table_kind(table, pace.kind), pace.samples);
    }
    if (s > 0) {
        int64_t before = candidate_share(c->micro_batch, c->replicas[s - 1]);

        frame.sent = table_share(table, before);
        frame.larger = table_share(table, before > share ? before : share);
        frame.link = search_link(r->search, candidate_first(c, s - 1), c->replicas[s - 1],
                              candidate_first(c, s));
    }
    return frame;
}

/* The least that is run again where it fits; false: it fits in no way. */
static bool fit(const struct recut *r, const struct frame *frame, bool first,
                const struct interval_cost *c, enum plan_recompute *again)
{
    const struct plan_request *q = r->search->request;
    enum schedule_kind kind = kind_at(r->from->schedule, first);
    enum plan_recompute most = recompute_most(q, kind);

    for (*again = recompute_asked(q); *again <= most; ++*again)
        if (search_memory(r->search, c, r->from->micro_batches, frame->slots, frame->copies,
                          kind_backward(kind, c->gradient), *again) <= frame->room)
            return true;
    return false;
}

/* What a stage waits for, of values and of gradients. */
static double message(const struct frame *frame, int i, int end)
{
    if (!frame->sent)
        return 0;
    return search_message(&frame->link, staircase_at(&frame->larger->received, i, end),
                          staircase_at(&frame->sent->received, i, end)) +
           search_message(&frame->link, staircase_at(&frame->larger->gradient, i, end),
                          staircase_at(&frame->sent->gradient, i, end));
}

static double work(const struct recut *r, double ahead, const struct interval_cost *c, double again,
                   double waits)
{
    double m = (double)r->from->micro_batches;
    double own = (m - 1 - ahead) * c->forward + (m - 1) * (c->dgrad + c->wgrad + again);

    return dmax(r->search->slow * own, (m - 1) * waits);
}

static void get_interval(const struct recut *r, const struct frame *frame, int i, int end,
                         struct interval_cost *c)
{
    const struct share_table *pace = frame->pace;

    table_interval(r->search->table, frame->own, i, end, c);
    if (!pace)
        return;
    c->forward = pace->forward[end] - pace->forward[i];
    c->dgrad = pace->dgrad[end] - pace->dgrad[i];
    c->wgrad = pace->wgrad[end] - pace->wgrad[i];
    c->again = pace->again[end] - pace->again[i];
}

/* w where nothing is run again and nobody waits. */
static double least_work(const struct recut *r, const struct frame *frame, int i, int end)
{
    const struct share_table *s = frame->pace ? frame->pace : frame->own;
    const struct interval_cost own = { .forward = s->forward[end] - s->forward[i],
                                       .dgrad = s->dgrad[end] - s->dgrad[i],
                                       .wgrad = s->wgrad[end] - s->wgrad[i] };

    return work(r, frame->ahead, &own, 0, 0);
}

/* Where a stage may begin, [stages + 1]: no further than those in front of it get, and no sooner
 * than those from it on get to the end.
 */
static void fill_ranges(const struct recut *r, const struct frame *frames, double most,
                        struct cut_range *ranges)
{
    ranges[0].to = 0;
    ranges[r->stages].from = r->n;
    for (int s = 0; s < r->stages; s++) {
        int end = ranges[s].to;

        while (end < r->n && least_work(r, &frames[s], ranges[s].to, end + 1) <= most)
            end++;
        ranges[s + 1].to = end;
    }
    for (int s = r->stages - 1; s >= 0; s--) {
        int first = ranges[s + 1].from;

        while (first > 0 && least_work(r, &frames[s], first - 1, ranges[s + 1].from) <= most)
            first--;
        ranges[s].from = first;
    }
}

/* All stages that end there and begin in this range, the shortest first. */
static void add_pieces(struct recut *r, const struct frame *frame, const struct cut_range *range,
                       int stage, int end, double most)
{
    int last = range->to < end ? range->to : end - 1, first = range->from;

    for (int i = last; i >= stage && i >= first; i--) {
        struct interval_cost own;
        enum plan_recompute again;
        struct piece piece = { .first = i };
        double more, waits;

        if (least_work(r, frame, i, end) > most)
            break;
        get_interval(r, frame, i, end, &own);
        if (!fit(r, frame, stage == 0, &own, &again)) {
            /* What it receives may shrink further up, the rest only grows. */
            own.slot = own.activations;
            own.received = own.gradient = own.copies = own.copied = 0;
            own.border = own.border_peak = own.fed = 0;
            if (!fit(r, frame, stage == 0, &own, &again))
                break;
            continue;
        }
        more = interval_again(&own, again);
        waits = message(frame, i, end);
        piece.path = r->search->slow * (own.forward + own.dgrad + more) + waits;
        piece.work = work(r, frame->ahead, &own, more, waits);
        if (piece.work <= most)
            *(struct piece *)mem_push((void **)&r->pieces, &r->n_pieces, sizeof(piece)) = piece;
    }
}

static void fill_pieces(struct recut *r, double most)
{
    struct frame *frames = mem_new((size_t)r->stages, sizeof(*frames));
    struct cut_range *ranges = mem_new((size_t)r->stages + 1, sizeof(*ranges));

    for (int stage = 0; stage < r->stages; stage++)
        frames[stage] = frame_of(r, stage);
    fill_ranges(r, frames, most, ranges);
    r->n_pieces = 0;
    for (int stage = 0; stage < r->stages; stage++)
        for (int end = 0; end <= r->n; end++) {
            const struct cut_range *range = &ranges[stage + 1];

            r->at[place_of(r, stage, end)] = r->n_pieces;
            if (end > stage && end <= r->n - (r->stages - 1 - stage) && end >= range->from &&
                end <= range->to)
                add_pieces(r, &frames[stage], &ranges[stage], stage, end, most);
        }
    r->at[place_of(r, r->stages - 1, r->n) + 1] = r->n_pieces;
    free(ranges);
    free(frames);
}

/* The least A where no w is above 'most'; INFINITY: there is none. */
static double least_path(struct recut *r, double most)
{
    int all = (r->stages + 1) * (r->n + 1);

    for (int i = 0; i < all; i++)
        r->least[i] = INFINITY;
    r->least[place_of(r, r->stages, r->n)] = 0;
    for (int stage = r->stages - 1; stage >= 0; stage--)
        for (int end = stage + 1; end <= r->n; end++) {
            double behind = r->least[place_of(r, stage + 1, end)];
            int to = r->at[place_of(r, stage, end) + 1];

            for (int k = r->at[place_of(r, stage, end)]; k < to && !isinf(behind); k++) {
                const struct piece *piece = &r->pieces[k];
                int at = place_of(r, stage, piece->first);

                if (piece->work > most || behind + piece->path >= r->least[at])
                    continue;
                r->least[at] = behind + piece->path;
                r->next[at] = end;
            }
        }
    return r->least[0];
}

static double longest_work(const struct recut *r)
{
    double longest = 0;

    for (int stage = 0, cut = 0; stage < r->stages; stage++) {
        int end = r->next[place_of(r, stage, cut)], k = r->at[place_of(r, stage, end)];

        while (r->pieces[k].first != cut)
            k++;
        longest = dmax(longest, r->pieces[k].work);
        cut = end;
    }
    return longest;
}

static void take_cuts(const struct recut *r, struct candidate *c)
{
    for (int stage = 0, cut = 0; stage < r->stages; stage++) {
        cut = r->next[place_of(r, stage, cut)];
        c->cuts[stage + 1] = r->search->table->cuts[cut];
    }
}

/* w of the candidate as it is. */
static double work_of(const struct recut *r)
{
    const struct candidate *c = r->from;
    double most = 0;

    for (int s = 0; s < c->n_stages; s++) {
        double ahead = dmin((double)c->micro_batches - 1, c->n_stages - 1 - s);
        struct interval_cost own;

        candidate_slowest(r->search, c, s, &own);
        most = dmax(most, work(r, ahead, &own, interval_again(&own, c->again[s]),
                               s > 0 ? candidate_message(r->search, c, s) : 0));
    }
    return most;
}

static struct candidate *recut(struct search *search, const struct candidate *from)
{
    struct recut r = { .search = search, .from = from, .n = search->table->n,
                       .stages = from->n_stages };
    size_t cells = ((size_t)r.stages + 1) * ((size_t)r.n + 1);
    double most = work_of(&r) * WIDER, best = INFINITY;
    struct candidate *c = candidate_copy(from);

    r.at = mem_new(cells + 1, sizeof(*r.at));
    r.next = mem_new(cells, sizeof(*r.next));
    r.least = mem_new(cells, sizeof(*r.least));
    fill_pieces(&r, most);
    for (int i = 0; i < STEPS; i++) {
        double path = least_path(&r, most);

        if (isinf(path))
            break;
        most = longest_work(&r);
        if (path + most < best) {
            best = path + most;
            take_cuts(&r, c);
        }
        /* Of one micro-batch nobody waits for a second. */
        if (most <= 0)
            break;
        most *= STEP;
    }
    free(r.at);
    free(r.next);
    free(r.least);
    free(r.pieces);
    if (isfinite(best) && !candidate_same(c, from))
        return c;
    candidate_free(c);
    return NULL;
}

static bool is_cut_anew(const struct search *s, const struct candidate *c)
{
    return isfinite(c->seconds) && c->schedule == SCHEDULE_1F1B && c->chunks <= 1 && !c->order &&
           (!c->devices || (s->mixed && s->uniform)) && c->n_stages > 1 && c->n_stages <= s->table->n;
}

int search_recut(struct search *s, struct err *err)
{
    int n = s->n_found, taken[MOST_RECUT], n_taken = 0;

    if (s->versions > 1 || s->request->list || s->request->block_stage ||
        s->table->ideals)
        return 0;
    for (int i = 0; i < n && n_taken < MOST_RECUT; i++) {
        const struct candidate *from = s->found[i];
        struct candidate *c;
        bool seen = !is_cut_anew(s, from);

        for (int k = 0; k < n_taken && !seen; k++)
            seen = s->found[taken[k]]->micro_batches == from->micro_batches;
        if (seen)
            continue;
        c = recut(s, from);
        if (!c)
            continue;
        taken[n_taken++] = i;
        search_add(s, c);
        if (search_evaluate(s, c, false, err))
            return -1;
    }
    return search_settle(s, err);
}
