/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/simulate_private.h"

void id_list_grow(struct sim *sim, struct id_list *list)
{
    int *items;

    list->room = 2 * list->room + 2;
    items = arena_alloc(sim->arena, (size_t)list->room, sizeof(*items));
    if (list->n)
        memcpy(items, list->items, (size_t)list->n * sizeof(*items));
    list->items = items;
}

static void route_fill(const struct cluster *cluster, int a, int b, struct route *route)
{
    int up = 0;

    *route = (struct route){ 0 };
    if (a == b)
        return;
    route->n = cluster_route(cluster, a, b, route->wires, &up);
    for (int i = 0; i < route->n; i++)
        route->wires[i] = 2 * route->wires[i] + (i >= up);
    route->link = cluster_link(cluster, a, b);
}

struct part *part_of(const struct sim *sim, int worker, int stage)
{
    return &sim->workers[worker].parts[sim->schedule->stages[stage].chunk];
}

int sim_last_backward(const struct instruction_list *list, int chunk, int from)
{
    int last = from;

    for (int i = from; i < list->n && list->items[i].kind != INSTRUCTION_REDUCE; i++)
        if (list->items[i].chunk == chunk && (list->items[i].kind == INSTRUCTION_W ||
                                              list->items[i].kind == INSTRUCTION_BW))
            last = i;
    return last;
}

/* The replica before it mostly has as many samples. */
static void add_part(struct sim *sim, struct worker *w, int chunk, int s)
{
    const struct instruction_list *list = &sim->schedule->lists[w->list];
    const struct part *other = w->replica > 0 ? &w[-1].parts[chunk] : NULL;
    struct part *part = &w->parts[chunk];

    part->stage = s;
    part->samples = sim->plan->stages[s].samples[w->replica];
    part->kind = cost_for(sim->cost, sim->cluster->devices[w->device].kind);
    if (other && other->samples == part->samples && other->kind == part->kind) {
        *part = *other;     /* has no channels yet */
        return;
    }
    part->cost = stage_seconds(part->kind, sim->stage, s, (double)part->samples);
    part->recompute = sim->plan->stages[s].recompute;
    part->cost.dgrad += recompute_seconds(part->recompute, part->cost.again, part->cost.forward);
    part->last_backward = sim_last_backward(list, chunk, 0);
}

static int add_worker(struct sim *sim, int pipeline, int l, int replica, struct err *err)
{
    const struct instruction_list *list = &sim->schedule->lists[l];
    const struct plan_stage *stage = &sim->plan->stages[list->stages[0]];
    const char *id = stage->devices[pipeline * stage->replicas + replica];
    int device = cluster_find_device(sim->cluster, id);
    struct worker *w;

    if (device < 0)
        return err_set(err, "the plan's device \"%s\" is not in %s", id, sim->cluster->name);
    w = mem_push((void **)&sim->workers, &sim->n_workers, sizeof(*w));
    w->pipeline = pipeline;
    w->list = l;
    w->replica = replica;
    w->device = device;
    w->node = cluster_core_place(sim->cluster, device);
    w->threads = sim->cluster->devices[device].cores;
    w->n_parts = list->n_chunks;
    w->parts = arena_alloc(sim->arena, (size_t)list->n_chunks, sizeof(*w->parts));
    for (int c = 0; c < list->n_chunks; c++)
        add_part(sim, w, c, list->stages[c]);
    for (int c = 0; c < list->n_chunks; c++)
        for (int g = 0; g < 2; g++)
            w->parts[c].arrived[g] = arena_alloc(sim->arena, (size_t)sim->schedule->micro_batches,
                                                 sizeof(int));
    return 0;
}

static int add_workers(struct sim *sim, struct err *err)
{
    const struct schedule *schedule = sim->schedule;

    for (int p = 0; p < sim->plan->pipelines / sim->copies; p++)
        for (int l = 0; l < schedule->n_lists; l++)
            for (int i = 0; i < sim->plan->stages[schedule->lists[l].stages[0]].replicas; i++)
                if (add_worker(sim, p, l, i, err))
                    return -1;
    sim->checks = arena_alloc(sim->arena, (size_t)sim->n_workers, sizeof(*sim->checks));
    for (int i = 0; i < sim->n_workers; i++) {
        id_add(sim, &sim->node_workers[sim->workers[i].node], i);
        worker_check(sim, i);
    }
    return 0;
}

/* All replicas of a stage send by one list. */
static int *new_order(struct sim *sim)
{
    return arena_alloc(sim->arena, (size_t)sim->schedule->micro_batches, sizeof(int));
}

