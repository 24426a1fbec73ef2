/* SPDX-License-Identifier: MIT */
/* Candidates by simulation, and in order. */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"
#include "scheduler/simulate.h"

/* Of a cost file alone, unless there is little to look at, on one crossbar the simulation decides
 * among those that are as good by the closed form, within this, of those with as many micro-batches:
 * the formula is public, and whoever recomputes it finds no plan of as many that beats this one by a
 * percent. Where wires are shared the formula does not hold.
 */
#define NEAR 0.0095
/* What making a plan of a candidate takes, in simulated micro-batches. */
#define EFFORT 8
/* Replicas times micro-batches simulated, beyond which the closed form ranks what is left; what
 * takes more than a part of that is simulated last.
 */
#define MAX_RANKED 300000
#define RANKED_PART 8
/* Differences below this are noise of the arithmetic. */
#define SAME 1e-9

/* A multiple of the devices, where these have several stages: interleaved wants it. */
static int64_t short_run(int n_stages, int chunks)
{
    return chunks > 1 ? 2 * (n_stages / chunks) : 2 * n_stages + 4;
}

/* Of those that are simulated. */
static double replicas_of(const struct plan *plan, const struct cluster *cluster)
{
    int pipelines = plan->pipelines / simulate_copies(plan, cluster);
    double n = 0;

    for (int k = 0; k < plan->n_stages; k++)
        n += pipelines * plan->stages[k].replicas;
    return n;
}

/* Are all micro-batches simulated, though nobody asks for it? To foresee them takes a run of a few and
 * one of twice as many, and whoever is ahead by these is simulated whole as well: as long as that is
 * half as long again.
 */
static bool is_whole(const struct plan *plan)
{
    return plan->list || 2 * plan->micro_batches <= 9 * short_run(plan->n_stages, plan->chunks);
}

/* An iteration of many micro-batches is a start, a steady state and an end: two short ones
 * give the length of a long one, the better the longer they are.
 */
static double forecast(struct search *s, struct plan *plan, bool exact, struct err *err)
{
    int64_t all = plan->micro_batches, a = short_run(plan->n_stages, plan->chunks), b = 2 * a;
    double short_one, long_one;

    s->effort += replicas_of(plan, s->cluster) * (double)(EFFORT + (exact ? all : a + b));
    if (exact)
        return simulate_within(s->limit * (1 + SAME), plan, s->cost, s->cluster, err);
    plan->micro_batches = a;
    short_one = simulate_seconds(plan, s->cost, s->cluster, err);
    plan->micro_batches = b;
    long_one = short_one < 0 ? -1 : simulate_seconds(plan, s->cost, s->cluster, err);
    plan->micro_batches = all;
    if (long_one < 0)
        return -1;
    return short_one + (double)(all - a) * (long_one - short_one) / (double)(b - a);
}

int search_split(const struct search *s, const struct candidate *c)
{
    int i = 0;

    while (s->splits[i].pipelines != candidate_pipelines(c) ||
           s->splits[i].micro_batch != c->micro_batch)
        i++;
    return i;
}

/* Where devices share cores, what the others do matters, which only a simulation sees; and nobody
 * recomputes the formula for the stages of a model.
 */
static bool is_far(const struct search *s, const struct candidate *c)
{
    double closed;

    if (s->few || !s->flat || s->complete || s->slow > 1 || s->request->policy ||
        s->request->memory_of || request_chunks(s->request) > 1)
        return false;
    closed = s->splits[search_split(s, c)].closed;
    return closed > 0 && c->closed > closed * (1 + NEAR);
}

/* By pins and the estimates of memory. */
static bool is_possible(struct search *s, struct candidate *c)
{
    c->seconds = INFINITY;
    c->exact = true;
    if (!pins_hold(s->request->block_stage, c))
        return false;
    c->closed = partition_closed(s, c);
    if (isinf(c->closed)) {
        s->tight = true;
        return false;
    }
    for (int k = 0; k < c->n_stages; k++)
        s->tight |= c->again[k] && !s->request->recompute;
    c->far = is_far(s, c);
    return true;
}

static bool recomputes_alike(const struct candidate *a, const struct candidate *b)
{
    for (int k = 0; k < a->n_stages; k++)
        if ((a->again ? a->again[k] : PLAN_RECOMPUTE_NONE) !=
            (b->again ? b->again[k] : PLAN_RECOMPUTE_NONE))
            return false;
    return true;
}

/* It counts as if it was simulated again: what is found depends on that. */
static bool was_simulated(struct search *s, struct candidate *c, bool exact)
{
    for (int i = 0; i < KEPT_SIMULATED && s->simulated; i++) {
        const struct simulated *old = &s->simulated[i];

        if (!old->candidate || old->exact != exact || old->candidate->zero != c->zero ||
            !candidate_same(old->candidate, c) || !recomputes_alike(old->candidate, c))
            continue;
        c->seconds = old->candidate->seconds;
        c->exact = old->candidate->exact;
        s->effort += old->effort;
        return true;
    }
    return false;
}

