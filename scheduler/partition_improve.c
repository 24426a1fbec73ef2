/* SPDX-License-Identifier: MIT */
/* Local moves from the fastest candidates, by simulation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Candidates to start from, and stages of each around which changes are tried. */
#define MAX_STARTS 12
#define MAX_STAGES_MOVED 4
/* Replicas times micro-batches simulated, after which no more is tried. */
#define MAX_EFFORT 150000
/* Of that what counts of another search of the same problem. */
#define MAX_SHARED (3 * MAX_EFFORT / 4)
/* Of small problems, and of those that have SOME; and how often either is started again near the best. */
#define MAX_EFFORT_FEW 1000000
#define MAX_EFFORT_SOME 300000
#define KICKS 24
/* Of stages with so many blocks every cut in two is tried, of so many devices every exchange. */
#define MANY_BLOCKS 16
#define MANY_DEVICES 16

struct climb {
    struct search *s;
    struct candidate *best;     /* where it stands */
    bool failed;
    struct err *err;
};

static double most_effort(const struct search *s)
{
    return s->few ? MAX_EFFORT_FEW : s->some ? MAX_EFFORT_SOME : MAX_EFFORT;
}

static bool is_late(const struct search *s)
{
    return s->effort > most_effort(s);
}

void search_share_effort(struct search *s, const struct search *other)
{
    if (!s->few)
        s->effort = dmax(s->effort, dmin(other->effort, MAX_SHARED));
}

/* Stages from the slowest to the fastest, by the work of a micro-batch. */
static void sort_stages(const struct search *s, const struct candidate *c, int *order)
{
    struct plan *plan = place(s->cost, s->cluster, s->request, c);

    for (int k = 0; k < plan->n_stages; k++) {
        const struct plan_stage *stage = &plan->stages[k];
        double seconds = stage->forward + stage->dgrad + stage->wgrad;
        int i = k;

        for (; i > 0; i--) {
            const struct plan_stage *other = &plan->stages[order[i - 1]];

            if (other->forward + other->dgrad + other->wgrad >= seconds)
                break;
            order[i] = order[i - 1];
        }
        order[i] = k;
    }
    plan_free(plan);
}

/* Is it better than the best, whose seconds are exact? What the stages compute alone may say that
 * it is not.
 */
static bool beats(struct climb *climb, struct candidate *c)
{
    struct search *s = climb->s;

    if (candidate_least(s, c) >= climb->best->seconds)
        return false;
    for (int exact = 0; exact < 2; exact++) {
        if (search_evaluate(s, c, exact, climb->err)) {
            climb->failed = true;
            return false;
        }
        if (!candidate_better(c, climb->best) || c->exact)
            break;
    }
    return candidate_better(c, climb->best);
}

static bool go_as_it_is(struct climb *climb, struct candidate *c)
{
    if (climb->failed || is_late(climb->s) || !beats(climb, c)) {
        candidate_free(c);
        return false;
    }
    candidate_free(climb->best);
    climb->best = c;
    return true;
}

/* With each other schedule that is allowed, zb with each number of slots. */
static bool go_schedules(struct climb *climb, const struct candidate *from)
{
    int n = from->n_stages;
    bool slots = climb->s->request->schedule_memory <= 0 && n <= MANY_DEVICES;

    for (int k = 0; k < SCHEDULE_KINDS && n > 1; k++)
        for (int more = k == SCHEDULE_ZB && slots ? 1 : n - 1; more < n; more++) {
            struct candidate *c = candidate_copy(from);

            if (!set_schedule(climb->s, c, (enum schedule_kind)k)) {
                candidate_free(c);
                continue;
            }
            if (k == SCHEDULE_ZB && slots)
                c->budget = 1 + (double)more / n;
            if (candidate_same(c, from))
                candidate_free(c);
            else if (go_as_it_is(climb, c))
                return true;
        }
    return false;
}

/* Go there where that is better; takes the candidate. */
static bool go(struct climb *climb, struct candidate *c)
{
    struct candidate *others = climb->s->some && c->n_stages > 1 ? candidate_copy(c) : NULL;
    bool moved = go_as_it_is(climb, c) || (others && go_schedules(climb, others));

    candidate_free(others);
    return moved;
}