/* 'from' and 'to' are the workers that run both stages of the edge. */
static void add_channel(struct sim *sim, const struct traffic *t, int from, int to,
                        bool gradient, double bytes, int *order)
{
    struct channel *c = mem_push((void **)&sim->channels, &sim->n_channels, sizeof(*c));
    int id = sim->n_channels - 1;

    c->from = gradient ? to : from;
    c->to = gradient ? from : to;
    c->from_stage = gradient ? t->to : t->from;
    c->to_stage = gradient ? t->from : t->to;
    c->gradient = gradient;
    c->bytes = bytes;
    c->most = schedule_sends(sim->schedule, c->from_stage, c->to_stage);
    route_fill(sim->cluster, sim->workers[c->from].device, sim->workers[c->to].device,
               &c->route);
    c->order = order;
    id_add(sim, &part_of(sim, c->from, c->from_stage)->out[gradient], id);
    id_add(sim, &part_of(sim, c->to, c->to_stage)->in[gradient], id);
}

/* Channels between the replicas that own samples in common. What does not depend on the
 * sample comes from the owner of the receiver's first one.
 */
static void add_pairs(struct sim *sim, const struct traffic *t, bool gradient, int pipeline)
{
    const struct plan *plan = sim->plan;
    int64_t b = plan->micro_batch;
    int n = plan->stages[t->from].replicas, m = plan->stages[t->to].replicas;
    int *order = new_order(sim), *back = gradient ? new_order(sim) : NULL;

    for (int j = 0, i = 0; j < m; j++) {
        int64_t start = plan_share_start(b, m, j), end = plan_share_start(b, m, j + 1);

        while (plan_share_start(b, n, i + 1) <= start)
            i++;
        for (int k = i; k < n && plan_share_start(b, n, k) < end; k++) {
            int64_t from = plan_share_start(b, n, k), to = plan_share_start(b, n, k + 1);
            int64_t common = (to < end ? to : end) - (from > start ? from : start);
            int a = plan_worker(plan, pipeline, t->from, k);
            int z = plan_worker(plan, pipeline, t->to, j);

            add_channel(sim, t, a, z, false,
                        traffic_bytes(sim->cost, t, (double)common, k == i, false), order);
            if (gradient)
                add_channel(sim, t, a, z, true,
                            traffic_bytes(sim->cost, t, (double)common, k == i, true), back);
        }
    }
}

/* From the last of a copy to the first of the next: down the wires to its own first, as what comes
 * from the copy before goes.
 */
static void route_on(const struct sim *sim, int last, int first, struct route *route)
{
    struct route into;

    route_fill(sim->cluster, last, first + sim->shift, route);
    route_fill(sim->cluster, last + sim->shift, first, &into);
    for (int i = 0; i < route->n; i++)
        if (route->wires[i] % 2)
            route->wires[i] = into.wires[i];
}

static int device_of(const struct sim *sim, const struct group *g, int member)
{
    return sim->workers[g->workers.items[member]].device;
}

int group_size(const struct sim *sim, const struct group *g)
{
    return g->workers.n * sim->copies;
}

/* In device order: devices of a plan ascend with its workers, unless somebody wrote it by hand. */
static void sort_workers(const struct sim *sim, struct group *g)
{
    for (int i = 1; i < g->workers.n; i++) {
        int id = g->workers.items[i], k = i;

        for (; k > 0 && sim->workers[g->workers.items[k - 1]].device > sim->workers[id].device;
             k--)
            g->workers.items[k] = g->workers.items[k - 1];
        g->workers.items[k] = id;
    }
}

static void add_way(const struct sim *sim, struct group *g, enum allreduce kind,
                    const struct allreduce_group *devices)
{
    struct group_way *to = &g->ways[g->n_ways++];
    struct allreduce_way way;

    allreduce_find(sim->cluster, kind, devices, &way);
    to->line = allreduce_line(sim->cluster, &way);
    to->n_phases = way.n_phases;
    for (int p = 0; p < way.n_phases; p++) {
        const struct allreduce_phase *from = &way.phases[p];
        struct group_phase *phase = &to->phases[p];

        phase->n = from->n;
        phase->hops = arena_alloc(sim->arena, (size_t)from->n, sizeof(*phase->hops));
        phase->latency = from->latency;
        phase->share = from->share;
        for (int h = 0; h < from->n; h++) {
            const struct allreduce_hop *hop = &from->hops[h];

            if (sim->copies > 1 && hop->to >= sim->shift)
                route_on(sim, hop->from, hop->to - sim->shift, &phase->hops[h]);
            else
                route_fill(sim->cluster, hop->from, hop->to, &phase->hops[h]);
        }
    }
    allreduce_clear(&way);
}

