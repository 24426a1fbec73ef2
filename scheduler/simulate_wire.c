/* SPDX-License-Identifier: MIT */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/simulate_private.h"

static int new_flow(struct sim *sim)
{
    if (sim->idle_flows.n)
        return sim->idle_flows.items[--sim->idle_flows.n];
    mem_push((void **)&sim->flows, &sim->n_flows, sizeof(*sim->flows));
    return sim->n_flows - 1;
}

static void add_flow(struct sim *sim, const struct route *route, double latency, double bytes,
                     int channel, int group)
{
    int id = new_flow(sim);

    sim->flows[id] = (struct flow){ .route = route, .bytes = bytes, .start = sim->now,
                                    .channel = channel, .group = group };
    timers_set(&sim->timers, sim->n_workers + id, sim->now + latency);
}

/* What the wires carry. Copies on the way to a sum cost time, and are no bytes. */
static void count_bytes(struct sim *sim, const struct route *route, double bytes)
{
    for (int i = 0; i < route->n; i++)
        sim->moved[route->wires[i]] += bytes;
}

static void count_messages(struct sim *sim, const struct channel *c, int change)
{
    if ((sim->cluster->send_overlap >= 1 && sim->cluster->receive_overlap >= 1) || c->route.n == 0)
        return;
    sim->workers[c->from].sending += change;
    sim->workers[c->to].receiving += change;
    worker_pace(sim, c->from);
    worker_pace(sim, c->to);
}

static void channel_start(struct sim *sim, int id)
{
    struct channel *c = &sim->channels[id];

    if (c->busy || c->done >= c->sent || c->done >= c->posted)
        return;
    c->busy = true;
    count_bytes(sim, &c->route, c->bytes);
    count_messages(sim, c, 1);
    add_flow(sim, &c->route, c->route.n ? cluster_link_start(&c->route.link, c->bytes) : 0,
             c->bytes, id, -1);
}

void channel_send(struct sim *sim, int channel, int micro)
{
    struct channel *c = &sim->channels[channel];

    c->order[c->sent++] = micro;
    channel_start(sim, channel);
}

void channel_post(struct sim *sim, int channel)
{
    sim->channels[channel].posted++;
    channel_start(sim, channel);
}

bool group_done(const struct group *group, int iterations)
{
    return group->reduced >= iterations * group->n_pieces;
}

/* How many pieces every worker of the group has. None has any of the next iteration before all
 * of this one are reduced.
 */
static int ready_pieces(const struct sim *sim, const struct group *g)
{
    int ready = INT_MAX;

    for (int i = 0; i < g->workers.n && ready > g->reduced; i++) {
        const struct worker *w = &sim->workers[g->workers.items[i]];
        int pieces = g->shared ? w->reducing
                               : g->ready[part_of(sim, g->workers.items[i], g->stage)->pieces];

        pieces += w->steps * g->n_pieces;
        ready = pieces < ready ? pieces : ready;
    }
    return ready;
}

static void check_workers(struct sim *sim, const struct group *g)
{
    for (int i = 0; i < g->workers.n; i++)
        worker_check(sim, g->workers.items[i]);
}

static void count_reductions(struct sim *sim, const struct group *g, int change)
{
    for (int i = 0; i < g->workers.n; i++) {
        sim->workers[g->workers.items[i]].reductions += change;
        worker_pace(sim, g->workers.items[i]);
    }
}

static void start_phase(struct sim *sim, int id)
{
    struct group *g = &sim->groups[id];
    const struct group_phase *p = &g->ways[g->way].phases[g->phase];
    double bytes = g->moving * p->share;

    g->flows = p->n;
    for (int i = 0; i < p->n; i++) {
        count_bytes(sim, &p->hops[i], bytes);
        add_flow(sim, &p->hops[i], p->latency, bytes * sim->cluster->sum_bandwidth_factor, -1,
                 id);
    }
}

static int fastest_way(const struct group *g, double bytes)
{
    int best = 0;

    for (int w = 1; w < g->n_ways; w++) {
        const struct allreduce_line *a = &g->ways[w].line, *b = &g->ways[best].line;

        if (a->latency + bytes * a->rate < b->latency + bytes * b->rate)
            best = w;
    }
    return best;
}

void group_start(struct sim *sim, int id)
{
    struct group *g = &sim->groups[id];
    int ready;
    double bytes = 0;

    if (g->flows)
        return;
    ready = ready_pieces(sim, g);
    if (ready == g->reduced)
        return;
    for (int i = g->reduced; i < ready; i++)
        bytes += g->bytes[i % g->n_pieces];
    if (g->n_ways == 0 || bytes <= 0) {
        g->reduced = ready;
        check_workers(sim, g);
        return;
    }
    if (g->reduced % g->n_pieces == 0)
        g->start = sim->now;
    g->target = ready;
    g->way = fastest_way(g, bytes);
    g->phase = 0;
    g->moving = bytes;
    count_reductions(sim, g, 1);
    start_phase(sim, id);
}

