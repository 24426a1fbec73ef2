/* SPDX-License-Identifier: MIT */
/* Small problems: every plan there is is simulated, as far as it may be kept. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Of more devices nobody asks which are alike. */
#define MAX_DEVICES 64
#define MOST_KEPT 1000

struct walk {
    struct search *search;
    struct candidate c;     /* being built; arrays of the largest size */
    int *stage;             /* [blocks]: -1 where in none yet */
    int *room;              /* [blocks]: that a stage may have */
    int n_blocks, limit;    /* devices of a pipeline */
    int *start, *into;      /* of each block: where its incoming edges begin in 'into' */
    struct places places;
    long count, most;
    bool add;               /* to what was found, else count only */
    small_see *see;          /* in place of both */
    void *context;
    struct err *err;
    bool failed;
};

/* Behind one that is not far are all that take longer. */
static void limit_to(struct search *s, const struct candidate *last)
{
    if (!last->far)
        s->limit = last->seconds;
}

/* Keep the best. */
static void keep(struct search *s, const struct candidate *c)
{
    *(struct candidate **)mem_push((void **)&s->found, &s->n_found, sizeof(*s->found)) =
        candidate_copy(c);
    if (s->n_found < 2 * MOST_KEPT)
        return;
    search_sort(s);
    while (s->n_found > MOST_KEPT)
        candidate_free(s->found[--s->n_found]);
    limit_to(s, s->found[MOST_KEPT - 1]);
}

static void take(struct walk *w, struct candidate *c)
{
    w->count++;
    if ((!w->add && !w->see) || w->failed)
        return;
    if (w->see)
        w->see(w->context, c);
    else if (search_evaluate(w->search, c, true, w->err))
        w->failed = true;
    else if (isfinite(c->seconds))
        keep(w->search, c);
}

/* It counts only where it fits. */
static void take_again(void *context, struct candidate *c)
{
    struct walk *w = context;

    if (w->count <= w->most && search_fits(w->search, c))
        take(w, c);
}

static void reach(struct walk *w, enum schedule_kind schedule, double budget)
{
    w->c.schedule = schedule;
    w->c.budget = budget;
    candidate_assign(&w->c, w->stage);
    take(w, &w->c);
    if (w->search->request->exhaustive && !w->see)
        search_each_again(w->search, &w->c, take_again, w);
}

/* One stage or one micro-batch has one order; zb is tried with each number of slots, of which
 * the least is that of zb-h1.
 */
static void reach_schedules(struct walk *w)
{
    const struct plan_request *r = w->search->request;
    int n = w->c.n_stages;
    int64_t idle = w->c.micro_batches - n, more = idle < 0 ? 0 : idle < n - 1 ? idle : n - 1;

    for (int k = 0; k < SCHEDULE_KINDS; k++) {
        if (!schedule_allowed(r, (enum schedule_kind)k))
            continue;
        if (k != SCHEDULE_ZB || r->schedule_memory > 0)
            reach(w, (enum schedule_kind)k, r->schedule_memory);
        else
            for (int i = r->schedule ? 0 : 1; i <= more; i++)
                reach(w, SCHEDULE_ZB, 1 + (double)i / n);
        if (n == 1 || w->c.micro_batches == 1)
            return;
    }
}

/* All places for the replicas from number 'at' on, of which no two differ only by what is
 * alike. Pipelines are alike, too.
 */
static void walk_places(struct walk *w, int at)
{
    const struct cluster *cluster = w->search->cluster;
    int each = candidate_devices(&w->c);
    int first = at % each == 0 && at > 0 ? w->c.devices[at - each] + 1 : 0;

    if (at == each * w->c.pipelines && w->c.chunks > 1) {
        reach(w, w->c.schedule, 0);
        return;
    }
    if (at == each * w->c.pipelines) {
        reach_schedules(w);
        return;
    }
    for (int d = first; d < cluster->n_devices && w->count <= w->most; d++) {
        if (!places_offer(&w->places, d))
            continue;
        w->c.devices[at] = d;
        places_take(&w->places, d, 1);
        walk_places(w, at + 1);
        places_take(&w->places, d, -1);
    }
}