/* Under ZeRO-1 it is sharded; but where workers have several stages, what these share is not. */
static bool is_sharded(const struct sim *sim, const struct group *g)
{
    return sim->plan->zero && (!g->shared || schedule_most_chunks(sim->schedule) == 1);
}

static void group_ways(struct sim *sim, struct group *g)
{
    int *devices = arena_alloc(sim->arena, (size_t)g->workers.n, sizeof(*devices));
    struct allreduce_group group = { g->workers.n, devices, sim->copies, sim->shift };

    sort_workers(sim, g);
    for (int i = 0; i < g->workers.n; i++)
        devices[i] = device_of(sim, g, i);
    for (int k = 0; k < ALLREDUCE_KINDS && group_size(sim, g) > 1; k++)
        if (allreduce_allowed(sim->cluster, (enum allreduce)k, is_sharded(sim, g)))
            add_way(sim, g, (enum allreduce)k, &group);
}

/* Of so many pieces at most. */
static struct group *add_group(struct sim *sim, bool shared, int most)
{
    struct group *g = mem_push((void **)&sim->groups, &sim->n_groups, sizeof(*g));

    g->shared = shared;
    g->bytes = arena_alloc(sim->arena, (size_t)most, sizeof(*g->bytes));
    return g;
}

/* Blocks are not cut: a cost file has no parameters one by one. */
static void fill_pieces(const struct sim *sim, struct group *g)
{
    const struct id_list *blocks = &sim->blocks[g->stage];
    double all = 0, limit;

    for (int i = 0; i < blocks->n; i++)
        all += sim->cost->blocks[blocks->items[i]].parameters;
    limit = stage_bucket_bytes(stage_gradient_bytes(sim->cost, all));
    g->ready = arena_alloc(sim->arena, (size_t)blocks->n + 1, sizeof(*g->ready));
    for (int i = 0, last = 0; i < blocks->n; i++) {
        const struct cost_block *b = &sim->cost->blocks[blocks->items[blocks->n - 1 - i]];
        double bytes = stage_gradient_bytes(sim->cost, b->parameters);

        if (bytes <= 0)
            continue;
        if (g->n_pieces == 0 || g->bytes[g->n_pieces - 1] + bytes > limit)
            g->n_pieces++;
        else
            g->ready[last]--;
        g->bytes[g->n_pieces - 1] += bytes;
        last = i + 1;
        g->ready[last]++;
    }
    for (int i = 0; i < blocks->n; i++)
        g->ready[i + 1] += g->ready[i];
}

/* A worker may have several stages that share a parameter. */
static void add_member(struct sim *sim, struct group *g, int worker)
{
    for (int i = 0; g->shared && i < g->workers.n; i++)
        if (g->workers.items[i] == worker)
            return;
    id_add(sim, &g->workers, worker);
}

static void add_members(struct sim *sim, struct group *g, int stage)
{
    for (int p = 0; p < sim->plan->pipelines / sim->copies; p++)
        for (int i = 0; i < sim->plan->stages[stage].replicas; i++)
            add_member(sim, g, plan_worker(sim->plan, p, stage, i));
}

static void add_stage_group(struct sim *sim, int s)
{
    struct group *g = add_group(sim, false, sim->blocks[s].n);

    g->stage = s;
    fill_pieces(sim, g);
    add_members(sim, g, s);
    group_ways(sim, g);
}

static void add_shared_group(struct sim *sim, const struct cost_shared *shared, bool *seen)
{
    struct group *g = add_group(sim, true, 1);

    g->n_pieces = 1;
    g->bytes[0] = stage_gradient_bytes(sim->cost, shared->bytes);
    memset(seen, 0, (size_t)sim->plan->n_stages * sizeof(*seen));
    for (int i = 0; i < shared->n_blocks; i++) {
        int s = sim->stage[shared->blocks[i]];

        if (!seen[s])
            add_members(sim, g, s);
        seen[s] = true;
    }
    group_ways(sim, g);
}

static void add_groups(struct sim *sim)
{
    bool *seen = arena_alloc(sim->arena, (size_t)sim->plan->n_stages, sizeof(*seen));

    for (int s = 0; s < sim->plan->n_stages; s++)
        add_stage_group(sim, s);
    for (int i = 0; i < sim->cost->n_shared; i++)
        add_shared_group(sim, &sim->cost->shared[i], seen);
}

/* ZeRO-1: of each reduction, a ring, the first half is left, and each worker steps its share. What
 * all have stepped comes after that, in the second half, behind which nothing can be hidden.
 */