static void keep_simulated(struct search *s, const struct candidate *c, bool exact,
                           double effort)
{
    struct simulated *place;

    if (!s->simulated)
        s->simulated = mem_new(KEPT_SIMULATED, sizeof(*s->simulated));
    place = &s->simulated[s->n_simulated++ % KEPT_SIMULATED];
    candidate_free(place->candidate);
    *place = (struct simulated){ candidate_copy(c), exact, effort };
}

void search_forget(struct search *s)
{
    for (int i = 0; i < KEPT_SIMULATED && s->simulated; i++)
        candidate_free(s->simulated[i].candidate);
    free(s->simulated);
    s->simulated = NULL;
}

int search_evaluate(struct search *s, struct candidate *c, bool exact, struct err *err)
{
    double effort = s->effort;
    struct plan *plan;

    if (!is_possible(s, c) || was_simulated(s, c, exact))
        return 0;
    if (!list_suits(s, c)) {
        c->seconds = INFINITY;
        return 0;
    }
    plan = place_roughly(s->cost, s->cluster, s->request, c);
    c->exact = exact || is_whole(plan);
    c->seconds = forecast(s, plan, c->exact, plan->list ? &s->refused : err);
    /* The messages between its stages may not be those of the list. */
    if (c->seconds < 0 && plan->list)
        c->seconds = INFINITY;
    plan_free(plan);
    if (c->seconds < 0)
        return -1;
    if (isfinite(c->seconds) || isinf(s->limit))
        keep_simulated(s, c, exact, s->effort - effort);
    return 0;
}

bool candidate_better(const struct candidate *a, const struct candidate *b)
{
    if (isinf(a->seconds) || isinf(b->seconds))
        return a->seconds < b->seconds;
    if (a->far != b->far)
        return b->far;
    if (fabs(a->seconds - b->seconds) > SAME * b->seconds)
        return a->seconds < b->seconds;
    if (a->n_stages != b->n_stages)
        return a->n_stages < b->n_stages;
    if (a->pipelines != b->pipelines)
        return a->pipelines < b->pipelines;
    if (a->micro_batches != b->micro_batches)
        return a->micro_batches < b->micro_batches;
    return a->schedule < b->schedule;
}

static int by_seconds(const void *a, const void *b)
{
    const struct candidate *x = *(struct candidate *const *)a;
    const struct candidate *y = *(struct candidate *const *)b;

    return candidate_better(x, y) ? -1 : candidate_better(y, x);
}

void search_sort_from(struct search *s, int from)
{
    if (s->n_found > from)
        qsort(s->found + from, (size_t)(s->n_found - from), sizeof(*s->found), by_seconds);
}

void search_sort(struct search *s)
{
    search_sort_from(s, 0);
}

/* The search and the rules of others may find the same. */
void search_drop_doubles(struct search *s)
{
    int kept = 0;

    for (int i = 0; i < s->n_found; i++) {
        bool seen = false;

        for (int k = 0; k < kept && !seen; k++)
            seen = candidate_same(s->found[k], s->found[i]);
        if (seen)
            candidate_free(s->found[i]);
        else
            s->found[kept++] = s->found[i];
    }
    s->n_found = kept;
}

/* Not simulated: behind the best that was, as far as the closed form says. */
static void foresee(struct search *s, struct candidate *c, const struct candidate *best)
{
    if (!is_possible(s, c))
        return;
    c->seconds = best->seconds * dmax(c->closed / best->closed, 1 + NEAR);
    c->exact = false;
}

/* Pipelines of one candidate are mostly alike, and simulated as one. */
static bool is_costly(const struct candidate *c)
{
    return (double)candidate_devices(c) * (double)c->micro_batches > MAX_RANKED / RANKED_PART;
}

int search_simulate(struct search *s, struct err *err)
{
    const struct candidate *best = NULL;

    for (int costly = 0; costly < 2; costly++)
        for (int i = 0; i < s->n_found; i++) {
            struct candidate *c = s->found[i];

            if (is_costly(c) != costly)
                continue;
            if (best && s->effort > MAX_RANKED)
                foresee(s, c, best);
            else if (search_evaluate(s, c, false, err))
                return -1;
            else if (isfinite(c->seconds) && (!best || c->seconds < best->seconds))
                best = c;
        }
    return 0;
}

int search_settle(struct search *s, struct err *err)
{
    search_sort(s);
    while (s->n_found && !s->found[0]->exact) {
        if (search_evaluate(s, s->found[0], true, err))
            return -1;
        search_sort(s);
    }
    return 0;
}
