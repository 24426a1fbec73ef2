/* SPDX-License-Identifier: MIT */
/* Where there is little to try: each way to cut, and to give stages replicas, on its own. What one
 * takes at least is said by all of its stages together: when the first micro-batch is there and back by
 * the shares that are in front and behind, not by the smallest that any plan has.
 *
 * Of all ways the one that may be fastest is looked at first: each of its plans, on all devices and
 * under all schedules, takes at least what its links and its group's sum leave, and is simulated where
 * that says nothing. Then no plan is faster than the next way, or than the fastest of those; and so on,
 * until these meet or enough was looked at. Where that is too much no plan is faster than the first way
 * of which not all plans were looked at.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_relax.h"

#define MOST_STAGES 16
/* Stages that are tried in all, and ways that are kept: beyond that the slower half is left out. */
#define MOST_TRIED 400000
#define MOST_WAYS 8192
/* Plans that are looked at; as how many one counts that is simulated, and how many micro-batches on one
 * device count as one.
 */
#define MOST_LOOKED 20000
#define SIMULATION 10
#define MICRO_BATCHES 4

/* A way to cut. */
struct cutting {
    double seconds;         /* that all of its plans take at least */
    int pipelines, n_stages;
    int64_t b, m;
    short ends[MOST_STAGES], replicas[MOST_STAGES];     /* cuts behind the stages */
};

/* A stage, by its largest share and its smallest. */
struct part {
    int i, j;
    struct choice choice;
    bool fits[RECOMPUTES];  /* running that again */
    struct interval_cost cost, small;
    double again;           /* of the largest: seconds of what it runs again, at least */
    double forward, dgrad;  /* of the smallest, with what it runs again */
    double tail, last;      /* after the last backward of the largest; after that of the smallest */
    bool sends[MOST_STAGES], returns[MOST_STAGES];      /* is read there; its gradient comes back */
};

/* What a message from stage to stage needs to start, and the bandwidth of all that comes into a stage,
 * and of all that goes back.
 */
struct links {
    double latency[MOST_STAGES][MOST_STAGES], in[MOST_STAGES], out[MOST_STAGES];
};

struct few {
    struct relaxation *r;
    double limit;           /* ways that take as long are left out */
    int n_ways, room;
    struct cutting *ways;
    struct cutting now;
    long tried, looked;
    int *needed;            /* [stages][n + 1] */
    int *blocks;            /* [blocks]: the stage of each */
    struct part parts[MOST_STAGES];
    double late[MOST_STAGES];
    int slots[MOST_STAGES];
    struct links nearest, links;
    /* Of each stage: when its first F is done at the earliest; how long all in front need when its last
     * B is done, and with that B.
     */
    double done[MOST_STAGES], back[MOST_STAGES], after[MOST_STAGES];
    double best;            /* of what was simulated */
    bool keep;              /* that, where it is as the search has its state */
    bool failed;
};

bool relax_has_few(const struct relaxation *r)
{
    const struct search *s = r->search;
    const struct plan_request *q = s->request;

    return s->few && !r->table->partial && (r->table->ideals || r->table->n == s->cost->n_blocks) &&
           !q->memory_of && !q->list && request_versions(q) == 1 && request_chunks(q) == 1;
}

struct few *relax_few_new(struct relaxation *r, double upper, bool keep)
{
    struct few *f = mem_new(1, sizeof(*f));
    size_t width = (size_t)r->table->n + 1;

    f->r = r;
    f->limit = upper;
    f->keep = keep;
    f->needed = mem_new(MOST_STAGES * width, sizeof(*f->needed));
    f->blocks = mem_new((size_t)r->search->cost->n_blocks, sizeof(*f->blocks));
    for (int s = 0; s < MOST_STAGES; s++) {
        f->nearest.in[s] = f->nearest.out[s] = r->messages;
        for (int q = 0; q < MOST_STAGES; q++)
            f->nearest.latency[q][s] = r->latency;
    }
    return f;
}

/* The search by what each device takes. */
static struct search *actual_of(const struct few *f)
{
    return f->r->search->actual ? f->r->search->actual : f->r->search;
}

