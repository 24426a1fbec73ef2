/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* The largest share and the fewest micro-batches that the request allows. */
static double largest_share(const struct plan_request *r)
{
    if (r->micro_batch)
        return (double)r->micro_batch;
    if (r->micro_batches)
        return (double)(r->global_batch / r->micro_batches);
    return (double)r->global_batch;
}

struct least {
    double work;            /* device-seconds of the whole batch */
    double forward, dgrad;  /* seconds of the smallest share */
};

static void take(const struct cost *cost, const struct cost_block *b,
                 const struct plan_request *request, double n, struct least *least)
{
    double micro = (double)request->global_batch / largest_share(request);
    double times = b->batch_axis ? (double)request->global_batch / n : micro;
    double forward = cost_at(cost, b->forward, b->batch_axis, n);
    double dgrad = cost_at(cost, b->dgrad, b->batch_axis, n);
    double wgrad = b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, n) : 0;

    least->work = dmin(least->work, times * (forward + dgrad + wgrad));
    least->forward = dmin(least->forward, forward);
    least->dgrad = dmin(least->dgrad, dgrad);
}

/* Times are linear between the listed sizes and proportional outside, so that time per sample
 * is smallest at a listed size or at an end of what is allowed.
 */
static struct least least_of_block(const struct cost *cost, const struct cost_block *b,
                                   const struct plan_request *request)
{
    double most = largest_share(request);
    struct least least = { INFINITY, INFINITY, INFINITY };

    take(cost, b, request, 1, &least);
    take(cost, b, request, most, &least);
    for (int i = 0; i < cost->n_sizes; i++)
        if ((double)cost->micro_batch[i] <= most)
            take(cost, b, request, (double)cost->micro_batch[i], &least);
    return least;
}

/* Devices that can be busy at once: those that share cores have these, and no more. Each counts as
 * much as 'speeds' [devices] says; NULL: 1.
 */
static double devices_at_work(const struct cluster *cluster, const double *speeds)
{
    int *threads = mem_new((size_t)cluster->n_places, sizeof(*threads));
    double devices = 0;

    for (int d = 0; d < cluster->n_devices; d++)
        threads[cluster_core_place(cluster, d)] += cluster->devices[d].cores;
    for (int d = 0; d < cluster->n_devices; d++) {
        int place = cluster_core_place(cluster, d), cores = cluster->places[place].cores;
        double busy = cores && threads[place] > cores ? (double)cores / threads[place] : 1;

        devices += speeds ? busy * speeds[d] : busy;
    }
    free(threads);
    return devices;
}

/* What a second of that kind of device is worth, at most, in seconds of what each block takes least
 * on any: 1 where all of that is nothing.
 */
static double speed_of(const struct cost *least, const struct cost *own,
                       const struct plan_request *request)
{
    double speed = 0;

    for (int i = 0; i < least->n_blocks; i++) {
        double any = least_of_block(least, &least->blocks[i], request).work;
        double work = least_of_block(own, &own->blocks[i], request).work;

        speed = dmax(speed, work > 0 ? any / work : 0);
        speed = dmax(speed, own->blocks[i].step > 0
                                ? least->blocks[i].step / own->blocks[i].step : 0);
    }
    return speed > 0 ? dmin(speed, 1) : 1;
}

/* Of each device, malloc'ed. */
static double *speeds_of(const struct cost *cost, const struct cost *least,
                         const struct cluster *cluster, const struct plan_request *request,
                         int n_kinds, const char *const *kinds)
{
    double *speeds = mem_new((size_t)cluster->n_devices, sizeof(*speeds));

    for (int k = 0; k < n_kinds; k++) {
        double speed = speed_of(least, cost_for(cost, kinds[k]), request);

        for (int d = 0; d < cluster->n_devices; d++)
            if (strcmp(cluster->devices[d].kind, kinds[k]) == 0)
                speeds[d] = speed;
    }
    return speeds;
}

/* The longest way of one sample forward and back; edges ascend, and so do the ways. */
static double longest_way(const struct cost *cost, const struct least *least)
{
    double *to = mem_new((size_t)cost->n_blocks, sizeof(*to));
    double *back = mem_new((size_t)cost->n_blocks, sizeof(*back)), longest = 0;
    int edge = 0;

    for (int b = 0; b < cost->n_blocks; b++) {
        to[b] += least[b].forward;
        back[b] += least[b].dgrad;
        longest = dmax(longest, to[b] + back[b]);
        for (; edge < cost->n_edges && cost->edges[edge].from == b; edge++) {
            const struct cost_edge *e = &cost->edges[edge];

            to[e->to] = dmax(to[e->to], to[b]);
            if (e->gradient_bytes[cost->n_sizes - 1] > 0)
                back[e->to] = dmax(back[e->to], back[b]);
        }
    }
    free(to);
    free(back);
    return longest;
}

/* By what blocks take at least on any kind of device. */
static double bound_by(const struct cost *cost, const struct cluster *cluster,
                       const struct plan_request *request, const double *speeds)
{
    struct least *least = mem_new((size_t)cost->n_blocks, sizeof(*least));
    double work = 0, path, devices = devices_at_work(cluster, speeds), pinned = 0;

    for (int i = 0; i < cost->n_blocks; i++) {
        least[i] = least_of_block(cost, &cost->blocks[i], request);
        work += least[i].work + cost->blocks[i].step;
    }
    path = longest_way(cost, least);
    free(least);
    for (int i = 0; i < request->n_replicas; i++)
        pinned += request->replicas[i];
    if (pinned > 0)
        devices = dmin(devices, pinned * (request->pipelines ? request->pipelines
                                                             : cluster->n_devices / pinned));
    /* Where a pipeline is not flushed it is full when an iteration begins. */
    return request_versions(request) > 1 ? work / devices : dmax(work / devices, path);
}

