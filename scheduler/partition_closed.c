/* SPDX-License-Identifier: MIT */
/* The closed form of a candidate, see partition_dp(). */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

double candidate_message(struct search *search, const struct candidate *c, int s)
{
    int before = c->replicas[s - 1];
    int64_t own = candidate_share(c->micro_batch, before);
    int64_t share = candidate_share(c->micro_batch, c->replicas[s]);
    struct interval_cost all, part;
    struct message_link link =
        search_link(search, candidate_first(c, s - 1), before, candidate_first(c, s));

    candidate_interval(search, c, s, own, &part);
    if (share > own)
        candidate_interval(search, c, s, share, &all);
    else
        all = part;
    return search_message(&link, all.received, part.received) +
           search_message(&link, all.gradient, part.gradient);
}

/* Does a stage behind 's' wait for the backward of it? */
static bool is_waited_for(const struct search *search, const struct candidate *c, int s)
{
    const struct cost *cost = search->cost;
    bool waits = false;
    int *stage;

    if (search->versions == 1 || cost->n_shared == 0)
        return false;
    stage = candidate_stages(c);
    for (int i = 0; i < cost->n_shared; i++) {
        const struct cost_shared *shared = &cost->shared[i];
        bool before = false, behind = false;

        for (int k = 0; k < shared->n_blocks; k++) {
            before |= stage[shared->blocks[k]] <= s;
            behind |= stage[shared->blocks[k]] > s;
        }
        waits |= before && behind;
    }
    free(stage);
    return waits;
}

/* Seconds of a micro-batch, and of what follows the last; of a device that of all its stages, and how much
 * of it is hidden.
 */
struct times {
    double forward, work, message, tail, after, hidden;
};

static struct times times_of(struct search *search, const struct candidate *c, int s)
{
    int r = c->replicas[s], pipelines = candidate_pipelines(c);
    enum plan_recompute again = c->again ? c->again[s] : PLAN_RECOMPUTE_NONE;
    struct interval_cost own;
    struct times times = { 0 };

    candidate_slowest(search, c, s, &own);
    times.forward = search->slow * own.forward;
    times.work = search->slow * (own.forward + own.dgrad + own.wgrad + interval_again(&own, again));
    /* A device gives itself what it has. */
    if (s > 0 && candidate_list(c, s) != candidate_list(c, s - 1))
        times.message = candidate_message(search, c, s);
    times.tail = search->slow * own.step / (search->zero ? pipelines * r : 1) +
                 search_allreduce(search, pipelines, candidate_first(c, s), r,
                                  stage_gradient_bytes(search->cost, own.parameters));
    return times;
}

/* Of the stages of a device the first ends last: what follows those behind it, one after the other, has
 * by then been going on; but under zb-v, where W is put off.
 */
static void add_tail(const struct candidate *c, struct times *list, const struct times *own)
{
    int lists = c->n_stages / c->chunks;
    int64_t group = c->micro_batches < lists ? c->micro_batches : lists;

    list->after += own->tail;
    list->tail = dmax(list->tail, list->after - list->hidden);
    if (c->schedule != SCHEDULE_ZB_V)
        list->hidden += (double)group * (own->work - own->forward);
}

double chunks_closed(struct search *search, const struct candidate *c)
{
    int lists = c->n_stages / c->chunks;
    struct times *all = mem_new((size_t)lists, sizeof(*all));
    double fill = 0, most = 0, tail = 0;

    for (int s = 0; s < c->n_stages; s++) {
        struct times own = times_of(search, c, s), *list = &all[candidate_list(c, s)];

        list->work += own.work;
        list->message += own.message;
        add_tail(c, list, &own);
        most = dmax(most, dmax(list->work, list->message));
        tail = dmax(tail, list->tail);
        fill += own.message;
        if (s < lists - 1)
            fill += c->schedule == SCHEDULE_ZB_V ? own.forward : own.work;
    }
    free(all);
    return (double)c->micro_batches * most + fill + tail;
}

double partition_closed(struct search *search, struct candidate *c)
{
    double sum = 0, most = 0, tail = 0, back = 0;

    if (!search_fits(search, c))
        return INFINITY;
    if (c->chunks > 1)
        return chunks_closed(search, c);
    for (int s = 0; s < c->n_stages; s++) {
        int r = c->replicas[s], pipelines = candidate_pipelines(c);
        struct interval_cost own;
        double seconds, reduce;

        candidate_slowest(search, c, s, &own);
        seconds = search->slow * (own.forward + own.dgrad + own.wgrad);
        seconds += search->slow * interval_again(&own, c->again[s]);
        if (s > 0)
            seconds = dmax(seconds, candidate_message(search, c, s));
        reduce = search_allreduce(search, pipelines, candidate_first(c, s), r,
                                  stage_gradient_bytes(search->cost, own.parameters));
        if (closed_sums(search, c->micro_batches, c->n_stages - s))
            sum += seconds;
        if (is_waited_for(search, c, s))
            back += search->slow * own.dgrad;
        most = dmax(most, seconds);
        tail = dmax(tail, search->slow * own.step / (search->zero ? pipelines * r : 1) + reduce);
    }
    return closed_iteration(search, c->micro_batches, most, sum, tail + back);
}

double *work_in_order(const struct cost *cost, const int *order, int64_t samples)
{
    double *sum = mem_new((size_t)cost->n_blocks + 1, sizeof(*sum)), share = (double)samples;

    for (int i = 0; i < cost->n_blocks; i++) {
        const struct cost_block *b = &cost->blocks[order ? order[i] : i];

        sum[i + 1] = sum[i] + cost_at(cost, b->forward, b->batch_axis, share) +
                     cost_at(cost, b->dgrad, b->batch_axis, share) +
                     (b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, share) : 0);
    }
    return sum;
}
