/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/simulate_private.h"

static void add_flow(struct sim *sim, const struct route *route, double latency, double bytes,
                     int channel, int group)
{
    if (sim->n_flows == sim->flow_room) {
        sim->flow_room = 2 * sim->flow_room + 64;
        sim->flows = mem_resize(sim->flows, (size_t)sim->flow_room, sizeof(*sim->flows));
        sim->landed = mem_resize(sim->landed, (size_t)sim->flow_room, sizeof(*sim->landed));
    }
    sim->flows[sim->n_flows++] = (struct flow){ route, latency, bytes, 0, sim->now, channel,
                                                group };
}

static void channel_start(struct sim *sim, int id)
{
    struct channel *c = &sim->channels[id];

    if (c->busy || c->done >= c->sent || c->done >= c->posted)
        return;
    c->busy = true;
    add_flow(sim, &c->route, c->route.latency, c->bytes, id, -1);
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

bool group_done(const struct group *group)
{
    return group->reduced == group->n_pieces;
}

/* How many pieces every worker of the group has. */
static int ready_pieces(const struct sim *sim, const struct group *g)
{
    int ready = g->n_pieces;

    for (int i = 0; i < g->workers.n; i++) {
        const struct worker *w = &sim->workers[g->workers.items[i]];
        int pieces = g->shared ? w->reducing : w->pieces;

        ready = pieces < ready ? pieces : ready;
    }
    return ready;
}

static void check_workers(struct sim *sim, const struct group *g)
{
    for (int i = 0; i < g->workers.n; i++)
        sim->workers[g->workers.items[i]].check = true;
}

static void count_reductions(struct sim *sim, const struct group *g, int change)
{
    for (int i = 0; i < g->workers.n; i++)
        sim->workers[g->workers.items[i]].reductions += change;
}

static void group_start(struct sim *sim, int id)
{
    struct group *g = &sim->groups[id];
    int n = g->workers.n, ready;
    double bytes = 0;

    if (g->flows || group_done(g))
        return;
    ready = ready_pieces(sim, g);
    if (ready == g->reduced)
        return;
    for (int i = g->reduced; i < ready; i++)
        bytes += g->bytes[i];
    if (n < 2 || bytes <= 0) {
        g->reduced = ready;
        check_workers(sim, g);
        return;
    }
    if (g->reduced == 0)
        g->start = sim->now;
    bytes *= sim->cluster->sum_bandwidth_factor;
    g->target = ready;
    g->flows = n;
    count_reductions(sim, g, 1);
    for (int i = 0; i < n; i++)
        add_flow(sim, &g->ring[i], g->latency, 2.0 * (n - 1) / n * bytes, -1, id);
}

void groups_start(struct sim *sim)
{
    for (int i = 0; i < sim->n_groups; i++)
        group_start(sim, i);
}

static double share_of_wires(const struct sim *sim, const struct route *route)
{
    double rate = INFINITY;

    for (int i = 0; i < route->n; i++) {
        int wire = route->wires[i];
        double share = sim->cluster->places[wire / 2].up_bandwidth / sim->wire_users[wire];

        rate = share < rate ? share : rate;
    }
    return rate;
}

/* Seconds until it arrives or its latency is over, at the pace of now. */
static double flow_seconds(const struct flow *flow)
{
    if (flow->latency > 0)
        return flow->latency;
    return flow->bytes > 0 ? flow->bytes / flow->rate : 0;
}

double flows_next(struct sim *sim)
{
    double next = INFINITY;

    for (int w = 0; w < 2 * sim->cluster->n_places; w++)
        sim->wire_users[w] = 0;
    for (int i = 0; i < sim->n_flows; i++)
        for (int k = 0; sim->flows[i].latency <= 0 && k < sim->flows[i].route->n; k++)
            sim->wire_users[sim->flows[i].route->wires[k]]++;
    for (int i = 0; i < sim->n_flows; i++) {
        struct flow *flow = &sim->flows[i];

        if (flow->latency <= 0)
            flow->rate = share_of_wires(sim, flow->route);
        next = fmin(next, flow_seconds(flow));
    }
    return next;
}

static void channel_arrived(struct sim *sim, int id, double start)
{
    struct channel *c = &sim->channels[id];
    int micro = c->order[c->done++];
    struct instruction send = { INSTRUCTION_SEND, micro, 0, sim->workers[c->to].stage,
                                c->gradient };
    struct instruction recv = { INSTRUCTION_RECV, micro, 0, sim->workers[c->from].stage,
                                c->gradient };

    c->arrived[micro] = true;
    c->busy = false;
    sim->workers[c->from].check = sim->workers[c->to].check = true;
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
    if (--g->flows == 0) {
        g->reduced = g->target;
        count_reductions(sim, g, -1);
        check_workers(sim, g);
        group_start(sim, flow->group);
    }
}

void flows_advance(struct sim *sim, double seconds)
{
    int n = sim->n_flows, kept = 0, landed = 0;

    /* The caller has set "now" to the new time. */
    for (int i = 0; i < n; i++) {
        struct flow flow = sim->flows[i];

        if (flow_seconds(&flow) > seconds) {
            if (flow.latency > 0)
                flow.latency -= seconds;
            else if (isfinite(flow.rate))
                flow.bytes -= flow.rate * seconds;
            sim->flows[kept++] = flow;
        } else if (flow.latency > 0 && flow.bytes > 0) {
            flow.latency = 0;
            sim->flows[kept++] = flow;
        } else {
            sim->landed[landed++] = flow;
        }
    }
    sim->n_flows = kept;
    for (int i = 0; i < landed; i++) {
        struct flow flow = sim->landed[i];

        arrived(sim, &flow);
        if (flow.channel >= 0)
            channel_start(sim, flow.channel);
    }
}