double partition_lower_bound(const struct cost *cost, const struct cluster *cluster,
                             const struct plan_request *request)
{
    struct cost *least;
    const char **kinds;
    double *speeds, bound;
    int n;

    if (!cost->n_others)
        return bound_by(cost, cluster, request, NULL);
    kinds = cluster_kinds(cluster, &n);
    least = cost_least(cost, n, kinds);
    speeds = speeds_of(cost, least, cluster, request, n, kinds);
    bound = bound_by(least, cluster, request, speeds);
    free(speeds);
    free(kinds);
    cost_free(least);
    return bound;
}

static double bound_of(struct search *s, double simple, double upper)
{
    bool zero = s->zero;
    double fixed = s->factor_fixed, moving = s->factor_moving, bound;

    /* What the search has come to doubt may fit. */
    s->factor_fixed = dmin(1, fixed);
    s->factor_moving = dmin(1, moving);
    s->zero |= s->request->zero == PLAN_ZERO_ANY && search_has_state(s);
    bound = dmax(simple, partition_relaxed(s, upper));
    bound = partition_by_distance(s, bound, upper);
    bound = dmax(simple, partition_chunks_bound(s, bound));
    s->zero = zero;
    s->factor_fixed = fixed;
    s->factor_moving = moving;
    return bound;
}

/* Where devices are of several kinds: those of one take what they do, all others the least of what
 * these do.
 */
static double bound_mixed(struct search *s, double simple, double upper)
{
    struct search *least = search_least_new(s);
    double bound = bound_of(least, simple, upper);

    search_least_free(least);
    return bound;
}

double search_bound(struct search *s, double upper)
{
    double simple = partition_lower_bound(s->cost, s->cluster, s->request);

    if (request_chunks(s->request) > 1)
        return simple;
    return (s->mixed ? bound_mixed : bound_of)(s, simple, upper);
}

/* Edges that leave a stage: each has the number of the next, + 1, as the stage of the first. */
struct leaving {
    int *first, *next;
};

static struct leaving leaving_new(const struct cost *cost, const int *stage, int n_stages)
{
    struct leaving edges = { mem_new((size_t)n_stages, sizeof(*edges.first)),
                             mem_new((size_t)cost->n_edges, sizeof(*edges.next)) };

    for (int e = 0; e < cost->n_edges; e++) {
        int from = stage[cost->edges[e].from];

        if (from == stage[cost->edges[e].to])
            continue;
        edges.next[e] = edges.first[from];
        edges.first[from] = e + 1;
    }
    return edges;
}

/* The shortest ways to each stage and back, through those in front that it needs: of the smallest
 * share, since the others may not be asked for.
 */
static void fill_ways(struct search *search, const struct candidate *c, double *to, double *back)
{
    const struct cost *cost = search->cost;
    int *stage = candidate_stages(c);
    struct leaving edges = leaving_new(cost, stage, c->n_stages);

    for (int s = 0; s < c->n_stages; s++) {
        struct interval_cost own;

        candidate_soonest(search, c, s, true, &own);
        for (int e = edges.first[s]; e; e = edges.next[e - 1]) {
            const struct cost_edge *edge = &cost->edges[e - 1];
            int next = stage[edge->to];

            to[next] = dmax(to[next], to[s] + own.forward);
            if (edge->gradient_bytes[cost->n_sizes - 1] > 0)
                back[next] = dmax(back[next], back[s] + own.dgrad);
        }
    }
    free(stage);
    free(edges.first);
    free(edges.next);
}

/* After the last B of the first stage of its device W may follow, so often. */
static int late_of(const struct candidate *c, int s)
{
    if (c->chunks > 1)
        return schedule_chunk_late(c->schedule, c->n_stages / c->chunks, c->micro_batches, s);
    return schedule_delay(c->schedule, c->budget, c->n_stages, c->micro_batches, s) + 1;
}

double candidate_least(struct search *search, const struct candidate *c)
{
    size_t n = (size_t)c->n_stages;
    double *to = mem_new(n, sizeof(*to)), *back = mem_new(n, sizeof(*back)), least = 0;
    double *work = mem_new(n, sizeof(*work)), *late = mem_new(n, sizeof(*late));

    if (request_versions(search->request) == 1)
        fill_ways(search, c, to, back);
    for (int s = 0; s < c->n_stages; s++) {
        struct interval_cost own;
        int l = candidate_list(c, s);

        /* Of a device's stages not all may take longest on the same replica. */
        if (c->chunks > 1)
            candidate_soonest(search, c, s, false, &own);
        else
            candidate_slowest(search, c, s, &own);
        work[l] += (double)c->micro_batches * (own.forward + own.dgrad + own.wgrad);
        late[l] += late_of(c, s) * own.wgrad;
    }
    for (int l = 0; l < candidate_lists(c); l++) {
        int first = candidate_list_first(c, l);

        least = dmax(least, to[first] + dmax(work[l], work[l] - late[l] + back[first]));
    }
    free(to);
    free(back);
    free(work);
    free(late);
    return least;
}