static bool move_schedule(struct climb *climb)
{
    struct candidate *from = candidate_copy(climb->best);
    bool moved = go_schedules(climb, from);

    candidate_free(from);
    return moved;
}

/* Are all replica counts those that the request allows, and is there a device for each? */
static bool is_allowed(const struct search *s, const struct candidate *c)
{
    if (candidate_devices(c) > search_devices(s, candidate_pipelines(c)))
        return false;
    for (int k = 0; k < c->n_stages; k++)
        if (c->replicas[k] < 1 || !shares_allowed(s->request, c->micro_batch, c->replicas[k]))
            return false;
    return true;
}

/* Larger or smaller micro-batches. */
static bool move_size(struct climb *climb)
{
    const struct search *s = climb->s;
    int at = search_split(s, climb->best);

    for (int i = at - 2; i <= at + 2; i++) {
        struct candidate *c;

        if (i < 0 || i >= s->n_splits || i == at ||
            s->splits[i].pipelines != s->splits[at].pipelines)
            continue;
        c = candidate_copy(climb->best);
        c->micro_batch = s->splits[i].micro_batch;
        c->micro_batches = s->splits[i].micro_batches;
        if (is_allowed(s, c) && set_schedule(climb->s, c, c->schedule)) {
            if (go(climb, c))
                return true;
        } else {
            candidate_free(c);
        }
    }
    return false;
}

static int count_of(const int *stage, int n, int s)
{
    int count = 0;

    for (int b = 0; b < n; b++)
        count += stage[b] == s;
    return count;
}

/* Which blocks may not change to that stage: something that they read, or that reads them, would be
 * left behind on the wrong side. malloc'ed.
 */
static bool *staying_blocks(const struct cost *cost, const int *stage, int to)
{
    bool *stays = mem_new((size_t)cost->n_blocks, sizeof(*stays));

    for (int e = 0; e < cost->n_edges; e++) {
        const struct cost_edge *edge = &cost->edges[e];

        stays[edge->from] |= stage[edge->to] < to;
        stays[edge->to] |= stage[edge->from] > to;
    }
    return stays;
}

/* A block of 'from' goes to 'to'. */
static bool move_block(struct climb *climb, int from, int to)
{
    const struct cost *cost = climb->s->cost;
    int *stage = candidate_stages(climb->best);
    bool *stays = staying_blocks(cost, stage, to), moved = false;
    bool several = count_of(stage, cost->n_blocks, from) > 1;

    for (int b = 0; b < cost->n_blocks && several && !moved; b++) {
        struct candidate *c;

        if (stage[b] != from || stays[b])
            continue;
        c = candidate_copy(climb->best);
        stage[b] = to;
        candidate_assign(c, stage);
        stage[b] = from;
        moved = go(climb, c);
    }
    free(stage);
    free(stays);
    return moved;
}

/* Cut its order anew, so that the slowest stage is as fast as can be. */
static void balance(const struct search *s, struct candidate *c)
{
    const double **sums = mem_new((size_t)c->n_stages, sizeof(*sums));
    double **own = mem_new((size_t)c->n_stages, sizeof(*own));

    for (int k = 0; k < c->n_stages; k++) {
        int64_t share = candidate_share(c->micro_batch, c->replicas[k]);
        struct pace pace = s->mixed ? candidate_slowest_pace(s, c, k) : (struct pace){ 0, share };
        struct table *table = table_kind(s->table, pace.kind);

        if (k > 0 && c->replicas[k] == c->replicas[k - 1] && !s->mixed)
            sums[k] = sums[k - 1];
        else if (c->order)
            sums[k] = own[k] = work_in_order(table->cost, c->order, pace.samples);
        else
            sums[k] = table_work(table, pace.samples);
    }
    even_cuts(sums, s->cost->n_blocks, c->n_stages, NULL, c->cuts);
    for (int k = 0; k < c->n_stages; k++)
        free(own[k]);
    free(own);
    free(sums);
}

static bool has_device(const int *devices, int n, int device)
{
    for (int i = 0; i < n; i++)
        if (devices[i] == device)
            return true;
    return false;
}

/* Its replicas may be more or fewer than those of the best. Where devices are of several kinds it has
 * its devices in the order in which the best has them, and then those that are idle there; else they
 * are as the cluster has them.
 */