static void walk_stages(struct walk *w, int left);

/* Is all that a block reads in this stage or before it? */
static bool ready(const struct walk *w, int block)
{
    for (int i = w->start[block]; i < w->start[block + 1]; i++)
        if (w->stage[w->search->cost->edges[w->into[i]].from] < 0)
            return false;
    return true;
}

/* With or without each block from 'block' on that may be in the stage, of which there are
 * 'taken' by now. 'whole': all must be.
 */
static void walk_blocks(struct walk *w, int block, int taken, bool whole, int left)
{
    int s = w->c.n_stages - 1;

    while (block < w->n_blocks && (w->stage[block] >= 0 || !ready(w, block)))
        block++;
    if (w->count > w->most)
        return;
    if (block == w->n_blocks) {
        if (taken)
            walk_stages(w, left);
        return;
    }
    if (taken < w->room[s]) {
        w->stage[block] = s;
        walk_blocks(w, block + 1, taken + 1, whole, left);
        w->stage[block] = -1;
    }
    if (!whole)
        walk_blocks(w, block + 1, taken, whole, left);
}

static void walk_stages(struct walk *w, int left)
{
    const struct plan_request *r = w->search->request;
    int s = w->c.n_stages, behind = r->stages ? r->stages - s - 1 : 0, rest = 0;

    for (int b = 0; b < w->n_blocks; b++)
        rest += w->stage[b] < 0;
    if (rest == 0) {
        w->c.cuts[s] = w->n_blocks;
        if (!r->stages || r->stages == s)
            walk_places(w, 0);
        return;
    }
    if (r->stages && s == r->stages)
        return;
    /* Stages that are pinned behind it want a block and a device each. */
    w->room[s] = rest - behind;
    for (int k = 1; k <= left - behind && k <= w->c.micro_batch; k++) {
        if ((r->n_replicas && r->replicas[s] != k) ||
            !shares_allowed(r, w->c.micro_batch, k))
            continue;
        w->c.replicas[s] = k;
        w->c.n_stages = s + 1;
        walk_blocks(w, 0, 0, k == left || r->stages == s + 1, left - k);
        w->c.n_stages = s;
    }
}

/* Stages from number 's' on, each of neighbours, of which the first begins at block 'first'. */
static void walk_cuts(struct walk *w, int s, int first)
{
    int behind = w->c.n_stages - 1 - s;

    if (behind < 0) {
        walk_places(w, 0);
        return;
    }
    for (int b = first; b < w->n_blocks - behind; b++) {
        w->stage[b] = s;
        if (behind || b == w->n_blocks - 1)
            walk_cuts(w, s + 1, b + 1);
    }
}

static void walk_chunking(struct walk *w, const struct chunking *f)
{
    w->c.n_stages = f->lists * f->chunks;
    w->c.chunks = f->chunks;
    w->c.schedule = f->kind;
    w->c.cuts[w->c.n_stages] = w->n_blocks;
    for (int k = 0; k < w->c.n_stages; k++)
        w->c.replicas[k] = f->replicas;
    walk_cuts(w, 0, 0);
}

/* One device with several stages is a plan only where it is asked for. */
static bool is_asked(const struct plan_request *r, const struct chunking *f)
{
    if (schedule_chunks(f->kind, f->chunks) != f->chunks)
        return false;
    if (request_chunks(r) > 1)
        return f->kind == least_schedule(r) && f->chunks == request_chunks(r);
    return chunks_allowed(r) && f->lists > 1;
}