/* When the first micro-batch may be at a stage; 'back': how long after it has ended its last B all in
 * front of it are done. Messages begin at the earliest when the first stage that sends one is done, and
 * all share the stage's wire.
 */
static double arrival(const struct few *f, const struct links *links, int s, bool back)
{
    double first = INFINITY, last = 0;

    for (int q = 0; q < s; q++) {
        double at = (back ? f->after[q] : f->done[q]) + links->latency[q][s];

        if (!(back ? f->parts[q].returns[s] : f->parts[q].sends[s]))
            continue;
        first = dmin(first, at);
        last = dmax(last, at);
    }
    if (isinf(first))
        return 0;
    return dmax(last, first + (back ? f->parts[s].small.gradient / links->out[s]
                                    : f->parts[s].small.received / links->in[s]));
}

/* A stage whose ways there and back are known: of those in front of it. */
static void add_ways(struct few *f, const struct links *links, int s, double *start)
{
    const struct part *p = &f->parts[s];

    *start = arrival(f, links, s, false);
    f->done[s] = *start + p->forward;
    f->back[s] = arrival(f, links, s, true);
    /* The last micro-batch has its own W, and all sums, behind its B. */
    f->after[s] = p->dgrad + dmax(p->small.wgrad + p->last, f->back[s]);
}

/* Seconds of an iteration with that stage, whose first B begins at 'turn' at the earliest. */
static double stage_time(const struct few *f, const struct links *links, int s, double start,
                         double turn)
{
    const struct part *p = &f->parts[s];
    const struct interval_cost *c = &p->cost;
    double m = (double)f->now.m, backward = c->dgrad + c->wgrad + p->again;
    double end = dmax(start + m * (c->forward + backward), turn + m * backward);
    double most = dmax(end + p->tail, m * dmax(c->received / links->in[s],
                                               c->gradient / links->out[s]));

    return f->back[s] > 0 ? dmax(most, end - f->late[s] * c->wgrad + f->back[s]) : most;
}

/* Of all stages. No B begins before that of each stage that returns a gradient is done. */
static double plan_time(struct few *f, const struct links *links)
{
    int n = f->now.n_stages;
    double start[MOST_STAGES], turn[MOST_STAGES], most = 0;

    for (int s = 0; s < n; s++)
        add_ways(f, links, s, &start[s]);
    for (int s = n - 1; s >= 0; s--) {
        turn[s] = f->done[s];
        for (int q = s + 1; q < n; q++)
            if (f->parts[s].returns[q])
                turn[s] = dmax(turn[s], turn[q] + f->parts[q].dgrad + links->latency[s][q]);
        most = dmax(most, stage_time(f, links, s, start[s], turn[s]));
    }
    return most;
}