static void place_anew(const struct climb *climb, struct candidate *c)
{
    const struct candidate *best = climb->best;
    int pipelines = candidate_pipelines(c), each = candidate_devices(c), idle = 0;
    int before = candidate_devices(best);

    free(c->devices);
    c->devices = NULL;
    if (!climb->s->mixed || !best->devices || candidate_pipelines(best) != pipelines)
        return;
    c->devices = mem_new((size_t)(pipelines * each), sizeof(*c->devices));
    for (int p = 0; p < pipelines; p++)
        for (int i = 0; i < each; i++) {
            while (i >= before && has_device(best->devices, pipelines * before, idle))
                idle++;
            c->devices[p * each + i] = i < before ? best->devices[p * before + i] : idle++;
        }
}

/* As it is, and with cuts that suit its replicas. */
static bool go_balanced(struct climb *climb, struct candidate *c)
{
    struct candidate *other;

    if (!is_allowed(climb->s, c)) {
        candidate_free(c);
        return false;
    }
    place_anew(climb, c);
    search_choose_devices(climb->s, c);
    set_schedule(climb->s, c, c->schedule);
    other = candidate_copy(c);
    balance(climb->s, other);
    search_choose_devices(climb->s, other);
    if (go(climb, c)) {
        candidate_free(other);
        return true;
    }
    return go(climb, other);
}

/* One replica more of a stage and one less of another, or of none, or only one less. */
static bool move_replica(struct climb *climb, int stage)
{
    for (int other = -2; other < climb->best->n_stages; other++) {
        struct candidate *c;

        if (other == stage)
            continue;
        c = candidate_copy(climb->best);
        c->replicas[stage] += other == -2 ? -1 : 1;
        if (other >= 0)
            c->replicas[other]--;
        if (go_balanced(climb, c))
            return true;
    }
    return false;
}

/* A stage and the next become one. */
static bool move_merge(struct climb *climb, int stage)
{
    struct candidate *c;
    int rest = climb->best->n_stages - stage - 2;

    if (rest < 0)
        return false;
    c = candidate_copy(climb->best);
    c->n_stages--;
    c->replicas[stage] += c->replicas[stage + 1];
    memmove(&c->replicas[stage + 1], &c->replicas[stage + 2], (size_t)rest * sizeof(int));
    memmove(&c->cuts[stage + 1], &c->cuts[stage + 2], ((size_t)rest + 1) * sizeof(int));
    return go_balanced(climb, c);
}

static struct candidate *split_stage(const struct candidate *from, int stage, int cut, int r,
                                     int other)
{
    struct candidate *c = candidate_copy(from);
    int n = c->n_stages++;

    free(c->again);
    c->again = NULL;
    c->cuts = mem_resize(c->cuts, (size_t)n + 2, sizeof(int));
    c->replicas = mem_resize(c->replicas, (size_t)n + 1, sizeof(int));
    memmove(&c->cuts[stage + 2], &c->cuts[stage + 1], (size_t)(n - stage) * sizeof(int));
    memmove(&c->replicas[stage + 1], &c->replicas[stage], (size_t)(n - stage) * sizeof(int));
    c->cuts[stage + 1] = cut;
    c->replicas[stage] = r;
    c->replicas[stage + 1] = other;
    return c;
}

/* A stage becomes two, which share its replicas, or get one more. */
static bool move_split(struct climb *climb, int stage)
{
    int first = climb->best->cuts[stage], end = climb->best->cuts[stage + 1];
    int r = climb->best->replicas[stage], step = (end - first + MANY_BLOCKS - 1) / MANY_BLOCKS;

    for (int cut = first + 1; cut < end; cut += step)
        for (int a = 1; a <= r; a += 1 + r / MANY_DEVICES) {
            if (a < r && go_balanced(climb, split_stage(climb->best, stage, cut, a, r - a)))
                return true;
            if ((a == 1 || a == r) &&
                go_balanced(climb, split_stage(climb->best, stage, cut, a, r - a + 1)))
                return true;
        }
    return false;
}

/* Its own list of devices; how many these are. */
static int list_devices(const struct search *s, struct candidate *c)
{
    int each = candidate_devices(c), all = candidate_pipelines(c) * each;

    if (!c->devices) {
        int *devices = mem_new((size_t)all, sizeof(*devices));

        for (int i = 0; i < all; i++)
            devices[i] = candidate_device(c, s->cluster, i / each, i % each);
        c->devices = devices;
    }
    return all;
}