/* All that give a device of a pipeline several stages. */
static void walk_chunkings(struct walk *w, const struct split *split)
{
    struct search *s = w->search;
    int devices = search_devices(s, split->pipelines);
    struct chunking f = { .split = split };

    for (f.lists = 1; f.lists <= devices; f.lists++)
        for (f.replicas = 1; f.lists * f.replicas <= devices; f.replicas++)
            for (int k = 0; k < SCHEDULE_KINDS; k++) {
                f.kind = (enum schedule_kind)k;
                for (f.chunks = 2; f.chunks <= chunking_most(s, f.lists); f.chunks++)
                    if (is_asked(s->request, &f) && is_chunking(s, &f))
                        walk_chunking(w, &f);
            }
    w->c.chunks = 0;
    for (int b = 0; b < w->n_blocks; b++)
        w->stage[b] = -1;
}

static void walk_all(struct walk *w)
{
    const struct search *s = w->search;

    w->count = 0;
    for (int i = 0; i < s->n_splits && w->count <= w->most; i++) {
        w->c.n_stages = 0;
        w->c.pipelines = s->splits[i].pipelines;
        w->c.micro_batch = s->splits[i].micro_batch;
        w->c.micro_batches = s->splits[i].micro_batches;
        if (request_chunks(s->request) == 1)
            walk_stages(w, search_devices(s, w->c.pipelines));
        if (s->request->exhaustive)
            walk_chunkings(w, &s->splits[i]);
    }
}

static void walk_new(struct walk *w)
{
    const struct cost *cost = w->search->cost;
    size_t n = (size_t)cost->n_blocks;

    w->n_blocks = cost->n_blocks;
    w->room = mem_new(n, sizeof(int));
    w->stage = mem_new(n, sizeof(int));
    for (int b = 0; b < cost->n_blocks; b++)
        w->stage[b] = -1;
    w->c.cuts = mem_new(n + 1, sizeof(int));
    w->c.order = mem_new(n, sizeof(int));
    w->c.replicas = mem_new(n, sizeof(int));
    w->c.devices = mem_new((size_t)w->search->cluster->n_devices, sizeof(int));
    w->c.zero = w->search->zero;
    places_init(&w->places, w->search->cluster);
    cost_edges_into(cost, &w->start, &w->into);
}

static void walk_clear(struct walk *w)
{
    free(w->room);
    free(w->stage);
    free(w->c.cuts);
    free(w->c.order);
    free(w->c.replicas);
    free(w->c.devices);
    free(w->c.again);
    places_clear(&w->places);
    free(w->start);
    free(w->into);
}

int partition_small(struct search *search, long most, long *count, struct err *err)
{
    struct walk w = { .search = search, .most = most, .err = err };

    /* Micro-batches cost simulation time, too. */
    *count = most + 1;
    if (search->cluster->n_devices > MAX_DEVICES || search->cost->n_blocks > MAX_CUTS ||
        (!search->request->exhaustive && search->request->global_batch > most))
        return 0;
    walk_new(&w);
    walk_all(&w);
    *count = w.count;
    if (w.count <= most) {
        w.add = true;
        walk_all(&w);
        search->limit = INFINITY;
        search_sort(search);
    }
    walk_clear(&w);
    return w.failed ? -1 : 0;
}

bool small_plans(struct search *search, const struct candidate *c, const int *stage, long most,
                 small_see *see, void *context)
{
    struct walk w = { .search = search, .most = most, .see = see, .context = context };

    walk_new(&w);
    w.c.pipelines = c->pipelines;
    w.c.micro_batch = c->micro_batch;
    w.c.micro_batches = c->micro_batches;
    w.c.n_stages = c->n_stages;
    memcpy(w.c.replicas, c->replicas, (size_t)c->n_stages * sizeof(*c->replicas));
    memcpy(w.stage, stage, (size_t)w.n_blocks * sizeof(*stage));
    w.c.cuts[c->n_stages] = w.n_blocks;
    walk_places(&w, 0);
    walk_clear(&w);
    return w.count <= most;
}