void groups_start(struct sim *sim)
{
    for (int i = 0; i < sim->n_groups; i++)
        group_start(sim, i);
}

/* What each of its flows gets of a wire, once one more or less is there. */
static void share_wire(struct sim *sim, int wire)
{
    const struct cluster_place *place = &sim->cluster->places[wire / 2];
    struct wire *w = &sim->wires[wire];

    w->before = w->share;
    w->share = dmin(place->up_bandwidth / w->flows.n, place->flow_bandwidth);
}

/* It goes on at the pace that the others on its wires leave it now. */
static void flow_pace(struct sim *sim, int id)
{
    struct flow *flow = &sim->flows[id];
    double rate = INFINITY;

    for (int i = 0; i < flow->route->n; i++)
        rate = dmin(rate, sim->wires[flow->route->wires[i]].share);
    if (rate <= flow->rate && rate >= flow->rate)
        return;
    if (isfinite(flow->rate))
        flow->bytes = dmax(flow->bytes - (sim->now - flow->since) * flow->rate, 0);
    flow->since = sim->now;
    flow->rate = rate;
    timers_set(&sim->timers, sim->n_workers + id, sim->now + flow->bytes / rate);
}

/* All that is on these wires, but for one. A wire that leaves a flow more than its pace, and did,
 * is not what holds it back.
 */
static void pace_others(struct sim *sim, const struct route *route, int id)
{
    for (int i = 0; i < route->n; i++) {
        const struct wire *w = &sim->wires[route->wires[i]];

        for (int k = 0; k < w->flows.n && (w->share < w->before || w->share > w->before); k++) {
            int other = w->flows.items[k];
            double rate = sim->flows[other].rate;

            if (other != id && (rate >= w->before || rate > w->share))
                flow_pace(sim, other);
        }
    }
}

static void flow_move(struct sim *sim, int id)
{
    struct flow *flow = &sim->flows[id];

    flow->moving = true;
    flow->since = sim->now;
    for (int i = 0; i < flow->route->n; i++) {
        id_add(sim, &sim->wires[flow->route->wires[i]].flows, id);
        share_wire(sim, flow->route->wires[i]);
    }
    flow_pace(sim, id);
    pace_others(sim, flow->route, id);
}

static void leave_wires(struct sim *sim, int id)
{
    const struct route *route = sim->flows[id].route;

    for (int i = 0; i < route->n; i++) {
        struct id_list *list = &sim->wires[route->wires[i]].flows;
        int k = 0;

        while (list->items[k] != id)
            k++;
        list->items[k] = list->items[--list->n];
        share_wire(sim, route->wires[i]);
    }
    pace_others(sim, route, id);
}

static void channel_arrived(struct sim *sim, int id, double start)
{
    struct channel *c = &sim->channels[id];
    const struct schedule_stage *stages = sim->schedule->stages;
    int micro = c->order[c->done++];
    struct instruction send = { INSTRUCTION_SEND, micro, stages[c->from_stage].chunk,
                                c->to_stage, c->gradient };
    struct instruction recv = { INSTRUCTION_RECV, micro, stages[c->to_stage].chunk,
                                c->from_stage, c->gradient };

    part_of(sim, c->to, c->to_stage)->arrived[c->gradient][micro]++;
    c->busy = false;
    count_messages(sim, c, -1);
    worker_check(sim, c->from);
    worker_check(sim, c->to);
    sim_record(sim, c->from, &send, start, sim->now);
    sim_record(sim, c->to, &recv, start, sim->now);
}

static void arrived(struct sim *sim, const struct flow *flow)
{
    struct group *g;

    if (flow->channel >= 0) {
        channel_arrived(sim, flow->channel, flow->start);
        return;
    }
    g = &sim->groups[flow->group];
    if (--g->flows > 0)
        return;
    if (++g->phase < g->ways[g->way].n_phases) {
        start_phase(sim, flow->group);
    } else {
        g->reduced = g->target;
        count_reductions(sim, g, -1);
        check_workers(sim, g);
        group_start(sim, flow->group);
    }
}

void flow_timer(struct sim *sim, int id)
{
    struct flow flow;

    if (!sim->flows[id].moving && sim->flows[id].bytes > 0) {
        flow_move(sim, id);
        return;
    }
    flow = sim->flows[id];
    if (flow.moving)
        leave_wires(sim, id);
    id_add(sim, &sim->idle_flows, id);
    arrived(sim, &flow);
    if (flow.channel >= 0)
        channel_start(sim, flow.channel);
}