/* Exchange the devices of two replicas, or of one and an idle device. */
static void exchange(const struct search *s, struct candidate *c, int x, int y)
{
    int all = list_devices(s, c);

    for (int i = 0; i < all; i++)
        c->devices[i] = c->devices[i] == x ? y : c->devices[i] == y ? x : c->devices[i];
}

/* Is it another plan where they are exchanged? */
static bool are_apart(const struct search *s, int x, int y)
{
    const struct cluster *cluster = s->cluster;

    return cluster->places[cluster->devices[x].place].parent !=
               cluster->places[cluster->devices[y].place].parent ||
           !search_same_devices(s, x, y);
}

static bool move_device(struct climb *climb)
{
    const struct cluster *cluster = climb->s->cluster;

    for (int x = 0; x < cluster->n_devices && cluster->n_devices <= MANY_DEVICES; x++)
        for (int y = x + 1; y < cluster->n_devices; y++) {
            struct candidate *c;

            if (!are_apart(climb->s, x, y))
                continue;
            c = candidate_copy(climb->best);
            exchange(climb->s, c, x, y);
            if (go(climb, c))
                return true;
        }
    return false;
}

/* From the other end: nodes may be of unequal size. */
static bool move_all_devices(struct climb *climb)
{
    struct candidate *c;
    int all;

    if (!climb->s->some || climb->s->flat)
        return false;
    c = candidate_copy(climb->best);
    all = list_devices(climb->s, c);
    for (int i = 0; i < all; i++)
        c->devices[i] = climb->s->cluster->n_devices - 1 - c->devices[i];
    return go(climb, c);
}

/* The first change around a stage that helps. */
static bool move_around(struct climb *climb, int stage)
{
    const struct plan_request *r = climb->s->request;
    bool free_replicas = !r->n_replicas, free_stages = !r->stages && free_replicas;

    /* Neighbours, and where there is little to try, all: one between may have no room. */
    for (int other = 0; other < climb->best->n_stages; other++)
        if ((climb->s->some ? other != stage : abs(other - stage) == 1) &&
            (move_block(climb, stage, other) || move_block(climb, other, stage)))
            return true;
    return (free_replicas && move_replica(climb, stage)) ||
           (free_stages && (move_merge(climb, stage) || move_split(climb, stage)));
}

static bool step(struct climb *climb)
{
    int n = climb->best->n_stages, *order = mem_new((size_t)n, sizeof(*order));
    bool moved = move_schedule(climb) || move_size(climb);

    sort_stages(climb->s, climb->best, order);
    for (int i = 0; i < n && i < MAX_STAGES_MOVED && !moved; i++)
        moved = move_around(climb, order[i]);
    free(order);
    return moved || move_device(climb) || move_all_devices(climb);
}

/* Another one of as many pipelines, stages and micro-batches was started from. */
static bool is_alike(const struct candidate *a, const struct candidate *b)
{
    return a->pipelines == b->pipelines && a->n_stages == b->n_stages &&
           a->micro_batches == b->micro_batches;
}

/* Climb from a candidate, and keep where that leads. */
static int climb_from(struct search *s, struct candidate *start, struct err *err)
{
    struct climb climb = { s, start, false, err };

    if (!start->exact && search_evaluate(s, start, true, err)) {
        candidate_free(start);
        return -1;
    }
    while (!climb.failed && step(&climb))
        ;
    s->found = mem_resize(s->found, (size_t)s->n_found + 1, sizeof(*s->found));
    s->found[s->n_found++] = climb.best;
    return climb.failed ? -1 : 0;
}

static unsigned draw(unsigned *state, int n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % (unsigned)n;
}