static int by_seconds(const void *a, const void *b)
{
    const struct cutting *x = a, *y = b;

    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

static void keep_way(struct few *f, double seconds)
{
    if (f->n_ways == MOST_WAYS) {
        qsort(f->ways, (size_t)f->n_ways, sizeof(*f->ways), by_seconds);
        f->n_ways /= 2;
        f->limit = f->ways[f->n_ways].seconds;
    }
    if (seconds >= f->limit)
        return;
    if (f->n_ways == f->room) {
        f->room = 2 * f->room + 16;
        f->ways = mem_resize(f->ways, (size_t)f->room, sizeof(*f->ways));
    }
    f->now.seconds = seconds;
    f->ways[f->n_ways++] = f->now;
}

/* What a stage sends those behind it is known when these are. */
static void connect_stage(struct few *f, int s)
{
    const struct relaxation *r = f->r;
    const struct cost *cost = r->search->cost;
    const struct part *p = &f->parts[s];

    for (int q = 0; q < s; q++)
        f->parts[q].sends[s] = f->parts[q].returns[s] = false;
    for (int b = 0; b < cost->n_blocks; b++)
        if (relax_has_block(r, p->i, p->j, b))
            f->blocks[b] = s;
    for (int e = 0; e < cost->n_edges; e++) {
        const struct cost_edge *edge = &cost->edges[e];
        int from = f->blocks[edge->from];

        if (!relax_has_block(r, p->i, p->j, edge->to) || relax_has_block(r, p->i, p->j, edge->from))
            continue;
        f->parts[from].sends[s] = true;
        f->parts[from].returns[s] |= edge->gradient_bytes[cost->n_sizes - 1] > 0;
    }
}

/* What follows from its seconds. The more runs again in a backward, the more it hides of a sum. */
static void set_times(struct few *f, struct part *p)
{
    enum plan_recompute longest = PLAN_RECOMPUTE_NONE, soonest = PLAN_RECOMPUTE_NONE;
    double most = -1, least = INFINITY;

    p->again = INFINITY;
    for (enum plan_recompute c = PLAN_RECOMPUTE_NONE; c < RECOMPUTES; c++) {
        if (!p->fits[c])
            continue;
        p->again = dmin(p->again, interval_again(&p->cost, c));
        if (interval_again(&p->cost, c) > most) {
            most = interval_again(&p->cost, c);
            longest = c;
        }
        if (interval_again(&p->small, c) < least) {
            least = interval_again(&p->small, c);
            soonest = c;
        }
    }
    p->forward = p->small.forward;
    p->dgrad = p->small.dgrad + least;
    p->tail = relax_tail(f->r, p->i, p->j, &p->choice, &p->cost, longest);
    p->last = relax_tail(f->r, p->i, p->j, &p->choice, &p->small, soonest);
}

/* False where it does not fit. */
static bool set_stage(struct few *f, int s, int i, int j, int replicas)
{
    struct relaxation *r = f->r;
    struct part *p = &f->parts[s];
    const struct plan_request *q = r->search->request;
    bool any = false;

    p->i = i;
    p->j = j;
    p->choice = (struct choice){ .replicas = replicas, .most = replicas,
                                 .share = table_share(r->table, candidate_share(r->b, replicas)) };
    r->slots = f->slots[s];
    for (enum plan_recompute c = PLAN_RECOMPUTE_NONE; c < RECOMPUTES; c++) {
        p->fits[c] = c >= recompute_asked(q) && c <= recompute_most(q, SCHEDULE_1F1B) &&
                     relax_fits(r, i, j, &p->choice, c, relax_most_room(r, &p->choice));
        any |= p->fits[c];
    }
    if (!any)
        return false;
    table_interval(r->table, p->choice.share, i, j, &p->cost);
    table_interval(r->table, table_share(r->table, r->b / replicas), i, j, &p->small);
    set_times(f, p);
    return true;
}

static void walk_from(struct few *f, int i, int used);

/* With one more stage. */
static void try_stage(struct few *f, int i, int j, int replicas, int used)
{
    const struct relaxation *r = f->r;
    int s = f->now.n_stages;
    double start;

    f->tried++;
    if (!set_stage(f, s, i, j, replicas))
        return;
    connect_stage(f, s);
    add_ways(f, &f->nearest, s, &start);
    if (stage_time(f, &f->nearest, s, start, relax_border(r, i, j)->turn) >= f->limit)
        return;
    f->now.ends[s] = (short)j;
    f->now.replicas[s] = (short)replicas;
    f->now.n_stages = s + 1;
    walk_from(f, j, used + replicas);
    f->now.n_stages = s;
}

/* All ways to cut from there on. */
static void walk_from(struct few *f, int i, int used)
{
    const struct relaxation *r = f->r;
    const struct plan_request *q = r->search->request;
    int n = r->table->n, s = f->now.n_stages;
    const int *behind = f->needed + (size_t)(s + 1) * ((size_t)n + 1);

    if (s == r->stages) {
        double seconds = plan_time(f, &f->nearest);

        if (seconds < f->limit)
            keep_way(f, seconds);
        return;
    }
    for (int j = i + 1; j <= n; j++) {
        int left = r->devices - used - (s + 1 == r->stages ? (j == n ? 0 : r->devices) : behind[j]);

        if (left < 1 || !relax_is_interval(r, i, j))
            continue;
        for (int k = 1; k <= left && k <= r->b && f->tried <= MOST_TRIED; k++)
            if (shares_allowed(q, r->b, k) && (!q->n_replicas || q->replicas[s] == k))
                try_stage(f, i, j, k, used);
    }
}

void relax_few_add(struct few *f)
{
    struct relaxation *r = f->r;

    /* More than can be told. */
    if (r->stages == 0 || r->stages > MOST_STAGES)
        f->tried = MOST_TRIED + 1;
    if (f->tried > MOST_TRIED || !relax_needed(r, f->limit, f->needed))
        return;
    for (int s = 0; s < r->stages; s++) {
        relax_schedules(r, s);
        f->late[s] = r->late;
        f->slots[s] = r->slots;
    }
    f->now = (struct cutting){ .pipelines = r->pipelines, .b = r->b, .m = r->m };
    walk_from(f, 0, 0);
}

/* Bandwidth of the wires on which all messages between a device and some others are. */
static double shared_wires(const struct cluster *cluster, int device, const int *others, int n)
{
    double bandwidth = INFINITY;

    for (int p = cluster->devices[device].place; p > 0; p = cluster->places[p].parent) {
        for (int i = 0; i < n; i++)
            for (int q = cluster->devices[others[i]].place; q >= p; q = cluster->places[q].parent)
                if (q == p)
                    return bandwidth;
        bandwidth = dmin(bandwidth, cluster->places[p].up_bandwidth);
    }
    return bandwidth;
}

/* The devices of a stage's replicas in a pipeline. */
static int devices_of(const struct few *f, const struct candidate *c, int pipeline, int s,
                      int *devices)
{
    int first = candidate_first(c, s);

    for (int i = 0; i < c->replicas[s]; i++)
        devices[i] = candidate_device(c, f->r->search->cluster, pipeline, first + i);
    return c->replicas[s];
}

/* Of the best placed of its replicas: the others may have less. */
static void link_stage(struct few *f, const struct candidate *c, int pipeline, int s)
{
    const struct cluster *cluster = f->r->search->cluster;
    int *own = mem_new((size_t)cluster->n_devices, sizeof(*own));
    int *others = mem_new((size_t)cluster->n_devices, sizeof(*others));
    int n = devices_of(f, c, pipeline, s, own), all = 0;
    double most = 0;

    for (int q = 0; q < s; q++) {
        int from = all;

        if (!f->parts[q].sends[s])
            continue;
        all += devices_of(f, c, pipeline, q, others + all);
        f->links.latency[q][s] = INFINITY;
        for (int i = 0; i < n; i++)
            for (int k = from; k < all; k++) {
                struct cluster_link link = cluster_link(cluster, others[k], own[i]);

                f->links.latency[q][s] = dmin(f->links.latency[q][s], cluster_link_least(&link));
            }
    }
    for (int i = 0; i < n; i++)
        most = dmax(most, shared_wires(cluster, own[i], others, all));
    f->links.in[s] = f->links.out[s] = isinf(f->r->messages) ? INFINITY : most;
    free(own);
    free(others);
}

/* On these devices, with its sum there. */
static void place_stage(struct few *f, const struct candidate *c, int s)
{
    struct relaxation *r = f->r;
    struct search *actual = r->search->actual;
    int *devices = mem_new((size_t)r->search->cluster->n_devices, sizeof(*devices)), n = 0;
    struct part *p = &f->parts[s];
    struct interval_cost own;

    if (actual) {
        candidate_slowest(actual, c, s, &own);
        p->cost.forward = own.forward;
        p->cost.dgrad = own.dgrad;
        p->cost.wgrad = own.wgrad;
        candidate_soonest(actual, c, s, true, &own);
        p->small.forward = own.forward;
        p->small.dgrad = own.dgrad;
        p->small.wgrad = own.wgrad;
    }
    for (int pipeline = 0; pipeline < c->pipelines; pipeline++)
        n += devices_of(f, c, pipeline, s, devices + n);
    r->group = devices;
    set_times(f, p);
    r->group = NULL;
    free(devices);
}

/* Seconds of this plan at least, by its slowest pipeline. */
static double placed_time(struct few *f, const struct candidate *c)
{
    bool same = f->r->search->flat && !f->r->search->actual;
    double most = 0;

    for (int s = 0; s < c->n_stages; s++) {
        f->late[s] = schedule_delay(c->schedule, c->budget, c->n_stages, c->micro_batches, s) + 1;
        if (!same)
            place_stage(f, c, s);
    }
    if (same)
        return plan_time(f, &f->nearest);
    for (int pipeline = 0; pipeline < c->pipelines; pipeline++) {
        for (int s = 0; s < c->n_stages; s++)
            link_stage(f, c, pipeline, s);
        most = dmax(most, plan_time(f, &f->links));
    }
    return most;
}

static bool simulate(struct few *f, struct candidate *c)
{
    f->looked += SIMULATION +
                 c->micro_batches * c->pipelines * candidate_devices(c) / MICRO_BATCHES;
    f->failed |= search_evaluate(actual_of(f), c, true, NULL) != 0;
    if (f->failed || c->seconds >= f->best)
        return false;
    f->best = c->seconds;
    return true;
}

static void simulate_again(void *context, struct candidate *c)
{
    struct few *f = context;

    if (f->looked <= MOST_LOOKED && !f->failed && search_fits(actual_of(f), c))
        (void)simulate(f, c);
}

/* What runs again is as the search has it, or, for the bound, whatever is fastest. */
static void simulate_one(struct few *f, struct candidate *c, bool zero)
{
    struct search *s = actual_of(f);
    bool before = s->zero;

    s->zero = c->zero = zero;
    if (simulate(f, c) && f->keep)
        search_add(s, candidate_copy(c));
    if (!f->keep)
        search_each_again(s, c, simulate_again, f);
    s->zero = before;
}

static void look_at(void *context, struct candidate *c)
{
    struct few *f = context;
    const struct search *s = f->r->search;

    if (f->looked++ > MOST_LOOKED || f->failed || placed_time(f, c) >= f->best)
        return;
    if (f->keep ? !s->zero : s->request->zero != PLAN_ZERO)
        simulate_one(f, c, false);
    if (s->zero)
        simulate_one(f, c, true);
}

/* Were all plans of it looked at? */
static bool look_at_way(struct few *f, const struct cutting *way)
{
    struct relaxation *r = f->r;
    int replicas[MOST_STAGES];
    struct candidate c = { .pipelines = way->pipelines, .n_stages = way->n_stages,
                           .replicas = replicas, .micro_batch = way->b, .micro_batches = way->m };

    f->now = *way;
    r->pipelines = way->pipelines;
    r->b = way->b;
    r->m = way->m;
    r->stages = way->n_stages;
    for (int k = 0; k < way->n_stages; k++) {
        replicas[k] = way->replicas[k];
        relax_schedules(r, k);
        f->slots[k] = r->slots;
        set_stage(f, k, k > 0 ? way->ends[k - 1] : 0, way->ends[k], replicas[k]);
        connect_stage(f, k);
    }
    return small_plans(actual_of(f), &c, f->blocks, MOST_LOOKED, look_at, f) &&
           f->looked <= MOST_LOOKED && !f->failed;
}

double relax_few_least(struct few *f)
{
    struct search *s = actual_of(f);
    bool tight = s->tight;
    double effort = s->effort, least = f->limit;

    if (f->tried > MOST_TRIED)
        least = 0;
    f->best = least;
    if (f->n_ways > 1)
        qsort(f->ways, (size_t)f->n_ways, sizeof(*f->ways), by_seconds);
    for (int i = 0; i < f->n_ways && f->ways[i].seconds < f->best; i++)
        if (!look_at_way(f, &f->ways[i])) {
            least = f->ways[i].seconds;
            break;
        }
    s->tight = tight;
    s->effort = effort;
    return dmin(least, f->best);
}

void relax_few_free(struct few *f)
{
    free(f->ways);
    free(f->needed);
    free(f->blocks);
    free(f);
}