static void shard_group(struct sim *sim, struct group *g)
{
    int n = g->workers.n, all = group_size(sim, g);
    struct group_way *ring = &g->ways[0];
    double bytes = 0, half;

    for (int i = 0; i < g->n_pieces; i++) {
        bytes += g->bytes[i];
        g->bytes[i] /= 2;
    }
    half = all > 1 && bytes > 0 ? (ring->line.latency + bytes * ring->line.rate) / 2 : 0;
    ring->phases[0].latency /= 2;
    for (int i = 0; i < n; i++) {
        int id = g->workers.items[i];
        struct part *part = g->shared ? sim->workers[id].parts : part_of(sim, id, g->stage);

        if (!g->shared)
            part->cost.step /= all;
        part->cost.step += half;
    }
}

static void unroll(struct sim *sim)
{
    if (!sim->schedule || sim->schedule->versions == 1)
        return;
    sim->once = sim->schedule;
    sim->schedule = schedule_unroll(sim->once, SIM_ITERATIONS, true);
}

/* What a worker computes of an iteration, and no more, takes so many seconds. */
static double least_seconds(const struct sim *sim)
{
    const struct schedule *schedule = sim->once ? sim->once : sim->schedule;
    double most = 0;

    for (int i = 0; i < sim->n_workers; i++) {
        double seconds = 0;

        for (int c = 0; c < sim->workers[i].n_parts; c++) {
            const struct stage_seconds *cost = &sim->workers[i].parts[c].cost;

            seconds += cost->forward + cost->dgrad + cost->wgrad;
        }
        most = dmax(most, seconds);
    }
    return (double)schedule->micro_batches * most;
}

static int sim_fill(struct sim *sim, const struct traffic_list *traffic, struct err *err)
{
    const struct plan *plan = sim->plan;
    struct schedule_edge *edges = arena_alloc(sim->arena, (size_t)traffic->n, sizeof(*edges));
    int rc = 0;

    traffic_edges(sim->cost, traffic, edges);
    sim->schedule = plan_schedule(plan, edges, traffic->n, err);
    unroll(sim);
    if (!sim->schedule || add_workers(sim, err))
        rc = -1;
    if (rc == 0 && least_seconds(sim) > sim->limit) {
        sim->seconds = INFINITY;
        return 0;
    }
    for (int p = 0; p < plan->pipelines / sim->copies && rc == 0; p++)
        for (int i = 0; i < traffic->n; i++)
            add_pairs(sim, &traffic->items[i], edges[i].gradient, p);
    if (rc == 0)
        add_groups(sim);
    for (int g = 0; rc == 0 && g < sim->n_groups; g++)
        if (is_sharded(sim, &sim->groups[g]))
            shard_group(sim, &sim->groups[g]);
    return rc;
}

struct sim *sim_new(const struct plan *plan, const struct cost *cost,
                    const struct cluster *cluster, bool record, double limit, struct err *err)
{
    struct sim *sim = mem_new(1, sizeof(*sim));
    struct traffic_list *traffic;
    int rc;

    *sim = (struct sim){ .plan = plan, .cost = cost, .cluster = cluster, .record = record,
                         .limit = limit, .timers.taken = -1, .arena = arena_new() };
    sim->copies = record ? 1 : simulate_copies(plan, cluster);
    sim->shift = cluster->n_devices / sim->copies;
    sim->blocks = arena_alloc(sim->arena, (size_t)plan->n_stages, sizeof(*sim->blocks));
    sim->moved = mem_new(2 * (size_t)cluster->n_places, sizeof(*sim->moved));
    sim->wires = arena_alloc(sim->arena, 2 * (size_t)cluster->n_places, sizeof(*sim->wires));
    sim->node_workers = arena_alloc(sim->arena, (size_t)cluster->n_places, sizeof(*sim->node_workers));
    sim->node_threads = arena_alloc(sim->arena, (size_t)cluster->n_places, sizeof(*sim->node_threads));
    sim->stage = stage_of_blocks(plan, cost, err);
    if (!sim->stage) {
        sim_free(sim);
        return NULL;
    }
    for (int b = 0; b < cost->n_blocks; b++)
        id_add(sim, &sim->blocks[sim->stage[b]], b);
    traffic = traffic_new(cost, sim->stage);
    rc = sim_fill(sim, traffic, err);
    traffic_free(traffic);
    if (rc == 0)
        return sim;
    sim_free(sim);
    return NULL;
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    arena_free(sim->arena);
    schedule_free(sim->schedule);
    schedule_free(sim->once);
    free(sim->workers);
    free(sim->channels);
    free(sim->groups);
    free(sim->flows);
    timers_clear(&sim->timers);
    free(sim->moved);
    free(sim->stage);
    free(sim->events);
    free(sim);
}