/* Some blocks in other stages, and some devices exchanged, by chance. */
static struct candidate *kicked(const struct search *s, const struct candidate *from,
                                unsigned *state)
{
    struct candidate *c = candidate_copy(from);
    int n = s->cost->n_blocks, devices = s->cluster->n_devices, *stage = candidate_stages(c);

    for (int i = 0; i < 4; i++) {
        bool *stays;
        int block = (int)draw(state, n), to = stage[block] + (draw(state, 2) ? 1 : -1);
        int x = (int)draw(state, devices), y = (int)draw(state, devices);

        stays = staying_blocks(s->cost, stage, to);
        if (to >= 0 && to < c->n_stages && count_of(stage, n, stage[block]) > 1 && !stays[block])
            stage[block] = to;
        free(stays);
        if (are_apart(s, x, y) && draw(state, 4) == 0)
            exchange(s, c, x, y);
    }
    candidate_assign(c, stage);
    c->exact = false;
    free(stage);
    return c;
}

/* A candidate, the least that any schedule of it takes, and what one may: zb runs W of each stage twice
 * where devices would wait.
 */
struct promise {
    int found;
    double least, about;
};

static struct promise promise_of(struct search *s, int i)
{
    struct candidate late = *s->found[i];
    double hidden = 0, least;

    late.schedule = SCHEDULE_ZB;
    late.budget = 2;
    least = candidate_least(s, &late);
    for (int k = 1; k < late.n_stages; k++) {
        struct interval_cost own;

        candidate_slowest(s, &late, k, &own);
        hidden += 2 * s->slow * own.wgrad;
    }
    return (struct promise){ i, least, dmax(least, late.seconds - hidden) };
}

static int by_promise(const void *a, const void *b)
{
    const struct promise *x = a, *y = b;

    if (x->about < y->about || x->about > y->about)
        return x->about < y->about ? -1 : 1;
    return x->found - y->found;
}

/* With the schedule that suits it best. */
static int reschedule_one(struct search *s, int i, struct err *err)
{
    struct climb climb = { s, s->found[i], false, err };
    struct candidate *was;

    if (!climb.best->exact && search_evaluate(s, climb.best, true, err))
        return -1;
    was = candidate_copy(climb.best);
    while (!climb.failed && move_schedule(&climb))
        ;
    s->found[i] = climb.best;
    /* Compiled it may be the one that fits. */
    if (s->request->memory_of && !candidate_same(was, climb.best))
        search_add(s, was);
    else
        candidate_free(was);
    return climb.failed ? -1 : 0;
}

/* What zb-h1 and zb gain decides where to start. Those that may gain most come first. */
static int reschedule(struct search *s, struct err *err)
{
    double most = s->effort + most_effort(s) / 4, best = INFINITY;
    struct promise *order = mem_new((size_t)s->n_found + 1, sizeof(*order));
    int n = 0, bad = 0;

    for (int i = 0; i < s->n_found && s->some; i++)
        if (isfinite(s->found[i]->seconds) && s->found[i]->n_stages > 1)
            order[n++] = promise_of(s, i);
    if (n)
        qsort(order, (size_t)n, sizeof(*order), by_promise);
    for (int k = 0; k < n && !bad && s->effort < most && !is_late(s); k++) {
        if (order[k].least >= best)
            continue;
        bad = reschedule_one(s, order[k].found, err);
        best = dmin(best, s->found[order[k].found]->seconds);
    }
    free(order);
    search_sort(s);
    return bad;
}

/* The fastest that are not alike. */
static int starts_of(const struct search *s, struct candidate **starts)
{
    int n = 0;

    for (int i = 0; i < s->n_found && n < MAX_STARTS; i++) {
        bool seen = isinf(s->found[i]->seconds);

        for (int k = 0; k < n && !seen; k++)
            seen = is_alike(starts[k], s->found[i]);
        if (!seen)
            starts[n++] = s->found[i];
    }
    return n;
}

int search_improve(struct search *s, struct err *err)
{
    struct candidate *starts[MAX_STARTS];
    unsigned state = 1;
    int n;

    if (reschedule(s, err))
        return -1;
    n = starts_of(s, starts);
    for (int i = 0; i < n && !is_late(s); i++)
        if (climb_from(s, candidate_copy(starts[i]), err))
            return -1;
    search_sort(s);
    for (int i = 0; i < KICKS && s->some && s->found[0]->n_stages > 1 && !is_late(s); i++) {
        int near = i % 2 ? (int)draw(&state, s->n_found) : 0;

        if (climb_from(s, kicked(s, s->found[near], &state), err))
            return -1;
        search_sort(s);
    }
    return 0;
}
